package policy

import (
	"context"
	"time"
)

// Observer sees what an [Engine] decides, to measure and trace it. The goroutine of the request calls its methods, and waits for
// them; several do at a time. They must not keep a request, or a verdict, or change it.
type Observer interface {
	// Decided is called once for each verdict, before the caller has it, but not for probes. The requests are those that were
	// decided as one step. took is how long the decision took, with the time in queues and that of stores.
	Decided(ctx context.Context, requests []*Request, v *Verdict, took time.Duration)
	// Settled is called when a verdict that was Allowed ends by the first of Release, Commit or Cancel. held is how long after
	// the decision. A verdict of DebitAll, where there is nothing to settle, has ended right after Decided, with 0.
	Settled(v *Verdict, held time.Duration)
}

// begins returns the time if it must be known how long the next decision takes: for an observer, or as one of the sample of the
// latency. Otherwise it is zero, as a clock that is read costs more than a limit.
func (e *Engine) begins(v *Verdict) time.Time {
	if v.work.measured = v.work.chances.draw(); v.work.measured || e.options.Observer != nil {
		return time.Now()
	}
	return time.Time{}
}

// decided tells of a verdict, before the caller has it, that began to be made at a time, if that is known.
func (e *Engine) decided(ctx context.Context, requests []*Request, v *Verdict, began time.Time) {
	now := began
	if !began.IsZero() {
		now = time.Now()
	}
	if v.work.measured {
		e.latency.note(now.Sub(began))
	}
	refused := !v.Allowed && v.work.gone == nil && e.options.OnRefused != nil
	if !refused && e.options.Observer == nil {
		return
	}
	// The requests of the caller are in memory that need not outlive the call.
	v.work.told = append(v.work.told[:0], requests...)
	told := v.work.told
	if refused {
		v.RefusalID = e.options.OnRefused(told, v)
	}
	if o := e.options.Observer; o != nil {
		o.Decided(e.asking(ctx), told, v, now.Sub(began))
		if v.Allowed {
			v.work.observer, v.work.allowed = o, now
		}
	}
	clear(told)
}

// tellPolicies calls OnDecided of the policies of a verdict. requests are those that it is of.
func (v *Verdict) tellPolicies(requests []*Request) {
	if v.work.snapshot.told {
		v.callPolicies(requests)
	}
}

func (v *Verdict) callPolicies(requests []*Request) {
	for i := range v.work.items {
		it := &v.work.items[i]
		parts := v.partsOf(it)
		if it.policy.OnDecided == nil || len(parts) == 0 {
			continue
		}
		at := &parts[0]
		for j := range parts {
			if binds(&parts[j].Decision, &at.Decision) {
				at = &parts[j]
			}
		}
		it.policy.OnDecided(requests[it.request], at, v)
	}
}

// tellSettled tells that a verdict has ended.
func (v *Verdict) tellSettled() {
	o := v.work.observer
	v.work.observer = nil
	o.Settled(v, time.Since(v.work.allowed))
}
