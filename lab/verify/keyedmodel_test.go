package verify_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// closable is a limiter that can be closed.
type closable interface {
	weir.Acquirer
	io.Closer
}

// plain makes the limiter of which every key of a Keyed with this limit and these options should behave like one.
func plain(limit weir.Limit, o weir.KeyedOptions) (closable, error) {
	options := weir.Options{QueueLimit: o.QueueLimit, MaxDebt: o.MaxDebt, Clock: o.Clock}
	if limit.Algorithm() == weir.AlgorithmConcurrency {
		return weir.NewConcurrency(limit.Permits(), options)
	}
	return weir.New(limit, options)
}

// awkward are rates whose permits, or the parts of them, are no whole numbers of nanoseconds, beside some that are.
var awkward = []weir.Rate{
	weir.PerSecond(1), weir.PerSecond(3), weir.PerMinute(7), weir.PerSecond(1000), weir.PerSecond(999_999_937),
	weir.Per(1, 3660*24*time.Hour), weir.Per(8, 3660*24*time.Hour), weir.Per(9, 7*time.Nanosecond*1000), weir.Per(1, 1),
	weir.Per(5, 7), weir.Per(11, 13*time.Second), weir.Per(1001, time.Second), weir.Per(8, 11*time.Second),
}

// mostTime is how far histories go: the timers of a bubble end at 292 years.
const mostTime = 60 * 365 * 24 * time.Hour

// bubbleTime is the time of a bubble as a Clock.
type bubbleTime struct{}

var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (bubbleTime) Now() int64 { return time.Since(bubbleStart).Nanoseconds() }

func (bubbleTime) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// bubble calls f in a bubble. A failure, which rapid wants to see in its own goroutine, ends f by a panic.
func bubble(t *testing.T, f func()) {
	t.Helper()
	var failed any
	synctest.Test(t, func(*testing.T) {
		defer func() { failed = recover() }()
		f()
	})
	switch {
	case failed == nil:
	case fmt.Sprintf("%T", failed) == "rapid.invalidData":
		panic(failed) // from a line of its own: rapid tells failures apart by these, and would take this one for a smaller form of another
	default:
		panic(failed)
	}
}

// pair is a key and a limiter that should be the same.
type pair struct {
	key    int
	plain  closable
	leases [][2]weir.Lease
}

// possibleRate draws one of the awkward rates, of those that the limits of such a rate can have: a bucket must be regained within
// 50 years.
func possibleRate(of func(weir.Rate) weir.Limit) *rapid.Generator[weir.Rate] {
	return rapid.SampledFrom(awkward).Filter(func(r weir.Rate) bool { return of(r).Check() == nil })
}

// someLimit draws a limit that counts so.
func someLimit(t *rapid.T, algorithm weir.Algorithm) weir.Limit {
	switch algorithm {
	case weir.AlgorithmTokenBucket:
		burst := rapid.SampledFrom([]int64{1, 2, 5}).Draw(t, "burst")
		return weir.TokenBucket(possibleRate(bucketOf(burst)).Draw(t, "rate"), burst)
	case weir.AlgorithmFixedWindow:
		return weir.FixedWindow(possibleRate(weir.FixedWindow).Draw(t, "rate"))
	case weir.AlgorithmSlidingWindow:
		rate := possibleRate(func(r weir.Rate) weir.Limit { return weir.SlidingWindow(r, 1) }).Draw(t, "rate")
		return weir.SlidingWindow(rate, rapid.IntRange(1, int(min(7, rate.Period))).Draw(t, "segments"))
	case weir.AlgorithmSlidingCounter:
		return weir.SlidingCounter(possibleRate(weir.SlidingCounter).Draw(t, "rate"))
	case weir.AlgorithmConcurrency:
		return weir.AtOnce(rapid.Int64Range(1, 6).Draw(t, "permits"))
	default: // AlgorithmCalendarWindow
		units := []algo.CalendarUnit{algo.CalendarMinute, algo.CalendarHour, algo.CalendarDay}
		return weir.CalendarWindow(rapid.Int64Range(1, 6).Draw(t, "permits"), algo.Calendar{Unit: rapid.SampledFrom(units).Draw(t, "unit")})
	}
}

func bucketOf(burst int64) func(weir.Rate) weir.Limit {
	return func(r weir.Rate) weir.Limit { return weir.TokenBucket(r, burst) }
}

// keyed is what both limiters for keys have.
type keyed interface {
	TryAcquire(key int, n int64) weir.Lease
	TryReserve(key int, n int64) weir.Lease
	Reserve(ctx context.Context, key int, n int64) (weir.Lease, error)
	Peek(key int, n int64) weir.Decision
	Close() error
}

