package verify_test

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
)

const goroutines = 64

// hammered is what became of a limiter that 64 goroutines asked for a second.
type hammered struct {
	calls, admitted int64
	began           time.Time
	// For how long it was asked, at least and at most.
	atLeast, atMost time.Duration
}

// hammer calls allow from 64 goroutines for a second.
func hammer(allow func() bool) hammered {
	var (
		calls, admitted atomic.Int64
		ready, done     sync.WaitGroup
		stop            atomic.Bool
		start           = make(chan struct{})
	)
	for range goroutines {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			n, granted := int64(0), int64(0)
			for ; !stop.Load(); n++ {
				if allow() {
					granted++
				}
			}
			calls.Add(n)
			admitted.Add(granted)
		})
	}
	ready.Wait()
	before := time.Now()
	close(start)
	<-time.After(time.Second)
	stop.Store(true)
	done.Wait()
	return hammered{calls: calls.Load(), admitted: admitted.Load(), began: before, atMost: time.Since(before)}
}

// drain calls allow until it refuses, so that what became available while the machine did something else is not left over.
// One caller on a slow machine may never be refused: it gives up after a while.
func (h *hammered) drain(allow func() bool) {
	for range 1_000_000 {
		h.calls++
		h.atLeast = time.Since(h.began)
		if !allow() {
			break
		}
		h.admitted++
	}
	h.atMost = time.Since(h.began)
}

// TestContention asks every algorithm from 64 goroutines at once for a second. No more than the limit may be admitted,
// and no less than 99 % of it: the burst is a quarter of a second's permits, so that a stall of the machine does not
// cost any.
func TestContention(t *testing.T) {
	for _, perSecond := range []int64{1_000, 100_000, 1_000_000} {
		burst := perSecond / 4
		window := 250 * time.Millisecond
		rate := func(d time.Duration) float64 { return float64(perSecond) * d.Seconds() }
		windows := func(d time.Duration) float64 { return d.Seconds() / window.Seconds() }
		for _, c := range []struct {
			name        string
			limiter     interface{ Allow() bool }
			most, least func(d time.Duration) float64
		}{
			{
				"token bucket",
				must(weir.NewTokenBucket(weir.TokenBucketOptions{Rate: weir.PerSecond(perSecond), Burst: burst})),
				func(d time.Duration) float64 { return float64(burst) + rate(d) },
				func(d time.Duration) float64 { return float64(burst) + rate(d) },
			},
			{
				"token bucket with a decision",
				trying{must(weir.NewTokenBucket(weir.TokenBucketOptions{Rate: weir.PerSecond(perSecond), Burst: burst}))},
				func(d time.Duration) float64 { return float64(burst) + rate(d) },
				func(d time.Duration) float64 { return float64(burst) + rate(d) },
			},
			{
				"token bucket at an awkward rate",
				must(weir.NewTokenBucket(weir.TokenBucketOptions{Rate: weir.PerSecond(perSecond - 1), Burst: burst})),
				func(d time.Duration) float64 { return float64(burst) + rate(d) },
				func(d time.Duration) float64 { return float64(burst) + rate(d)*(1-1/float64(perSecond)) },
			},
			{
				"token bucket under the lock",
				must(weir.NewTokenBucket(weir.TokenBucketOptions{
					Rate: weir.Per(perSecond*1e6-1, 1e6*time.Second), Burst: burst,
				})),
				func(d time.Duration) float64 { return float64(burst) + rate(d) },
				func(d time.Duration) float64 { return float64(burst) + rate(d) - 1 },
			},
			{
				"fixed window",
				must(weir.NewFixedWindow(weir.FixedWindowOptions{Limit: burst, Window: window})),
				func(d time.Duration) float64 { return float64(burst) * (math.Ceil(windows(d)) + 1) },
				func(d time.Duration) float64 { return float64(burst) * math.Floor(windows(d)) },
			},
			{
				"calendar window", // of a minute, which begins at most once more in the test
				must(weir.NewCalendarWindow(weir.CalendarWindowOptions{Limit: burst, Calendar: weir.Calendar{Unit: weir.CalendarMinute}})),
				func(d time.Duration) float64 { return float64(burst) * (2 + math.Floor(d.Minutes())) },
				func(time.Duration) float64 { return float64(burst) },
			},
			{
				"sliding window",
				must(weir.NewSlidingWindow(weir.SlidingWindowOptions{Limit: burst, Window: window})),
				func(d time.Duration) float64 { return float64(burst) * (math.Ceil(windows(d)) + 1) },
				func(d time.Duration) float64 { return float64(burst) * math.Floor(windows(d)) },
			},
			{
				"sliding window of two counters",
				must(weir.NewSlidingWindow(weir.SlidingWindowOptions{Limit: burst, Window: window, Approximate: true})),
				func(d time.Duration) float64 { return float64(burst) * (math.Ceil(windows(d)) + 1) },
				func(d time.Duration) float64 { return 0.9 * float64(burst) * math.Floor(windows(d)) },
			},
		} {
			t.Run(fmt.Sprintf("%s/%d per second", c.name, perSecond), func(t *testing.T) {
				h := hammer(c.limiter.Allow)
				h.drain(c.limiter.Allow)
				admitted, most, least := h.admitted, c.most(h.atMost), c.least(h.atLeast)
				t.Logf("admitted %d of at most %.0f (%.4f)", admitted, most, float64(admitted)/most)
				if float64(admitted) > most {
					t.Errorf("admitted %d, more than the %.0f allowed in %v", admitted, most, h.atMost)
				}
				// The race detector is too slow for the rates here, so the test also runs without it. A machine that did not
				// even ask for twice of what it was due shows nothing.
				if !raceEnabled && float64(h.calls) > 2*most && float64(admitted) < 0.99*least {
					t.Errorf("admitted %d, less than 99 %% of the %.0f allowed in %v", admitted, least, h.atLeast)
				}
			})
		}
	}
}

