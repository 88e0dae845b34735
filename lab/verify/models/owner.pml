/*
 * Terms of owners (durable.Owner over a durable.Engine): one key, one limit, and owners one after the other.
 *
 * Promises: whoever dies, is cut off or paused at any step, and however late writes come, no more is granted than the limit, over
 * all owners; a grant is told only if the record counts it; the next owner counts all that was granted; a crash burns at most
 * what a record is ahead, and permits of writes whose outcome is unknown; an orderly end burns nothing; and a record that is read
 * again says what was in memory.
 *
 * With TICKS the limit is a bucket: a permit comes back each tick, and only what has not come back is kept, so that all histories
 * of any length are covered. Without, it is a quota of which nothing comes back, and a reservation can be given back.
 * A request is for one permit.
 *
 * An owner whose term has ended in the engine grants nothing any more, by its own clock. What is left of it are its writes on
 * their way, so that one owner and these writes are enough for any number of nodes.
 */
#ifndef L
#define L 3 /* permits of the limit */
#endif
#ifndef AHEAD
#define AHEAD 2 /* permits by which a record is ahead, at most: OwnerOptions.Reserve - 1 */
#endif
#ifndef LATES
#define LATES 1 /* late writes at a time */
#endif
#ifndef TICKS
#define TICKS 1
#endif
#define WAITERS (TICKS -> 1 : 2)

/* What is broken in a mutant: see README.md. Each is 0 in the model. */
#ifndef MUTANT
#define MUTANT 0
#endif
#define NO_TERM      (MUTANT == 1)
#define NO_REVISION  (MUTANT == 2)
#define TELLS_FIRST  (MUTANT == 3)
#define BURNS_NONE   (MUTANT == 4)
#define BURNS_AGAIN  (MUTANT == 5)
#define ENDS_SILENT  (MUTANT == 6)
#define NO_CLOCK     (MUTANT == 7)
#define TRUSTS_WRITE (MUTANT == 8)
#define OLD_COVER    (MUTANT == 9)
#define DROPS_AHEAD  (MUTANT == 10)
#define NO_UNCOVER   (MUTANT == 11 || MUTANT == 12)
#define BURNS_LESS   (MUTANT == 11 || MUTANT == 13) /* each of the two alone does no harm */

mtype = { none, sent, done, conflict };

/* A write on its way, or the answer to it. */
typedef Write {
	mtype at = none;
	byte taken; /* of the record that it writes: what was taken */
	byte ahead; /* how much more may have been taken since: encodeRecord */
	bool held;  /* one of what was taken is a reservation */
	bool fits;  /* the revision that it expects is that of the record; once it is done: the record is still this one */
	bool past   /* its term has ended */
}
Write write;       /* for which the owner waits */
Write late[LATES]; /* for which it does not, as it has given up, or died, or lost its term */

/* The record in the engine. */
byte taken = 0, ahead = 0;
bool held = false;

/* The owner. */
bool on = false; /* there is one */
bool ends;       /* it ends in an orderly way: Owner.Stop */
byte mtaken;     /* what is taken in memory: bucket.state */
bool mheld;      /* of which one is a reservation */
byte covered;    /* permits that can be granted before the next record: bucket.covered */
byte next;       /* the same, once the record that is being written is in force: bucket.next */
byte mahead;     /* that the record in force was written with: inForce.ahead */
bool busy;       /* a record is being written: bucket.busy */
bool stale;      /* the record must be written anew: bucket.stale */
bool known;      /* its revision was read or written: bucket.revision >= 0 */
bool fits;       /* and is still that of the record */
byte waits;      /* requests whose permits are taken but not recorded: bucket.writing */
byte written;    /* those of them that are in the record that is being written: waiter.written */
byte reserve;    /* of the reservation: 1 if it waits, 2 if it is in the record that is being written */

/* What is looked at, and no owner knows. */
byte level = 0;      /* granted, and has not come back */
byte pending = 0;    /* the same, if the request that waits had been granted when its permit was taken */
bool out = false;    /* the reservation was granted, and not given back */
byte before = 0;     /* what the owner before had in memory at its end */
bool undone = false; /* since the record was drawn permits were given back that it says are taken */
bool unsure = false; /* permits were given back in memory that may be taken in the record */
bool orderly = true; /* the owner before has ended in an orderly way */
byte over = 0;       /* of a mutant: what an owner can grant after its term */