// everyKey holds all keys to a limit, which is chosen for each of them or that of the limiter.
func everyKey(limit weir.Limit, o weir.KeyedOptions, chosen bool) keyed {
	slots := limit.Algorithm() == weir.AlgorithmConcurrency
	switch {
	case slots && chosen:
		return must(weir.NewKeyedConcurrencyFunc(limit.Permits(), o, func(int) int64 { return limit.Permits() }))
	case slots:
		return must(weir.NewKeyedConcurrency[int](limit.Permits(), o))
	case chosen:
		return must(weir.NewKeyedFunc(limit, o, func(int) weir.Limit { return limit }))
	default:
		return must(weir.NewKeyed[int](limit, o))
	}
}

func alongside(t *rapid.T, algorithm weir.Algorithm, clocked, chosen bool) {
	const keys = 3
	o := weir.KeyedOptions{
		QueueLimit: rapid.SampledFrom([]int64{0, 1, 5, 100}).Draw(t, "queue"),
		MaxDebt:    rapid.SampledFrom([]int64{0, 1, 7, weir.NoDebt}).Draw(t, "debt"),
		MaxKeys:    rapid.SampledFrom([]int{keys, 5000}).Draw(t, "max"),
	}
	limit := someLimit(t, algorithm)
	if algorithm == weir.AlgorithmConcurrency {
		o.MaxDebt = 0
	}
	if clocked {
		o.Clock = bubbleTime{}
	}
	k := everyKey(limit, o, chosen)
	defer func() { _ = k.Close() }()
	most := limit.Permits()
	var pairs [keys]pair
	for i := range pairs {
		pairs[i] = pair{key: i, plain: must(plain(limit, o))}
	}
	defer func() {
		for i := range pairs {
			_ = pairs[i].plain.Close()
		}
	}()
	others := keys
	step := int64(max(limit.Rate().Period, 1))
	if algorithm == weir.AlgorithmCalendarWindow {
		step = int64(time.Hour)
	}
	// What is given back is added up modulo 2^64 nanoseconds of refilling. Once that has gone round, a lease that is older than what
	// is kept of its key may be taken for a newer one: it is 584 years, which a bucket of decades gives back in a few steps.
	var back int64
	mayGiveBack := func(permits int64) bool {
		const most = math.MaxInt64 / 2
		each := limit.Rate().Period / time.Duration(max(limit.Rate().Permits, 1))
		if permits > (most-back)/int64(each+1) {
			return false
		}
		back += permits * int64(each+1)
		return true
	}
	one := func(t *rapid.T) *pair { return &pairs[rapid.IntRange(0, keys-1).Draw(t, "key")] }
	permits := func(t *rapid.T) int64 {
		return rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, most+1), rapid.Just(most)).Draw(t, "n")
	}
	differ := func(what string, p *pair, got, want weir.Decision) {
		if got != want {
			t.Fatalf("%s of key %d: %+v, the limiter says %+v", what, p.key, got, want)
		}
	}
	keep := func(p *pair, got, want weir.Lease) {
		if got.Allowed() {
			p.leases = append(p.leases, [2]weir.Lease{got, want})
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"time": func(t *rapid.T) {
			if time.Since(bubbleStart) > mostTime {
				return
			}
			time.Sleep(time.Duration(rapid.OneOf(
				rapid.Int64Range(0, 3), rapid.Int64Range(0, step/max(limit.Rate().Permits, 1)+1), rapid.Int64Range(0, 2*step),
			).Draw(t, "ns")))
		},
		"forgotten": func(*rapid.T) { // a new key needs the place of one that is fresh
			const news = 20
			if !mayGiveBack(2 * news) {
				return
			}
			for range news {
				k.TryAcquire(others, 1).Release()
				if timed, ok := k.(*weir.Keyed[int]); ok {
					timed.Allow(others)
					timed.Reset(others)
				}
				others++
			}
		},
		"allow": func(t *rapid.T) {
			p := one(t)
			if l, ok := p.plain.(interface{ Allow() bool }); ok {
				timed, ok := k.(*weir.Keyed[int])
				if got, want := ok && timed.Allow(p.key), l.Allow(); got != want {
					t.Fatalf("Allow of key %d: %v, the limiter says %v", p.key, got, want)
				}
			}
		},
		"peek": func(t *rapid.T) {
			p, n := one(t), permits(t)
			differ("Peek", p, k.Peek(p.key, n), p.plain.Peek(n))
		},
		"take": func(t *rapid.T) {
			p, n := one(t), permits(t)
			got, want := k.TryAcquire(p.key, n), p.plain.TryAcquire(n)
			differ("TryAcquire", p, got.Decision(), want.Decision())
			keep(p, got, want)
		},
		"reserve": func(t *rapid.T) {
			p, n := one(t), permits(t)
			got, want := k.TryReserve(p.key, n), p.plain.TryReserve(n)
			differ("TryReserve", p, got.Decision(), want.Decision())
			keep(p, got, want)
		},
		"acquire": func(t *rapid.T) {
			p, n := one(t), permits(t)
			timeout := time.Duration(rapid.Int64Range(0, 2*step).Draw(t, "timeout"))
			if time.Since(bubbleStart) > mostTime {
				timeout = 0
			}
			if timeout == p.plain.Peek(n).RetryAfter {
				timeout++ // or either of two that are due at the same time might come first
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			var want weir.Lease
			var failed error
			done := make(chan struct{})
			go func() {
				want, failed = p.plain.Reserve(ctx, n)
				close(done)
			}()
			got, err := k.Reserve(ctx, p.key, n)
			<-done
			if (err == nil) != (failed == nil) {
				t.Fatalf("Reserve of key %d: %v, the limiter says %v", p.key, err, failed)
			}
			differ("Reserve", p, got.Decision(), want.Decision())
			keep(p, got, want)
		},
		"end": func(t *rapid.T) {
			p := one(t)
			if len(p.leases) == 0 || !mayGiveBack(most) {
				return
			}
			i := rapid.IntRange(0, len(p.leases)-1).Draw(t, "lease")
			l := p.leases[i]
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				l[0].Cancel()
				l[1].Cancel()
			case 1:
				l[0].Release()
				l[1].Release()
			default:
				actual := rapid.Int64Range(0, 2*most).Draw(t, "actual")
				l[0].Commit(actual)
				l[1].Commit(actual)
			}
			p.leases = append(p.leases[:i:i], p.leases[i+1:]...)
		},
		"refund": func(t *rapid.T) {
			p, n := one(t), permits(t)
			if l, ok := p.plain.(interface{ Refund(n int64) }); ok && mayGiveBack(most) {
				if timed, ok := k.(*weir.Keyed[int]); ok {
					timed.Refund(p.key, n)
					l.Refund(n)
				}
			}
		},
		"": func(t *rapid.T) {
			for i := range pairs {
				p := &pairs[i]
				differ("Peek", p, k.Peek(p.key, 1), p.plain.Peek(1))
			}
		},
	})
}

