package verify_test

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/race"
)

const goroutines = 64

// hammered is what became of a limiter that 64 goroutines asked for a while.
type hammered struct {
	calls, admitted int64
	began           time.Time
	atMost          time.Duration // for how long it was asked, at most
	refused         refusals
}

// refusals are some of the times at which a limit had nothing left: each is at most a moment late.
//
// They show what a limit was due, however busy the machine is: permits are lost for want of callers only while a limit is full, and
// between two refusals that follow each other closely it was not. What happened in longer pauses is unknown, and does not count.
type refusals []time.Duration

const moment = time.Millisecond

// How closely refusals must follow each other. A limit whose burst is the permits of a quarter of a second is not full again
// after stall. How often a sliding window was used up must be known more exactly.
const closely, stall = 20 * time.Millisecond, 200 * time.Millisecond

// note asks, and notes the time if the answer is no, unless the machine did something else meanwhile.
func (r *refusals) note(began time.Time, allow func() bool) bool {
	asked := time.Since(began)
	allowed := allow()
	if answered := time.Since(began); !allowed && answered-asked < moment {
		*r = append(*r, answered)
	}
	return allowed
}

// least is what must have been allowed: all there was in the beginning, and what became available between refusals.
func (r refusals) least(burst float64, pause time.Duration, available func(d time.Duration) float64) float64 {
	if len(r) == 0 {
		return 0
	}
	slices.Sort(r)
	sum, from := burst, r[0]
	for i, at := range r {
		if i+1 == len(r) || r[i+1]-at > pause {
			sum += available(max(0, at-from-moment))
			from = r[min(i+1, len(r)-1)]
		}
	}
	return sum
}

// hammer calls allow from 64 goroutines for half a second, or for WEIR_ROUNDS times as long. With the race detector, which is after
// other things, it does so for less.
func hammer(allow func() bool) hammered {
	lasts := time.Second / 2
	if race.Enabled {
		lasts = 400 * time.Millisecond
	}
	if text := os.Getenv("WEIR_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			panic(fmt.Sprintf("WEIR_ROUNDS is %q: must be a number of rounds from 1", text))
		}
		lasts *= time.Duration(n)
	}
	var (
		calls, admitted atomic.Int64
		ready, done     sync.WaitGroup
		stop            atomic.Bool
		start           = make(chan struct{})
		before          time.Time
		refused         [goroutines]refusals
	)
	for i := range goroutines {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			n, granted := int64(0), int64(0)
			for ; !stop.Load(); n++ {
				var allowed bool
				if n%64 == 0 {
					allowed = refused[i].note(before, allow)
				} else {
					allowed = allow()
				}
				if allowed {
					granted++
				}
			}
			calls.Add(n)
			admitted.Add(granted)
		})
	}
	ready.Wait()
	before = time.Now()
	close(start)
	<-time.After(lasts)
	stop.Store(true)
	done.Wait()
	return hammered{
		calls: calls.Load(), admitted: admitted.Load(), began: before, atMost: time.Since(before), refused: slices.Concat(refused[:]...),
	}
}

// TestContention asks every algorithm from 64 goroutines at once for half a second. No more than the limit may be allowed, and no less
// than 99.9 % of what it was due while it refused others.
func TestContention(t *testing.T) {
	for _, perSecond := range []int64{1_000, 100_000, 1_000_000} {
		burst := perSecond / 4
		window := 250 * time.Millisecond
		rate := func(d time.Duration) float64 { return float64(perSecond) * d.Seconds() }
		windows := func(d time.Duration) float64 { return d.Seconds() / window.Seconds() }
		for _, c := range []struct {
			name      string
			limiter   interface{ Allow() bool }
			most      func(d time.Duration) float64
			pause     time.Duration
			available func(d time.Duration) float64 // again, after a refusal
		}{
			{
				"token bucket",
				must(weir.New(weir.TokenBucket(weir.PerSecond(perSecond), burst), weir.Options{})),
				func(d time.Duration) float64 { return float64(burst) + rate(d) },
				stall, rate,
			},
			{
				"token bucket with a decision",
				trying{must(weir.New(weir.TokenBucket(weir.PerSecond(perSecond), burst), weir.Options{}))},
				func(d time.Duration) float64 { return float64(burst) + rate(d) },
				stall, rate,
			},
			{
				"token bucket at an awkward rate",
				must(weir.New(weir.TokenBucket(weir.PerSecond(perSecond-1), burst), weir.Options{})),
				func(d time.Duration) float64 { return float64(burst) + rate(d) },
				stall, func(d time.Duration) float64 { return rate(d) * (1 - 1/float64(perSecond)) },
			},
			{
				"token bucket under the lock",
				must(weir.New(weir.TokenBucket(weir.Per(perSecond*1e6-1, 1e6*time.Second), burst), weir.Options{})),
				func(d time.Duration) float64 { return float64(burst) + rate(d) },
				stall, rate,
			},
			{
				"fixed window",
				must(weir.New(weir.FixedWindow(weir.Per(burst, window)), weir.Options{})),
				func(d time.Duration) float64 { return float64(burst) * (math.Ceil(windows(d)) + 1) },
				stall, func(d time.Duration) float64 { return float64(burst) * math.Floor(windows(d)) },
			},
			{
				"calendar window", // of a minute, which begins at most once more in the test
				must(weir.New(weir.CalendarWindow(burst, algo.Calendar{Unit: algo.CalendarMinute}), weir.Options{})),
				func(d time.Duration) float64 { return float64(burst) * (2 + math.Floor(d.Minutes())) },
				stall, func(time.Duration) float64 { return 0 },
			},
			{
				"sliding window",
				must(weir.New(weir.SlidingWindow(weir.Per(burst, window), 0), weir.Options{})),
				func(d time.Duration) float64 { return float64(burst) * (math.Ceil(windows(d)) + 1) },
				closely, func(d time.Duration) float64 { return float64(burst) * math.Floor(windows(d)/slide) },
			},
			{
				"sliding window of two counters",
				must(weir.New(weir.SlidingCounter(weir.Per(burst, window)), weir.Options{})),
				func(d time.Duration) float64 { return float64(burst) * (math.Ceil(windows(d)) + 1) },
				closely, func(d time.Duration) float64 { return spread * float64(burst) * max(0, windows(d)-1) },
			},
		} {
			t.Run(fmt.Sprintf("%s/%d per second", c.name, perSecond), func(t *testing.T) {
				h := hammer(c.limiter.Allow)
				h.judge(t, c.most(h.atMost), h.refused.least(float64(burst), c.pause, c.available))
			})
		}
	}
}

