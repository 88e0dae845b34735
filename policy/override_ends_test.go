package policy_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// debited is a store that tells under which limits it is debited.
type debited struct {
	*watched

	limits chan weir.Limit
}

func (d *debited) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	h, err := d.watched.Do(ctx, ask, charges, decisions)
	if ask.Mode == store.ModeDebit {
		d.limits <- charges[0].Limit
	}
	return h, err
}

// TestOverrideEndsUnderTheLimitsInForce: at the end of an override a store is told of the limits that hold then, not of those
// when it was made.
func TestOverrideEndsUnderTheLimitsInForce(t *testing.T) {
	clock := manualclock.New(0)
	s := &debited{memory(t, clock), make(chan weir.Limit, 10)}
	of := func(l weir.Limit) *policy.Set {
		return login(coherent, func(p *policy.Policy) { p.Limits = one(l) })
	}
	e := engine(t, of(perHour(10)), manual(clock), func(o *policy.EngineOptions) { o.Store = s })
	mustOverride(t, e, policy.Override{Policy: "login", Key: ann, For: time.Minute, Limits: one(perHour(100))})
	if told := <-s.limits; told != perHour(100) {
		t.Fatal(told)
	}
	load(t, e, of(perHour(50)))
	clock.Advance(time.Minute)
	select {
	case told := <-s.limits:
		if told != perHour(50) {
			t.Errorf("the store was told of %v", told)
		}
	case <-time.After(10 * time.Second):
		t.Error("the store was not told")
	}
}
