package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
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
	ask := func(n int, want durable.Outcome) time.Duration {
		t.Helper()
		begin := time.Now()
		for {
			ctx, cancel := context.WithTimeout(t.Context(), inTheEnd)
			a := nodes[n].Node().Acquire(ctx, durable.Request{Policy: "api", Limit: limit, N: 5})
			cancel()
			if a.Outcome == want {
				return time.Since(begin)
			}
			if a.Outcome != durable.Unavailable && a.Outcome != durable.Stopping || time.Since(begin) > inTheEnd {
				t.Fatalf("%v (%v), want %v", a.Outcome, a.Err, want)
			}
		}
	}
	ask(0, durable.Granted)
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
	t.Logf("granted by another owner %v later", ask((owner+1)%3, durable.Granted))
	ask((owner+2)%3, durable.Refused)
}
