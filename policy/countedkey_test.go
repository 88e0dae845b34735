package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// TestLongKeysAreFound: whatever an engine is asked or told of a key holds for the requests that have it, however long it is:
// of one that a caller names, one that a rule finds, and one of several parts; by its text and by what it is counted under.
func TestLongKeysAreFound(t *testing.T) {
	for _, n := range []int{128, 129, 200, 1024} {
		whole := strings.Repeat("k", n)
		short, long := strings.Repeat("p", 64), strings.Repeat("q", min(n, 128))
		for _, kept := range []policy.Consistency{policy.ConsistencyLocal, policy.ConsistencyCoherent} {
			for kind, c := range map[string]struct {
				key        policy.Text
				given      string
				attributes map[string]string // nil: the caller names the key
			}{
				"named":          {policy.NamedKey(), whole, nil},
				"one":            {policy.AttributeText("a"), whole, map[string]string{"a": whole}},
				"one, named":     {policy.AttributeText("a"), whole, nil},
				"several":        {policy.JoinText(policy.AttributeText("a"), policy.AttributeText("b")), short + "," + long, map[string]string{"a": short, "b": long}},
				"several, named": {policy.JoinText(policy.AttributeText("a"), policy.AttributeText("b")), short + "," + long, nil},
			} {
				for _, counted := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%d/%v/%v", kind, n, kept, counted), func(t *testing.T) {
						e := engine(t, &policy.Set{
							Policies: []policy.Policy{{
								Name: "p", Key: c.key, Limits: []policy.Limit{{Limit: hourly(5)}}, Consistency: kept,
								Keys:    map[string][]policy.Limit{c.given: {{Limit: hourly(7)}}},
								Lockout: &policy.Lockout{Refusals: 2, Within: time.Hour, For: time.Hour},
							}},
							Rules: []policy.Rule{{Name: "r", Limits: []policy.Use{{Policy: "p"}}}},
						}, func(o *policy.EngineOptions) { o.Store = mustMemory(t) })
						r := policy.Request{Attributes: c.attributes}
						if c.attributes == nil {
							r.Named = &policy.Named{Policy: []byte("p"), Key: []byte(c.given), Cost: 1}
						}
						of := longKey{t, e, r, c.given}
						if counted {
							of.given = e.CountedKey("p", of.given)
						}
						of.check(kept == policy.ConsistencyLocal)
					})
				}
			}
		}
	}
}

func hourly(n int64) weir.Limit { return weir.TokenBucket(weir.PerHour(1), n) }

func mustMemory(t *testing.T) *store.Memory {
	t.Helper()
	m, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// longKey is a key that requests have, as it is given by an operator.
type longKey struct {
	*testing.T

	engine  *policy.Engine
	request policy.Request
	given   string
}

// left takes n permits, and fails if not so many are left.
func (k *longKey) left(what string, n int, want int64) {
	k.Helper()
	for range n {
		take(k.engine, k.request)
	}
	ctx := k.Context()
	state, err := k.engine.Key(ctx, "p", k.given)
	if err != nil || state.Limits[0].Decision.Remaining != want || state.Key != k.engine.CountedKey("p", k.given) {
		k.Errorf("%s: Key: %+v, %v, want %d left", what, state, err, want)
	}
	if s, err := k.engine.Inspect(ctx, "p", "", k.given); err != nil || s.Decision.Remaining != want {
		k.Errorf("%s: Inspect: %+v, %v, want %d left", what, s, err, want)
	}
}

func (k *longKey) check(local bool) {
	k.Helper()
	k.left("3 of 7", 3, 4)
	if charges, ok := k.engine.Charges(nil, "p", k.given, 0); ok != local || local && peeked(charges) != 4 {
		k.Errorf("Charges: %v, %v", charges, ok)
	}
	if charges, ok := k.engine.StoredCharges("p", k.given); ok == local || !local && charges[0].Key != k.engine.CountedKey("p", k.given) {
		k.Errorf("StoredCharges: %v, %v", charges, ok)
	}
	o := policy.Override{Policy: "p", Key: k.given, Limits: []policy.Limit{{Limit: hourly(9)}}, For: time.Hour}
	if err := k.engine.Override(&o); err != nil {
		k.Error(err)
	}
	if d := take(k.engine, k.request).Decision(); d.Limit != 9 {
		k.Errorf("overridden: %+v", d)
	}
	if all := k.engine.Overrides(); len(all) != 1 || all[0].Key != k.engine.CountedKey("p", k.given) {
		k.Errorf("overrides: %+v", all)
	}
	if first, again := k.engine.Restore("p", k.given), k.engine.Restore("p", k.given); !first || again {
		k.Errorf("restored: %v, and again: %v", first, again)
	}
	if err := k.engine.Reset(k.Context(), "p", k.given); err != nil {
		k.Error(err)
	}
	k.left("reset", 0, 7)
	k.left("locked out", 9, 0)
	if s, _ := k.engine.Key(k.Context(), "p", k.given); s.LockedFor == 0 {
		k.Errorf("it is not locked out: %+v", s)
	}
	if first, again := k.engine.Unlock("p", k.given), k.engine.Unlock("p", k.given); !first || again {
		k.Errorf("unlocked: %v, and again: %v", first, again)
	}
}

func peeked(charges []keyset.Charge) int64 {
	d, _ := keyset.PeekAll(nil, charges...)
	return d[0].Remaining
}

// TestNoKeyPassesForALongOne: a caller that names what stands for the long key of another one does not take its permits.
func TestNoKeyPassesForALongOne(t *testing.T) {
	for _, key := range []policy.Text{policy.NamedKey(), policy.JoinText(policy.AttributeText("a"), policy.AttributeText("b"))} {
		e := engine(t, &policy.Set{Policies: []policy.Policy{{Name: "p", Key: key, Limits: []policy.Limit{{Limit: hourly(5)}}}}})
		victim := strings.Repeat("v", 2000)
		named := func(key string) policy.Request {
			return policy.Request{Named: &policy.Named{Policy: []byte("p"), Key: []byte(key), Cost: 5}}
		}
		for range 2 {
			take(e, named(e.CountedKey("p", victim)))
		}
		if v := take(e, named(victim)); !v.Allowed {
			t.Errorf("%v: %+v", key, v.Decision())
		}
	}
}
