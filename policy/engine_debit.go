package policy

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/store"
)

// DebitAll charges what requests have cost already to all limits that apply to them, whatever remains. The debt of limits of this
// process is that of [keyset.DebitAll], and that of others of [store.Store.Debit]. Rules, keys, costs and tiers are those of each
// request, as with [Engine.TakeAll], and so is the max number of requests and charges, [keyset.MostCharges]. No request is
// refused, no shedder is asked, lockouts neither count nor apply, and no call waits. There is nothing to settle.
//
// The decision of each part is that of a probe right afterwards: Allowed if a permit remains, or else with the RetryAfter of the
// first one. Limits of AlgorithmConcurrency are not charged, as their permits would never come back; one in a store is not asked.
//
// Allowed is true if all limits were charged. It is false if a store has failed: then Binding is a part of it, whose Reason is
// ReasonUnavailable, ReasonCanceled or ReasonClosed. Fail does not count, except that for FailLocal a [store.Fleet] charges this
// process until the store is back. It is not known whether the store was charged, so a second call may charge twice; the limits
// of this process have been charged. Allowed is also false if a key, a tier, a cost or a limit cannot be evaluated, where TakeAll
// would refuse: Binding is then -1, [Verdict.Decision] has the reason, and all other limits have been charged. What a full table
// has no room for is forgiven.
//
// Limits of this process are charged in one atomic step, then those in a store, in one step if they are all of one kind and
// [Consistency]. The [Report] counts requests and what policies were charged, which is Granted; policies in shadow and candidates
// are asked as by TakeAll.
func (e *Engine) DebitAll(ctx context.Context, requests []*Request, v *Verdict) {
	if !e.watching(v) {
		e.debitAll(ctx, requests, v)
		v.tellPolicies(requests)
		return
	}
	began := time.Now()
	e.debitAll(ctx, requests, v)
	e.decided(ctx, requests, v, began)
	v.tellPolicies(requests)
	if o := v.work.observer; o != nil {
		v.work.observer = nil
		o.Settled(v, 0)
	}
}

func (e *Engine) debitAll(ctx context.Context, requests []*Request, v *Verdict) {
	s := e.live.Load()
	for range requests {
		e.counts.requests.Add()
	}
	if len(requests) > keyset.MostCharges {
		e.refused(len(requests))
		v.refuseAll(s)
		return
	}
	if !e.prepare(s, requests, v) {
		return
	}
	missed := v.debit()
	ctx = e.asking(ctx)
	if e.debitStored(ctx, v) {
		missed = true
		v.work.sharing.unknown = true
	}
	v.bind()
	switch {
	case v.failed():
		v.Binding, v.Allowed = -1, false
	case missed:
		v.bindMissed()
		v.Allowed = false
	}
	e.debited(ctx, v)
}

// debts are verdicts for owe.
var debts = sync.Pool{New: func() any { return new(Verdict) }}

// owe charges requests that were refused and have been spent nevertheless: see Rule.Afterwards. Where it is not known what a
// store has charged already, it charges nothing more.
func (e *Engine) owe(ctx context.Context, requests []*Request, v *Verdict) {
	if v.work.sharing.unknown || v.work.canceled {
		return
	}
	debt := debts.Get().(*Verdict)
	defer debts.Put(debt)
	var one [1]*Request
	for i, r := range requests {
		if v.work.afterwards>>i&1 == 0 {
			continue
		}
		one[0] = r
		debt.gather(v.work.snapshot, one[:], nil)
		if debt.chargeAll(1); debt.Exempt {
			continue
		}
		debt.debit()
		e.debitStored(e.asking(ctx), debt)
		v.leave(i, debt)
	}
}

// leave tells what one of the requests has left, going by the verdict that has charged it.
func (v *Verdict) leave(request int, debt *Verdict) {
	for i := range v.Parts {
		if p := &v.Parts[i]; p.Request == request {
			for j := range debt.Parts {
				p.leave(&debt.Parts[j])
			}
		}
	}
}

// leave tells what is left of a limit and when the next permit comes, if after is what the same limit said once it was charged.
func (p *Part) leave(after *Part) {
	if p.Policy != after.Policy || p.Limit != after.Limit || !bytes.Equal(p.Key, after.Key) || after.missed() {
		return
	}
	d := &p.Decision
	d.Remaining, d.ResetAfter = after.Decision.Remaining, after.Decision.ResetAfter
	if d.Reason == weir.ReasonLimited {
		d.RetryAfter = after.Decision.RetryAfter
	}
}

