package policy

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
)

// start anchors the clock of lockouts.
var start = time.Now()

func (e *Engine) now() int64 {
	if e.clock != nil {
		return e.clock.now()
	}
	return int64(time.Since(start))
}

// prepare finds the limits of a request, and answers false if the request is decided already.
func (e *Engine) prepare(s *snapshot, r *Request, v *Verdict) bool {
	if !v.gather(s, r, e) {
		e.counts.exempt.Add()
		return false
	}
	v.chargeAll()
	for i := range v.work.items {
		if it := &v.work.items[i]; it.failed != nil {
			it.policy.state.counts.failed.Add()
			e.warn(&it.policy.state.counts.warned, expressionFailed, "policy", it.policy.Name, it.failed)
		}
	}
	if len(v.Parts) == 0 && len(v.work.items) == 0 {
		e.counts.unlimited.Add()
	}
	return true
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

// chargeAll makes the parts of the policies that are enforced, and their charges.
func (v *Verdict) chargeAll() {
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		it.first, it.end = -1, -1
		switch {
		case it.policy.Mode != ModeEnforce:
		case it.failed != nil:
			if it.policy.Fail != FailOpen {
				v.fail(it)
			}
		default:
			v.chargeItem(it, &w.snapshot.set.Rules[it.rule])
		}
	}
}

// chargeItem makes the parts of a policy that is enforced, and their charges.
func (v *Verdict) chargeItem(it *item, rule *Rule) {
	w, shared := &v.work, it.policy.shared
	if shared {
		w.sharing.charge(w, it)
	} else {
		w.charge(it, it.policy.limits, it.plans)
	}
	it.first = len(v.Parts)
	it.end = it.first + len(it.policy.limits)
	v.Parts = slices.Grow(v.Parts, len(it.policy.limits))[:it.end]
	for j := range it.policy.limits { // in place, as a part is large
		p := &v.Parts[it.first+j]
		p.Policy, p.Limit, p.Rule = it.policy.Policy, j, rule
		p.Key, p.Cost, p.name = w.key(it), it.cost, it.policy.limits[j].name
		p.Decision.Allowed, p.Decision.Reason = false, weir.ReasonNone
		p.Unasked, p.shared = false, shared
		w.owed = w.owed || it.policy.limits[j].returns && !shared
	}
}

// fail refuses a request whose key, tier or cost cannot be told.
func (v *Verdict) fail(it *item) {
	if !v.own.Allowed && v.own.Reason != weir.ReasonNone {
		return // the first one that failed binds
	}
	v.own = weir.Decision{Reason: weir.ReasonUnavailable, Policy: it.policy.Name}
}

func (v *Verdict) failed() bool { return v.own.Reason == weir.ReasonUnavailable }

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

func (e *Engine) decide(r *Request, v *Verdict, reserve bool) {
	s := e.live.Load()
	e.sample(r.Context, s, r)
	e.counts.requests.Add()
	if !e.prepare(s, r, v) {
		return
	}
	switch {
	case e.refusedAhead(s, v):
		return
	case len(v.work.sharing.asked) > 0:
		if e.takeShared(r.Context, v, reserve) != nil {
			e.counts.canceled.Add()
			return
		}
	case len(v.work.charges) > 0:
		v.take(reserve)
	}
	e.conclude(r.Context, s, v)
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
	e.counts.refused.Add()
	return true
}

// lockedOut tells whether some policy shuts out the request.
func (v *Verdict) lockedOut(now int64) (some bool) {
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		if it.first < 0 || it.policy.Lockout == nil {
			continue
		}
		rest := it.policy.state.lockouts.rest(w.key(it), now)
		if rest <= 0 {
			continue
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
	w.peeked, v.Binding = weir.PeekAll(w.peeked[:0], w.charges...)
	w.leases = w.leases[:0]
	if len(w.sharing.asked) > 0 {
		w.sharing.unknown = true
		v.fillPeeked()
		v.bind()
		return
	}
	for i := range v.Parts {
		v.Parts[i].Decision = w.peeked[i]
		v.Parts[i].Decision.Policy = v.Parts[i].name
	}
}

// peekRest is peekParts, except for those that are locked out.
func (v *Verdict) peekRest() {
	w := &v.work
	w.peeked, _ = weir.PeekAll(w.peeked[:0], w.charges...)
	v.fillPeeked()
	v.bind()
}

// fillPeeked fills the parts with what was peeked at, except for those that are locked out, which stay so. Limits in a store
// were not asked.
func (v *Verdict) fillPeeked() {
	at := 0
	for i := range v.Parts {
		p := &v.Parts[i]
		if p.shared {
			p.unask(v.work.sharing.asked[i-at].Limit)
			continue
		}
		p.peeked(&v.work.peeked[at])
		at++
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
		p.Decision = v.work.leases[i].Decision()
		p.Decision.Policy = p.name
	}
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

// binds tells whether a speaks for both rather than b.
func binds(a, b *weir.Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return b.Allowed
	case a.Allowed:
		return a.Remaining < b.Remaining
	}
	return a.RetryAfter > b.RetryAfter
}

// refuses tells whether some limit of a policy refuses the request.
func (v *Verdict) refuses(it *item) bool {
	for j := it.first; j < it.end; j++ {
		if j >= 0 && !v.Parts[j].Decision.Allowed {
			return true
		}
	}
	return false
}

func (e *Engine) peek(r *Request, v *Verdict) { e.peekAt(r.Context, e.live.Load(), r, v) }

func (e *Engine) peekAt(ctx context.Context, s *snapshot, r *Request, v *Verdict) {
	if !v.gather(s, r, nil) {
		return
	}
	v.chargeAll()
	switch {
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
		w.leases, v.Binding = weir.TryReserveAll(w.leases, w.charges...)
	} else {
		w.leases, v.Binding = weir.TryAcquireAll(w.leases, w.charges...)
	}
	v.fill()
}
