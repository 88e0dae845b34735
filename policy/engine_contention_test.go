package policy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/policy"
)

// TestEngineEverythingAtOnceContention: 64 goroutines take, wait, reserve, explain, report, override, unlock and load at a time.
// Nothing stands still, no permit that was held stays held, nothing is granted twice, and every request counts once.
func TestEngineEverythingAtOnceContention(t *testing.T) {
	const goroutines, inUse, reloads = 64, 5, 300
	set := func(i int) *policy.Set {
		n := int64(i % 7)
		s := &policy.Set{
			Policies: []policy.Policy{
				{
					Name: "use", Limits: one(weir.AtOnce(inUse)),
					QueueLimit: 3 + n, MaxWait: time.Second, NewestFirst: i%2 == 1,
				},
				{
					Name: "rate", Key: policy.MethodText(), Parent: "use", QueueLimit: 10, MaxKeys: 1 + i%5, AdmitWhenFull: i%2 == 1,
					Limits:    []policy.Limit{{Limit: weir.TokenBucket(weir.Rate{Permits: 500 + n, Period: time.Second}, 3+n)}},
					Candidate: one(weir.AtOnce(2)),
					Lockout:   &policy.Lockout{Refusals: 50, Within: time.Second, For: time.Millisecond},
					TierBy:    policy.AttributeText("tier"),
					Tiers:     map[string][]policy.Limit{"gold": {{Limit: weir.TokenBucket(weir.PerSecond(1000+n), 0)}}},
				},
			},
			Rules: []policy.Rule{{Name: "all", Limits: uses("rate")}},
		}
		if i%3 == 0 {
			s.Policies = append(s.Policies, policy.Policy{Name: fmt.Sprint("extra", i%6), Limits: one(perHour(10)), Mode: policy.ModeShadow})
			s.Rules = append(s.Rules, policy.Rule{Name: "extra", Limits: uses(fmt.Sprint("extra", i%6))})
		}
		return s
	}
	e := engine(t, set(0), func(o *policy.EngineOptions) {
		o.Clock, o.ExplainEvery, o.OnExplain = nil, 20, func(policy.Explanation) {}
	})
	var held, loads, asked, granted atomic.Int64
	var done atomic.Bool
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			v := new(policy.Verdict)
			for !done.Load() {
				request := policy.Request{
					Method: fmt.Sprint("M", r.IntN(4)), Attributes: map[string]string{"tier": []string{"", "gold"}[r.IntN(2)]},
				}
				switch r.IntN(20) {
				case 0:
					i := loads.Add(1)
					if _, err := e.Load(set(int(i))); err != nil {
						t.Error(err)
					}
					done.CompareAndSwap(false, i >= reloads)
					continue
				case 1:
					e.Report()
					e.Explain(&request)
					continue
				case 2:
					e.Unlock("rate", request.Method)
					if l := e.Limiter("use", ""); r.IntN(2) == 0 {
						_ = keyset.Of(l).Override("", weir.AtOnce(inUse), time.Millisecond)
					} else {
						keyset.Of(l).Restore("")
					}
					continue
				case 3, 4, 5, 6:
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(3000))*time.Microsecond)
					_ = e.WaitReserve(ctx, &request, v)
					cancel()
				case 7:
					e.Peek(&request, v)
					continue
				case 8, 9:
					e.Reserve(&request, v)
				default:
					e.Take(&request, v)
				}
				asked.Add(1)
				if v.Allowed {
					granted.Add(1)
					if n := held.Add(1); n > inUse {
						t.Errorf("%d requests hold %d permits", n, inUse)
					}
					runtime.Gosched()
					held.Add(-1)
				}
				switch r.IntN(3) {
				case 0:
					v.Cancel()
				case 1:
					v.Commit(func(*policy.Part) int64 { return r.Int64N(3) })
				default:
					v.Release()
				}
			}
		})
	}
	all.Wait()
	load(t, e, set(1))
	keyset.Of(e.Limiter("use", "")).Restore("")
	wantLeft(t, e, "use", "", inUse)
	if s := e.Limiter("use", "").Stats(); s.Waiters != 0 || s.Queued != 0 || s.Allowed != granted.Load() {
		t.Errorf("%d granted: %+v", granted.Load(), s)
	}
	r := e.Report()
	if r.Requests != uint64(asked.Load()) || r.Requests-r.Refused-r.Canceled != uint64(granted.Load()) ||
		r.Policies[0].Allowed != uint64(granted.Load()) || r.Policies[1].Allowed != uint64(granted.Load()) {
		t.Errorf("%d asked and %d granted: %+v", asked.Load(), granted.Load(), r)
	}
	if m := r.Rules[0].Matched; m != r.Requests {
		t.Errorf("the rule has matched %d times of %d", m, r.Requests)
	}
}
