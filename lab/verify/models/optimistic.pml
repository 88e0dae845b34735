/*
 * Optimistic limits (store.Optimistic over a store.Store): a token bucket that processes spend from memory and tell the store of.
 *
 * Promise: in any time t at most B + t + (NODES - 1) x DRIFT permits are granted, however late calls and their answers are, and
 * whether a call that has failed was heard or not. No debt is forgotten here, as (NODES - 1) x DRIFT is at most B.
 *
 * One permit comes back each tick, and only what has not come back is kept, so that all histories of any length are covered. A
 * request is for one permit. How old a view is makes no difference, so nothing here limits that.
 */
#ifndef NODES
#define NODES 2
#endif
#ifndef B
#define B 4 /* burst of the limit */
#endif
#ifndef DRIFT
#define DRIFT 2 /* permits that a node may have granted without the store knowing: OptimisticOptions.DriftOf */
#endif
#ifndef BOUND
#define BOUND (B + (NODES - 1) * DRIFT)
#endif

/* What is broken in a mutant: see README.md. Each is 0 in the model. */
#ifndef MUTANT
#define MUTANT 0
#endif
#define FORGETS_SENT  (MUTANT == 1)
#define FORGETS_OWED  (MUTANT == 2)
#define NOT_TOLD      (MUTANT == 3)
#define TAKES_UNTOLD  (MUTANT == 4)
#define NO_DRIFT      (MUTANT == 5)

mtype = { none, tells, told, takes, took };

typedef Node {
	bool known;      /* it has a view: optimisticKey.known */
	byte missing;    /* the view: how many permits are missing to full, by its own count: optimisticKey.state */
	byte owed;       /* granted, and not sent to the store: optimisticKey.owed */
	byte sent;       /* those of a call under way: optimisticKey.sent */
	mtype at = none; /* the call under way, or its answer: optimisticKey.flight */
	byte answer      /* how many permits were missing when the store gave it */
}
Node n[NODES];

byte missing = 0; /* in the store */
byte level = 0;   /* granted, and has not come back */

inline grant() { level++; assert(level <= BOUND) }

active [NODES] proctype node() {
	byte i = _pid;
	do
	/* A permit is granted from memory: the view has it, and the store does not know of too many: optimisticKey.judge, may. While
	   a request takes permits in the store nothing is: optimisticKey.alone. */
	:: atomic {
		n[i].known && n[i].missing < B && n[i].at != takes && n[i].at != took &&
		(n[i].owed + (FORGETS_SENT -> 0 : n[i].sent) < DRIFT || NO_DRIFT && n[i].owed < 2 * DRIFT) ->
		n[i].missing++; n[i].owed++; grant()
	   }

	/* The store is told what is owed: optimisticBatch.add, Debit. */
	:: d_step { n[i].at == none && n[i].owed > 0 -> n[i].at = tells; n[i].sent = n[i].owed; n[i].owed = 0 }
	:: d_step {
		n[i].at == tells -> n[i].at = told;
		missing = (missing + n[i].sent < 2 * B -> missing + n[i].sent : 2 * B);
		n[i].answer = missing
	   }

	/* The answer is the new view, less what is owed by now: Optimistic.hear, optimisticKey.see. */
	:: d_step {
		n[i].at == told -> n[i].at = none; n[i].known = true;
		n[i].missing = n[i].answer + (FORGETS_OWED -> 0 : n[i].owed);
		n[i].missing = (n[i].missing < 2 * B -> n[i].missing : 2 * B);
		n[i].sent = 0; n[i].answer = 0
	   }

	/* No answer comes: the store may have heard or not, and is told again. */
	:: d_step {
		n[i].at == tells || n[i].at == told -> n[i].at = none;
		n[i].owed = n[i].owed + (NOT_TOLD -> 0 : n[i].sent);
		n[i].sent = 0; n[i].answer = 0
	   }

	/* A request takes its permit in the store, which was told everything before: optimisticCall.finish. */
	:: d_step { n[i].at == none && (n[i].owed == 0 || TAKES_UNTOLD) -> n[i].at = takes }
	:: atomic {
		n[i].at == takes -> n[i].at = took;
		if
		:: missing < B -> missing++; grant()
		:: else
		fi;
		n[i].answer = missing
	   }
	:: d_step {
		n[i].at == took -> n[i].at = none; n[i].known = true;
		n[i].missing = n[i].answer + (TAKES_UNTOLD -> n[i].owed : 0); n[i].answer = 0
	   }
	:: d_step { n[i].at == takes || n[i].at == took -> n[i].at = none; n[i].known = false; n[i].missing = 0; n[i].answer = 0 }
	od
}

inline back(x) { x = (x > 0 -> x - 1 : 0) }

/* A permit comes back: to the store, to what was granted, and to each view, from when its answer came in. */
active proctype clock() {
	byte k;
	do
	:: d_step {
		back(missing); back(level); k = 0;
		do
		:: k < NODES -> back(n[k].missing); k++
		:: else -> break
		od;
		k = 0
	   }
	od
}
