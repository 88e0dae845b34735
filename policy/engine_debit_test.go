package policy_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

func debitAll(t testing.TB, e *policy.Engine, requests ...*policy.Request) *policy.Verdict {
	t.Helper()
	v := new(policy.Verdict)
	e.DebitAll(t.Context(), requests, v)
	return v
}

// debit is a step of a history: what the requests cost is taken whatever is left, up to a debt of as much as there can be.
func (b *batches) debit(step int, v *policy.Verdict, requests []*policy.Request, plain plainBatch) {
	b.e.DebitAll(b.Context(), requests, v)
	for bucket, n := range plain.sums() {
		b.left[bucket] = max(b.left[bucket]-n, -b.bursts[bucket[:lastSpace(bucket)]])
	}
	denies := someDenied(requests)
	b.count(requests, plain, true)
	if denies {
		for _, r := range requests { // the others have been charged, but not all of them could be
			if r.Path != "/free" && r.Path != "/none" {
				b.refused++
			}
		}
	}
	b.watch(requests, true)
	parts := 0
	for i := range v.Parts {
		p := &v.Parts[i]
		bucket := p.Policy.Name + " " + string(p.Key)
		left, d := b.left[bucket], p.Decision
		if _, ok := plain[p.Request][bucket]; !ok || p.Unasked {
			b.Fatalf("step %d: request %d: %+v, want %v", step, p.Request, p, plain[p.Request])
		}
		if d.Allowed != (left > 0) || d.Remaining != max(left, 0) || d.RetryAfter != time.Duration(max(1-left, 0))*time.Hour {
			b.Fatalf("step %d: %q owes %d: %+v", step, bucket, -left, d)
		}
		parts++
	}
	for i := range plain {
		parts -= len(plain[i])
	}
	if v.Allowed == denies || parts != 0 {
		b.Fatalf("step %d: %+v, %d parts too many", step, v, parts)
	}
	v.Release() // which does nothing
	b.compareBuckets(step)
}

// TestDebitAllIsOwed: the first permit comes when the debt is regained, to the nanosecond, wherever the limit is kept.
func TestDebitAllIsOwed(t *testing.T) {
	for name, kind := range map[string]func(all ...policy.Policy) []policy.Policy{
		"local": func(all ...policy.Policy) []policy.Policy { return all }, "shared": shared, "durable": durably,
	} {
		clock := manualclock.New(1)
		set := byPath(kind(policy.Policy{Name: "p", Limits: one(perHour(3))})[0])
		e := ownedBy(t, newOwner(t, clock), memory(t, clock), clock, set)
		if v := debitAll(t, e, asks("/a", "/a", "/a", "/a", "/a", "/free")...); !v.Allowed || v.Decision().Allowed ||
			v.Decision().RetryAfter != 3*time.Hour || !v.ExemptOf(5) || len(v.Parts) != 5 {
			t.Errorf("%s: %+v", name, v)
		}
		clock.Advance(3*time.Hour - 1)
		if takeAll(t, e, asks("/a")...).Allowed {
			t.Errorf("%s: a permit is granted before the debt is regained", name)
		}
		clock.Advance(1)
		if !takeAll(t, e, asks("/a")...).Allowed {
			t.Errorf("%s: no permit is granted once the debt is regained", name)
		}
	}
}

