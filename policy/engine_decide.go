package policy

import (
	"context"
	"errors"
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
	e.sample(s, r)
	e.counts.requests.Add()
	if !e.prepare(s, r, v) {
		return
	}
	switch {
	case e.refusedAhead(s, v):
		return
	case len(v.work.sharing.asked) > 0:
		if e.takeShared(r.context(), v, reserve) != nil {
			e.counts.canceled.Add()
			return
		}
	case len(v.work.charges) > 0:
		v.take(reserve)
	}
	e.conclude(r.context(), s, v)
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

// conclude counts a request that was decided, and asks policies in shadow and candidates.
func (e *Engine) conclude(ctx context.Context, s *snapshot, v *Verdict) {
	w := &v.work
	refusing, by := 0, -1
	for i := range w.items {
		it := &w.items[i]
		if it.first < 0 {
			continue
		}
		counts := it.policy.state.counts
		if !v.refuses(it) {
			if v.Allowed {
				counts.granted.Add()
				if it.policy.Lockout != nil {
					it.policy.state.lockouts.granted(w.key(it))
				}
			}
			continue
		}
		refusing++
		by = i
		counts.refused.Add()
		if it.policy.Lockout != nil {
			e.noteRefusal(v, it)
		}
	}
	if !v.Allowed {
		e.counts.refused.Add()
		if s.lockouts {
			v.bind()
		}
	}
	for i := range w.items {
		it := &w.items[i]
		switch {
		case it.failed != nil:
		case it.policy.Mode == ModeShadow:
			switch {
			case !v.Allowed:
			case it.policy.shared:
				e.shadowShared(ctx, w, it)
			default:
				w.shadow(it)
			}
		case len(it.policy.candidate) > 0 && it.first >= 0 && it.usual() && (refusing == 0 || refusing == 1 && by == i):
			if !w.sharing.unknown {
				w.measure(it, refusing == 0)
			}
		}
	}
	if !v.Allowed {
		v.releaseExtra() // it is not served
	}
}

// reasonsOfLimits are those of refusals that another request might not have met.
var reasonsOfLimits = [...]weir.Reason{weir.ReasonLimited, weir.ReasonQueueFull, weir.ReasonDeadline, weir.ReasonEvicted}

// noteRefusal counts a refusal of a policy that locks out.
func (e *Engine) noteRefusal(v *Verdict, it *item) {
	if !v.limits(it) {
		return // it asks for more than there ever is, or finds no room
	}
	locked := it.policy.state.lockouts.refused(v.work.key(it), e.now(), it.policy.Lockout)
	if locked <= 0 {
		return
	}
	it.policy.state.counts.lockedOut.Add()
	v.shutOut(it, locked)
}

// limits tells whether the refusal of a policy is one that leads to a lockout.
func (v *Verdict) limits(it *item) bool {
	for j := it.first; j < it.end; j++ {
		if slices.Contains(reasonsOfLimits[:], v.Parts[j].Decision.Reason) {
			return true
		}
	}
	return false
}

// shutOut answers that the refusal of a policy has led to a lockout.
func (v *Verdict) shutOut(it *item, locked time.Duration) {
	for j := it.first; j < it.end; j++ {
		if d := &v.Parts[j].Decision; !d.Allowed {
			d.Reason, d.RetryAfter = weir.ReasonHardLockout, max(locked, d.RetryAfter)
		}
	}
}

// foreseeLockouts is what conclude does to a refusal that leads to a lockout, without counting it.
func (v *Verdict) foreseeLockouts(now int64) {
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		if it.first < 0 || it.policy.Lockout == nil || !v.limits(it) {
			continue
		}
		if locked := it.policy.state.lockouts.foreseen(w.key(it), now, it.policy.Lockout); locked > 0 {
			v.shutOut(it, locked)
		}
	}
	v.bind()
}

// shadow asks a policy that is not enforced.
func (w *work) shadow(it *item) {
	w.noteShadow(it, w.try(it, it.policy.limits, it.plans))
}

// noteShadow counts what a policy that is not enforced has answered.
func (w *work) noteShadow(it *item, granted bool) {
	d, counts := it.policy.state.difference, it.policy.state.counts
	d.requests.Add()
	if granted {
		counts.granted.Add()
		return
	}
	counts.refused.Add()
	d.refused.Add()
	d.note(d.refusals, w.key(it))
}

