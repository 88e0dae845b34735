package overload_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/overload"
)

func mustAdaptive(t testing.TB, o overload.AdaptiveOptions) *overload.Adaptive {
	t.Helper()
	a, err := overload.NewAdaptive(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAdaptiveOptions(t *testing.T) {
	for option, o := range map[string]overload.AdaptiveOptions{
		"MinLimit":      {MinLimit: -1},
		"MaxLimit":      {MinLimit: 10, MaxLimit: 9},
		"InitialLimit":  {MinLimit: 10, MaxLimit: 20, InitialLimit: 21},
		"Tolerance":     {Tolerance: 1},
		"Smoothing":     {Smoothing: 1.01},
		"Window":        {Window: time.Microsecond},
		"WindowSamples": {WindowSamples: 10_001},
		"ProbeInterval": {ProbeInterval: 2 * time.Hour},
		"QueueLimit":    {QueueLimit: -1},
	} {
		for _, o := range []overload.AdaptiveOptions{o} {
			var misuse *weir.OptionError
			if _, err := overload.NewAdaptive(o); !errors.As(err, &misuse) || misuse.Option != "overload.AdaptiveOptions."+option {
				t.Errorf("%+v: %v", o, err)
			}
		}
	}
	for _, tolerance := range []float64{math.NaN(), math.Inf(1), -1, 1.91} {
		if _, err := overload.NewAdaptive(overload.AdaptiveOptions{Tolerance: tolerance}); err == nil {
			t.Errorf("a tolerance of %v", tolerance)
		}
	}
	for _, c := range []struct {
		o    overload.AdaptiveOptions
		want int64
	}{
		{overload.AdaptiveOptions{}, 20},
		{overload.AdaptiveOptions{MinLimit: 30}, 30},
		{overload.AdaptiveOptions{MinLimit: 3000}, 3000},
		{overload.AdaptiveOptions{MaxLimit: 7}, 7},
		{overload.AdaptiveOptions{InitialLimit: 1000}, 1000},
	} {
		a := mustAdaptive(t, c.o)
		if n := a.Limit().Permits(); n != c.want || a.Stats().Limit != c.want || a.Stats().Remaining != c.want {
			t.Errorf("%+v: limit %d, %+v, want %d", c.o, n, a.Stats(), c.want)
		}
	}
}

// line is a service in virtual time that takes as long for each request, and works on some at a time, one after the other.
type line struct {
	workers int
	busy    int
	queue   []chan struct{}
	mu      sync.Mutex
	pace    time.Duration
}

func (s *line) serve() {
	s.mu.Lock()
	if s.busy >= s.workers {
		turn := make(chan struct{})
		s.queue = append(s.queue, turn)
		s.mu.Unlock()
		<-turn
	} else {
		s.busy++
		s.mu.Unlock()
	}
	time.Sleep(s.pace)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 && s.busy <= s.workers {
		close(s.queue[0])
		s.queue = s.queue[1:]
	} else {
		s.busy--
	}
}

func (s *line) set(workers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = workers
	for ; s.busy < workers && len(s.queue) > 0; s.busy++ {
		close(s.queue[0])
		s.queue = s.queue[1:]
	}
}

// load sends a request every interval for d, and waits for all.
func load(a *overload.Adaptive, s *line, interval, d time.Duration) {
	var all sync.WaitGroup
	for range d / interval {
		all.Go(func() {
			if l := a.TryAcquire(1); l.Allowed() {
				defer l.Release()
				s.serve()
			}
		})
		time.Sleep(interval)
	}
	all.Wait()
}

// odd is what makes a service take a little more than a multiple of the time between two requests, so that none comes in the very
// moment in which another one is answered: in virtual time either could be the first, in each run another one.
const odd = 7 * time.Nanosecond

// TestAdaptiveLimitFollowsTheService has twice as many requests as the service can answer.
func TestAdaptiveLimitFollowsTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := mustAdaptive(t, overload.AdaptiveOptions{})
		s := &line{workers: 40, pace: 10*time.Millisecond + odd}
		for _, c := range []struct {
			workers, low, high int64
			d                  time.Duration
		}{{40, 40, 72, 4 * time.Second}, {10, 10, 20, 5 * time.Second}, {80, 80, 136, 4 * time.Second}, {1, 1, 12, time.Minute}, {40, 40, 80, 10 * time.Second}} {
			s.set(int(c.workers))
			load(a, s, 5*time.Millisecond/time.Duration(c.workers), c.d)
			if e := a.Estimate(); e.Limit < c.low || e.Limit > c.high {
				t.Errorf("%d workers: %+v, want a limit from %d to %d", c.workers, e, c.low, c.high)
			}
		}
		if st := a.Stats(); st.Remaining != st.Limit || st.Refused == 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestAdaptiveLearnsASlowerService has a service that takes three times as long from some time on, whatever the load.
func TestAdaptiveLearnsASlowerService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := mustAdaptive(t, overload.AdaptiveOptions{ProbeInterval: time.Second})
		s := &line{workers: 40, pace: 10*time.Millisecond + odd}
		load(a, s, 150*time.Microsecond, 5*time.Second)
		before := a.Estimate()
		if d := before.Unloaded; d < 9*time.Millisecond || d > 13*time.Millisecond {
			t.Errorf("%+v", before)
		}
		s.pace = 30*time.Millisecond + odd
		load(a, s, 150*time.Microsecond, 20*time.Second)
		after := a.Estimate()
		if d := after.Unloaded; d < 27*time.Millisecond || d > 36*time.Millisecond {
			t.Errorf("%+v", after)
		}
		if !after.Probing && (after.Limit < 36 || after.Limit > 80) || after.Probes == 0 { // while it probes it is lower
			t.Errorf("%+v", after)
		}
	})
}

