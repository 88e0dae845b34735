package policy

import (
	"errors"
	"sync"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// broughtLimits are the limits that requests have brought to a policy lately. They are those of a set in force: the next one
// checks them anew.
type broughtLimits struct {
	mu             sync.RWMutex
	recent, before map[weir.Limit]*broughtLimit
}

// broughtLimit is one of them as items have it.
type broughtLimit struct {
	variant variant
	err     error       // why it cannot be used
	why     weir.Reason // the same
}

// mostBrought is how many limits each of the two halves remembers. Others are checked once more when they come again.
const mostBrought = 1024

var tableFull = &broughtLimit{err: keyset.ErrTableFull, why: weir.ReasonTableFull}

// bring looks for a limit that the request brings, and returns false if there is none.
func (it *item) bring(r *Request) bool {
	p := it.policy
	l, ok, err := p.LimitBy.Limit(r)
	switch {
	case err != nil:
		it.failed = err
	case ok:
		b := p.brought.of(p, l)
		if it.failed, it.why = b.err, b.why; b.err == nil {
			it.variant = &b.variant
		}
	}
	return ok
}

// of is a limit of a policy.
func (all *broughtLimits) of(p *livePolicy, l weir.Limit) *broughtLimit {
	all.mu.RLock()
	b, old := all.recent[l], all.before[l]
	all.mu.RUnlock()
	if b != nil {
		return b
	}
	if b = old; b == nil {
		if b = p.check(l); b == tableFull {
			return b // there may be room for it soon
		}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.recent) >= mostBrought || all.recent == nil {
		all.before, all.recent = all.recent, make(map[weir.Limit]*broughtLimit)
	}
	all.recent[l] = b
	return b
}

// check checks a limit that a request has brought.
func (p *livePolicy) check(l weir.Limit) *broughtLimit {
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
		return tableFull
	}
	if err != nil {
		return &broughtLimit{err: err, why: weir.ReasonInvalid}
	}
	return b
}
