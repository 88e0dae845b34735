package policy

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TakeKey decides on n permits of a key under a policy, for a caller that names both itself, and charges them to each of the
// limits of the policy, and to each of those of its parents that have no Key, as that of the others can be told from a request
// only, or to none of them. Limits of this process and those in a store are served alike; the store is asked until ctx ends at
// the latest, and a ctx that was canceled is answered by ReasonCanceled. Keys of the policy count, and so do the counts of the
// [Report]; Mode, Lockout, Candidate, tiers, LimitBy and the Cost of a policy do not, nor does a shedder. With n = 0 it is a
// probe, and n that is not from 0 to 10^15 is refused with ReasonInvalid.
//
// It never waits for permits. The verdict must be released, as with Take; the Rule of its parts is nil. TakeKey answers
// false, and does nothing, if there is no such policy.
func (e *Engine) TakeKey(ctx context.Context, policy, key string, n int64, v *Verdict) bool {
	return e.decideKey(ctx, policy, key, n, v, false)
}

// ReserveKey is TakeKey with a cost that is settled later: the verdict must end in Commit or Cancel.
func (e *Engine) ReserveKey(ctx context.Context, policy, key string, n int64, v *Verdict) bool {
	return e.decideKey(ctx, policy, key, n, v, true)
}

// PeekKey answers what TakeKey would, and takes nothing.
func (e *Engine) PeekKey(ctx context.Context, policy, key string, n int64, v *Verdict) bool {
	valid, ok := v.gatherKey(e.live.Load(), policy, key, n)
	if ok && valid && len(v.Parts) > 0 {
		v.peekParts()
		e.peekShared(ctx, v)
		v.Allowed = v.Parts[v.Binding].Decision.Allowed
	}
	return ok
}

func (e *Engine) decideKey(ctx context.Context, policy, key string, n int64, v *Verdict, reserve bool) bool {
	if !e.watching(v) {
		return e.decideKeyNow(ctx, policy, key, n, v, reserve)
	}
	began := time.Now()
	ok := e.decideKeyNow(ctx, policy, key, n, v, reserve)
	if ok {
		e.decided(ctx, nil, v, began)
	}
	return ok
}

func (e *Engine) decideKeyNow(ctx context.Context, policy, key string, n int64, v *Verdict, reserve bool) bool {
	valid, ok := v.gatherKey(e.live.Load(), policy, key, n)
	if ok {
		e.decideGathered(ctx, valid, v, reserve)
	}
	return ok
}

func (e *Engine) decideGathered(ctx context.Context, valid bool, v *Verdict, reserve bool) {
	e.counts.requests.Add()
	switch {
	case !valid:
		e.counts.refused.Add()
		return
	case len(v.work.sharing.asked) > 0:
		if e.takeShared(ctx, v, reserve) != nil {
			e.counts.canceled.Add()
			v.work.canceled = true
			return
		}
	case len(v.work.charges) > 0:
		v.take(reserve)
	case !v.work.liftedSome():
		e.counts.unlimited.Add()
	}
	for i := range v.work.items {
		switch it := &v.work.items[i]; {
		case v.refuses(it):
			it.policy.state.counts.refused.Add()
			if v.full(it) {
				it.policy.state.counts.full.Add()
			}
			if refusals := it.policy.state.refusals; refusals != nil {
				refusals.note(v.work.key(it))
			}
		case v.Allowed:
			it.policy.state.counts.granted.Add()
		}
	}
	if !v.Allowed {
		e.counts.refused.Add()
	}
}

// liftedSome tells whether some policy lets the request pass whatever it asks for.
func (w *work) liftedSome() bool {
	for i := range w.items {
		if w.items[i].lifted() {
			return true
		}
	}
	return false
}

