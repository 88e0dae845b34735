package policy

import (
	"errors"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/memo"
	"github.com/weirhq/weir/keyset"
)

// broughtLimits are the limits that requests have brought to a policy lately. They are those of a set in force: the next one
// checks them anew.
type broughtLimits = memo.Table[weir.Limit, *broughtLimit]

// broughtLimit is one of them as items have it.
type broughtLimit struct {
	variant variant
	err     error       // why it cannot be used
	why     weir.Reason // the same
}

var tableFull = &broughtLimit{err: keyset.ErrTableFull, why: weir.ReasonTableFull}

// bring looks for a limit that the request brings, and returns false if there is none.
func (it *item) bring(r *Request) bool {
	p := it.policy
	l, ok, err := p.LimitBy.Limit(r)
	switch {
	case err != nil:
		it.failed = err
	case ok:
		b, _ := p.brought.Of(l, p.check) // which says itself what is wrong
		if it.failed, it.why = b.err, b.why; b.err == nil {
			it.variant = &b.variant
		}
	}
	return ok
}

// check checks a limit that a request has brought. It also returns an error if there may be room for the limit soon.
func (p *livePolicy) check(l weir.Limit) (*broughtLimit, error) {
	of := p.Limits[0]
	err := l.Check()
	if err == nil && !alike(l, of.Limit) {
		err = &weir.OptionError{
			Option: "limit that a request brings", Value: l.String(),
			Accepted: "the algorithm of the policy, " + of.Algorithm().String() + ", and its segments",
		}
	}
	b := new(broughtLimit)
	if err == nil && p.shared {
		err = storable(l)
	}
	if err == nil {
		b.variant, err = variantOf(p.limits, []Limit{{Limit: l, Name: of.Name}})
	}
	if errors.Is(err, keyset.ErrTableFull) {
		return tableFull, err
	}
	if err != nil {
		b.err, b.why = err, weir.ReasonInvalid
	}
	return b, nil
}
