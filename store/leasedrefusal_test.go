package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// TestLeasedRefusesWhileItAsks has 256 callers ask for a key of 1000/s without end: when a refusal is over, no more of them wait for
// the store than there can be permits for by then. All others are refused at once, and still nearly everything is granted.
func TestLeasedRefusesWhileItAsks(t *testing.T) {
	for _, limit := range []weir.Limit{
		weir.TokenBucket(weir.PerSecond(1000), 300),
		weir.SlidingCounter(weir.PerSecond(1000)),
	} {
		synctest.Test(t, func(t *testing.T) {
			const slowest = time.Millisecond // of one way
			f := newFleet(t, limit, 1, LeasedOptions{}, slowest, 1)
			defer f.close()
			letPass(limit.Rate().Period / 2)
			for f.request(t.Context(), 0, 1) {
			}
			before, end := f.nets[0].lends.Load(), time.Now().Add(2*time.Second)
			var granted, refused, waited atomic.Int64
			var all sync.WaitGroup
			for i := range 128 {
				all.Go(func() {
					letPass(time.Duration(i) * 6 * time.Microsecond)
					for time.Now().Before(end) {
						start := time.Now()
						d := leasedTake(t, f.nodes[0], limit, 1)
						took := time.Since(start)
						switch {
						case d.Allowed:
							granted.Add(1)
						case d.RetryAfter <= 0:
							t.Errorf("refused until now: %+v", d)
						default:
							refused.Add(1)
						}
						if took > 0 {
							waited.Add(1)
						}
						if took > 6*slowest { // a call that was under way, one that grants a part, and one that refuses the rest
							t.Errorf("waited for %v: %+v", took, d)
						}
						letPass(time.Millisecond)
					}
				})
			}
			all.Wait()
			calls := f.nets[0].lends.Load() - before
			t.Logf("%v: %d granted, %d refused, %d waited, %d calls", limit, granted.Load(), refused.Load(), waited.Load(), calls)
			if n := granted.Load(); n < 1400 || n > 2300 {
				t.Errorf("%d were granted in 2 s of 1000/s", n) // of the counter, nothing in the first half of a window
			}
			// Each permit that came is waited for once, and for each call there is one that asks and one that may be refused.
			if n := waited.Load(); n > granted.Load()+2*calls || n > refused.Load()/50 {
				t.Errorf("%d requests waited for %d calls; %d were granted, %d refused", n, calls, granted.Load(), refused.Load())
			}
		})
	}
}

// waiting counts those who wait for the key k.
func (l *Leased) waiting() (n int) {
	l.each(func(e *leasedKey) {
		n += e.waiting.Len()
	})
	return n
}

// TestLeasedWaitsForWhatCameBack has requests come at the same time long after a refusal is over: as many as there are permits
// for wait and are granted, and the others are refused at once. A call that comes alone is granted when it was told to come.
func TestLeasedWaitsForWhatCameBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := weir.TokenBucket(weir.PerSecond(100), 400)
		m := newMemoryStore(t)
		g := &gated{Home: m, gate: make(chan struct{})}
		l := newLeased(t, m, LeasedOptions{})
		exhaust := func() (d weir.Decision) {
			for d.Allowed = true; d.Allowed; {
				d = leasedTake(t, l, limit, 1)
			}
			return d
		}
		for range 20 {
			letPass(exhaust().RetryAfter)
			if d := leasedTake(t, l, limit, 1); !d.Allowed {
				t.Fatalf("it came back after RetryAfter: %+v", d)
			}
		}
		refusal := exhaust()
		l.inner = g
		letPass(refusal.RetryAfter + 100*time.Millisecond)
		var granted, refused atomic.Int64
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if d := leasedTake(t, l, limit, 1); d.Allowed {
					granted.Add(1)
				} else if refused.Add(1); d.RetryAfter <= 0 || d.Reason != weir.ReasonLimited {
					t.Errorf("%+v", d)
				}
			})
		}
		synctest.Wait()
		if n := l.waiting(); n != 11 && n != 12 || refused.Load() != int64(50-n) {
			t.Errorf("%d wait, %d were refused meanwhile", n, refused.Load())
		}
		close(g.gate)
		all.Wait()
		if n := granted.Load(); n != 11 {
			t.Errorf("%d were granted", n)
		}
	})
}

// TestLeasedRefusesUntilTheWindowEnds has a request ask again, after Term, within a window that is used up: the others are refused at
// once as long as the window lasts, and wait when it is over.
func TestLeasedRefusesUntilTheWindowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		g := &gated{Home: m, gate: make(chan struct{}, 10)}
		l := newLeased(t, m, LeasedOptions{})
		d := weir.Decision{Allowed: true}
		for d.Allowed {
			d = leasedTake(t, l, minutely, 1)
		}
		l.inner = g
		var granted, refused atomic.Int64
		var all sync.WaitGroup
		ask := func(n int) {
			for range n {
				all.Go(func() {
					if leasedTake(t, l, minutely, 1).Allowed {
						granted.Add(1)
					} else {
						refused.Add(1)
					}
				})
			}
			synctest.Wait()
		}
		end := time.Now().Add(d.RetryAfter)
		letPass(2 * time.Second)
		ask(20)
		if l.waiting() != 1 || refused.Load() != 19 {
			t.Errorf("%d wait, %d were refused", l.waiting(), refused.Load())
		}
		g.gate <- struct{}{}
		all.Wait()
		letPass(time.Until(end))
		ask(20)
		if l.waiting() != 20 || granted.Load() != 0 || refused.Load() != 20 {
			t.Errorf("%d wait, %d were granted, %d refused", l.waiting(), granted.Load(), refused.Load())
		}
		close(g.gate)
		if all.Wait(); granted.Load() != 20 {
			t.Errorf("%d were granted in the next window", granted.Load())
		}
	})
}

// TestLeasedAsksBeforeRefusalEnds asks for twice as many permits as come back: little time is lost with waiting, as the store is
// asked so early that it answers when the refusal is over.
func TestLeasedAsksBeforeRefusalEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, weir.TokenBucket(weir.PerSecond(10_000), 100_000), 1, LeasedOptions{}, time.Millisecond, 1)
		defer f.close()
		for f.request(t.Context(), 0, 50) {
		}
		waited, granted, calls, start := time.Duration(0), f.total(), f.nets[0].lends.Load(), time.Now()
		for time.Since(start) < time.Second {
			before := time.Now()
			f.request(t.Context(), 0, 1)
			waited += time.Since(before)
			letPass(50 * time.Microsecond)
		}
		granted, calls = f.total()-granted, f.nets[0].lends.Load()-calls
		t.Logf("%v of 1 s was waited for %d calls; %d were granted", waited, calls, granted)
		if waited > time.Duration(calls)*400*time.Microsecond || granted < 9500 || granted > 10_200 || calls > 200 {
			t.Errorf("%v of 1 s was waited for %d calls; %d were granted", waited, calls, granted)
		}
	})
}
