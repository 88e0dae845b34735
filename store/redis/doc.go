// Package redis keeps the states of limits in Redis or Valkey, where many processes share them: a [store.Store] for a
// single server, for sentinels and for a cluster, from Redis 6.2 on.
//
// [Open] connects. A program puts [store.NewFleet] over it, which knows what to do while the server is away and spares round
// trips, and gives that to policy.EngineOptions.Store, or asks it by itself: see the examples. Open fails if no server can be
// reached: to begin without one, try it again in the background and decide meanwhile without the fleet.
//
// # What is guaranteed
//
// Every decision is one script that runs in the server, as one step and by the server's clock: what the clocks of
// callers show makes no difference (TestCallersClockDoesNotCount), and however many processes ask for the same permits,
// as many are granted as the limit allows (TestContention: 64 callers of two clients, every algorithm, one key and two
// together). Calls that are made at the same time share round trips.
//
// The arithmetic is that of package algo in whole microseconds, with fractions of them kept as fractions: nothing is
// rounded. TestDifferential compares the two on random histories with clocks that jump, limits that change,
// reservations, loans and debts; `make redis-steps` does so for ten million steps. What cannot be counted exactly, as a window
// of 1.5 µs, is refused with an *[weir.OptionError] before the server is asked (TestLimitsThatDoNotFit).
//
// If the server's clock is set back by up to 10 s, or a replica whose clock is behind takes over, states stay at the
// time they had reached: nothing comes back until the clock has caught up, and nothing twice. If it is set back by
// more, time goes on from there as if none had passed (TestClockOfServerSetBack).
//
// # Failures
//
// A call that gets no answer within [Options].Timeout, or until its context ends, fails with [store.ErrUnavailable] and
// the cause; that is never an answer about a limit. A script that may have run is not sent again, so no failure is
// charged twice by this package; a call that failed may have been charged once, which errs on the side of the limit.
//
// Tests do the following to real servers under load, and print what was admitted, how many calls failed, and for how long
// nobody was served. `make redis-faults` repeats them.
//   - The server's process is stopped for 5 s. Calls fail in time, at most MaxInFlight requests wait, and when it goes on it
//     finds no more than about three times as many that nobody waits for any more (TestServerStopped, TestMaxInFlight,
//     TestDeadline).
//   - It is killed and started again; it takes its time to load its data; it forgets the script (TestServerKilled,
//     TestServerLoads, TestScriptForgotten). Connections are made anew, but not tried more than 20 times a second.
//   - The links of three processes to it are cut, one after the other and all at once: connections are reset, or bytes are
//     lost without a word, or answers only. A silent connection is given up after two seconds, or one and Timeout, if that is
//     longer (TestLinksCut).
//   - It is a replica, which may only read, its memory is full, it does not know the user or the password, or the user may not
//     touch the keys: calls fail, and say why (TestServerReadOnly, TestServerFull, TestUsersAndPasswords, TestTLS).
//   - It answers nonsense. Calls fail, and the process goes on: a connection ends with an answer that was not asked for, or
//     that is longer than any can be, which would end a process otherwise (TestServerAnswersNonsense, TestServerGreetsWrongly).
//   - Sentinels, or the nodes of a cluster, make a replica the master, as the old one was killed or stands still. Calls go
//     there by themselves (TestSentinelFailover, TestClusterFailover).
//   - A node of a cluster stands still: calls for keys of other nodes are answered as before, as each master has senders of
//     its own (TestClusterNodeStopped).
//   - A slot moves to another node, key by key. Calls for single keys follow. Those that need several keys of the slot, as all
//     do that reserve, are tried again until the keys are together, or fail (TestClusterSlotMoves).
//   - Clocks of clients are an hour apart, and that of the server jumps (TestClientsClocksApart, TestClockOfServerJumps,
//     TestClocksOfServersApart).
//   - Three processes share limits through a [store.Fleet], with every consistency and every policy of failure, while the
//     server stands still, is killed, is cut off, and is replaced (TestFleetFaults, TestFleetLosesData, TestFleetFailover).
//
// In all of them nothing is admitted above the limit, but for what the server loses: a key whose record is gone has all its
// permits, and a record that is older than it should be has those that were taken since. At worst, each time, the limit is
// granted once more. What is lost is
//   - nothing, if the server is killed and has written its data after every command, with appendfsync always
//     (TestServerKilled);
//   - what was taken in the last second or two, with appendfsync everysec, if the machine stops; if only the process ends,
//     nothing, unless the disk was busy;
//   - what had not reached the replica that takes over, as replication is asynchronous: next to nothing if the replica followed
//     (TestSentinelFailover, TestClusterFailover), and all that was taken while it did not. With min-replicas-to-write 1 and
//     min-replicas-max-lag the master stops granting when nobody has followed for so long (TestReplicaBehind);
//   - everything, without persistence (TestServerKilled);
//   - keys that the server evicts, if maxmemory is reached: use the policy noeviction, with which calls fail instead
//     (TestServerFull).
//
// A user of the server needs the right to keys that begin with Prefix and to the commands EVAL, EVALSHA, TIME, GET, SET, DEL,
// PEXPIRE, PTTL, HGET, HGETALL, HSET, HDEL, ZADD, ZRANGE, ZRANGEBYSCORE, ZREM, HELLO, CLIENT SETNAME and PING, and in a cluster
// to CLUSTER SLOTS and CLUSTER SHARDS (TestUsersAndPasswords).
//
// # Keys
//
// A record is kept under prefix{key}:policy, its reservations under prefix{key}+policy and when they expire under
// prefix{key}!policy. The braces make the text of the key alone decide about the slot in a cluster, so all limits of a
// request that charge the same key text, such as one for a second and one for a day, are one script. In the key, % and
// } are written %25 and %7D, and the empty key is written % (TestKeysDiffer).
//
// Charges of keys in several slots of a cluster cannot be one script. They are reserved in each slot for 10 x Timeout,
// at least a second; if all are allowed they are committed, otherwise canceled. Nothing is ever granted above a limit.
// Meanwhile others may be refused because of permits that are canceled a moment later; if the process dies in between,
// reservations that are not committed give everything back when they expire (TestCallerDies, TestClusterCallerDies). If
// committing fails for some of the slots, the call fails, and what was committed stays charged. Such a call takes up to three
// times Timeout.
//
// A record of a token bucket takes about 150 bytes of the server's memory with a short key, and a reservation about 290
// more. Records expire a second after they equal fresh ones (TestMemoryIsGivenBack).
//
// # Cost
//
// BenchmarkTake, beside BenchmarkFloor: a script of ten lines for one token bucket in floating point through the same
// client. On two busy cores that the server and 256 callers shared, a decision of a token bucket took the server 8.3 to
// 9.5 µs of CPU time (floor 7.7) and the client 5.8 to 6.3 µs (floor 7.0 to 7.6); with 32 callers 11.3 to 11.8 (10.5 to
// 11.1) and 9.0 to 9.7 (11.1 to 11.4). Other algorithms cost the server up to 10.3 and 13.4 µs. A single caller, who
// shares no round trip, pays about twice the client's floor.
//
// # Calendars
//
// The script does not know time zones: the caller passes in the edges of windows around the time that it believes the
// server to have, and the server chooses, or asks for others. If the calendar of a limit changes, what is used in the
// window that has not ended stays used in the new one; of a debt, one window of the old calendar is taken to have borne
// its part, however many have passed.
package redis
