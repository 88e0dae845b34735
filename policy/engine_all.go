package policy

import (
	"context"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// TakeAll decides on several requests as one step: they are charged to all limits that apply to any of them, or to none, and no
// other call sees a part of it (TestTakeAllContention). Rules, keys, costs, tiers and modes are those of each request, as with
// Take, and the [Report] counts each; a shedder is asked once. A store is asked once and until ctx ends; the Context of a request
// does not count.
//
// Several requests for the same key of a policy are decided by their sum, all alike: two requests that cost 3 never have 5. If
// they bring different limits for it, or are of different tiers, the limit of the first applies to all of them. A refusal of that
// sum is one refusal towards a Lockout.
//
// More than [keyset.MostCharges] requests, and several with more than that many charges together, are refused with ReasonInvalid.
// Without any request the verdict is Allowed.
//
// Request of a part is the request that it belongs to, and [Verdict.Answer] the decision on a request. The verdict is settled as
// a whole, as with Take.
func (e *Engine) TakeAll(ctx context.Context, requests []*Request, v *Verdict) {
	e.decideAll(ctx, requests, v, false)
}

// ReserveAll is TakeAll with costs that are settled later: the verdict must end in Commit or Cancel. Commit asks for the cost of
// each part, of each request, and charges their sum where several share one key.
func (e *Engine) ReserveAll(ctx context.Context, requests []*Request, v *Verdict) {
	e.decideAll(ctx, requests, v, true)
}

// PeekAll returns what TakeAll would, and takes nothing. Where requests wait for one of the keys, or its limit is overridden, it
// looks at one limit after the other.
func (e *Engine) PeekAll(ctx context.Context, requests []*Request, v *Verdict) {
	if s := e.live.Load(); len(requests) > keyset.MostCharges {
		v.refuseAll(s)
	} else {
		e.peek(ctx, s, requests, v)
	}
}

func (e *Engine) decideAll(ctx context.Context, requests []*Request, v *Verdict, reserve bool) {
	if len(requests) <= keyset.MostCharges {
		e.decide(ctx, requests, v, reserve)
		return
	}
	began := time.Now()
	for range requests {
		e.counts.requests.Add()
	}
	e.refused(len(requests))
	v.refuseAll(e.live.Load())
	if e.watching(v) {
		e.decided(ctx, requests, v, began)
	}
}

// refuseAll refuses requests that are too many, or have too many charges.
func (v *Verdict) refuseAll(s *snapshot) {
	v.begin(s)
	v.Allowed, v.own = false, weir.Decision{Reason: weir.ReasonInvalid, RetryAfter: weir.Never}
}

// Answer is the decision on one of the requests of [Engine.TakeAll]; 0 is the first. It is that of the limit with the least room
// among those of this request. So it may be Allowed although the verdict is not, as another request was refused. Limited is false
// if no limit applies to the request.
func (v *Verdict) Answer(request int) (d weir.Decision, limited bool) {
	w := &v.work
	switch {
	case v.Unknown(request):
		return unknownPolicy(), true
	case v.DeniedBy(request) != nil:
		return deniedByRule(), true
	case !v.Allowed && len(w.items) == 0 && w.unknown == 0 && len(w.denied) == 0:
		return v.own, true // nobody has looked at any of them
	}
	at := -1
	for i := range w.items {
		it := &w.items[i]
		switch {
		case int(it.request) != request:
			continue
		case v.own.Reason == weir.ReasonOverloaded:
			return v.own, true
		case it.barred():
			return it.refusal(), true
		}
		for j := it.first; j >= 0 && j < it.end; j++ {
			if at < 0 || binds(&v.Parts[j].Decision, &v.Parts[at].Decision) {
				at = j
			}
		}
	}
	if at < 0 {
		return noLimit(), false
	}
	return v.Parts[at].Decision, true
}

// ExemptOf reports whether a rule has exempted one of the requests from all limits.
func (v *Verdict) ExemptOf(request int) bool {
	return request >= 0 && request < keyset.MostCharges && v.work.exempted>>request&1 == 1
}
