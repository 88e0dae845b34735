package verify_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// TestLimiterOutlivesBubble uses limiters that were made before, and in one bubble of testing/synctest after the other,
// as tests of a program with global limiters do. A timer or channel kept from one bubble to the next would panic.
func TestLimiterOutlivesBubble(t *testing.T) {
	b := must(weir.New(weir.TokenBucket(weir.PerSecond(10), 1), weir.Options{QueueLimit: 10}))
	c := must(weir.NewConcurrency(1, weir.Options{QueueLimit: 10}))
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			for range 5 {
				if l, err := b.Acquire(t.Context(), 1); err != nil || !l.Allowed() {
					t.Errorf("%v %+v", err, l.Decision())
				}
			}
			held := c.TryAcquire(1)
			time.AfterFunc(time.Second, held.Release)
			l, err := c.Acquire(t.Context(), 1)
			if err != nil || !l.Allowed() {
				t.Errorf("%v %+v", err, l.Decision())
			}
			l.Release()
		})
		if l, err := b.Acquire(t.Context(), 1); err != nil || !l.Allowed() {
			t.Errorf("%v %+v", err, l.Decision())
		}
	}
}