// TestDebitAllPermitsThatComeBack: limits of concurrency are not charged, and hold nothing, in shadow either.
func TestDebitAllPermitsThatComeBack(t *testing.T) {
	clock := manualclock.New(1)
	pool := func(name string) policy.Policy {
		return policy.Policy{Name: name, Limits: []policy.Limit{
			{Limit: perHour(3)}, {Name: "use", Limit: weir.AtOnce(2)},
		}}
	}
	watching, watchingStore := pool("watching"), shared(pool("watching-store"))[0]
	watching.Mode, watchingStore.Mode = policy.ModeShadow, policy.ModeShadow
	s := memory(t, clock)
	e := over(t, s, clock, &policy.Set{
		Policies: []policy.Policy{pool("local"), shared(pool("stored"))[0], watching, watchingStore},
		Rules:    []policy.Rule{{Name: "all", Limits: uses("local", "stored", "watching", "watching-store")}},
	})
	for i := range int64(4) {
		v := debitAll(t, e, &policy.Request{})
		if !v.Allowed || len(v.Parts) != 4 {
			t.Fatalf("%+v", v)
		}
		for _, p := range v.Parts {
			if d := p.Decision; p.Limit == 0 && (d.Remaining != max(2-i, 0) || p.Unasked) || p.Limit == 1 && !d.Allowed {
				t.Errorf("debit %d: %+v", i, p)
			}
		}
		if v.Parts[1].Decision.Remaining != 2 || !v.Parts[3].Unasked {
			t.Errorf("debit %d: %+v, %+v", i, v.Parts[1], v.Parts[3])
		}
	}
	for _, p := range e.Report().Policies {
		if p.Allowed != 4 || p.Refused != 0 || p.Unavailable != 0 {
			t.Errorf("%s: %d granted, %d refused", p.Name, p.Allowed, p.Refused)
		}
	}
	for _, name := range []string{"stored", "watching-store"} {
		wantStored(t, e, name, "use", "", 2)
	}
}

// TestDebitAllWithoutStore: what a policy says of its store makes no difference, and limits of this process are charged all the same.
func TestDebitAllWithoutStore(t *testing.T) {
	for _, fail := range []policy.Fail{policy.FailClosed, policy.FailOpen} {
		clock := manualclock.New(1)
		s := memory(t, clock)
		stored := shared(policy.Policy{Name: "stored", Limits: one(perHour(3)), Fail: fail})[0]
		e := over(t, s, clock, &policy.Set{
			Policies: []policy.Policy{{Name: "local", Limits: one(perHour(3))}, stored},
			Rules:    []policy.Rule{{Name: "all", Limits: uses("local", "stored")}},
		})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		v := new(policy.Verdict)
		for i, c := range []struct {
			ctx    context.Context
			err    error
			reason weir.Reason
		}{
			{t.Context(), errors.New("away"), weir.ReasonUnavailable},
			{gone, context.Canceled, weir.ReasonCanceled},
			{t.Context(), &weir.OptionError{Option: "Charge.N"}, weir.ReasonInvalid},
			{t.Context(), store.ErrClosed, weir.ReasonClosed},
			{t.Context(), nil, weir.ReasonNone},
		} {
			s.fail = func() error { return c.err }
			e.DebitAll(c.ctx, []*policy.Request{{}}, v)
			if left := max(2-int64(i), 0); v.Parts[0].Decision.Remaining != left {
				t.Errorf("%v: %+v, want %d left", c.err, v.Parts[0], left)
			}
			if c.err == nil {
				if !v.Allowed || v.Parts[1].Decision.Remaining != 2 {
					t.Errorf("%+v", v)
				}
				continue
			}
			if d := v.Decision(); v.Allowed || v.Binding != 1 || d.Reason != c.reason || d.Policy != "stored" || d.Limit != 3 {
				t.Errorf("%v: %v, %+v", c.err, v.Allowed, d)
			}
		}
		r := e.Report()
		if r.Requests != 5 || r.Refused != 3 || r.Canceled != 1 || r.Policies[0].Allowed != 5 || r.Policies[1].Allowed != 1 ||
			r.Policies[1].Unavailable != 3 {
			t.Errorf("%+v", r)
		}
		s.fail = nil
		e.Close()
		if e.DebitAll(t.Context(), []*policy.Request{{}}, v); v.Allowed || v.Decision().Reason != weir.ReasonClosed {
			t.Errorf("after Close: %+v", v)
		}
	}
}

