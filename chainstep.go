package weir

import (
	"runtime"
	"sync/atomic"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
)

// sharer is a word from which a chain can take.
type sharer interface {
	word
	// ask is what taking n > 0 permits at time now would make of the word, which was old, and the decision on that in a zero d.
	// If the state does not lie in the word, the verdict is locked, and d is not changed.
	ask(d *Decision, now, n int64) (old, next uint64, v verdict)
	// mark is that of taking permits at time now, which would make the word next.
	mark(next uint64, now int64) algo.Mark
	// count counts a call that was decided.
	count(granted bool)
}

// offer is what a word is, what it would become, and the decision on that.
type offer struct {
	old, next uint64
	decision  Decision
}

// share is a limiter of a chain whose state can lie in a word.
type share struct {
	word  *atomic.Uint64
	of    sharer
	gate  *gate
	place int // among the links of the chain
}

// ask is that of its word. Called by the interface, it would have the decision allocated.
func (s *share) ask(d *Decision, now, n int64) (old, next uint64, v verdict) {
	switch w := s.of.(type) {
	case *arrival:
		return w.ask(d, now, n)
	case *windowWord:
		return w.ask(d, now, n)
	case *free:
		return w.ask(d, now, n)
	default:
		panic("weir: unknown word")
	}
}

// maxShares is how many words a step can be over: it has an offer of each on its stack.
const maxShares = 4

// takeShares takes n permits of every limiter of the chain in one step over their words. It is not ok if it needs the locks, or
// if it would refuse and must not.
//
// All words are asked as of one time, and exchanged together, each only if it has not changed: all but the last are held before
// the last is exchanged. Calls wait for a word that is held, so none sees a limit charged that another limit then refuses. No
// step waits while it holds a word.
//
// As with a single word, a refusal must not rest on a time that was read before the word changed.
func (c *Chain) takeShares(l *Lease, n int64, reserve, refuse bool) (ok bool) {
	var room [maxShares]offer
	offers := room[:len(c.shares)]
	for i := range offers {
		offers[i].old = c.shares[i].word.Load()
	}
	for {
		now := clock.Now()
		binding, changed := &offers[0].decision, false
		for i := range offers {
			o := &offers[i]
			old, next, v := c.shares[i].ask(&o.decision, now, n)
			before := o.old
			o.old, o.next = old, next
			switch v {
			case locked:
				if o.old != held {
					return false
				}
				runtime.Gosched()
				changed = true
			case short:
				changed = changed || o.old != before
			case taken:
			}
			if binds(&o.decision, binding) {
				binding = &o.decision
			}
		}
		if !changed {
			switch {
			case binding.Allowed:
				ok = c.exchange(l, offers, now, reserve)
			case refuse:
				ok = true
				c.refuseShares(offers)
			default:
				return false
			}
			if ok {
				l.decision = *binding
				return true
			}
		}
		for i := range offers {
			offers[i].decision = Decision{}
		}
	}
}

// refuseShares counts a refusal where it was refused.
func (c *Chain) refuseShares(offers []offer) {
	for i := range offers {
		if !offers[i].decision.Allowed {
			c.shares[i].of.count(false)
		}
	}
}

// exchange takes what was offered as of time now, or nothing if a word has changed.
func (c *Chain) exchange(l *Lease, offers []offer, now int64, reserve bool) (ok bool) {
	var marks [maxShares]algo.Mark
	if reserve {
		for i := range offers {
			marks[i] = c.shares[i].of.mark(offers[i].next, now)
		}
	}
	last := len(offers) - 1
	for i := range offers {
		next := uint64(held)
		if i == last {
			next = offers[i].next
		}
		if c.shares[i].word.CompareAndSwap(offers[i].old, next) {
			continue
		}
		for j, o := range offers[:i] {
			c.shares[j].word.Store(o.old)
		}
		return false
	}
	for i := range last {
		c.shares[i].word.Store(offers[i].next)
	}
	for i := range offers {
		s := &c.shares[i]
		s.of.count(true)
		if reserve || s.gate.returned {
			c.addPart(l, s.place, s.gate.lease(l.permits, offers[i].decision, marks[i], reserve, under{}))
		}
	}
	if l.claim != nil {
		l.claim.reserved = reserve
	}
	return true
}
