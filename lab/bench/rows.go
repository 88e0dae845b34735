package bench

import (
	"fmt"

	"github.com/weirhq/weir"
)

// The most that calls of weir may take relative to a floor, or to another call.
const (
	allowTarget       = 1.1
	decisionTarget    = 1.25 // of TryAcquire, with the whole decision
	acquireTarget     = 1.5  // of Acquire, relative to TryAcquire
	settledTarget     = 2    // of Reserve and Commit
	concurrencyTarget = 2    // relative to x/sync
	chainTarget       = 3    // of a chain of two
)

// hotTarget is how many nanoseconds a call may take, of a limiter that is asked from all sides.
const hotTarget = 10

func bucketRows() []Row {
	const (
		full = "1,000,000,000/s with a burst of 1000: the bucket is full again before the next call, so that the word takes " +
			"the time of the clock."
		drain = "1000/s with a burst of 10^10: the bucket gets emptier with each call, so that the word moves on from what " +
			"it was."
		odd = "12,345/s with a burst of 150,000,000, drained: a permit comes every 81004.455… ns, which no number of whole " +
			"nanoseconds expresses, and the bucket is still one word."
		refuse = "One permit a day, and it was taken before: every call is refused. weir counts refusals, in one of 16 " +
			"counters chosen by goroutine; the floor clock+load keeps no count."
		two    = " Two goroutines share one limiter; the time is the wall time per call of both together."
		hotHow = "1,000,000,000/s with a burst of 1,000,000, so that no call is refused; %d goroutines share one limiter, and " +
			"the time is the wall time per call of all together. The floor lends permits to the goroutines, 64 at a time."
	)
	swap := []Floor{{clockAndSwap(), allowTarget}}
	allow := func(name string, goroutines int, b budget, how string) Row {
		peers := []Subject{xtimeAllow(b), jujuTake(b)}
		if b == alwaysFull {
			peers = append(peers, failsafeSmooth(b), uberTake(b))
		} else {
			peers = append(peers, failsafeBursty(b), golimiterTake(b))
		}
		return Row{Name: name, Goroutines: goroutines, Floors: swap, Ours: weirAllow(b), Peers: peers, How: how}
	}
	refusing := []Subject{
		drained(xtimeAllow(empty)), drained(jujuTake(empty)), drained(failsafeBursty(empty)), drained(golimiterTake(empty)),
	}
	hot := func(goroutines int) Row {
		return Row{
			Name: "allow, one hot limiter", Goroutines: goroutines, Most: hotTarget,
			Floors: []Floor{{lentPermits(), 0}, {clockAndSwap(), 0}}, Ours: weirAllow(ample),
			Peers: []Subject{xtimeAllow(ample), jujuTake(ample), failsafeSmooth(ample), uberTake(ample)},
			How:   fmt.Sprintf(hotHow, goroutines),
		}
	}
	return []Row{
		allow("allow, always full", 1, alwaysFull, full),
		allow("allow, draining", 1, draining, drain),
		allow("allow, draining, 12345/s", 1, awkward, odd),
		allow("allow, always full", 2, alwaysFull, full+two),
		allow("allow, draining", 2, draining, drain+two),
		hot(2),
		hot(admissionGoroutines),
		{
			Name: "refuse", Goroutines: 1, Refused: true,
			Floors: []Floor{{clockAndSwap(), allowTarget}, {clockAndLoad(), allowTarget}},
			Ours:   drained(weirAllow(empty)), Peers: refusing, How: refuse,
		},
		{
			Name: "refuse", Goroutines: 2, Refused: true,
			Floors: []Floor{{clockAndSwap(), allowTarget}, {clockAndLoad(), 0}},
			Ours:   drained(weirAllow(empty)), Peers: refusing, How: refuse + two,
		},
	}
}

