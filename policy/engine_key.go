package policy

import (
	"context"
	"fmt"
	"strconv"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/store"
)

// Inspect returns what is kept for a key of a limit of a policy. The name of the limit may be "" if the policy has one only. For
// a limit of this process it has the decision of a probe, and nothing of what is reserved. The error is an *[weir.OptionError] if
// there is no such limit, or that of the store.
func (e *Engine) Inspect(ctx context.Context, policy, limit, key string) (store.State, error) {
	p := e.live.Load().policy(policy)
	if p == nil {
		return store.State{}, noPolicy(policy)
	}
	if i := p.place(limit); i >= 0 {
		return e.inspect(ctx, p, i, p.counted(key))
	}
	return store.State{}, &weir.OptionError{
		Option: fmt.Sprintf("limit of the policy %q", policy), Value: strconv.Quote(limit),
		Accepted: "the name of one of its limits",
	}
}

func (e *Engine) inspect(ctx context.Context, p *livePolicy, i int, key string) (store.State, error) {
	if p.shared {
		it := item{policy: p, variant: p.limitsFor(key)}
		return store.Inspect(ctx, e.states, appendStored(nil, boundKey(key), &it)[i])
	}
	d, _ := keyset.PeekAll(nil, p.chargeKey(nil, key, 0)[i])
	d[0].Policy = p.limits[i].name
	return store.State{Known: d[0].Remaining < d[0].Limit, Decision: d[0]}, nil
}

// reset resets a key of a limit where that is kept.
func (e *Engine) reset(ctx context.Context, p *livePolicy, name, key string) error {
	if p.durable {
		return store.Reset(ctx, e.options.Durable, name, key)
	}
	return store.Reset(ctx, e.options.Store, name, key)
}

func noPolicy(name string) error {
	return &weir.OptionError{Option: "policy", Value: strconv.Quote(name), Accepted: "the name of a policy"}
}

// Reset makes all permits of a key of a policy available, as if it had never been seen, in this process or in the store. A
// lockout goes on: see [Engine.Unlock]. The error is an *[weir.OptionError] if there is no such policy, or that of the store.
func (e *Engine) Reset(ctx context.Context, policy, key string) error {
	p := e.live.Load().policy(policy)
	if p == nil {
		return noPolicy(policy)
	}
	key = p.counted(key)
	for i := range p.limits {
		if !p.shared {
			p.limits[i].state.limiter.Reset(key)
		} else if err := e.reset(ctx, p, p.limits[i].name, boundKey(key)); err != nil {
			return err
		}
	}
	return nil
}

// StoredCharges are what the limits of a policy are charged to in the store that keeps them, for a key and with no permits: one
// for each limit, in their order, with the limits that apply to this key without a tier. They are for callers that ask the store
// itself, such as an operator that looks at a limit. It returns false if there is no such policy, or its limits are kept in this
// process.
func (e *Engine) StoredCharges(policy, key string) ([]store.Charge, bool) {
	p := e.live.Load().policy(policy)
	if p == nil || !p.shared {
		return nil, false
	}
	key = p.counted(key)
	it := item{policy: p, variant: p.limitsFor(key)}
	return appendStored(nil, boundKey(key), &it), true
}
