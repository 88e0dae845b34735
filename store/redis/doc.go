// Package redis keeps the states of limits in Redis or Valkey, where many processes share them: a [store.Store] for a
// single server, for sentinels and for a cluster, from Redis 6.2 on.
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
// While a server does not answer, at most 256 requests for each of 2 x Connections senders are on the way to it and
// others are not sent; more than MaxInFlight at a time fail at once (TestServerStopped, TestMaxInFlight, TestDeadline).
// The connection is made anew by itself (TestServerKilled).
//
// What the server loses, the limit forgets: a key whose record is gone has all its permits. That is
//   - nothing, if the server stops and has written its data after every command (appendfsync always: TestServerKilled);
//   - what was taken in the last second, with appendfsync everysec, if the machine stops;
//   - what had not reached the replica that takes over, as replication is asynchronous;
//   - everything, without persistence: each limit can be granted once more;
//   - keys that the server evicts, if maxmemory is reached: use the policy noeviction, with which calls fail instead.
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
// reservations that are not committed give everything back when they expire (TestCallerDies). If committing fails for
// some of the slots, the call fails, and what was committed stays charged.
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
