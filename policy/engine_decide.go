package policy

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// start anchors the clock of lockouts.
var start = time.Now()

func (e *Engine) now() int64 {
	if e.clock != nil {
		return e.clock.now()
	}
	return int64(time.Since(start))
}

// prepare finds the limits of requests, and returns false if these are decided already.
func (e *Engine) prepare(s *snapshot, requests []*Request, v *Verdict) bool {
	v.gather(s, requests, e)
	limited := v.work.limited
	if !v.chargeAll(len(requests)) {
		afterwards := v.work.afterwards
		v.refuseAll(s)
		v.work.afterwards = afterwards
		e.refused(limited)
		return false
	}
	for i := range v.work.items {
		if it := &v.work.items[i]; it.failed != nil {
			it.policy.state.counts.failed.Add()
			e.warn(&it.policy.state.counts.warned, expressionFailed, "policy", it.policy.Name, it.failed)
		}
	}
	return !v.Exempt
}

// refused counts so many requests that were refused.
func (e *Engine) refused(requests int) {
	for range requests {
		e.counts.refused.Add()
	}
}

// canceled counts the requests of a verdict as canceled.
func (e *Engine) canceled(v *Verdict) {
	v.work.canceled = true
	for range v.work.limited {
		e.counts.canceled.Add()
	}
}

const (
	expressionFailed = "an expression failed"
	storeFailed      = "a store failed"
)

// warn logs what has failed, at most once a minute.
func (e *Engine) warn(last *atomic.Int64, what, kind, name string, err error) {
	if e.options.Logger == nil {
		return
	}
	now, before := int64(time.Since(start))+1, last.Load()
	if before != 0 && now-before < int64(time.Minute) || !last.CompareAndSwap(before, now) {
		return
	}
	e.options.Logger.Warn(what, kind, name, "error", err.Error())
}

// chargeAll makes the parts of the policies that are enforced, and their charges. It returns false if those of several requests
// are too many.
func (v *Verdict) chargeAll(requests int) bool {
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		it.first, it.end = -1, -1
		switch {
		case it.policy.Mode != ModeEnforce:
		case it.failed != nil:
			if it.barred() && v.own.Reason == weir.ReasonNone { // the first one that failed binds
				v.own = it.refusal()
			}
		case it.lifted():
		default:
			v.chargeItem(it, w.snapshot.rule(it))
		}
	}
	return requests == 1 || len(w.charges)+len(w.sharing.asked) <= keyset.MostCharges
}

// chargeItem makes the parts of a policy that is enforced, and their charges.
func (v *Verdict) chargeItem(it *item, rule *Rule) {
	w, shared := &v.work, it.policy.shared
	var at int
	switch {
	case it.joined >= 0:
		at = int(v.Parts[w.items[it.joined].first].at)
	case shared:
		at = len(w.sharing.asked)
		w.sharing.charge(w, it)
	default:
		at = len(w.charges)
		w.charge(it, it.policy.limits, it.plans)
	}
	it.first = len(v.Parts)
	it.end = it.first + len(it.policy.limits)
	v.Parts = slices.Grow(v.Parts, len(it.policy.limits))[:it.end]
	for j := range it.policy.limits { // in place, as a part is large
		p := &v.Parts[it.first+j]
		p.Request, p.Policy, p.Limit, p.Rule = int(it.request), it.policy.Policy, j, rule
		p.Key, p.Cost, p.name = w.key(it), it.cost, it.policy.limits[j].name
		p.Decision.Allowed, p.Decision.Reason = false, weir.ReasonNone
		p.Unasked, p.shared, p.at = false, shared, int32(at+j)
		p.plan, p.applied = it.appliedAt(j)
		w.owed = w.owed || it.policy.limits[j].returns && !shared
	}
}

// appliedAt is the plan or the limit that applies to the key of an item instead of the limit of the policy at a place: neither if
// that applies.
func (it *item) appliedAt(i int) (plan *keyset.Plan, l *Limit) {
	switch {
	case it.override != nil:
		return nil, &it.override.Limits[i] // it has some, as it is not Unlimited
	case it.variant != nil:
		return nil, &it.variant[i]
	case it.plans != nil:
		return it.plans[i], nil
	}
	return nil, nil
}

