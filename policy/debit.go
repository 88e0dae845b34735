package policy

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// debitAll charges what requests have cost, and counts them.
func (e *Engine) debitAll(ctx context.Context, v *Verdict) {
	missed := e.debit(ctx, v)
	v.bind()
	switch {
	case v.failed():
		v.Binding, v.Allowed = -1, false
	case missed:
		v.bindMissed()
		v.Allowed = false
	}
	e.debited(e.asking(ctx), v)
}

// debit charges what requests have cost, whatever remains, to the limits of this process and then to those in a store. It reports
// whether one of them was not charged.
func (e *Engine) debit(ctx context.Context, v *Verdict) (missed bool) {
	missed = v.debitLocal()
	if e.debitStored(e.asking(ctx), v) {
		v.work.sharing.unknown, missed = true, true
	}
	return missed
}

// debts are verdicts for owe.
var debts = sync.Pool{New: func() any { return new(Verdict) }}

// owe charges requests that were refused and have been spent nevertheless: see Rule.Afterwards. Where it is not known what a
// store has charged already, it charges nothing more.
func (e *Engine) owe(ctx context.Context, requests []*Request, v *Verdict) {
	if v.work.gone != nil || !v.Allowed && v.work.sharing.unknown {
		return
	}
	if v.work.snapshot.compares {
		e.oweAside(ctx, &v.work)
	}
	if v.Allowed {
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
		if debt.find(v.work.snapshot, one[:], nil); debt.Exempt {
			continue
		}
		e.debit(ctx, debt)
		v.leave(i, debt)
	}
}

// oweAside charges such requests to policies in shadow and candidates that have not allowed them.
func (e *Engine) oweAside(ctx context.Context, w *work) {
	for i := range w.items {
		it := &w.items[i]
		if w.afterwards>>it.request&1 == 0 || it.failed != nil || it.lifted() || w.items[it.root(i)].allowed {
			continue
		}
		switch p := it.policy; {
		case !p.Mode.watches():
			if len(p.candidate) > 0 && it.usual() {
				w.spend(it, p.candidate, &p.measured, it.cost)
			}
		case !p.shared:
			w.spend(it, p.limits, it.variant, it.cost)
		case !w.sharing.unknown && !e.closed.Load():
			e.askAside(ctx, debit, w, it, it.cost)
		}
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

// debited counts requests that were debited, and charges policies in shadow and candidates.
func (e *Engine) debited(ctx context.Context, v *Verdict) {
	v.count(e)
	w := &v.work
	for i := range w.items {
		if it := &w.items[i]; it.first >= 0 && !v.some(it, (*Part).missed) || it.waved() {
			it.policy.state.counts.allowed.Add()
		}
	}
	if w.snapshot.compares {
		e.compare(ctx, ask{verb: debit}, v, 0, -1)
	}
	switch {
	case v.Allowed:
	case isCanceled(ctx) && anyCanceled(w.sharing.decisions):
		e.canceled(v, ctx.Err())
	default:
		e.refused(w.limited)
	}
	v.settled() // nothing is held for what has been served
}

// debitLocal charges the limits of this process, and reports whether it could not.
func (v *Verdict) debitLocal() (missed bool) {
	w := &v.work
	if w.charged == 0 {
		return false
	}
	v.addCharges(true)
	w.step.Debit()
	v.fillLocal()
	return slices.ContainsFunc(v.Parts, func(p Part) bool { return !p.shared && p.missed() })
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
	if len(x.side) > 0 {
		_, err = e.ask(ctx, store.Ask{Mode: store.ModeDebit}, x.side, x.sideDecisions)
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
	v.fillStored(true)
	return missed
}

// undebited is the answer of a store that has failed.
func undebited(ctx context.Context, err error) weir.Decision {
	var misuse *weir.OptionError
	switch {
	case isCanceled(ctx):
		return weir.Decision{Reason: weir.ReasonCanceled}
	case errors.Is(err, store.ErrClosed):
		return weir.Decision{Reason: weir.ReasonClosed, RetryAfter: weir.Never}
	case errors.As(err, &misuse):
		return weir.Decision{Reason: weir.ReasonInvalid, RetryAfter: weir.Never}
	}
	return weir.Decision{Reason: weir.ReasonUnavailable, RetryAfter: retryUnavailable}
}