func TestAdaptiveDoesNotGrowWhileItIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := mustAdaptive(t, overload.AdaptiveOptions{})
		s := &line{workers: 1000, pace: 10 * time.Millisecond}
		load(a, s, 2*time.Millisecond, 30*time.Second) // 5 at a time
		if e := a.Estimate(); e.Limit != 20 || e.Probes != 0 || e.Windows < 100 || e.Unloaded != 10*time.Millisecond {
			t.Errorf("%+v", e)
		}
	})
}

// rounds takes all permits, n times, holds them for d and ends each lease.
func rounds(a weir.Acquirer, clock *manualclock.Clock, n int, d time.Duration, end func(weir.Lease)) {
	for range n {
		var out []weir.Lease
		for {
			l := a.TryAcquire(1)
			if !l.Allowed() {
				break
			}
			out = append(out, l)
		}
		clock.Advance(d)
		for _, l := range out {
			end(l)
		}
	}
}

func TestAdaptiveDropLowersTheLimit(t *testing.T) {
	clock := manualclock.New(0)
	a := mustAdaptive(t, overload.AdaptiveOptions{InitialLimit: 100, Clock: clock, MinLimit: 3, MaxLimit: 200})
	rounds(a, clock, 100, 10*time.Millisecond, weir.Lease.Release)
	high := a.Estimate()
	if high.Limit != 200 || high.Dropped != 0 {
		t.Errorf("%+v", high)
	}
	// The latency stays good, so only the drops tell: a fifth of what is out is as much as its square root at 25.
	i := 0
	rounds(a, clock, 400, 10*time.Millisecond, func(l weir.Lease) {
		if i++; i%5 == 0 {
			l.Drop()
		} else {
			l.Release()
		}
	})
	low := a.Estimate()
	if low.Limit > 40 || low.Dropped < 0.15 || low.Dropped > 0.25 || low.Unloaded != 10*time.Millisecond {
		t.Errorf("%+v", low)
	}
	rounds(a, clock, 500, 10*time.Millisecond, weir.Lease.Drop)
	if none := a.Estimate(); none.Limit > 6 || none.Dropped != 1 {
		t.Errorf("%+v", none)
	}
	rounds(a, clock, 400, 10*time.Millisecond, weir.Lease.Release)
	if back := a.Estimate(); back.Limit < 100 {
		t.Errorf("%+v", back)
	}
}

func TestAdaptiveLearnsNothingFromCancel(t *testing.T) {
	clock := manualclock.New(0)
	a := mustAdaptive(t, overload.AdaptiveOptions{Clock: clock})
	rounds(a, clock, 100, 10*time.Second, weir.Lease.Cancel)
	if e := a.Estimate(); e.Windows != 0 || e.Limit != 20 {
		t.Errorf("%+v", e)
	}
	if st := a.Stats(); st.Remaining != 20 || st.Allowed != 2000 {
		t.Errorf("%+v", st)
	}
}