// barred reports whether a policy refuses its request as something cannot be told.
func (it *item) barred() bool {
	return it.failed != nil && it.policy.Mode == ModeEnforce && (it.policy.Fail != FailOpen || it.why != weir.ReasonNone)
}

// refusal is the answer then.
func (it *item) refusal() weir.Decision {
	d := weir.Decision{Reason: it.why, Policy: it.policy.Name}
	switch it.why {
	case weir.ReasonNone:
		d.Reason = weir.ReasonUnavailable
	case weir.ReasonInvalid:
		d.RetryAfter = weir.Never
	default:
		d.RetryAfter = retryUnavailable
	}
	return d
}

func (v *Verdict) failed() bool { return v.own.Reason != weir.ReasonNone }

// shed asks the shedder, if there is one.
func (e *Engine) shed(v *Verdict) bool {
	if e.options.Shedder == nil || len(v.work.items) == 0 {
		return false
	}
	if d := e.options.Shedder.Decide(v.Priority); !d.Allowed {
		v.own = d
		return true
	}
	return false
}

// decide decides on requests as one step, and tells of it.
func (e *Engine) decide(ctx context.Context, requests []*Request, v *Verdict, reserve bool) {
	if !e.watching(v) {
		e.decideNow(ctx, requests, v, reserve)
	} else {
		began := time.Now()
		e.decideNow(ctx, requests, v, reserve)
		e.decided(ctx, requests, v, began)
	}
	v.tellPolicies(requests)
}

func (e *Engine) decideNow(ctx context.Context, requests []*Request, v *Verdict, reserve bool) {
	e.decideAsked(ctx, requests, v, reserve)
	if !v.Allowed && v.work.afterwards != 0 {
		e.owe(ctx, requests, v)
	}
}

func (e *Engine) decideAsked(ctx context.Context, requests []*Request, v *Verdict, reserve bool) {
	s := e.live.Load()
	for _, r := range requests {
		e.sample(ctx, s, r)
		e.counts.requests.Add()
	}
	if !e.prepare(s, requests, v) {
		return
	}
	switch {
	case e.refusedAhead(s, v):
		return
	case len(v.work.sharing.asked) > 0:
		if e.takeShared(ctx, v, reserve) != nil {
			e.canceled(v)
			return
		}
	case len(v.work.charges) > 0:
		v.take(reserve)
	}
	e.conclude(ctx, s, v)
}

// refusedAhead refuses a request that no limit need be asked for, and tells the limits nothing.
func (e *Engine) refusedAhead(s *snapshot, v *Verdict) bool {
	switch {
	case v.failed(), e.shed(v):
		v.peekParts()
		v.Binding, v.Allowed = -1, false
	case s.lockouts && v.lockedOut(e.now()):
		v.peekRest()
		v.Allowed = false
		for i := range v.work.items {
			if it := &v.work.items[i]; it.first >= 0 && v.Parts[it.first].Decision.Reason == weir.ReasonHardLockout {
				it.policy.state.counts.lockedOut.Add()
				it.policy.state.counts.refused.Add()
			}
		}
	default:
		return false
	}
	e.refused(v.work.limited)
	return true
}

// waved reports whether a policy that is enforced lets the request pass whatever it asks for.
func (it *item) waved() bool { return it.lifted() && it.failed == nil && it.policy.Mode == ModeEnforce }

// addUncharged makes parts of a policy that has none, to say why it refuses.
func (v *Verdict) addUncharged(it *item) {
	it.first = len(v.Parts)
	for j := range it.policy.limits {
		v.Parts = append(v.Parts, Part{
			Request: int(it.request), Policy: it.policy.Policy, Limit: j, Rule: v.work.snapshot.rule(it),
			Key: v.work.key(it), Cost: it.cost, name: it.policy.limits[j].name, at: -1,
		})
	}
	it.end = len(v.Parts)
}

// lockedOut reports whether some policy locks out the request.
func (v *Verdict) lockedOut(now int64) (some bool) {
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		if it.policy.Lockout == nil || it.first < 0 && !it.waved() {
			continue
		}
		rest := it.policy.state.lockouts.rest(w.key(it), now)
		if rest <= 0 {
			continue
		}
		if it.first < 0 {
			v.addUncharged(it)
		}
		for j := it.first; j < it.end; j++ {
			v.Parts[j].Decision = weir.Decision{
				Reason: weir.ReasonHardLockout, RetryAfter: rest, Policy: v.Parts[j].name,
			}
		}
		some = true
	}
	return some
}

