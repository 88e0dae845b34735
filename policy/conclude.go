package policy

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir"
)

// conclude counts requests that were decided, and asks policies in shadow and candidates.
func (e *Engine) conclude(ctx context.Context, a ask, v *Verdict) {
	w := &v.work
	refusing, by := 0, -1
	for i := range w.items {
		it := &w.items[i]
		if it.first < 0 {
			if it.waved() && v.Allowed {
				it.policy.waved(w.key(it))
			}
			continue
		}
		counts := it.policy.state.counts
		if v.Allowed || !v.some(it, (*Part).refuses) {
			if v.Allowed {
				counts.allowed.Add()
				if it.policy.Lockout != nil {
					it.policy.state.lockouts.allowed(w.key(it), it.policy.Lockout)
				}
			}
			continue
		}
		if it.joined < 0 {
			refusing++
			by = i
		}
		counts.refused.Add()
		if v.some(it, (*Part).full) {
			counts.full.Add()
		}
		if refusals := it.policy.state.refusals; refusals != nil {
			refusals.note(w.key(it))
		}
		if it.policy.Lockout != nil {
			e.noteRefusal(v, it)
		}
	}
	if !v.Allowed {
		e.refused(w.limited)
		if w.snapshot.lockouts {
			v.bind()
		}
	}
	if w.snapshot.compares {
		e.compare(ctx, a, v, refusing, by)
	}
	if !v.Allowed {
		v.releaseExtra() // it is not served
	}
}

// waved reports whether a policy that is enforced lets the request pass whatever it asks for.
func (it *item) waved() bool { return it.lifted() && it.failed == nil && it.policy.Mode == ModeEnforce }

// waved counts a request that a policy has let pass whatever it asks for.
func (p *livePolicy) waved(key []byte) {
	p.state.counts.allowed.Add()
	if p.Lockout != nil {
		p.state.lockouts.allowed(key, p.Lockout)
	}
}

// compare asks policies in shadow and candidates about requests that so many policies have refused, the last of them being that
// of the item by. A peek asks those that are told of, as nothing is counted.
func (e *Engine) compare(ctx context.Context, a ask, v *Verdict, refusing, by int) {
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		switch {
		case a.verb == peek && it.policy.Mode != ModeTag:
		case it.policy.Mode.watches():
			if v.Allowed || a.verb == debit {
				e.watch(ctx, a, w, it)
			}
		case it.failed != nil:
		case len(it.policy.candidate) > 0 && it.first >= 0 && it.usual() && (refusing == 0 || refusing == 1 && by == it.root(i)):
			if !w.sharing.unknown && !w.sharing.skipped {
				w.measure(a, it, refusing == 0)
			}
		}
	}
}

// watch asks a policy that is not enforced about a request that is allowed, or charges it what was spent.
func (e *Engine) watch(ctx context.Context, a ask, w *work, it *item) {
	within, decided := it.policy.Fail == FailOpen, false
	switch {
	case it.failed != nil:
		within = within && it.why == weir.ReasonNone
	case it.lifted():
		if within = true; a.verb != peek {
			it.policy.state.counts.allowed.Add()
		}
	case !it.policy.shared:
		within, decided = w.try(a, it, it.policy.limits, it.variant), true
	case e.shadowShared(ctx, a, w, it):
		within, decided = it.allowed, true
	}
	if decided && a.verb != peek {
		w.noteShadow(it, within)
	}
	if !within && a.verb != debit && (decided || it.policy.Mode == ModeTag) { // a debit would not be refused
		w.noteOver(it)
	}
}

// root is the item whose charges are those of one, which is the i-th.
func (it *item) root(i int) int {
	if it.joined >= 0 {
		return int(it.joined)
	}
	return i
}

// some reports whether something holds for some limit of a policy.
func (v *Verdict) some(it *item, holds func(p *Part) bool) bool {
	parts := v.partsOf(it)
	for j := range parts {
		if holds(&parts[j]) {
			return true
		}
	}
	return false
}

func (p *Part) refuses() bool { return !p.Decision.Allowed }

// reasonsOfLimits are those of refusals that another request might not have met.
var reasonsOfLimits = [...]weir.Reason{weir.ReasonLimited, weir.ReasonQueueFull, weir.ReasonDeadline, weir.ReasonEvicted}

// noteRefusal counts a refusal of a policy that locks out: once, if several requests have met it together.
func (e *Engine) noteRefusal(v *Verdict, it *item) {
	if !v.some(it, (*Part).limits) || v.work.afterwards>>it.request&1 == 1 {
		return // it asks for more than there ever is, finds no room, or tells what was spent
	}
	if it.joined >= 0 {
		it.locked = v.work.items[it.joined].locked
	} else {
		it.locked = it.policy.state.lockouts.refused(v.work.key(it), e.now(), it.policy.Lockout)
	}
	if it.locked <= 0 {
		return
	}
	it.policy.state.counts.lockedOut.Add()
	v.shutOut(it, it.locked)
}

// limits reports whether the refusal of a limit is one that leads to a lockout.
func (p *Part) limits() bool { return slices.Contains(reasonsOfLimits[:], p.Decision.Reason) }

// full reports whether a limit refuses because no other key can be tracked.
func (p *Part) full() bool { return p.Decision.Reason == weir.ReasonTableFull && !p.shared }

