package policy_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// TestQuantileIsThatOfTheBuckets compares with the obvious: the buckets as a list of as many times, sorted.
func TestQuantileIsThatOfTheBuckets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var l policy.Latency
		var list []time.Duration
		for i := range 31 {
			b := policy.LatencyBucket{UpTo: 64 << i}
			if random.IntN(3) == 0 {
				b.Count = uint64(random.IntN(5))
			}
			if i == 30 {
				b.UpTo = math.MaxInt64
			}
			l.Buckets = append(l.Buckets, b)
			for range b.Count {
				list = append(list, b.UpTo)
			}
		}
		for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1, random.Float64()} {
			want := time.Duration(0)
			if n := len(list); n > 0 {
				// The shortest time that at least the part q of all does not exceed.
				at := 0
				for float64(at+1) < q*float64(n) {
					at++
				}
				want = list[at]
			}
			if got := l.Quantile(q); got != want {
				t.Fatalf("q=%v of %v: %v, want %v", q, list, got, want)
			}
		}
	}
	var l policy.Latency
	if l.Quantile(0.5) != 0 {
		t.Error("of nothing")
	}
	l.Buckets = []policy.LatencyBucket{{64, 1}, {128, 1}}
	for q, want := range map[float64]time.Duration{-1: 64, 2: 128, math.Inf(1): 128, math.Inf(-1): 64} {
		if got := l.Quantile(q); got != want {
			t.Errorf("q=%v: %v", q, got)
		}
	}
	if got := l.Quantile(math.NaN()); got != 64 {
		t.Errorf("q is no number: %v", got)
	}
}

// TestCountsOfFullTables, and of what is forgiven, which go on when limits begin anew.
func TestCountsOfFullTables(t *testing.T) {
	full := func(when bool) func(*policy.Policy) {
		return func(p *policy.Policy) { p.MaxKeys, p.AdmitWhenFull = 1, when }
	}
	e := engine(t, login(full(false), twoLimits("a", "b", perHour(1), perHour(2))))
	report := func() policy.PolicyReport { return e.Report().Policies[0] }
	wantTakes(t, e, ann, 1, 1)
	wantTakes(t, e, ben, 3, 0)
	var v policy.Verdict
	takeKey(context.Background(), e, "login", ben, 1, &v)
	if r := report(); r.Full != 4 || r.Untracked != 0 || r.Refused != 4 {
		t.Errorf("%+v", r)
	}
	load(t, e, login(full(true), twoLimits("a", "b", perHour(1), perHour(2))))
	wantTakes(t, e, ben, 3, 3)
	if r := report(); r.Full != 4 || r.Untracked != 3 {
		t.Errorf("%+v", r)
	}
	r := request(ann)
	r.Cost = 10
	e.DebitAll(context.Background(), []*policy.Request{&r}, &v)
	before := report()
	if before.Forgiven == 0 {
		t.Errorf("%+v", before)
	}
	sliding := weir.SlidingWindow(weir.PerHour(1), 0)
	for _, set := range []*policy.Set{
		login(full(true), twoLimits("a", "b", sliding, perHour(2))), login(full(true), twoLimits("a", "b", sliding, sliding)),
		login(full(true)),
	} {
		load(t, e, set)
		if r := report(); r.Full != before.Full || r.Untracked != before.Untracked || r.Forgiven != before.Forgiven {
			t.Errorf("after a reload: %+v, before %+v", r, before)
		}
	}
	wantTakes(t, e, ann, 1, 1)
	wantTakes(t, e, ben, 3, 3)
	if r := report(); r.Untracked != before.Untracked+3 {
		t.Errorf("%+v", r)
	}
}

// TestCountsOnlyGrowContention: no report has the counts of limits that are about to go twice, with those of a reload and its
// own, and so none has less than one before it.
func TestCountsOnlyGrowContention(t *testing.T) {
	const rounds = 100
	fixedWindow := weir.FixedWindow(weir.Rate{Permits: 10, Period: 24 * time.Hour})
	sets := [2]*policy.Set{}
	for i, limit := range []weir.Limit{perHour(10), fixedWindow} {
		set := &policy.Set{Rules: []policy.Rule{{Name: "r", Limits: []policy.Use{{Policy: "0"}}}}}
		for n := range 10 {
			set.Policies = append(set.Policies, policy.Policy{
				Name: fmt.Sprint(n), Limits: one(limit), Key: policy.ClientIP(), MaxKeys: 1, AdmitWhenFull: true,
			})
		}
		sets[i] = set
	}
	e := engine(t, sets[0])
	ended := make(chan struct{})
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() {
		defer close(ended)
		for i := range rounds {
			for _, client := range []string{ann, ben, ben} { // the table has room for one of them
				r, v := request(client), policy.Verdict{}
				e.Take(&r, &v)
				v.Release()
			}
			load(t, e, sets[(i+1)%2])
		}
	})
	for range 8 {
		wait.Go(func() {
			for before, last := uint64(0), false; !last; {
				select {
				case <-ended:
					last = true
				default:
				}
				now := e.Report().Policies[0].Untracked
				if now < before {
					t.Errorf("%d were untracked, and now %d", before, now)
				}
				if before = now; last && now < rounds {
					t.Errorf("%d were untracked at the end", now)
				}
			}
		})
	}
}