// trying is a limiter whose Allow is TryAcquire(1).
type trying struct{ weir.Limiter }

func (l trying) Allow() bool { return l.TryAcquire(1).Allowed() }

// TestContentionOnChain asks a chain of a wide and a narrow limit: what the narrow one refuses must not be charged to
// the wide one.
func TestContentionOnChain(t *testing.T) {
	wide := must(weir.NewTokenBucket(weir.TokenBucketOptions{Name: "wide", Rate: weir.PerDay(1), Burst: 10_000}))
	narrow := must(weir.NewTokenBucket(weir.TokenBucketOptions{Name: "narrow", Rate: weir.PerSecond(1000), Burst: 100}))
	chain := must(weir.NewChain(wide, narrow))
	h := hammer(func() bool {
		l := chain.TryAcquire(1)
		defer l.Release()
		if d := l.Decision(); !d.Allowed && d.Policy != "narrow" {
			t.Errorf("refused by %+v", d)
		}
		return l.Allowed()
	})
	if most := 100 + 1000*h.atMost.Seconds(); float64(h.admitted) > most {
		t.Errorf("admitted %d, more than the %.0f allowed", h.admitted, most)
	}
	if left := wide.Stats().Available; left != 10_000-h.admitted {
		t.Errorf("%d admitted, but the wide limit has %d of 10000 left", h.admitted, left)
	}
	if s := narrow.Stats(); s.Granted != h.admitted || s.Refused == 0 {
		t.Errorf("%d admitted, but the narrow limit counts %+v", h.admitted, s)
	}
}

// TestContentionOnConcurrency takes and releases from 64 goroutines, some of which wait, and watches how many are in.
func TestContentionOnConcurrency(t *testing.T) {
	const limit = 10
	c := must(weir.NewConcurrency(weir.ConcurrencyOptions{Limit: limit, QueueLimit: 1000}))
	var in, served atomic.Int64
	enter := func(l weir.Lease) {
		n := l.Permits()
		if now := in.Add(n); now > limit {
			t.Errorf("%d permits are out, more than %d", now, limit)
		}
		if served.Add(1)%64 == 0 {
			runtime.Gosched()
		}
		in.Add(-n)
		l.Release()
		l.Release()
	}
	var turn atomic.Int64
	hammer(func() bool {
		n := turn.Add(1)
		var l weir.Lease
		if n%4 == 0 {
			l, _ = c.Acquire(t.Context(), n%3+1)
		} else {
			l = c.TryAcquire(n%3 + 1)
		}
		if l.Allowed() {
			enter(l)
		}
		return l.Allowed()
	})
	s := c.Stats()
	if s.Available != limit || s.Queued != 0 || s.Waiters != 0 {
		t.Errorf("in the end %+v: want all %d permits back", s, limit)
	}
	if s.Granted != served.Load() {
		t.Errorf("%d granted, but served %d", s.Granted, served.Load())
	}
}

// TestCountsUnderContention wants every call counted once.
func TestCountsUnderContention(t *testing.T) {
	b := must(weir.NewTokenBucket(weir.TokenBucketOptions{Rate: weir.PerSecond(100_000), Burst: 1000}))
	var calls atomic.Int64
	h := hammer(func() bool {
		switch calls.Add(1) % 64 {
		case 0: // sends the others under the lock
			b.Peek(1)
		case 1:
			b.Stats()
		}
		return b.Allow()
	})
	if s := b.Stats(); s.Granted != h.admitted || s.Granted+s.Refused != calls.Load() {
		t.Errorf("%d calls, %d admitted, but %+v", calls.Load(), h.admitted, s)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
