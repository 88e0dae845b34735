package durable_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// TestThoseBehindAWithdrawalLoseNoTime: a call behind a request that is withdrawn gets its permit when that is there, and not by
// as much later as the withdrawal came after the last grant.
func TestThoseBehindAWithdrawalLoseNoTime(t *testing.T) {
	bubble(t, durable.OwnerOptions{}, func(t *testing.T, _ *durable.Memory, o *durable.Owner, _ *durable.MemoryEngine) {
		r := spectest.Request{Policy: "p", Limit: weir.TokenBucket(weir.PerSecond(1), 0), N: 1, Wait: time.Minute, Queue: 10}
		want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonNone)
		granted := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan spectest.Answer, 1)
		go func() { first <- spectest.Acquire(ctx, o, r) }()
		synctest.Wait()
		second, _ := collect(o, r)
		time.Sleep(600 * time.Millisecond)
		cancel()
		want(t, <-first, weir.ReasonCanceled)
		time.Sleep(410*time.Millisecond - time.Since(granted) + 600*time.Millisecond)
		want(t, second.answer(), weir.ReasonNone)
	})
}