// TestDebitAllOfWhatCannotBeTold: a policy whose cost cannot be told is not charged, all others are.
func TestDebitAllOfWhatCannotBeTold(t *testing.T) {
	wrong := costOf(func(*policy.Request) (int64, error) { return 0, errors.New("no cost") })
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "told", Limits: one(perHour(3))},
			{Name: "untold", Limits: one(perHour(3)), Cost: wrong},
			{Name: "open", Limits: one(perHour(3)), Cost: wrong, Fail: policy.FailOpen},
		},
		Rules: []policy.Rule{
			{Name: "all", Limits: uses("told", "open")},
			{Name: "untold", Match: policy.Match{Paths: []string{"/untold"}}, Limits: uses("untold")},
		},
	})
	if v := debitAll(t, e, asks("/untold")...); v.Allowed || v.Binding != -1 || v.Decision().Reason != weir.ReasonUnavailable || len(v.Parts) != 1 {
		t.Errorf("%+v", v)
	}
	if v := debitAll(t, e, asks("/")...); !v.Allowed || len(v.Parts) != 1 {
		t.Errorf("%+v", v)
	}
	wantLeft(t, e, "told", "", 1)
	many := make([]*policy.Request, keyset.MostCharges+1)
	for i := range many {
		many[i] = &policy.Request{Path: "/"}
	}
	if v := debitAll(t, e, many...); v.Allowed || v.Decision().Reason != weir.ReasonInvalid {
		t.Errorf("65 requests: %+v", v)
	}
	if v := debitAll(t, e); !v.Allowed || v.Binding != -1 {
		t.Errorf("no requests: %+v", v)
	}
	wantLeft(t, e, "told", "", 1)
}

// TestDebitAllIsNoRefusal: a lockout neither holds it up nor counts it, and a shedder is not asked.
func TestDebitAllIsNoRefusal(t *testing.T) {
	set := byPath(policy.Policy{
		Name: "p", Limits: one(perHour(2)), Lockout: &policy.Lockout{Refusals: 2, Within: time.Hour, For: time.Hour},
	})
	e := engine(t, set)
	for range 5 {
		debitAll(t, e, &policy.Request{Method: "GET", Path: "/a", Client: netip.MustParseAddr("192.0.2.1")})
	}
	if r := e.Report(); r.Policies[0].LockedOut != 0 || r.Policies[0].Locked != 0 || r.Refused != 0 || r.Policies[0].Allowed != 5 {
		t.Errorf("%+v", r)
	}
	for range 2 {
		takeAll(t, e, asks("/b", "/b", "/b")...) // locked out by the second
	}
	if v := debitAll(t, e, asks("/b")...); !v.Allowed || v.Parts[0].Decision.Remaining != 1 {
		t.Errorf("%+v", v)
	}
}

// TestDebitAllContention: two limits that are always charged together are equal at every look, and nothing is lost.
func TestDebitAllContention(t *testing.T) {
	const goroutines, rounds, most = 6, 200, 2000
	e := engine(t, twoAlike(most, func(all ...policy.Policy) []policy.Policy { return all }))
	var spent atomic.Int64
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 5))
			v := new(policy.Verdict)
			for range rounds {
				n := 1 + r.Int64N(4)
				requests := batchOf(r, n, "GET")
				if r.IntN(3) == 0 {
					e.TakeAll(t.Context(), requests, v)
				} else if e.DebitAll(t.Context(), requests, v); !v.Allowed {
					t.Errorf("%+v", v)
				}
				if equal(t, v); v.Allowed {
					spent.Add(n)
				}
				v.Release()
			}
		})
	}
	all.Wait()
	for _, name := range []string{"a", "b"} {
		l := e.Limiter(name, "")
		if gone := int64(l.Peek("GET", 0).ResetAfter / time.Hour); gone != spent.Load() || gone <= most || l.Stats().Forgiven != 0 {
			t.Errorf("%s: %d gone of %d that were spent", name, gone, spent.Load())
		}
	}
}