// measure asks the candidate of a policy that has admitted the request, or is the only one that has not.
func (w *work) measure(it *item, admitted bool) {
	d := it.policy.state.difference
	d.requests.Add()
	would := w.try(it, it.policy.candidate, nil)
	switch {
	case would == admitted:
	case would:
		d.admitted.Add()
		d.note(d.grants, w.key(it))
	default:
		d.refused.Add()
		d.note(d.refusals, w.key(it))
	}
}

// try takes the permits of limits that refuse nobody.
func (w *work) try(it *item, limits []liveLimit, plans []*weir.Plan) bool {
	w.charges = w.charges[:0]
	w.charge(it, limits, plans)
	before := len(w.leases)
	var binding int
	w.leases, binding = weir.TryAcquireAll(w.leases, w.charges...)
	own := w.leases[before:]
	granted := own[binding].Allowed()
	if granted {
		for i := range own {
			if limits[i].returns {
				w.extra = append(w.extra, own[i])
			}
		}
	}
	w.leases = w.leases[:before]
	return granted
}

func (e *Engine) peek(r *Request, v *Verdict) { e.peekAt(e.live.Load(), r, v) }

func (e *Engine) peekAt(s *snapshot, r *Request, v *Verdict) {
	if !v.gather(s, r, nil) {
		return
	}
	v.chargeAll()
	switch {
	case v.failed():
		v.peekParts()
		e.peekShared(r.context(), v)
		v.Binding, v.Allowed = -1, false
	case s.lockouts && v.lockedOut(e.now()):
		v.peekRest()
		e.peekShared(r.context(), v)
		v.Allowed = false
	case len(v.Parts) > 0:
		v.peekParts()
		e.peekShared(r.context(), v)
		if v.Allowed = v.Parts[v.Binding].Decision.Allowed; !v.Allowed && s.lockouts {
			v.foreseeLockouts(e.now())
		}
	}
}

func (e *Engine) wait(ctx context.Context, r *Request, v *Verdict, reserve bool) error {
	s := e.live.Load()
	e.sample(s, r)
	e.counts.requests.Add()
	if !e.prepare(s, r, v) || e.refusedAhead(s, v) {
		return nil
	}
	w := &v.work
	if len(v.Parts) == 0 {
		e.conclude(ctx, s, v)
		return nil
	}
	longest, queue := mostWait, false
	for i := range w.items {
		if it := &w.items[i]; it.first >= 0 && it.policy.queue {
			longest, queue = min(longest, it.policy.maxWait), true
		}
	}
	shared := len(w.sharing.asked) > 0
	if !queue && ctx.Err() == nil {
		if !shared {
			v.take(reserve)
		} else if err := e.takeShared(ctx, v, reserve); err != nil {
			e.counts.canceled.Add()
			return err
		}
		e.conclude(ctx, s, v)
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	defer context.AfterFunc(e.ending, cancel)() //nolint:contextcheck // it is not that of the request
	var err error
	w.owed = w.owed || reserve
	switch {
	case shared:
		err = e.waitLocal(bounded, v)
	case reserve:
		w.leases, v.Binding, err = weir.ReserveAll(bounded, w.leases, w.charges...)
	default:
		w.leases, v.Binding, err = weir.AcquireAll(bounded, w.leases, w.charges...)
	}
	switch {
	case err == nil && shared:
		if err = e.takeStored(ctx, v, reserve); err != nil {
			e.counts.canceled.Add()
			return err
		}
	case err == nil:
		v.fill()
	case ctx.Err() == nil && e.closed.Load():
		v.giveUp(weir.ReasonClosed, weir.Never)
	case ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded):
		v.tooLate()
	default:
		v.giveUp(weir.ReasonCanceled, 0)
		e.counts.canceled.Add()
		return err
	}
	e.conclude(ctx, s, v)
	return nil
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

// giveUp refuses for a reason that has nothing to do with the permits.
func (v *Verdict) giveUp(why weir.Reason, retryAfter time.Duration) {
	v.peekParts()
	v.Allowed = false
	d := &v.Parts[v.Binding].Decision
	d.Allowed, d.Reason, d.RetryAfter = false, why, retryAfter
}

// tooLate is the answer when the time was up before the permits came.
func (v *Verdict) tooLate() {
	waited := v.Binding
	v.peekParts()
	if v.Binding >= 0 && v.Parts[v.Binding].Decision.Allowed {
		v.Binding = max(waited, 0) // permits came a moment too late
		v.Parts[v.Binding].Decision.RetryAfter = 1
	}
	v.Allowed = false
	d := &v.Parts[v.Binding].Decision
	d.Allowed = false
	if d.Reason == weir.ReasonNone || d.Reason == weir.ReasonLimited {
		d.Reason = weir.ReasonDeadline
	}
}