/* How many permits can be granted whichever record is in force: bucket.covers. */
#define COVERS (busy && next < covered && !OLD_COVER -> next : covered)

/* A grant is told. */
inline tell() { assert(level <= L && level <= taken + ahead) }

/* A permit is given back in memory that may be taken in a record: maybe is whether it is. */
inline giveBack(maybe) {
	mtaken = (mtaken > 0 -> mtaken - 1 : 0);
	undone = undone || maybe;
	unsure = unsure || maybe
}

inline uncover() { covered = (NO_UNCOVER -> covered : 0); next = (NO_UNCOVER -> next : 0); stale = true }

/* Whoever waits is not granted: bucket.undo. */
inline undoAll() {
	do
	:: waits > 0 ->
		giveBack(written > 0);
		stale = stale || written > 0;
		waits--;
		written = (written > 0 -> written - 1 : 0)
	:: else -> break
	od;
	pending = 0;
	if
	:: reserve > 0 ->
		giveBack(reserve == 2);
		mheld = false;
		if
		:: reserve == 2 -> uncover()
		:: else
		fi;
		reserve = 0
	:: else
	fi
}

/* A record is sent: bucket.draw, Owner.store, which reads the revision if it is not known. */
inline send(margin) {
	write.at = sent; write.taken = mtaken; write.held = mheld; write.ahead = margin; write.fits = fits || !known;
	busy = true; stale = false; undone = false; written = waits; reserve = (reserve > 0 -> 2 : 0)
}

inline noWrite(w) { w.at = none; w.taken = 0; w.ahead = 0; w.held = false; w.fits = false; w.past = false }

/* A write comes to the engine, which compares the term and the revision: Term.Store. */
inline arrive(w) {
	if
	:: (!w.past || NO_TERM) && (w.fits || NO_REVISION) ->
		taken = w.taken; ahead = w.ahead; held = w.held;
		fits = false; write.fits = false; k = 0;
		do
		:: k < LATES -> late[k].fits = false; k++
		:: else -> break
		od;
		k = 0; w.fits = true; w.at = done
	:: else -> w.at = conflict
	fi
}

/* The owner waits no longer for its write, which may have come, and may come late. */
inline leave() {
	if
	:: write.at == sent ->
		k = 0;
		do
		:: k < LATES && late[k].at != none -> k++
		:: else -> break
		od;
		if
		:: k < LATES ->
			late[k].at = sent; late[k].taken = write.taken; late[k].ahead = write.ahead; late[k].held = write.held;
			late[k].fits = write.fits
		:: else
		fi;
		k = 0
	:: else
	fi;
	noWrite(write)
}

/* There is no owner any more. */
inline stop(end) {
	before = mtaken; orderly = end; over = (NO_CLOCK -> COVERS : 0);
	on = false; ends = false; mtaken = 0; mheld = false; covered = 0; next = 0; mahead = 0; busy = false; stale = false;
	known = false; fits = false; waits = 0; written = 0; reserve = 0; pending = 0; undone = false
}

