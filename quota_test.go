package weir_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
)

func TestQuota(t *testing.T) {
	bucket := func(rate weir.Rate, burst int64) *weir.TokenBucket {
		b, err := weir.NewTokenBucket(weir.TokenBucketOptions{Rate: rate, Burst: burst})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	sliding := func(o weir.SlidingWindowOptions) *weir.SlidingWindow {
		w, err := weir.NewSlidingWindow(o)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	fixed, err := weir.NewFixedWindow(weir.FixedWindowOptions{Limit: 7, Window: 90 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	slots, err := weir.NewConcurrency(weir.ConcurrencyOptions{Limit: 4})
	if err != nil {
		t.Fatal(err)
	}
	keyed, err := weir.NewKeyed[string](weir.KeyedOptions{Rate: weir.PerMinute(8), Burst: 5})
	if err != nil {
		t.Fatal(err)
	}
	used := bucket(weir.PerSecond(10), 20)
	used.TryAcquire(15)

	for _, c := range []struct {
		name    string
		limiter interface{ Quota() (int64, time.Duration) }
		permits int64
		window  time.Duration
	}{
		{"token bucket", bucket(weir.PerSecond(10), 20), 20, 2 * time.Second},
		{"token bucket in use", used, 20, 2 * time.Second},
		{"token bucket, rounded up", bucket(weir.Per(3, time.Second), 1), 1, 333333334},
		{"token bucket, slowest", bucket(weir.Per(1, 3660*24*time.Hour), 4), 4, 14640 * 24 * time.Hour},
		{"fixed window", fixed, 7, 90 * time.Minute},
		{"sliding window", sliding(weir.SlidingWindowOptions{Limit: 9, Window: time.Hour}), 9, time.Hour},
		{
			"approximate sliding window",
			sliding(weir.SlidingWindowOptions{Limit: 9, Window: time.Hour, Approximate: true}), 9, time.Hour,
		},
		{"concurrency", slots, 4, 0},
		{"keyed", keyed, 5, 37500 * time.Millisecond},
	} {
		if permits, window := c.limiter.Quota(); permits != c.permits || window != c.window {
			t.Errorf("%s: Quota() = %d, %v; want %d, %v", c.name, permits, window, c.permits, c.window)
		}
	}
}

func TestLimitersOfChainIsACopy(t *testing.T) {
	first, err := weir.NewConcurrency(weir.ConcurrencyOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	second, err := weir.NewConcurrency(weir.ConcurrencyOptions{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := weir.NewChain(first, second)
	if err != nil {
		t.Fatal(err)
	}
	got := chain.Limiters()
	if len(got) != 2 || got[0] != weir.Limiter(first) || got[1] != weir.Limiter(second) {
		t.Fatalf("Limiters() = %v, want the two in their order", got)
	}
	got[0] = nil
	if chain.Limiters()[0] != weir.Limiter(first) {
		t.Error("changing the answer of Limiters changed the chain")
	}
}
