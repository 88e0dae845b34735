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
	if a.verb == take && v.work.afterwards != 0 {
		e.owe(ctx, requests, v)
	}
	if !began.IsZero() || !v.Allowed && e.options.OnRefused != nil {
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
		e.debitAll(ctx, v)
		return
	case a.verb == peek:
		e.peek(ctx, v)
		return
	case len(v.Parts) == 0:
	case a.wait:
		gone = e.wait(ctx, requests, a.reserve, v)
		v.count(e)
		if gone == nil && v.failed() {
			e.refusedAhead(ctx, a, v)
			return
		}
	default:
		gone = e.take(ctx, v, a.reserve)
		v.count(e)
	}
	if gone != nil {
		e.canceled(v, gone)
		return
	}
	e.conclude(ctx, a, v)
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
	return !v.Exempt
}

// find finds the limits that apply to requests, and makes the parts and charges of those that are enforced. It refuses the
// requests, and returns false, if they are too many, or if the charges of several are.
func (v *Verdict) find(s *snapshot, requests []*Request, counting *Engine) bool {
	w := &v.work
	limited, afterwards := len(requests), uint64(0)
	if limited <= keyset.MostCharges {
		v.gather(s, requests, counting)
		failed := v.chargeAll()
		if len(requests) == 1 || w.charged+len(w.sharing.asked) <= keyset.MostCharges {
			if failed && counting != nil {
				counting.failed(v)
			}
			return true
		}
		limited, afterwards = w.limited, w.afterwards
	}
	v.begin(s)
	w.limited, w.afterwards = limited, afterwards
	v.Allowed, v.own = false, weir.Decision{Reason: weir.ReasonInvalid, RetryAfter: weir.Never}
	return false
}

// chargeAll makes the parts of the policies that are enforced, and their charges. It reports whether something of a policy cannot
// be told.
func (v *Verdict) chargeAll() (failed bool) {
	w := &v.work
	for i := len(w.items) - 1; i >= 0 && w.items[i].request > 0; i-- { // those of the first request join none
		if it := &w.items[i]; it.joined >= 0 {
			w.items[it.joined].more += it.cost
		}
	}
	for i := range w.items {
		it := &w.items[i]
		v.Priority = max(v.Priority, it.policy.Priority)
		failed = failed || it.failed != nil
		switch {
		case it.policy.Mode != ModeEnforce:
		case it.failed != nil:
			if it.barred() && v.own.Reason == weir.ReasonNone { // the first one that failed binds
				v.own = it.refusal()
			}
		case it.lifted():
		default:
			v.chargeItem(it)
		}
	}
	return failed
}

// chargeItem makes the parts of a policy that is enforced, and their charges.
func (v *Verdict) chargeItem(it *item) {
	w, p := &v.work, it.policy
	switch {
	case it.joined >= 0:
		it.at = w.items[it.joined].at
	case p.shared:
		it.at = len(w.sharing.asked)
		w.sharing.charge(w, it)
	default:
		it.at = w.charged
		w.charged += len(p.limits)
		w.owed = w.owed || p.returns
	}
	applied := it.variant
	if it.override != nil {
		applied = &it.override.variant
	}
	v.addParts(it, applied)
}

// addParts makes the parts of a policy, to which limits were applied. The decisions are still to be made.
func (v *Verdict) addParts(it *item, applied *variant) {
	limits, rule, key := it.policy.limits, v.work.snapshot.rule(it), v.work.key(it)
	shared := it.stored()
	it.first = len(v.Parts)
	v.Parts = slices.Grow(v.Parts, len(limits))[:it.first+len(limits)]
	for j := range limits { // in place, as a part is large
		p := &v.Parts[it.first+j]
		p.Request, p.Policy, p.Limit, p.Rule = int(it.request), it.policy.Policy, j, rule
		p.Key, p.Cost, p.Unasked = key, it.cost, false
		p.applied, p.shared, p.at = applied, shared, int32(it.at+j)
	}
}

// failed counts what could not be told of the policies that apply to requests.
func (e *Engine) failed(v *Verdict) {
	for i := range v.work.items {
		if it := &v.work.items[i]; it.failed != nil {
			it.policy.state.counts.failed.Add()
			e.warn(&it.policy.state.counts.warned, expressionFailed, "policy", it.policy.Name, it.failed)
		}
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
	case weir.ReasonInvalid, weir.ReasonNever:
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
		if it.locked = it.policy.state.lockouts.rest(w.key(it), now, it.policy.Lockout); it.locked <= 0 {
			continue
		}
		if it.first < 0 { // nothing of it is charged, but its parts say why it refuses
			v.addParts(it, nil)
		}
		some = true
	}
	return some
}

// fillLockouts writes into the parts that their keys are locked out, where they are.
func (v *Verdict) fillLockouts() {
	for i := range v.work.items {
		it := &v.work.items[i]
		if it.locked <= 0 {
			continue
		}
		for j := range v.partsOf(it) {
			d := &v.Parts[it.first+j].Decision
			if d.Allowed, d.Reason = false, weir.ReasonHardLockout; d.RetryAfter < it.locked {
				d.RetryAfter = it.locked // otherwise the limit refuses for longer than the lockout
			}
		}
	}
}

// peek fills the parts with what their limits would decide, and with the lockouts that this would lead to.
func (e *Engine) peek(ctx context.Context, v *Verdict) {
	if len(v.Parts) > 0 {
		v.look()
		e.lookStored(ctx, v)
		v.Allowed = v.Parts[v.Binding].Decision.Allowed
	}
	switch {
	case !v.Allowed && v.work.snapshot.lockouts:
		v.foreseeLockouts(e.now())
	case v.Allowed && v.work.snapshot.compares:
		e.compare(ctx, ask{verb: peek}, v, 0, -1)
	}
}

// look fills the parts with what the limits of this process would decide. Those in a store are not asked.
func (v *Verdict) look() {
	w := &v.work
	v.addCharges(false)
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
	v.addCharges(false)
	if len(w.sharing.asked) == 0 {
		v.count(e)
	}
	if w.charged == 0 {
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

// addCharges begins the step over the limits of this process, which write their decisions into the parts. Those that permits come
// back to on release are charged nothing by a debit.
func (v *Verdict) addCharges(debit bool) {
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		if it.at < 0 || it.joined >= 0 || it.policy.shared {
			continue
		}
		key, parts := w.key(it), v.partsOf(it)
		for j, plan := range it.variant.plans {
			n := it.total()
			if debit && it.policy.limits[j].returns {
				n = 0
			}
			w.step.Add(plan, key, n, &parts[j].Decision)
		}
	}
}

// fillLocal completes the decisions of the limits of this process.
func (v *Verdict) fillLocal() {
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		if it.stored() {
			continue
		}
		parts := v.partsOf(it)
		for j := range parts {
			d := &parts[j].Decision
			switch {
			case it.at < 0:
				*d = weir.Decision{Limit: it.policy.Limits[j].Permits()}
			case it.joined >= 0:
				*d = v.Parts[w.items[it.joined].first+j].Decision
			}
			d.Policy = it.policy.limits[j].name
		}
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