// TestAdaptiveInAChain ends leases of a chain: what they say must reach the Adaptive.
func TestAdaptiveInAChain(t *testing.T) {
	clock := manualclock.New(0)
	bucket, err := weir.New(weir.TokenBucket(weir.PerDay(1), 10_000), weir.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	a := mustAdaptive(t, overload.AdaptiveOptions{Clock: clock})
	chain, err := weir.NewChain(bucket, a)
	if err != nil {
		t.Fatal(err)
	}
	rounds(chain, clock, 20, 10*time.Millisecond, weir.Lease.Cancel)
	if e := a.Estimate(); e.Windows != 0 {
		t.Errorf("canceled: %+v", e)
	}
	if st := bucket.Stats(); st.Remaining > 10_000-400 {
		t.Errorf("what was not reserved was given back: %+v", st)
	}
	rounds(chain, clock, 20, 10*time.Millisecond, weir.Lease.Release)
	if e := a.Estimate(); e.Windows == 0 || e.Unloaded != 10*time.Millisecond {
		t.Errorf("released: %+v", e)
	}
	rounds(chain, clock, 60, 10*time.Millisecond, weir.Lease.Drop)
	if e := a.Estimate(); e.Dropped != 1 {
		t.Errorf("dropped: %+v", e)
	}
	if st := a.Stats(); st.Remaining != st.Limit {
		t.Errorf("%+v", st)
	}
}

// TestAdaptiveLearnsNothingFromTheWaitForOthers has requests that wait a second for the limiter behind it in a chain, and then
// are with the service for 10 ms.
func TestAdaptiveLearnsNothingFromTheWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := mustAdaptive(t, overload.AdaptiveOptions{WindowSamples: 1})
		slots, err := weir.NewConcurrency(1, weir.Options{QueueLimit: 1})
		if err != nil {
			t.Fatal(err)
		}
		inner, err := weir.NewChain(a)
		if err != nil {
			t.Fatal(err)
		}
		for _, first := range []weir.Acquirer{a, inner} {
			chain, err := weir.NewChain(first, slots)
			if err != nil {
				t.Fatal(err)
			}
			taken := slots.TryAcquire(1)
			time.AfterFunc(time.Second, taken.Release)
			lease, err := chain.Acquire(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			lease.Release()
			if e := a.Estimate(); e.Windows == 0 || e.Latency != 10*time.Millisecond {
				t.Errorf("%+v", e)
			}
		}
	})
}

// TestLimiterThatEmbedsAnAdaptiveIsAskedItself has a limiter in a chain that refuses on its own account.
func TestLimiterThatEmbedsAnAdaptiveIsAskedItself(t *testing.T) {
	a := mustAdaptive(t, overload.AdaptiveOptions{})
	chain, err := weir.NewChain(&stubborn{a})
	if err != nil {
		t.Fatal(err)
	}
	if l := chain.TryAcquire(1); l.Allowed() {
		t.Errorf("%+v", l.Decision())
	}
	if d := chain.Peek(1); d.Allowed {
		t.Errorf("%+v", d)
	}
	if st := a.Stats(); st.Remaining != st.Limit {
		t.Errorf("%+v", st)
	}
}

type stubborn struct{ *overload.Adaptive }

func (*stubborn) TryReserve(int64) weir.Lease { return weir.Lease{} }

func (*stubborn) Peek(int64) weir.Decision { return weir.Decision{} }

// TestDropOfOtherLimitersIsRelease has a limiter whose permits come back on release, and one whose permits do not.
func TestDropOfOtherLimitersIsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := weir.NewConcurrency(2, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l := c.TryAcquire(2)
		l.Drop()
		l.Drop()
		if st := c.Stats(); st.Remaining != 2 {
			t.Errorf("%+v", st)
		}
		b, err := weir.New(weir.TokenBucket(weir.PerSecond(1), 2), weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b.TryReserve(2).Drop()
		if st := b.Stats(); st.Remaining != 0 {
			t.Errorf("%+v", st)
		}
		weir.Lease{}.Drop()
	})
}

