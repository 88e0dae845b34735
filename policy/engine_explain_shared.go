package policy

import (
	"context"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// explainShared is explainLimits for limits in a store. Those that are enforced have been peeked at: their decisions end
// before asked. Others are asked now.
func (e *Engine) explainShared(
	ctx context.Context, all []ExplainedLimit, s *snapshot, w *work, it *item, r *Request, role string, asked int,
) []ExplainedLimit {
	x := &w.sharing
	var charges []store.Charge
	var decisions []weir.Decision
	switch {
	case it.failed != nil:
	case it.first >= 0:
		charges, decisions = x.asked[asked-len(it.policy.limits):asked], x.decisions[asked-len(it.policy.limits):asked]
	default:
		charges = appendStored(nil, w.storedKey(it), it)
		decisions = e.peekSide(ctx, charges)
	}
	for i := range it.policy.limits {
		l := it.explained(w, s.rule(it), it.policy.Limits[i].Name, role)
		if it.failed == nil {
			l.Tier = s.tierOf(it, l.Key, r)
			l.Applied, l.Holds, l.Decision = charges[i].Limit, charges[i].Limit.String(), decisions[i]
			l.Before, l.After, l.Decision.Policy = l.Decision.Remaining, l.Decision.Remaining, it.policy.limits[i].name
			if l.Decision.Allowed {
				l.After -= l.Cost
			}
			l.Would = would(&l)
		}
		all = append(all, l)
	}
	return all
}

// peekSide asks the store about a policy that is not enforced.
func (e *Engine) peekSide(ctx context.Context, charges []store.Charge) []weir.Decision {
	decisions := make([]weir.Decision, len(charges))
	if err := store.Peek(e.asking(ctx), e.states, charges, decisions); err != nil {
		for i := range decisions {
			decisions[i] = weir.Decision{
				Reason: weir.ReasonUnavailable, RetryAfter: retryUnavailable, Limit: charges[i].Limit.Permits(),
			}
		}
	}
	return decisions
}
