//go:build !race

package algo_test

import (
	"math"
	"testing"

	"github.com/weirhq/weir/algo"
)

func TestConcurrencyParameters(t *testing.T) {
	for _, limit := range []int64{math.MinInt64, -1, 0, algo.MaxPermits + 1, math.MaxInt64} {
		_, err := algo.NewConcurrency(limit)
		refuses(t, "NewConcurrency", "limit", err)
	}

	for _, limit := range []int64{1, algo.MaxPermits} {
		if c := must(algo.NewConcurrency(limit)); c.Limit() != limit {
			t.Errorf("limit %d, want %d", c.Limit(), limit)
		}
	}
}

// TestConcurrencyIgnoresTime wants permits to come back only when they are released.
func TestConcurrencyIgnoresTime(t *testing.T) {
	c := must(algo.NewConcurrency(2))
	s, r := c.Take(algo.ConcurrencyState{}, 0, 2)

	if at := c.FreshAt(s); at != math.MaxInt64 {
		t.Errorf("FreshAt is %d while permits are out, want math.MaxInt64", at)
	}

	if refused := c.Peek(s, math.MaxInt64, 1); refused.Allowed || refused.RetryAfter != 0 || refused.ResetAfter != 0 {
		t.Errorf("%+v long after, want a refusal without a time", refused)
	}

	s = c.Cancel(s, math.MinInt64, 2, r.Mark)
	if at := c.FreshAt(s); !c.Fresh(s, 0) || at != math.MinInt64 {
		t.Errorf("FreshAt is %d when all is released, want math.MinInt64", at)
	}
}
