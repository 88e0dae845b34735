package grpclimit

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// TestToldQuotaIsThatOfTheLimitApplied: the metadata have the window of the limit that the engine applied to the key.
func TestToldQuotaIsThatOfTheLimitApplied(t *testing.T) {
	one := func(l weir.Limit) []policy.Limit { return []policy.Limit{{Limit: l}} }
	usual := weir.TokenBucket(weir.PerSecond(10), 20)
	day := weir.CalendarWindow(20, algo.Calendar{Unit: algo.CalendarDay})
	e, err := policy.NewEngine(&policy.Set{Policies: []policy.Policy{
		{
			Name: "p", Limits: one(usual), Keys: map[string][]policy.Limit{"own": one(weir.TokenBucket(weir.PerMinute(20), 20))},
			TierBy: policy.MethodText(), Tiers: map[string][]policy.Limit{
				"GOLD": one(weir.TokenBucket(weir.PerHour(20), 20)), "SILVER": one(weir.TokenBucket(weir.PerHour(50), 50)),
			},
		},
		{Name: "day", Limits: one(day)},
		{Name: "few", Limits: one(weir.AtOnce(20))},
	}}, policy.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for key, burst := range map[string]int64{"same": 20, "other": 40} {
		if err := e.Override(&policy.Override{
			Policy: "p", Key: key, Limits: one(weir.TokenBucket(weir.PerMinute(burst), burst)), For: time.Hour,
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		policy, key, tier string
		want              quota
	}{
		{"p", "k", "", quota{20, 2 * time.Second, ratelimitfields.Requests}},
		{"p", "k", "GOLD", quota{20, time.Hour, ratelimitfields.Requests}},
		{"p", "k", "SILVER", quota{50, time.Hour, ratelimitfields.Requests}},
		{"p", "own", "GOLD", quota{20, time.Minute, ratelimitfields.Requests}},
		{"p", "same", "GOLD", quota{20, time.Minute, ratelimitfields.Requests}},
		{"p", "other", "", quota{40, time.Minute, ratelimitfields.Requests}},
		{"day", "", "", quota{20, 24 * time.Hour, ratelimitfields.Requests}},
		{"few", "", "", quota{20, 0, ratelimitfields.ConcurrentRequests}},
	} {
		var v policy.Verdict
		e.Take(&policy.Request{Method: c.tier, Named: &policy.Named{Policy: []byte(c.policy), Key: []byte(c.key), Cost: 1}}, &v)
		v.Release()
		if parts := new(told).parts(&v); len(parts) != 1 || parts[0].quota != c.want {
			t.Errorf("%s of %q, tier %q: %+v, want %+v", c.policy, c.key, c.tier, parts, c.want)
		}
	}
}

// TestLimitsAreNotChosenForAKeyThatNoCallHas: the function of a program that chooses the limit of each key is not called when the
// server is made, which knows the name and the limit of those that have no other.
func TestLimitsAreNotChosenForAKeyThatNoCallHas(t *testing.T) {
	k, err := weir.NewKeyedFunc(weir.TokenBucket(weir.PerSecond(10), 20), weir.KeyedOptions{Name: "k"}, func(key string) weir.Limit {
		t.Errorf("asked for %q", key)
		return weir.Limit{}
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(ServerOptions{Keyed: k})
	if want := (quota{20, 2 * time.Second, ratelimitfields.Requests}); err != nil || s.told.quotas["k"] != want {
		t.Errorf("%v, %+v", err, s.told.quotas)
	}
}