active proctype node() {
	byte k;
	do
	/* An owner is elected, and reads the record. What that is ahead is burned, as far as it is there, or is reserved:
	   Owner.recovered, Record.Burn. */
	:: atomic {
		!on -> on = true;
		known = true; fits = true; mheld = held; mahead = ahead;
		mtaken = (BURNS_NONE -> taken : taken + ahead);
		k = L + (BURNS_LESS -> 0 : held);
		mtaken = (mtaken < k -> mtaken : k);
		assert(mtaken >= level);
		assert(mtaken <= before + AHEAD || unsure);
		assert(mtaken == before || !orderly);
		before = 0; unsure = false; orderly = false; k = 0;
		do
		:: k < LATES -> late[k].past = late[k].at != none; k++
		:: else -> break
		od;
		k = 0
	   }

	/* A permit is granted at once, as the record in force covers it: bucket.quick. */
	:: atomic {
		on && !ends && waits + reserve == 0 && mtaken < L && COVERS > 0 ->
		mtaken++; covered--; next = (next > 0 -> next - 1 : 0);
		level++; tell()
	   }

	/* A permit is taken in memory, and its request waits for a record: bucket.take, bucket.pass. */
	:: atomic {
		on && !ends && mtaken < L && waits < WAITERS ->
		mtaken++; stale = true;
		if
		:: TELLS_FIRST -> level++; tell()
		:: else -> waits++; pending = (TICKS -> level + 1 : 0)
		fi
	   }

	/* The same for a reservation. */
	:: d_step { !TICKS && on && !ends && mtaken < L && !mheld -> mtaken++; mheld = true; reserve = 1; stale = true }

	/* It is given back: bucket.settle. */
	:: d_step {
		!TICKS && on && !ends && mheld && reserve == 0 ->
		giveBack(true);
		mheld = false; level = level - out; out = false;
		uncover()
	   }

	/* Callers go away, or their time is up: bucket.withdraw. */
	:: d_step { on && waits + reserve > 0 -> undoAll() }

	/* A record is drawn and sent that is ahead by any number: bucket.draw. */
	:: atomic {
		on && !ends && !busy && (stale || mahead > 0) -> next = 0;
		do
		:: next < AHEAD -> next++
		:: break
		od;
		k = (BURNS_AGAIN && mahead <= AHEAD -> next + mahead : next);
		send(k);
		k = 0
	   }

	/* It comes to the engine. */
	:: d_step { write.at == sent -> arrive(write) }

	/* The record is in force, and those are told who are in it, or whom it covers: bucket.wrote, bucket.confirm. */
	:: atomic {
		write.at == done && on && !ends ->
		mahead = write.ahead; covered = next; next = 0; known = true; fits = write.fits; busy = false;
		unsure = undone; undone = false;
		noWrite(write);
		do
		:: waits > 0 && written + covered > 0 ->
			covered = (written > 0 -> covered : covered - 1);
			written = (written > 0 -> written - 1 : 0);
			waits--;
			level = (TICKS -> pending : level + 1); pending = 0;
			tell()
		:: else -> break
		od;
		if
		:: reserve == 2 -> reserve = 0; out = true; level++; tell()
		:: else
		fi;
		stale = stale || waits + reserve > 0
	   }

	/* A write of its own has come late: it reads the revision, and writes over what is found: Owner.writeAll. */
	:: d_step { on && write.at == conflict -> write.at = sent; write.fits = true; known = false }

	/* No answer has come in time, whatever became of the write, or it did not succeed: bucket.wrote. */
	:: d_step {
		on && !ends && write.at != none ->
		leave();
		covered = (TRUSTS_WRITE -> next : COVERS);
		next = 0; known = false; fits = false; stale = true;
		undoAll();
		busy = false; undone = false
	   }

	/* It ends in an orderly way: nothing is granted any more, what is being written is written, and then the record is written
	   as it is, unless it says that already: Owner.Stop, bucket.settling. */
	:: d_step { on && !ends && !busy -> undoAll(); ends = true }
	:: d_step {
		on && ends && !busy ->
		if
		:: !stale && known && (mahead == 0 || ENDS_SILENT) -> stop(true)
		:: else -> send(0)
		fi
	   }
	:: d_step { on && ends && write.at == done -> noWrite(write); stop(true) }

	/* It dies, or its term ends, or it gives up to write when it ends. */
	:: d_step { on -> leave(); stop(false) }

	/* A record that says what is in memory may be dropped from there, and read again: bucket.exact, Owner.forget. */
	:: d_step {
		on && waits + reserve == 0 && !busy && !stale && known && (mahead == 0 || DROPS_AHEAD) ->
		assert(taken == mtaken && ahead == 0 && held == mheld)
	   }

	:: d_step { NO_CLOCK && on && over > 0 -> over--; level++; tell() }
	od
}

/* Late writes come, or are lost. The node that has sent one may read the revision, and send it again, as it does not know that
   its term has ended: Owner.store. */
active [LATES] proctype network() {
	byte i = _pid - 1;
	byte k;
	do
	:: d_step { late[i].at == sent -> arrive(late[i]); noWrite(late[i]) }
	:: d_step { late[i].at == sent -> noWrite(late[i]) }
	:: d_step { late[i].at == sent && late[i].past && NO_TERM -> late[i].fits = true }
	od
}

inline back(x) { x = (x > 0 -> x - 1 : 0) }

/* A permit comes back, wherever it is counted. */
active proctype clock() {
	byte k;
	do
	:: d_step {
		TICKS -> back(level); back(pending); back(before); back(taken); back(mtaken); back(write.taken);
		k = 0;
		do
		:: k < LATES -> back(late[k].taken); k++
		:: else -> break
		od;
		k = 0
	   }
	od
}
