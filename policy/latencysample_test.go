//go:build !race

package policy_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirhq/weir/policy"
)

// TestLatencyIsOfASample: about one in 64 decisions, of whatever kind, is measured.
func TestLatencyIsOfASample(t *testing.T) {
	e := engine(t, login())
	const decisions = 64_000
	for i := range decisions / 4 {
		v := new(policy.Verdict) // every other one is new: also those are measured by chance
		for range 2 {
			r := request(ann)
			e.Take(&r, v)
		}
		takeKey(context.Background(), e, "login", fmt.Sprint(i%10), 1, v)
		r := request(ann)
		e.DebitAll(context.Background(), []*policy.Request{&r}, v)
	}
	l := e.Report().Latency
	var sum uint64
	for i, b := range l.Buckets {
		sum += b.Count
		if want := time.Duration(64) << i; i < 30 && b.UpTo != want || i == 30 && b.UpTo != math.MaxInt64 {
			t.Errorf("bucket %d is up to %v", i, b.UpTo)
		}
	}
	// The deviation is 31; five of them are met once in a million runs.
	if n := float64(l.Count); math.Abs(n-decisions/64) > 5*31.4 || l.Every != 64 || sum != l.Count || len(l.Buckets) != 31 || l.Sum <= 0 {
		t.Errorf("%d decisions were measured, %d in buckets, %v together", l.Count, sum, l.Sum)
	}
	if p50, p99 := l.Quantile(0.5), l.Quantile(0.99); p50 <= 0 || p99 < p50 {
		t.Errorf("half within %v, 99 %% within %v", p50, p99)
	}
}
