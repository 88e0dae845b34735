package policy

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/keyset"
)

// verb is what a call does with limits.
type verb uint8

const (
	take  verb = iota // takes what requests cost, if all of it is there
	peek              // returns what take would
	debit             // takes what requests have cost, whatever remains
)

// ask is what a call wants of the limits of its requests.
type ask struct {
	verb    verb
	reserve bool // the cost is settled later
	wait    bool // in the queues of the limits, until the context ends
}

// decide is the one path of all calls. It finds the limits that apply to requests and makes their charges, asks the limits as one
// step, those of this process first and those in a store last, writes what they decide into the parts of the verdict, and
// concludes what follows from it. Observers are called in the end.
func (e *Engine) decide(ctx context.Context, requests []*Request, a ask, v *Verdict) {
	if a.verb == peek {
		e.answer(ctx, requests, a, v)
		return
	}
	began := e.begins(v)
	e.answer(ctx, requests, a, v)
	v.count(e)
	if a.verb == take && !v.Allowed && v.work.afterwards != 0 {
		e.owe(ctx, requests, v)
	}
	if !began.IsZero() || !v.Allowed {
		e.decided(ctx, requests, v, began)
	}
	v.tellPolicies(requests)
}

// answer makes the decision.
func (e *Engine) answer(ctx context.Context, requests []*Request, a ask, v *Verdict) {
	if !e.prepare(ctx, requests, a, v) || a.verb != debit && e.refusedAhead(ctx, a, v) {
		return
	}
	var gone error
	switch {
	case a.verb == debit:
		v.count(e)
		e.debitAll(ctx, v)
		return
	case a.verb == peek:
		e.peek(ctx, v)
		return
	case len(v.Parts) == 0:
	case a.wait:
		v.count(e)
		gone = e.wait(ctx, requests, a.reserve, v)
		if gone == nil && v.failed() {
			e.refusedAhead(ctx, a, v)
			return
		}
	default:
		gone = e.take(ctx, v, a.reserve)
	}
	if gone != nil {
		e.canceled(v, gone)
		return
	}
	e.conclude(ctx, v)
}

