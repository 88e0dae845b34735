package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable/spectest"
)

// TestHandOverOfThree: when the owner leaves, another node grants soon, and the limit is the same.
func TestHandOverOfThree(t *testing.T) {
	t.Parallel()
	all := three(t)
	for i := range all {
		all[i] = lasting(all[i])
	}
	nodes := joinAll(t, all)
	limit := weir.TokenBucket(weir.Per(1, time.Hour), 10)
	ask := func(n int, want weir.Reason) time.Duration {
		t.Helper()
		begin := time.Now()
		for {
			ctx, cancel := context.WithTimeout(t.Context(), inTheEnd)
			a := spectest.Acquire(ctx, nodes[n].Node(), spectest.Request{Policy: "api", Limit: limit, N: 5})
			cancel()
			if a.Reason == want {
				return time.Since(begin)
			}
			if a.Reason != weir.ReasonUnavailable && a.Reason != weir.ReasonClosed || time.Since(begin) > inTheEnd {
				t.Fatalf("%v (%v), want %v", a.Reason, a.Err, want)
			}
		}
	}
	ask(0, weir.ReasonNone)
	owner := 0
	for i, c := range nodes {
		if c.Node().Owner() != nil {
			owner = i
		}
	}
	begin := time.Now()
	if err := nodes[owner].Close(); err != nil {
		t.Error(err)
	}
	t.Logf("left in %v", time.Since(begin))
	t.Logf("granted by another owner %v later", ask((owner+1)%3, weir.ReasonNone))
	ask((owner+2)%3, weir.ReasonLimited)
}