// shutOut returns that the refusal of a policy has led to a lockout.
func (v *Verdict) shutOut(it *item, locked time.Duration) {
	parts := v.partsOf(it)
	for j := range parts {
		if d := &parts[j].Decision; !d.Allowed {
			d.Reason, d.RetryAfter = weir.ReasonHardLockout, max(locked, d.RetryAfter)
		}
	}
}

// foreseeLockouts is what conclude does to a refusal that leads to a lockout, without counting it.
func (v *Verdict) foreseeLockouts(now int64) {
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		if it.first < 0 || it.policy.Lockout == nil || !v.some(it, (*Part).limits) || w.afterwards>>it.request&1 == 1 {
			continue
		}
		if locked := it.policy.state.lockouts.foreseen(w.key(it), now, it.policy.Lockout); locked > 0 {
			v.shutOut(it, locked)
		}
	}
	v.bind()
}

// noteShadow counts what a policy that is not enforced has answered.
func (w *work) noteShadow(it *item, allowed bool) {
	d, counts := it.policy.state.difference, it.policy.state.counts
	d.requests.Add()
	if allowed {
		counts.allowed.Add()
		return
	}
	counts.refused.Add()
	d.refused.Add()
	d.refusals.note(w.key(it))
}

// over is a request that a policy in ModeTag or ModeShadow would have refused.
type over struct {
	request int32
	policy  *livePolicy
}

// noteOver notes that a policy would have refused the request.
func (w *work) noteOver(it *item) {
	if by := (over{it.request, it.policy}); !slices.Contains(w.over, by) {
		w.over = append(w.over, by)
	}
}

// measure asks the candidate of a policy that has allowed the request, or is the only one that has not.
func (w *work) measure(a ask, it *item, allowed bool) {
	d := it.policy.state.difference
	d.requests.Add()
	would := w.try(a, it, it.policy.candidate, &it.policy.measured)
	switch {
	case would == allowed:
	case would:
		d.allowed.Add()
		d.grants.note(w.key(it))
	default:
		d.refused.Add()
		d.refusals.note(w.key(it))
	}
}

// try is what a call does with limits that refuse no request. It reports whether they would allow it.
func (w *work) try(a ask, it *item, limits []liveLimit, x *variant) bool {
	if it.joined >= 0 {
		return w.items[it.joined].allowed
	}
	switch a.verb {
	case take:
		w.tryTake(a, it, limits, x)
	case peek:
		w.addAside(it, limits, x, it.total(), false)
		it.allowed = w.sharing.sideDecisions[w.step.Peek()].Allowed
	case debit:
		w.spend(it, limits, x, it.total())
		it.allowed = true
	}
	return it.allowed
}

// tryTake takes the permits of limits that refuse no request, or reserves them.
func (w *work) tryTake(a ask, it *item, limits []liveLimit, x *variant) {
	for i := range limits {
		w.step.Add(x.plans[i], w.key(it), it.total(), nil)
	}
	before := len(w.leases)
	var binding int
	w.leases, binding = w.step.TryAll(w.leases, a.reserve)
	own := w.leases[before:]
	if it.allowed = own[binding].Allowed(); it.allowed {
		for i := range own {
			if limits[i].returns || a.reserve {
				w.extra = append(w.extra, extra{own[i], it, x, i})
			}
		}
	}
	w.leases = w.leases[:before]
}

// spend charges n permits to limits that refuse no request, whatever remains.
func (w *work) spend(it *item, limits []liveLimit, x *variant, n int64) {
	w.addAside(it, limits, x, n, true)
	w.step.Debit()
}

// addAside begins a step over limits that refuse no request, which writes to sideDecisions. Those that permits come back to on
// release are charged nothing by a debit.
func (w *work) addAside(it *item, limits []liveLimit, x *variant, n int64, debit bool) {
	w.sharing.sideDecisions = room(w.sharing.sideDecisions, len(limits))
	for i := range limits {
		cost := n
		if debit && limits[i].returns {
			cost = 0
		}
		w.step.Add(x.plans[i], w.key(it), cost, &w.sharing.sideDecisions[i])
	}
}

// extra is what a policy in shadow or a candidate holds of a limit in this process.
type extra struct {
	lease weir.Lease
	item  *item
	under *variant
	limit int
}

// cost is what the permits have really cost, of all requests that share them.
func (w *work) cost(x *extra, actual func(p *Part) int64) (sum int64) {
	if w.aside == nil {
		w.aside = new(Part)
	}
	for i := range w.items {
		it := &w.items[i]
		if it != x.item && (it.joined < 0 || &w.items[it.joined] != x.item) {
			continue
		}
		of, limits := it.policy.Policy, it.policy.limits
		if x.under == &it.policy.measured {
			of, limits = it.policy.tried, it.policy.candidate
		}
		applied := x.under
		if it.override != nil {
			applied = &it.override.variant
		}
		p := w.aside
		*p = Part{
			Request: int(it.request), Policy: of, Limit: x.limit, Rule: w.snapshot.rule(it), Key: w.key(it), Cost: it.cost,
			Decision: x.lease.Decision(), applied: applied,
		}
		p.Decision.Policy = limits[x.limit].name
		sum += min(p.costs(actual), math.MaxInt64-sum)
	}
	return sum
}
