// Package redis keeps the states of limits in Redis or Valkey, where many processes share them: a [store.Home] for a single
// server, for sentinels and for a cluster, from Redis 6.2 on.
//
// [Open] connects. Put [store.NewFleet] over it, which decides while the server is away and spares round trips. Give that to
// policy.EngineOptions.Store, or call it yourself: see the examples. Open fails if no server can be reached. To begin without
// one, try it again in the background and decide meanwhile without the fleet.
//
// # What the server needs
//
// A user of the server needs the right to keys that begin with Prefix and to the commands EVAL, EVALSHA, TIME, GET, MGET, SET,
// SETRANGE, DEL, PEXPIRE, PTTL, HGET, HGETALL, HLEN, HSET, HDEL, ZADD, ZCARD, ZRANGE, ZRANGEBYSCORE, ZREM, HELLO and CLIENT
// SETNAME. In a cluster it also needs CLUSTER SLOTS, and behind sentinels ROLE, without which a server is believed to be the
// master (TestUsersAndPasswords).
//
// A record of a token bucket takes about 150 bytes of the server's memory with a short key, and a reservation about 290 more.
// A record expires a second after it equals a fresh one (TestMemoryIsGivenBack). One that was asked for again may stay for half
// as long again, from a second to an hour, as moving the time at which it expires costs the server more than changing it.
// BenchmarkTake measures what a decision costs the server and the client.
//
// # Failures
//
// A call that takes longer than [Options].Timeout, or than its context, fails with [store.ErrUnavailable] and the cause; that is
// never a decision about a limit. A script that may have run is not sent again, so this package charges no failure twice. A call
// that failed may have been charged once.
//
// Tests do the following to real servers under load. `make redis-faults` repeats them.
//   - The server's process is stopped for 5 s. Calls fail in time, and at most MaxInFlight requests wait. When the server goes on
//     it finds at most about three times as many that are given up already (TestServerStopped, TestMaxInFlight, TestDeadline).
//   - It is killed and started again; it takes its time to load its data; it forgets the script (TestServerKilled,
//     TestServerLoads, TestScriptForgotten, TestServerRestartedMeanwhile). Connections are made anew, at most 20 times a second.
//   - The links of three processes to it are cut, one after the other and all at once: connections are reset, or bytes are lost
//     silently, or only those from the server. A silent connection is given up after a second, or Timeout, if that is longer
//     (TestLinksCut).
//   - It is a replica, which may only read, its memory is full, it does not know the user or the password, or the user may not
//     touch the keys. Calls fail with the reason (TestServerReadOnly, TestServerFull, TestUsersAndPasswords, TestTLS).
//   - Its name or virtual address leads to another master, and it becomes a replica but keeps its connections. Those that are
//     older than a second are made anew (TestNameLeadsToAnotherMaster).
//   - It sends nonsense, replies that were not asked for, or replies that are too long. Calls fail, the connection ends, and the
//     process goes on (TestServerAnswersNonsense, TestBatchesAnsweredWrongly, TestServerGreetsWrongly).
//   - Sentinels, or the nodes of a cluster, make a replica the master. Calls go there by themselves (TestSentinelFailover,
//     TestClusterFailover).
//   - A node of a cluster stops. Calls for keys of other nodes go on as before, as each master has senders of its own
//     (TestClusterNodeStopped).
//   - A slot moves to another node, key by key. Calls for single keys follow. Those that need several keys of the slot, as all
//     reservations do, are tried again until the keys are together, or fail (TestClusterSlotMoves).
//   - Clocks of clients are an hour apart, and that of the server jumps (TestClientsClocksApart, TestClockOfServerJumps,
//     TestClocksOfServersApart).
//   - Three processes share limits through a [store.Fleet], with every consistency and every Fail, while the server stops, is
//     killed, is cut off, and is replaced (TestFleetFaults, TestFleetLosesData, TestFleetFailover).
//
// In all of them nothing is allowed above the limit, except for what the server loses. A key whose record is lost has all its
// permits; an old record has those that were taken since. At worst, each time, the limit is allowed once more. These are lost:
//   - nothing, if the server is killed and has written its data after every command, with appendfsync always (TestServerKilled);
//   - what was taken in the last second or two, with appendfsync everysec, if the machine stops. If only the process ends,
//     nothing is lost, unless the disk was busy;
//   - what had not reached the replica that takes over, as replication is asynchronous. That is next to nothing if the replica
//     followed (TestSentinelFailover, TestClusterFailover), and all that was taken while it did not. With min-replicas-to-write 1
//     and min-replicas-max-lag the master stops when no replica has followed for so long (TestReplicaBehind);
//   - everything, without persistence (TestServerKilled);
//   - keys that the server evicts, if maxmemory is reached. Reservations whose key is evicted, but not their record, can no
//     longer be settled; those of a concurrency limit hold their permits until a reservation of the same record is settled,
//     permits are refunded, or the first expires (TestReservationsLost). If only the key of when they expire is evicted, it is
//     made anew. Use the policy noeviction, with which calls fail instead (TestServerFull).
//
// # Keys in a cluster
//
// All limits of a request that charge the same key text, such as one for a second and one for a day, are one script. A record is
// kept under prefix{key}:policy, its reservations under prefix{key}+policy and when they expire under prefix{key}!policy: the
// braces make the key alone choose the slot. Before the : + or ! stands the letter of the algorithm, if that is no token bucket:
// F for fixed windows, S and A for sliding windows and counters, K for calendars, C for concurrency. In the key, % and } are
// written %25 and %7D, and the empty key is written % (TestKeysDiffer).
//
// Keys in several slots cannot be one script. Their permits are reserved in each slot for 10 x Timeout, at least a second. If all
// are allowed they are committed, otherwise canceled. Nothing is ever allowed above a limit. Other requests may be refused
// meanwhile because of permits that are canceled a moment later. If the process dies in between, what is not committed comes back
// when it expires (TestCallerDies, TestClusterCallerDies). If committing fails for some of the slots, the call fails, and what
// was committed stays charged. Such a call takes up to three times Timeout.
//
// # Calendars
//
// The script does not know time zones. The caller sends the edges of windows around the time of the server as it knows it, and
// the server chooses, or asks for others. If the calendar of a limit changes, what is used in the current window stays used in
// the new one. One window of the old calendar then counts as having repaid its part of a debt, however many have ended.
//
// # What is guaranteed
//
// A decision is one script in the server, one step by the server's clock. The clocks of callers do not count
// (TestCallersClockDoesNotCount). However many processes ask for the same permits, as many are allowed as the limit has
// (TestContention: 64 callers of two clients, every algorithm, one key and two together).
//
// A call that finds a connection unused is sent at once. If it is the only one in flight, its caller does not sleep for the first
// 50 µs, but looks for the reply: a server on the same machine replies sooner than a sleeping processor wakes up. Of a slower
// server all but one in 1024 replies are waited for asleep.
//
// Calls that are made while the connections are in use share round trips, and up to 32 of them whose keys are in the same slot
// share a script call, which reads the clock once. Each is decided by itself, in their order, and an error of one does not
// concern the others (TestBatchAsOneByOne, TestBatchErrors).
//
// The arithmetic is that of package algo in whole microseconds with fractions: nothing is rounded. TestDifferential compares the
// two on random histories with clocks that jump, limits that change, reservations, loans and debts; `make redis-steps` does so
// for ten million steps. What cannot be counted exactly, as a window of 1.5 µs, is refused with an *[weir.OptionError] before the
// server is asked (TestLimitsThatDoNotFit).
//
// If the server's clock is set back by up to 10 s, or a replica whose clock is behind takes over, states stay at the time they
// had reached: nothing comes back until the clock has caught up. If it is set back by more, time goes on from there as if none
// had passed (TestClockOfServerSetBack).
package redis