// slide is how many windows may pass until a sliding one has allowed its limit once more: a tenth of it counts until all of that is
// over, and what a refusal ends may begin a pause later.
const slide = 1.2

// spread is how much of its limit one of two counters has allowed at least when its window is over: until the last pause of that, the
// other one counted. Of the window in which a refusal comes first, nothing is known.
const spread = 0.9

// judge compares what was allowed with what may have been, and with what must have been. The race detector is too slow for some
// rates: then nothing is refused, and nothing must have been allowed. So the tests also run without it.
func (h *hammered) judge(t *testing.T, most, least float64) {
	t.Helper()
	t.Logf("admitted %d of %d, at most %.0f (%.4f), at least %.0f", h.admitted, h.calls, most, float64(h.admitted)/most, least)
	if float64(h.admitted) > most {
		t.Errorf("admitted %d, more than the %.0f allowed in %v", h.admitted, most, h.atMost)
	}
	if float64(h.admitted) < 0.999*least {
		t.Errorf("admitted %d, less than 99.9 %% of the %.0f due in %v", h.admitted, least, h.atMost)
	}
}

// trying is a limiter whose Allow is TryAcquire(1).
type trying struct{ weir.Acquirer }

func (l trying) Allow() bool { return l.TryAcquire(1).Allowed() }

// TestContentionOnChain asks a chain of a wide and a narrow limit: what the narrow one refuses must not be charged to
// the wide one.
func TestContentionOnChain(t *testing.T) {
	const plenty = 1_000_000 // more than the narrow one allows in a quarter of an hour
	wide := must(weir.New(weir.TokenBucket(weir.Per(plenty, 3600*24*time.Hour), 0), weir.Options{Name: "wide"}))
	narrow := must(weir.New(weir.TokenBucket(weir.PerSecond(1000), 100), weir.Options{Name: "narrow"}))
	chain := must(weir.NewChain(wide, narrow))
	allow := func() bool {
		l := chain.TryAcquire(1)
		defer l.Release()
		if d := l.Decision(); !d.Allowed && d.Policy != "narrow" {
			t.Errorf("refused by %+v", d)
		}
		return l.Allowed()
	}
	h := hammer(allow)
	for allow() { // also where the machine did something else meanwhile, one is refused
		h.admitted++
	}
	h.atMost = time.Since(h.began)
	if most := 100 + 1000*h.atMost.Seconds(); float64(h.admitted) > most {
		t.Errorf("admitted %d, more than the %.0f allowed", h.admitted, most)
	}
	if left := wide.Stats().Remaining; left != plenty-h.admitted {
		t.Errorf("%d admitted, but the wide limit has %d of %d left", h.admitted, left, plenty)
	}
	if s := narrow.Stats(); s.Allowed != h.admitted || s.Refused == 0 {
		t.Errorf("%d admitted, but the narrow limit counts %+v", h.admitted, s)
	}
}

// TestContentionOnConcurrency takes and releases from 64 goroutines, some of which wait, and watches how many are in.
func TestContentionOnConcurrency(t *testing.T) {
	const limit = 10
	c := must(weir.NewConcurrency(limit, weir.Options{QueueLimit: 1000}))
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
	if s.Remaining != limit || s.Queued != 0 || s.Waiters != 0 {
		t.Errorf("in the end %+v: want all %d permits back", s, limit)
	}
	if s.Allowed != served.Load() {
		t.Errorf("%d granted, but served %d", s.Allowed, served.Load())
	}
}

// TestCountsUnderContention wants every call counted once.
func TestCountsUnderContention(t *testing.T) {
	b := must(weir.New(weir.TokenBucket(weir.PerSecond(100_000), 1000), weir.Options{}))
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
	if s := b.Stats(); s.Allowed != h.admitted || s.Allowed+s.Refused != calls.Load() {
		t.Errorf("%d calls, %d admitted, but %+v", calls.Load(), h.admitted, s)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