// peekParts fills the parts with what their limits would answer.
func (v *Verdict) peekParts() {
	w := &v.work
	w.peeked, v.Binding = keyset.PeekAll(w.peeked[:0], w.charges...)
	w.leases = w.leases[:0]
	if len(w.sharing.asked) > 0 {
		w.sharing.unknown = true
		v.fillPeeked()
		v.bind()
		return
	}
	for i := range v.Parts {
		p := &v.Parts[i]
		p.Decision = w.peeked[p.at]
		p.Decision.Policy = p.name
	}
	v.Binding = v.partOfLocal(v.Binding)
}

// peekRest is peekParts, except for those that are locked out.
func (v *Verdict) peekRest() {
	w := &v.work
	w.peeked, _ = keyset.PeekAll(w.peeked[:0], w.charges...)
	v.fillPeeked()
	v.bind()
}

// fillPeeked fills the parts with what was peeked at, except for those that are locked out, which stay so. Limits in a store
// were not asked.
func (v *Verdict) fillPeeked() {
	for i := range v.Parts {
		if p := &v.Parts[i]; p.at < 0 {
			p.Decision.Limit = p.Policy.Limits[p.Limit].Permits()
		} else if p.shared {
			p.unask(v.work.sharing.asked[p.at].Limit)
		} else {
			p.peeked(&v.work.peeked[p.at])
		}
	}
}

// peeked fills a part with what its limit answers, unless it is locked out.
func (p *Part) peeked(d *weir.Decision) {
	if p.Decision.Reason == weir.ReasonHardLockout {
		p.Decision.Limit, p.Decision.Remaining, p.Decision.ResetAfter = d.Limit, d.Remaining, d.ResetAfter
		return
	}
	p.Decision = *d
	p.Decision.Policy = p.name
}

// fill fills the parts with the leases that were got.
func (v *Verdict) fill() {
	for i := range v.Parts {
		p := &v.Parts[i]
		p.Decision = v.work.leases[p.at].Decision()
		p.Decision.Policy = p.name
	}
	v.Binding = v.partOfLocal(v.Binding)
	if v.Allowed = v.Parts[v.Binding].Decision.Allowed; !v.Allowed {
		v.work.leases = v.work.leases[:0]
	}
}

// bind looks for the part that binds.
func (v *Verdict) bind() {
	v.Binding = -1
	for i := range v.Parts {
		if v.Binding < 0 || binds(&v.Parts[i].Decision, &v.Parts[v.Binding].Decision) {
			v.Binding = i
		}
	}
}

// binds reports whether a speaks for both rather than b.
func binds(a, b *weir.Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return b.Allowed
	case a.Allowed:
		return a.Remaining < b.Remaining
	}
	return a.RetryAfter > b.RetryAfter
}

// refuses reports whether some limit of a policy refuses the request.
func (v *Verdict) refuses(it *item) bool {
	for j := it.first; j < it.end; j++ {
		if j >= 0 && !v.Parts[j].Decision.Allowed {
			return true
		}
	}
	return false
}

// peek returns what decide would.
func (e *Engine) peek(ctx context.Context, s *snapshot, requests []*Request, v *Verdict) {
	v.gather(s, requests, nil)
	switch {
	case !v.chargeAll(len(requests)):
		v.refuseAll(s)
	case v.failed():
		v.peekParts()
		e.peekShared(ctx, v)
		v.Binding, v.Allowed = -1, false
	case s.lockouts && v.lockedOut(e.now()):
		v.peekRest()
		e.peekShared(ctx, v)
		v.Allowed = false
	case len(v.Parts) > 0:
		v.peekParts()
		e.peekShared(ctx, v)
		if v.Allowed = v.Parts[v.Binding].Decision.Allowed; !v.Allowed && s.lockouts {
			v.foreseeLockouts(e.now())
		}
	}
}

// take decides at once.
func (v *Verdict) take(reserve bool) {
	w := &v.work
	w.owed = w.owed || reserve
	if reserve {
		w.leases, v.Binding = keyset.TryReserveAll(w.leases, w.charges...)
	} else {
		w.leases, v.Binding = keyset.TryAcquireAll(w.leases, w.charges...)
	}
	v.fill()
}