// TestAdaptiveServesThoseWhoWait has callers that wait, all the time, until the limit has grown.
func TestAdaptiveServesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := mustAdaptive(t, overload.AdaptiveOptions{InitialLimit: 2, QueueLimit: 1000, Window: 20 * time.Millisecond, WindowSamples: 5})
		var all sync.WaitGroup
		var out, most, served atomic.Int64
		for range 500 {
			all.Go(func() {
				l, err := a.Acquire(t.Context(), 1)
				if err != nil || !l.Allowed() {
					t.Errorf("%+v, %v", l.Decision(), err)
					return
				}
				defer l.Release()
				for now, seen := out.Add(1), most.Load(); now > seen && !most.CompareAndSwap(seen, now); {
					seen = most.Load()
				}
				time.Sleep(10 * time.Millisecond)
				out.Add(-1)
				served.Add(1)
			})
		}
		all.Wait()
		if served.Load() != 500 || most.Load() < 10 {
			t.Errorf("%d served, up to %d at a time", served.Load(), most.Load())
		}
		// The wait in the queue, seconds at first, is no latency.
		if e := a.Estimate(); e.Unloaded != 10*time.Millisecond || e.Latency != 10*time.Millisecond {
			t.Errorf("%+v", e)
		}
		if d := a.Stats().Idle; d != 0 {
			t.Errorf("idle for %v", d)
		}
	})
}

// TestContentionAdaptive has 64 goroutines whose requests take random times, and are lost to an overload at times, so that the
// limit changes all the while.
func TestContentionAdaptive(t *testing.T) {
	const most = 32
	a := mustAdaptive(t, overload.AdaptiveOptions{
		InitialLimit: 8, MinLimit: 2, MaxLimit: most, QueueLimit: 100,
		Window: time.Millisecond, WindowSamples: 10, ProbeInterval: 100 * time.Millisecond,
	})
	var (
		out, granted, refused, asked atomic.Int64
		limits                       [most + 1]atomic.Int64
		all                          sync.WaitGroup
	)
	different := func() (n int) {
		for i := range limits {
			if limits[i].Load() > 0 {
				n++
			}
		}
		return n
	}
	deadline := time.Now().Add(2 * time.Minute)
	for g := range uint64(64) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(g, 1))
			for i := 0; i < 1000 || different() < 3 && time.Now().Before(deadline); i++ {
				var l weir.Lease
				if i%5 == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(500))*time.Microsecond)
					l, _ = a.Acquire(ctx, 1)
					cancel()
				} else {
					l = a.TryAcquire(1)
				}
				d := l.Decision()
				switch {
				case d.Allowed:
					granted.Add(1)
					if n := out.Add(1); n > most {
						t.Errorf("%d are out", n)
					}
					for range random.IntN(20) {
						runtime.Gosched()
					}
					out.Add(-1)
				case d.Reason != weir.ReasonCanceled:
					refused.Add(1)
				}
				if d.Limit < 2 || d.Limit > most || d.Remaining < 0 || d.Remaining >= d.Limit {
					t.Errorf("%+v", d)
				}
				limits[min(max(d.Limit, 0), most)].Add(1)
				flood := asked.Add(1)/8000%2 == 1 // then the limit falls, however the goroutines take turns
				switch x := random.IntN(20); {
				case x == 0:
					l.Cancel()
				case x == 1 || flood:
					l.Drop()
				}
				l.Release()
			}
		})
	}
	all.Wait()
	st := a.Stats()
	if st.Remaining != st.Limit || st.Queued != 0 || st.Waiters != 0 || st.Allowed != granted.Load() || st.Refused != refused.Load() {
		t.Errorf("%+v, %d granted, %d refused", st, granted.Load(), refused.Load())
	}
	if n := different(); n < 3 {
		t.Errorf("only %d limits were seen", n)
	}
}

func TestAdaptiveDoesNotAllocate(t *testing.T) {
	a := mustAdaptive(t, overload.AdaptiveOptions{Window: time.Millisecond, WindowSamples: 10})
	for a.Estimate().Windows == 0 { // until a window has ended
		if n := testing.AllocsPerRun(10_000, func() { a.TryAcquire(1).Release() }); n != 0 {
			t.Fatalf("%v allocations", n)
		}
	}
}

func BenchmarkAdaptive(b *testing.B) {
	b.Run("Adaptive", func(b *testing.B) {
		a := mustAdaptive(b, overload.AdaptiveOptions{})
		b.ReportAllocs()
		for b.Loop() {
			a.TryAcquire(1).Release()
		}
	})
	b.Run("Concurrency", func(b *testing.B) {
		c, err := weir.NewConcurrency(20, weir.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			c.TryAcquire(1).Release()
		}
	})
}
