/*
 * Leased blocks of a window (store.Leased over a store.Store): fixed windows, windows of a calendar, and each segment of a
 * sliding window, are the same here.
 *
 * Promises: no window has more than L permits spent in it, however late calls are and whoever dies; and while the store refuses,
 * no more of a window is unused than what blocks hold, and what died.
 *
 * A window is W ticks, and only the place in it is kept, so that all histories of any length are covered. As in leased_bucket.pml
 * a block stands for itself, whichever process holds it, and a request is for one permit.
 */
#ifndef BLOCKS
#define BLOCKS 3 /* blocks that are out at a time, of all processes */
#endif
#ifndef L
#define L 5 /* permits of a window */
#endif
#ifndef MOST
#define MOST 2 /* permits of a block: LeasedBound.Block */
#endif
#ifndef W
#define W 3 /* ticks of a window */
#endif

/* What is broken in a mutant: see README.md. Each is 0 in the model. */
#ifndef MUTANT
#define MUTANT 0
#endif
#define FROM_ANSWER   (MUTANT == 1)
#define NO_DEADLINE   (MUTANT == 2)
#define ANY_WINDOW    (MUTANT == 3)
#define HEARD_TWICE   (MUTANT == 4)
#define KEEPS_RETURNS (MUTANT == 5)

mtype = { none, asked, lent, hand, back };

typedef Block {
	mtype at = none; /* no block, asked for, in the answer on its way, in hand, on its way back */
	byte n;          /* permits of it that are not spent */
	byte sent;       /* age of the call of Lend: leasedKey.sentAt */
	byte ends;       /* ticks until it must be spent: leasedBlock.deadline */
	bool same        /* it was lent in the window that goes on */
}
Block b[BLOCKS];

byte place = 0; /* in the window: 0 to W - 1 */
byte used = 0;  /* what the store has lent in the window, less what came back */
byte spent = 0; /* what was spent in it */
byte lost = 0;  /* what was lent in it and will not be spent */

inline spend() { spent++; assert(spent <= L) }

inline forget() { b[i].at = none; b[i].n = 0; b[i].sent = 0; b[i].ends = 0; b[i].same = false }

inline lose() { lost = lost + (b[i].same -> b[i].n : 0); forget() }

active proctype clock() {
	byte i;
	do
	:: d_step {
		place = (place + 1) % W;
		if
		:: place == 0 -> used = 0; spent = 0; lost = 0
		:: else
		fi;
		i = 0;
		do
		:: i < BLOCKS ->
			if
			:: b[i].at == asked -> b[i].sent = (b[i].sent < W -> b[i].sent + 1 : W)
			:: b[i].at == hand || b[i].at == lent && !FROM_ANSWER -> b[i].ends = (b[i].ends > 0 -> b[i].ends - 1 : 0)
			:: else
			fi;
			b[i].same = b[i].same && place != 0;
			i++
		:: else -> break
		od;
		i = 0
	   }
	od
}

active [BLOCKS] proctype block() {
	byte i = _pid - 1;
	byte k, held;
	do
	/* A Lend is sent: Leased.launch. */
	:: d_step { b[i].at == none -> b[i].at = asked }

	/* The store lends up to what is left of the window: record.lend. The block must be spent before the window ends, counted from
	   when the call was sent, by the clock of the process: leasePlan.spendable. */
	:: atomic {
		b[i].at == asked && used < L ->
		b[i].at = lent; b[i].same = true; b[i].n = 1;
		do
		:: b[i].n < MOST && used + b[i].n < L -> b[i].n++
		:: break
		od;
		used = used + b[i].n;
		b[i].ends = (FROM_ANSWER -> W - place : (W - place > b[i].sent -> W - place - b[i].sent : 0));
		/* Requests that waited when it was sent count from this moment: leasedPart.at. */
		do
		:: b[i].n > 0 -> spend(); b[i].n--
		:: break
		od;
		b[i].sent = 0
	   }

	/* It refuses: then what is not spent of the window is held in blocks, or lost: LeasedBound.Unused. */
	:: d_step {
		b[i].at == asked && used >= L -> forget();
		held = 0; k = 0;
		do
		:: k < BLOCKS -> held = held + (b[k].same -> b[k].n : 0); k++
		:: else -> break
		od;
		assert(spent + held + lost >= L && held <= MOST * BLOCKS);
		held = 0; k = 0
	   }

	/* The answer comes: leasedKey.land. */
	:: d_step { b[i].at == lent -> b[i].at = hand }

	/* A request takes a permit in hand: leasedKey.spend. */
	:: atomic { b[i].at == hand && b[i].n > 0 && (b[i].ends > 0 || NO_DEADLINE) -> spend(); b[i].n-- }

	/* What is left goes back, and comes late: of another window it is worth nothing: record.takeBack, RETURN of decide.lua. */
	:: d_step { b[i].at == hand && b[i].n > 0 -> b[i].at = back; b[i].ends = 0 }
	:: atomic {
		b[i].at == back ->
		if
		:: (b[i].same || ANY_WINDOW) && !KEEPS_RETURNS -> used = used - (b[i].n < used -> b[i].n : used)
		:: else
		fi;
		if
		:: forget()
		:: HEARD_TWICE
		fi
	   }

	/* Its process dies, a message is lost, or nothing is left in time: what is unspent is lost. */
	:: d_step { b[i].at != none -> lose() }
	od
}