// prepare finds the limits of requests, which count must be called for unless they are only looked at. It returns false if they
// are decided already.
func (e *Engine) prepare(ctx context.Context, requests []*Request, a ask, v *Verdict) bool {
	s := e.live.Load()
	if a.verb == peek {
		return v.find(s, requests, nil) && !v.Exempt
	}
	if a.verb == take && e.options.ExplainEvery > 0 {
		for _, r := range requests {
			e.sample(ctx, r)
		}
	}
	v.work.uncounted, v.work.counted = len(requests), v.work.counted[:0]
	if !v.find(s, requests, e) {
		e.refused(v.work.limited)
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

// find finds the limits that apply to requests, and makes the parts and charges of those that are enforced. It refuses the
// requests, and returns false, if they are too many, or if the charges of several are.
func (v *Verdict) find(s *snapshot, requests []*Request, counting *Engine) bool {
	w := &v.work
	limited, afterwards := len(requests), uint64(0)
	if limited <= keyset.MostCharges {
		v.gather(s, requests, counting)
		v.chargeAll()
		if len(requests) == 1 || w.charged+len(w.sharing.asked) <= keyset.MostCharges {
			return true
		}
		limited, afterwards = w.limited, w.afterwards
	}
	v.begin(s)
	w.limited, w.afterwards = limited, afterwards
	v.Allowed, v.own = false, weir.Decision{Reason: weir.ReasonInvalid, RetryAfter: weir.Never}
	return false
}

// chargeAll makes the parts of the policies that are enforced, and their charges.
func (v *Verdict) chargeAll() {
	for i := range v.work.items {
		it := &v.work.items[i]
		it.first, it.end = -1, -1
		switch {
		case it.policy.Mode != ModeEnforce:
		case it.failed != nil:
			if it.barred() && v.own.Reason == weir.ReasonNone { // the first one that failed binds
				v.own = it.refusal()
			}
		case it.lifted():
		default:
			v.chargeItem(it, v.work.snapshot.rule(it))
		}
	}
}

// chargeItem makes the parts of a policy that is enforced, and their charges.
func (v *Verdict) chargeItem(it *item, rule *Rule) {
	w, shared := &v.work, it.policy.shared
	it.first = len(v.Parts)
	it.end = it.first + len(it.policy.limits)
	at, first := w.charged, it.first
	switch {
	case it.joined >= 0:
		first = w.items[it.joined].first
		at = int(v.Parts[first].at)
	case shared:
		at = len(w.sharing.asked)
		w.sharing.charge(w, it)
	default:
		w.charged += len(it.policy.limits)
	}
	v.Parts = slices.Grow(v.Parts, len(it.policy.limits))[:it.end]
	applied := it.variant
	if it.override != nil {
		applied = &it.override.variant
	}
	for j := range it.policy.limits { // in place, as a part is large
		p := &v.Parts[it.first+j]
		p.Request, p.Policy, p.Limit, p.Rule = int(it.request), it.policy.Policy, j, rule
		p.Key, p.Cost, p.name = w.key(it), it.cost, it.policy.limits[j].name
		p.Unasked, p.shared, p.at, p.first = false, shared, int32(at+j), int32(first+j)
		if p.applied, p.total = applied, it.total; !shared {
			p.plan = it.variant.plans[j]
		}
		w.owed = w.owed || it.policy.limits[j].returns && !shared
	}
}

// barred reports whether a policy refuses its request because the key, the cost or the limit failed to be worked out.
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

// refusedAhead reports whether no limit need be asked: something cannot be told, the shedder refuses, or a key is locked out. The
// parts then have what their limits would decide.
func (e *Engine) refusedAhead(ctx context.Context, a ask, v *Verdict) bool {
	probe, locked := a.verb == peek, false
	if !v.failed() && (probe || !e.shed(v)) {
		if !v.work.snapshot.lockouts || !v.lockedOut(e.now()) {
			return false
		}
		locked = true
	}
	v.look()
	if probe {
		e.lookStored(ctx, v)
	}
	if v.Allowed, v.Binding = false, -1; locked {
		v.fillLockouts()
		v.bind()
	}
	if !probe {
		e.refused(v.work.limited)
	}
	for i := range v.work.items {
		it := &v.work.items[i]
		if locked && !probe && it.first >= 0 && v.Parts[it.first].Decision.Reason == weir.ReasonHardLockout {
			it.policy.state.counts.lockedOut.Add()
			it.policy.state.counts.refused.Add()
		}
	}
	return true
}

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

// lockedOut reports whether some policy locks out the request, and notes for how long.
func (v *Verdict) lockedOut(now int64) (some bool) {
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		if it.policy.Lockout == nil || it.first < 0 && !it.waved() {
			continue
		}
		if it.locked = it.policy.state.lockouts.rest(w.key(it), now); it.locked <= 0 {
			continue
		}
		if it.first < 0 {
			v.addUncharged(it)
		}
		some = true
	}
	return some
}

// fillLockouts writes into the parts that their keys are locked out, where they are.
func (v *Verdict) fillLockouts() {
	for i := range v.work.items {
		it := &v.work.items[i]
		for j := it.first; it.locked > 0 && j < it.end; j++ {
			d := &v.Parts[j].Decision
			d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonHardLockout, it.locked
		}
	}
}

// addUncharged makes parts of a policy that has none, to say why it refuses.
func (v *Verdict) addUncharged(it *item) {
	it.first = len(v.Parts)
	for j := range it.policy.limits {
		v.Parts = append(v.Parts, Part{
			Request: int(it.request), Policy: it.policy.Policy, Limit: j, Rule: v.work.snapshot.rule(it),
			Key: v.work.key(it), Cost: it.cost, name: it.policy.limits[j].name, at: -1, first: -1,
		})
	}
	it.end = len(v.Parts)
}

// peek fills the parts with what their limits would decide, and with the lockouts that this would lead to.
func (e *Engine) peek(ctx context.Context, v *Verdict) {
	if len(v.Parts) == 0 {
		return
	}
	v.look()
	e.lookStored(ctx, v)
	if v.Allowed = v.Parts[v.Binding].Decision.Allowed; !v.Allowed && v.work.snapshot.lockouts {
		v.foreseeLockouts(e.now())
	}
}

// look fills the parts with what the limits of this process would decide. Those in a store are not asked.
func (v *Verdict) look() {
	w := &v.work
	v.addCharges()
	w.step.Peek()
	w.leases = w.leases[:0]
	v.fillLocal()
	v.skipStored()
	v.bind()
}

// take takes what requests cost, of the limits of this process first, as they are the ones that can be given back exactly and at
// once, and of those in a store only if all of these allow it. The error is that of ctx, if it was canceled.
func (e *Engine) take(ctx context.Context, v *Verdict, reserve bool) error {
	w := &v.work
	shared := len(w.sharing.asked) > 0
	w.owed = w.owed || reserve
	v.takeLocal(e, reserve || shared)
	if shared {
		return e.takeStored(ctx, v, reserve, 0)
	}
	v.settleLocal()
	return nil
}

// takeLocal takes or reserves the permits of the limits of this process, if there are any.
func (v *Verdict) takeLocal(e *Engine, reserve bool) {
	w := &v.work
	v.addCharges()
	if v.count(e); w.charged == 0 {
		return
	}
	var binding int
	if reserve || w.owed {
		w.leases, binding = w.step.TryAll(w.leases[:0], reserve)
	} else {
		binding = w.step.Take()
	}
	v.fillLocal()
	v.Binding = v.partOfLocal(binding)
}

// settleLocal allows requests with limits of this process alone if the part at Binding does.
func (v *Verdict) settleLocal() {
	if v.Allowed = v.Parts[v.Binding].Decision.Allowed; !v.Allowed {
		v.work.leases = v.work.leases[:0]
	}
}

// addCharges begins the step over the limits of this process, which write their decisions into the parts.
func (v *Verdict) addCharges() {
	w := &v.work
	for i := range v.Parts {
		if p := &v.Parts[i]; int(p.first) == i && !p.shared {
			w.step.Add(p.plan, p.Key, p.total, &p.Decision)
		}
	}
}

// fillLocal completes the decisions of the limits of this process.
func (v *Verdict) fillLocal() {
	for i := range v.Parts {
		p := &v.Parts[i]
		if p.shared {
			continue
		}
		if p.at < 0 {
			p.Decision.Limit = p.Policy.Limits[p.Limit].Permits()
		} else if int(p.first) != i {
			p.Decision = v.Parts[p.first].Decision
		}
		p.Decision.Policy = p.name
	}
}

// fill writes into a part what its limit has decided.
func (p *Part) fill(d *weir.Decision) {
	p.Decision = *d
	p.Decision.Policy = p.name
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

// refused counts so many requests that were refused.
func (e *Engine) refused(requests int) {
	for range requests {
		e.counts.refused.Add()
	}
}

// canceled counts the requests of a verdict as canceled, whose caller has gone for a reason.
func (e *Engine) canceled(v *Verdict, gone error) {
	v.work.gone = gone
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
	now, before := clock.Now()+1, last.Load()
	if before != 0 && now-before < int64(time.Minute) || !last.CompareAndSwap(before, now) {
		return
	}
	e.options.Logger.Warn(what, kind, name, "error", err.Error())
}
