package limits_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/limits"
)

// TestChanged: another number of permits and another rate change nothing else of a limit.
func TestChanged(t *testing.T) {
	month := algo.Calendar{Unit: algo.CalendarMonth, Day: 15}
	for _, c := range []struct{ limit, permits, rate weir.Limit }{
		{weir.TokenBucket(weir.PerSecond(10), 20), weir.TokenBucket(weir.PerSecond(10), 7), weir.TokenBucket(weir.PerHour(3), 20)},
		{weir.FixedWindow(weir.PerSecond(10)), weir.FixedWindow(weir.PerSecond(7)), weir.FixedWindow(weir.PerHour(3))},
		{weir.SlidingWindow(weir.PerSecond(9), 3), weir.SlidingWindow(weir.PerSecond(7), 3), weir.SlidingWindow(weir.PerHour(3), 3)},
		{weir.SlidingCounter(weir.PerSecond(10)), weir.SlidingCounter(weir.PerSecond(7)), weir.SlidingCounter(weir.PerHour(3))},
		{weir.AtOnce(4), weir.AtOnce(7), weir.AtOnce(4)},
		{weir.CalendarWindow(4, month), weir.CalendarWindow(7, month), weir.CalendarWindow(4, month)},
	} {
		if got := limits.WithPermits(c.limit, 7); got != c.permits || got.Check() != nil {
			t.Errorf("%v with 7 permits is %v, want %v", c.limit, got, c.permits)
		}
		if got := limits.WithRate(c.limit, weir.PerHour(3)); got != c.rate {
			t.Errorf("%v at 3/h is %v, want %v", c.limit, got, c.rate)
		}
		for _, n := range []int64{0, -1} {
			if got := limits.WithPermits(c.limit, n); got.Check() == nil {
				t.Errorf("%v with %d permits is %v, which can be used", c.limit, n, got)
			}
		}
	}
	if got := limits.WithRate(weir.Limit{}, weir.PerSecond(1)); got.Check() == nil {
		t.Errorf("the zero limit with a rate is %v, which can be used", got)
	}
}

func TestRateArithmetic(t *testing.T) {
	for _, c := range []struct {
		rate      weir.Rate
		interval  time.Duration
		perSecond float64
	}{
		{weir.PerSecond(1), time.Second, 1},
		{weir.PerSecond(3), 333333334, 3},
		{weir.PerMinute(8), 7500 * time.Millisecond, 8.0 / 60},
		{weir.PerDay(1), 24 * time.Hour, 1.0 / 86400},
		{weir.PerSecond(1e9), 1, 1e9},
		{weir.Per(2, 3), 2, 2e9 / 3},
		{weir.Rate{}, weir.Never, 0},
		{weir.Per(-1, time.Second), weir.Never, -1},
	} {
		if got := limits.Interval(c.rate); got != c.interval {
			t.Errorf("%v: Interval is %v, want %v", c.rate, got, c.interval)
		}
		if got := limits.PerSecond(c.rate); c.rate.Permits > 0 && got/c.perSecond-1 > 1e-12 {
			t.Errorf("%v: PerSecond is %v, want %v", c.rate, got, c.perSecond)
		}
	}
}

// TestMembers: those of a chain in their order, also of a type that embeds one; nothing else has members.
func TestMembers(t *testing.T) {
	first, err := weir.NewConcurrency(1, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := weir.NewConcurrency(2, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := weir.NewChain(first, second)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []any{chain, struct{ *weir.Chain }{chain}} {
		got, ok := limits.Members(of)
		if !ok || len(got) != 2 || got[0] != weir.Acquirer(first) || got[1] != weir.Acquirer(second) {
			t.Fatalf("the members of a %T are %v, %v, want the two in their order", of, got, ok)
		}
		got[0] = nil
		if again, _ := limits.Members(of); again[0] != weir.Acquirer(first) {
			t.Error("changing what Members returned changed the chain")
		}
	}
	for _, of := range []any{nil, first, 5} {
		if got, ok := limits.Members(of); ok || got != nil {
			t.Errorf("the members of a %T are %v, %v, want none", of, got, ok)
		}
	}
}

// TestMade: what is made of a limit is made once, also for one that is written a second time, and nothing is kept of an error.
func TestMade(t *testing.T) {
	calls, most := 0, 1+rand.Int64N(1<<40) // the process keeps what was made when this ran before
	permits := func(l weir.Limit) (*int64, error) {
		calls++
		n := l.Permits()
		return &n, l.Check()
	}
	first, err := limits.Made(weir.AtOnce(most), inside.MadeByStore, permits)
	if err != nil {
		t.Fatal(err)
	}
	second, err := limits.Made(weir.AtOnce(most), inside.MadeByStore, permits)
	if err != nil || first != second || *first != most || calls != 1 {
		t.Errorf("%v, %v, %v after %d calls, want one value and one call", *first, *second, err, calls)
	}
	other, err := limits.Made(weir.AtOnce(most), inside.MadeByRedis, permits)
	if err != nil || other == first {
		t.Errorf("%v: two places have one value", err)
	}
	calls = 0
	for range 2 {
		if _, err := limits.Made(weir.AtOnce(-most), inside.MadeByStore, permits); err == nil {
			t.Error("a limit that cannot be used has no error")
		}
	}
	if calls != 2 {
		t.Errorf("%d calls, want 2: an error is kept", calls)
	}
}

// TestPrefixes: each algorithm has a prefix of its own, so that a new one shares its records with no other.
func TestPrefixes(t *testing.T) {
	known := map[string]bool{}
	for a := range limits.Algorithms {
		p := limits.Prefix(a)
		if got, rest := limits.CutPrefix(p + "6:policy"); got != a || rest != "6:policy" || known[p] {
			t.Errorf("the prefix %q of %v is read as that of %v, before %q", p, a, got, rest)
		}
		known[p] = true
	}
	if _, ok := limits.Of(limits.Algorithms, weir.PerSecond(1), 1, 1, algo.Calendar{}); ok || limits.Prefix(weir.AlgorithmTokenBucket) != "" {
		t.Error("an algorithm has no prefix, or a token bucket has one")
	}
}
