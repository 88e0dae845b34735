package policy

import (
	"context"

	"github.com/weirhq/weir/store"
)

// RefundDurable gives back what the parts of a verdict cost whose limits have an owner, in a cluster or in a file, whatever was
// taken for them: at most until all permits are available. All of it is given back, or nothing. The verdict is that of
// [Engine.PeekAll]. Parts with other limits are left out, and so are those that permits return to when they are released. The
// error is that of the owner, and then it is not known whether the permits were given back.
func (e *Engine) RefundDurable(ctx context.Context, v *Verdict) error {
	var charges []store.Charge
	at := make(map[int32]int)
	for i := range v.Parts {
		p := &v.Parts[i]
		if !p.shared || p.Policy.Durability == DurabilityMemory || p.returns() || p.Cost == 0 {
			continue
		}
		known, twice := at[p.at]
		if !twice {
			known = len(charges)
			at[p.at] = known
			charges = append(charges, v.work.sharing.asked[p.at])
			charges[known].N = 0
		}
		charges[known].N += p.Cost
	}
	if len(charges) == 0 {
		return nil
	}
	return e.options.Durable.Refund(e.asking(ctx), charges)
}