// TestKeyedNeverMints lets one key take, reserve, cancel, commit and refund while others make the limiter forget it whenever it
// is fresh, and adds up in exact fractions what may have been allowed in any span of time: burst + rate x span + refunds +
// debt.
func TestKeyedNeverMints(t *testing.T) {
	histories(t, "2000")
	for _, clocked := range []bool{false, true} {
		t.Run(fmt.Sprintf("clock %v", clocked), func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				bubble(t, func() { mints(r, clocked) })
			})
		})
	}
}

// admitted is one grant that was not canceled.
type admitted struct {
	at    time.Duration
	n     int64 // what it cost
	lease weir.Lease
	ended bool
}

func mints(t *rapid.T, clocked bool) {
	burst := rapid.Int64Range(1, 6).Draw(t, "burst")
	rate := possibleRate(bucketOf(burst)).Draw(t, "rate")
	o := weir.KeyedOptions{MaxKeys: 1, MaxDebt: weir.NoDebt}
	if clocked {
		o.Clock = bubbleTime{}
	}
	k, err := weir.NewKeyed[int](weir.TokenBucket(rate, burst), o)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	var all []admitted
	refunds := int64(0)
	other := 1
	t.Repeat(map[string]func(*rapid.T){
		"time": func(t *rapid.T) {
			if time.Since(bubbleStart) > mostTime {
				return
			}
			time.Sleep(time.Duration(rapid.OneOf(
				rapid.Int64Range(0, 3), rapid.Int64Range(0, int64(rate.Period)/rate.Permits+1), rapid.Int64Range(0, 2*int64(rate.Period)),
			).Draw(t, "ns")))
		},
		"reserve": func(t *rapid.T) {
			n := rapid.Int64Range(1, burst).Draw(t, "n")
			if l := k.TryReserve(0, n); l.Allowed() {
				all = append(all, admitted{at: time.Since(start), n: n, lease: l})
			}
		},
		"end": func(t *rapid.T) {
			if len(all) == 0 {
				return
			}
			a := &all[rapid.IntRange(0, len(all)-1).Draw(t, "lease")]
			if a.ended {
				return
			}
			a.ended = true
			actual := rapid.Int64Range(0, a.n).Draw(t, "actual")
			a.lease.Commit(actual)
			a.n = actual
		},
		"refund": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "rarely") == 0 {
				n := rapid.Int64Range(1, 3).Draw(t, "n")
				k.Refund(0, n)
				refunds += n
			}
		},
		"forgotten": func(*rapid.T) {
			if time.Since(bubbleStart) < mostTime && k.Allow(other) {
				other++
				time.Sleep(time.Duration(int64(rate.Period)/rate.Permits + 1)) // until that one is fresh
			}
		},
		"": func(t *rapid.T) {
			for from := range all {
				sum := big.NewRat(0, 1)
				for _, a := range all[from:] {
					sum.Add(sum, big.NewRat(a.n, 1))
					may := big.NewRat(int64(a.at-all[from].at), int64(rate.Period))
					may.Mul(may, big.NewRat(rate.Permits, 1)).Add(may, big.NewRat(burst+refunds, 1))
					if sum.Cmp(may) > 0 {
						t.Fatalf("%v were granted from %v to %v, more than %v: %+v", sum, all[from].at, a.at, may, all)
					}
				}
			}
		},
	})
}