// missed reports whether a limit was not charged, going by what it says afterwards.
func (p *Part) missed() bool {
	switch p.Decision.Reason { //nolint:exhaustive // all others tell what is left
	case weir.ReasonInvalid, weir.ReasonUnavailable, weir.ReasonCanceled:
		return true
	case weir.ReasonClosed:
		return p.shared
	}
	return false
}

// bindMissed makes the first part that was not charged the one that binds.
func (v *Verdict) bindMissed() {
	for i := range v.Parts {
		if v.Parts[i].missed() {
			v.Binding = i
			return
		}
	}
}

// debited counts requests that were debited, and asks policies in shadow and candidates.
func (e *Engine) debited(ctx context.Context, v *Verdict) {
	w := &v.work
	for i := range w.items {
		if it := &w.items[i]; it.first >= 0 && !v.missed(it) || it.waved() {
			it.policy.state.counts.granted.Add()
		}
	}
	switch {
	case v.Allowed:
		e.compare(ctx, v, 0, -1)
	case canceled(ctx) && w.sharing.canceled():
		e.canceled(v)
	default:
		e.refused(w.limited)
	}
	v.settled() // nothing is held for what has been served
}

// missed reports whether some limit of a policy was not charged.
func (v *Verdict) missed(it *item) bool {
	for j := it.first; j < it.end; j++ {
		if v.Parts[j].missed() {
			return true
		}
	}
	return false
}

// debit charges the limits of this process, and reports whether it could not.
func (v *Verdict) debit() (missed bool) {
	w := &v.work
	if len(w.charges) == 0 {
		return false
	}
	for i := range v.Parts {
		if p := &v.Parts[i]; !p.shared && p.returns() {
			w.charges[p.at].N = 0
		}
	}
	w.peeked, _ = keyset.DebitAll(w.peeked[:0], w.charges...)
	for i := range v.Parts {
		if p := &v.Parts[i]; !p.shared {
			p.peeked(&w.peeked[p.at])
			missed = missed || p.missed()
		}
	}
	return missed
}

func (p *Part) returns() bool {
	return p.Policy.Limits[p.Limit].Algorithm() == weir.AlgorithmConcurrency
}

// debitStored charges the limits in a store, and reports whether it could not.
func (e *Engine) debitStored(ctx context.Context, v *Verdict) (missed bool) {
	x := &v.work.sharing
	if len(x.asked) == 0 {
		return false
	}
	x.side, x.decisions = x.side[:0], room(x.decisions, len(x.asked))
	for i := range x.asked {
		if x.asked[i].Limit.Algorithm() != weir.AlgorithmConcurrency {
			x.side = append(x.side, x.asked[i])
		}
	}
	x.sideDecisions = room(x.sideDecisions, len(x.side))
	var err error
	switch {
	case len(x.side) == 0:
	case e.closed.Load():
		err = store.ErrClosed
	default:
		err = e.states.Debit(ctx, x.side, x.sideDecisions)
	}
	for i, j := 0, 0; i < len(x.asked); i++ {
		switch d := &x.decisions[i]; {
		case x.asked[i].Limit.Algorithm() == weir.AlgorithmConcurrency:
			*d = weir.Decision{Allowed: true, Limit: x.asked[i].Limit.Permits()}
			continue
		case err != nil:
			*d = undebited(ctx, err)
			d.Limit = x.asked[i].Limit.Permits()
		default:
			*d = x.sideDecisions[j]
		}
		missed = missed || x.decisions[i].Reason == weir.ReasonUnavailable
		j++
	}
	missed = missed || err != nil
	if missed && !e.closed.Load() {
		e.countUnavailable(x, err)
	}
	for i := range v.Parts {
		switch p := &v.Parts[i]; {
		case !p.shared:
		case p.returns():
			p.unask(x.asked[p.at].Limit)
		default:
			p.peeked(&x.decisions[p.at])
		}
	}
	return missed
}

// undebited is the answer of a store that has failed.
func undebited(ctx context.Context, err error) weir.Decision {
	var misuse *weir.OptionError
	switch {
	case canceled(ctx):
		return weir.Decision{Reason: weir.ReasonCanceled}
	case errors.Is(err, store.ErrClosed):
		return weir.Decision{Reason: weir.ReasonClosed, RetryAfter: weir.Never}
	case errors.As(err, &misuse):
		return weir.Decision{Reason: weir.ReasonInvalid, RetryAfter: weir.Never}
	}
	return weir.Decision{Reason: weir.ReasonUnavailable, RetryAfter: retryUnavailable}
}