// gatherKey makes the parts of a policy that the caller has named. It answers whether n is valid, and whether there is such a
// policy.
func (v *Verdict) gatherKey(s *snapshot, policy, key string, n int64) (valid, ok bool) {
	at, ok := s.policies[policy]
	if !ok {
		return false, false
	}
	w := &v.work
	v.begin(s)
	v.Priority = s.live[at].Priority
	if n < 0 || n > mostCost {
		v.Allowed, v.own = false, weir.Decision{Reason: weir.ReasonInvalid, RetryAfter: weir.Never, Policy: policy}
		return false, true
	}
	w.keys = append(w.keys, key...)
	w.addKey(&s.live[at], len(key), n)
	for at = s.live[at].parent; at >= 0; at = s.live[at].parent {
		if p := &s.live[at]; p.Key == nil {
			w.addKey(p, 0, n)
		}
	}
	for i := range w.items {
		it := &w.items[i]
		v.Priority = max(v.Priority, it.policy.Priority)
		if it.first, it.end = -1, -1; !it.lifted() {
			v.chargeItem(it, nil)
		}
	}
	return true, true
}

// addKey adds a policy whose key is the first bytes of all keys.
func (w *work) addKey(p *livePolicy, key int, n int64) {
	it := item{policy: p, rule: -1, joined: -1, to: key, cost: n, total: n}
	if it.override = p.overrides.of(w.key(&it)); it.override != nil && p.shared && !it.lifted() {
		it.variant = it.override.Limits
	} else {
		w.chooseKey(&it)
	}
	w.items = append(w.items, it)
}

// Inspect tells what is kept for a key of a limit of a policy. The name of the limit may be "" if the policy has one only. Of a
// limit of this process it is known what a probe would be answered, and nothing of what is reserved. The error is an
// *[weir.OptionError] if there is no such limit, or that of the store.
func (e *Engine) Inspect(ctx context.Context, policy, limit, key string) (store.State, error) {
	s := e.live.Load()
	at, ok := s.policies[policy]
	if !ok {
		return store.State{}, noPolicy(policy)
	}
	p := &s.live[at]
	for i := range p.limits {
		if p.Limits[i].Name == limit || limit == "" && len(p.limits) == 1 {
			return e.inspect(ctx, p, i, key)
		}
	}
	return store.State{}, &weir.OptionError{
		Option: fmt.Sprintf("limit of the policy %q", policy), Value: strconv.Quote(limit),
		Accepted: "the name of one of its limits",
	}
}

func (e *Engine) inspect(ctx context.Context, p *livePolicy, i int, key string) (store.State, error) {
	it := item{policy: p}
	if p.shared {
		it.variant = p.limitsFor(key)
		return e.states.Inspect(ctx, appendStored(nil, boundKey(key), &it)[i])
	}
	d, _ := weir.PeekAll(nil, p.chargeKey(nil, key, 0)[i])
	d[0].Policy = p.limits[i].name
	return store.State{Known: d[0].Remaining < d[0].Limit, Decision: d[0]}, nil
}

// reset resets a key of a limit where that is kept.
func (e *Engine) reset(ctx context.Context, p *livePolicy, name, key string) error {
	if p.durable {
		return e.options.Durable.Reset(ctx, name, key)
	}
	return e.options.Store.Reset(ctx, name, key)
}

func noPolicy(name string) error {
	return &weir.OptionError{Option: "policy", Value: strconv.Quote(name), Accepted: "the name of a policy"}
}

// Reset makes all permits of a key of a policy available, as if it had never been seen, in this process or in the store. A
// lockout goes on: see [Engine.Unlock]. The error is an *[weir.OptionError] if there is no such policy, or that of the store.
func (e *Engine) Reset(ctx context.Context, policy, key string) error {
	s := e.live.Load()
	at, ok := s.policies[policy]
	if !ok {
		return noPolicy(policy)
	}
	p := &s.live[at]
	for i := range p.limits {
		if !p.shared {
			p.limits[i].state.limiter.Reset(key)
		} else if err := e.reset(ctx, p, p.limits[i].name, boundKey(key)); err != nil {
			return err
		}
	}
	return nil
}
