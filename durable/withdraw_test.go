package durable_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
)

// TestThoseBehindAWithdrawalLoseNoTime: who stands behind a request that is withdrawn gets its permit when that is there, and not
// by as much later as the withdrawal came after the last grant.
func TestThoseBehindAWithdrawalLoseNoTime(t *testing.T) {
	bubble(t, durable.OwnerOptions{}, func(t *testing.T, _ *durable.Memory, o *durable.Owner, _ *durable.MemoryEngine) {
		r := durable.Request{Policy: "p", Limit: weir.TokenBucket(weir.PerSecond(1), 0), N: 1, Wait: time.Minute, QueueLimit: 10}
		want(t, o.Acquire(t.Context(), r), durable.Granted)
		granted := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan durable.Answer, 1)
		go func() { first <- o.Acquire(ctx, r) }()
		synctest.Wait()
		second, _ := collect(o, r)
		time.Sleep(600 * time.Millisecond)
		cancel()
		want(t, <-first, durable.Canceled)
		time.Sleep(410*time.Millisecond - time.Since(granted) + 600*time.Millisecond)
		want(t, second.answer(), durable.Granted)
	})
}