func leaseRows() []Row {
	const acquire = "A context that can be canceled, and a permit at hand, so that no caller waits."
	return []Row{
		{
			Name: "TryAcquire", Goroutines: 1,
			Floors: []Floor{{clockAndSwap(), decisionTarget}}, Ours: weirTryAcquire(draining),
			Peers: []Subject{xtimeReserve(draining), jujuTakeMax(draining), failsafeReserve(draining), golimiterTake(draining)},
			How: "With the whole decision: limit, remaining, reset. The peers' calls are those that answer more than yes or " +
				"no, though none answers as much.",
		},
		{
			Name: "Acquire, permit at hand", Goroutines: 1,
			Floors: []Floor{{called("TryAcquire", weirTryAcquire(draining)), acquireTarget}, {clockAndSwap(), 0}},
			Ours:   weirAcquire(draining),
			Peers:  []Subject{xtimeWait(draining), jujuWait(draining), failsafeAcquire(draining), uberTake(alwaysFull)},
			How:    acquire + " The contexts of juju and uber are none.",
		},
		{
			Name: "TryReserve + Commit, same", Goroutines: 1,
			Floors: []Floor{{clockAndTwoSwaps(), settledTarget}},
			Ours:   weirCommit(draining, "TokenBucket.TryReserve(10); Lease.Commit(10)", 10),
			NoPeer: "no peer settles a reservation with another cost",
			How:    "The estimate was right: nothing is refunded or charged.",
		},
		{
			Name: "TryReserve + Commit, less", Goroutines: 1,
			Floors: []Floor{{clockAndTwoSwaps(), settledTarget}},
			Ours:   weirCommit(draining, "TokenBucket.TryReserve(10); Lease.Commit(7)", 7),
			NoPeer: "no peer settles a reservation with another cost",
			How:    "3 of 10 permits are refunded.",
		},
		{
			Name: "TryReserve + Cancel", Goroutines: 1,
			Floors: []Floor{{clockAndTwoSwaps(), 0}}, Ours: weirCancel(draining),
			Peers: []Subject{xtimeCancel(draining)},
			How:   "All 10 permits are refunded. x/time/rate needs the time to be given for n permits.",
		},
	}
}

func otherRows() []Row {
	const (
		take    = "100 permits, one of which is taken and released."
		windows = "10^9 per hour: the calls stay in one window and below its limit."
		sliding = "none of the peers has a sliding window"
		two     = " Two goroutines share one limiter; the time is the wall time per call of both together."
	)
	swap := []Floor{{clockAndSwap(), 0}}
	return []Row{
		{
			Name: "fixed window, allow", Goroutines: 1, Floors: swap, Ours: weirFixedWindow(),
			Peers: []Subject{failsafeWindow(), golimiterWindow()}, How: windows,
		},
		{
			Name: "sliding window of 10, allow", Goroutines: 1, Floors: swap,
			Ours:   weirSlidingWindow("SlidingWindow.Allow()", weir.SlidingWindow(weir.Per(windowLimit, window), 10)),
			NoPeer: sliding, How: "10 segments. " + windows,
		},
		{
			Name: "sliding window, approx.", Goroutines: 1, Floors: swap,
			Ours:   weirSlidingWindow("SlidingWindow.Allow()", weir.SlidingCounter(weir.Per(windowLimit, window))),
			NoPeer: sliding, How: "Approximate, two counters. " + windows,
		},
		{
			Name: "concurrency, try + release", Goroutines: 1,
			Floors: []Floor{asFast(bySemaphore, concurrencyTarget), {twoSwaps(), 0}}, Ours: weirConcurrency(),
			Peers: []Subject{semaphoreTry(), failsafeBulkhead(), channelTry()}, How: take,
		},
		{
			Name: "concurrency, try + release", Goroutines: 2,
			Floors: []Floor{asFast(bySemaphore, concurrencyTarget), {twoSwaps(), 0}}, Ours: weirConcurrency(),
			Peers: []Subject{semaphoreTry(), failsafeBulkhead(), channelTry()}, How: take + two,
		},
		{
			Name: "concurrency, Acquire + rel.", Goroutines: 1,
			Floors: []Floor{{called("TryAcquire", weirConcurrency()), acquireTarget}, {twoSwaps(), 0}},
			Ours:   weirConcurrencyAcquire(),
			Peers:  []Subject{semaphoreAcquire(), failsafeBulkheadAcquire(), channelAcquire()},
			How:    take + " A context that can be canceled, and a permit at hand.",
		},
		{
			Name: "chain of two, TryAcquire", Goroutines: 1,
			Floors: []Floor{{clockAndTwoSwaps(), chainTarget}}, Ours: weirChain(draining),
			Peers: []Subject{xtimeTwice(draining), failsafeTwice(draining)},
			How: "Two token buckets, of which neither is charged if the other refuses. The peers have nothing like it: two of " +
				"theirs are asked one after the other, and the first stays charged when the second refuses.",
		},
	}
}
