package weir_test

import (
	"math"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

// TestForgivenSaturates: costs that are far too large do not turn the count negative.
func TestForgivenSaturates(t *testing.T) {
	clock := manualclock.New(0)
	limiter, err := weir.New(weir.TokenBucket(weir.PerSecond(1), 3), weir.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		limiter.Refund(3)
		lease := limiter.TryReserve(1)
		if !lease.Allowed() {
			t.Fatalf("refused: %+v", lease.Decision())
		}
		lease.Commit(math.MaxInt64)
		limiter.Refund(100)
	}
	if got := limiter.Stats().Forgiven; got != math.MaxInt64 {
		t.Errorf("%d permits forgiven, want the largest number", got)
	}
}
