// Package bench measures weir beside its peers and beside the floor of the machine, in one run.
//
// A floor is the least work that a row could do: for a token bucket one reading of the monotonic clock and one
// compare-and-swap of a word in cache. Everything in a row takes turns in short rounds, so that whatever changes the speed
// of the machine meanwhile changes all of it alike, and what is judged is the ratio of the two in the same round.
//
// # Why not testing.Benchmark
//
// The figures of the command come from a loop of our own. testing.Benchmark finishes one benchmark before it starts the
// next, so that a minute may lie between a floor and what is compared with it; it does not see to it that two goroutines
// really run on two processors; and with b.Loop it keeps the results of each call alive, at a cost that is a part of what
// is measured here. A [Loop] instead contains the for statement itself and calls the limiter directly, as a program
// would: the cost of the loop is the same for a floor, for weir and for a peer, and the count of granted calls that it
// returns, which is compared with what the row expects, keeps the compiler from removing anything.
//
// The benchmarks in the tests of this package run the same loops under go test -bench, for benchstat.
package bench
