package policy

import (
	"context"

	"github.com/weirhq/weir"
)

// TakeAll decides on several requests as one step: it charges all of them to all limits that hold for each, or none to any, and
// no other request sees some of it. Rules, keys, tiers, lockouts and modes count for each as with Take. What several of the requests
// ask of the same key of the same policy is asked for as a sum, and decided on together. A store is asked until ctx ends; the
// Context of the requests does not count.
//
// More than [weir.MostCharges] requests, or requests with more than that many charges, are refused with ReasonInvalid. Without any
// request the verdict is Allowed. The Request of a part says which of the requests it is of; see [Verdict.Answer] for what one of
// them was answered. The verdict is settled as a whole, as with Take.
func (e *Engine) TakeAll(ctx context.Context, requests []*Request, v *Verdict) {
	e.decideAll(ctx, requests, v, false)
}

// ReserveAll is TakeAll with costs that are settled later: the verdict must end in Commit or Cancel.
func (e *Engine) ReserveAll(ctx context.Context, requests []*Request, v *Verdict) {
	e.decideAll(ctx, requests, v, true)
}

// PeekAll answers what TakeAll would, and takes nothing.
func (e *Engine) PeekAll(_ context.Context, requests []*Request, v *Verdict) {
	if len(requests) == 1 {
		e.peek(requests[0], v)
		return
	}
	v.refuseAll(e.live.Load())
}

func (e *Engine) decideAll(_ context.Context, requests []*Request, v *Verdict, reserve bool) {
	if len(requests) == 1 {
		e.decide(requests[0], v, reserve)
		return
	}
	v.refuseAll(e.live.Load())
}

// refuseAll refuses requests that are too many.
func (v *Verdict) refuseAll(s *snapshot) {
	v.begin(s)
	v.Allowed, v.own = false, weir.Decision{Reason: weir.ReasonInvalid, RetryAfter: weir.Never}
}

// Answer is the decision that binds among those of one of the requests: it may be Allowed where the verdict is not, as another one
// was refused. Limited is false if no limit holds for the request.
func (v *Verdict) Answer(request int) (d weir.Decision, limited bool) {
	at := -1
	for i := range v.Parts {
		if p := &v.Parts[i]; p.Request == request && (at < 0 || binds(&p.Decision, &v.Parts[at].Decision)) {
			at = i
		}
	}
	if at >= 0 {
		return v.Parts[at].Decision, true
	}
	return v.Decision(), !v.Allowed
}

// ExemptOf tells whether a rule has freed one of the requests of all limits.
func (v *Verdict) ExemptOf(request int) bool { return v.Exempt && request == 0 }
