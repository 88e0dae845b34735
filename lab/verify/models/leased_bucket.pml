/*
 * Leased blocks of a token bucket (store.Leased over a store.Store).
 *
 * Promise: however many blocks are out, however late calls are and whoever dies, the permits spent in any time t are at most
 * B + t: the burst of the limit, and one permit a tick.
 *
 * Time is whole ticks, and nothing has an absolute time: only ages are kept, so that all histories of any length are covered.
 * A process that holds two blocks, or has a call under way beside a block, counts as two: nothing in the code ties its blocks
 * to one another. A request is for one permit.
 */
#ifndef BLOCKS
#define BLOCKS 2 /* blocks that are out at a time, of all processes */
#endif
#ifndef B
#define B 7 /* burst of the limit */
#endif
#ifndef S
#define S 2 /* ticks for which a block may be spent: leasePlan.span */
#endif
#ifndef CAP
#define CAP (B - (S + 1)) /* lowered burst, by which the store is asked: newLeasePlan */
#endif

/* What is broken in a mutant: see README.md. Each is 0 in the model. */
#ifndef MUTANT
#define MUTANT 0
#endif
#define RETURNS_ALL   (MUTANT == 1)
#define RETURN_IS_OLD (MUTANT == 2)
#define HEARD_TWICE   (MUTANT == 3)
#define STILL_SPENT   (MUTANT == 4)
#define FROM_ANSWER   (MUTANT == 5)
#define NO_DEADLINE   (MUTANT == 6)

mtype = { none, asked, lent, hand, back };

typedef Block {
	mtype at = none; /* no block, asked for, in the answer on its way, in hand, on its way back */
	byte n;          /* permits of it that are not spent */
	byte sent;       /* age of the call of Lend: leasedKey.sentAt */
	byte taken       /* age of the loan: Loan.Taken */
}
Block b[BLOCKS];

byte tokens = CAP; /* that the store has */
byte level = 0;    /* what was spent and has not come back: a bucket that begins empty and must not overflow */

inline spend() { level++; assert(level <= B) }

/* What the store takes back: what cannot have come back by itself since it was lent (record.takeBack, RETURN of decide.lua). */
inline takeBack(k) {
	tokens = tokens + (RETURNS_ALL -> k : (k > b[i].taken -> k - b[i].taken : 0));
	tokens = (tokens > CAP -> CAP : tokens)
}

inline forget() { b[i].at = none; b[i].n = 0; b[i].sent = 0; b[i].taken = 0 }

/* A tick: one permit comes back, to the store and to the bucket of what was spent, and everything gets older. */
active proctype clock() {
	byte i;
	do
	:: d_step {
		tokens = (tokens < CAP -> tokens + 1 : CAP);
		level = (level > 0 -> level - 1 : 0);
		i = 0;
		do
		:: i < BLOCKS ->
			if
			:: b[i].at != none && b[i].at != back -> b[i].sent = (b[i].sent <= S -> b[i].sent + 1 : b[i].sent)
			:: else
			fi;
			if
			:: b[i].at == lent || b[i].at == hand || b[i].at == back && !RETURN_IS_OLD ->
				b[i].taken = (b[i].taken < CAP -> b[i].taken + 1 : CAP)
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	   }
	od
}

active [BLOCKS] proctype block() {
	byte i = _pid - 1;
	byte k;
	do
	/* A Lend is sent: Leased.launch. */
	:: d_step { b[i].at == none -> b[i].at = asked }

	/* The store lends any number of permits that it has: Store.Lend, record.lend. */
	:: atomic {
		b[i].at == asked && tokens > 0 ->
		b[i].at = lent;
		do
		:: b[i].n < tokens -> b[i].n++
		:: b[i].n > 0 -> break
		od;
		tokens = tokens - b[i].n
	   }

	/* Requests that waited when the call was sent count from the moment of the loan, however late the answer is, as that is
	   between their beginning and their end: leasedPart.at, leasedKey.serve. */
	:: atomic { b[i].at == lent && b[i].taken == 0 && b[i].n > 0 -> spend(); b[i].n-- }

	/* The answer comes: leasedKey.land. */
	:: d_step { b[i].at == lent -> b[i].at = hand; b[i].sent = (FROM_ANSWER -> 0 : b[i].sent) }

	/* A request takes a permit in hand, as long as the span since the call was sent is not over: leasedKey.spend. */
	:: atomic { b[i].at == hand && b[i].n > 0 && (b[i].sent <= S || NO_DEADLINE) -> spend(); b[i].n-- }

	/* A part goes back at once: leasedKey.shed, leasedKey.release. */
	:: atomic {
		b[i].at == hand && b[i].n > 0 -> k = 1;
		do
		:: k < b[i].n -> k++
		:: break
		od;
		takeBack(k);
		b[i].n = (STILL_SPENT -> b[i].n : b[i].n - k);
		k = 0
	   }

	/* What is left is sent back, and comes back late: leasedKey.lookAt, Leased.giveLoanBack. */
	:: d_step { b[i].at == hand && b[i].n > 0 -> b[i].at = back; b[i].sent = 0 }
	:: atomic {
		b[i].at == back -> takeBack(b[i].n);
		if
		:: forget()
		:: HEARD_TWICE
		fi
	   }

	/* Its process dies, a message is lost, or nothing is left in time: what is unspent is lost. */
	:: d_step { b[i].at != none -> forget() }
	od
}
