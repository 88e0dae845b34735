package weir

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/table"
)

// charging is the work on the charges of one request.
type charging struct {
	parts   []chargePart
	order   []int          // parts in the order in which their shards are locked, and in which they are waited for
	held    []*table.Shard // those that are locked
	saved   []uint64       // states as they were
	gates   []*keyGate     // those that findGates has found
	wrong   error          // why the charges cannot be worked on, nil if they can, and
	wrongAt int            // which one it is
}

// chargePart is the work on one charge.
type chargePart struct {
	k        *keyed
	of       chargeable
	key      string
	hash     table.Hash
	terms    *terms
	plan     *keyPlan // which the terms are from; nil if they are the limiter's
	n        int64
	at       uint64 // the shard, in an order of all shards of all limiters
	shard    *table.Shard
	now      int64
	why      Reason // the terms cannot be used
	full     bool   // there is no room for the key
	took     bool   // permits, from a state that was
	added    bool   // by this request, or
	saved    int    // what stands here in charging.saved
	forgiven int64  // of what is debited, in the table
	attempts int
	decision Decision
	taking   taking
	gate     *keyGate // where the state is, if a caller waits for the key or its limit is overridden
}

var chargings = sync.Pool{New: func() any { return new(charging) }}

// limiterIDs orders the locks of limiters.
var limiterIDs atomic.Uint64

// Add adds a charge of limiter, which should be a chargeable. Plan is nil, or a *keyPlan of limiter.
func (c *charging) Add(limiter any, key string, n int64, plan any) {
	i := len(c.parts)
	if i == cap(c.parts) {
		c.parts = slices.Grow(c.parts, 1)
	}
	c.parts = c.parts[:i+1]
	// It is of an earlier request: what is not set here is set before it is read.
	p := &c.parts[i]
	if usual, ok := limiter.(*Keyed[string]); ok { // quicker than the question below
		p.of = usual
	} else {
		p.of, _ = limiter.(chargeable)
	}
	p.plan, _ = plan.(*keyPlan)
	p.k, p.key, p.n = nil, key, n
	if p.of != nil {
		p.k = p.of.inner()
	}
	switch {
	case i >= inside.MostCharges:
		c.refuse(0, fmt.Errorf("weir: %d charges: must be at most %d", i+1, inside.MostCharges))
	case c.wrong != nil:
	case p.k == nil:
		c.refuse(i, fmt.Errorf("weir: charge %d has no Limiter", i+1))
	case n < 0:
		c.refuse(i, errNegativePermits)
	case p.plan != nil && p.plan.k != p.k:
		c.refuse(i, fmt.Errorf("weir: the Plan of charge %d is one of another Limiter", i+1))
	default:
		c.prepare(i, p)
	}
}

// refuse says which of the charges cannot be worked on, and why.
func (c *charging) refuse(part int, why error) { c.wrongAt, c.wrong = part, why }

// prepare works out what does not depend on other parts.
func (c *charging) prepare(i int, p *chargePart) {
	p.hash = p.of.hash(p.key)
	p.why, p.attempts, p.gate, p.took, p.added = ReasonNone, 0, nil, false, false
	if p.plan != nil {
		p.terms = p.plan.current()
	} else if p.terms, p.why = p.of.termsOf(p.key); p.why == ReasonInvalid {
		c.refuse(0, errInvalidLimit)
		return
	}
	p.full = p.why == ReasonTableFull
	p.at = p.k.id<<16 | uint64(p.k.states.IndexOf(p.hash))
	c.order = append(c.order, i)
	for j := i; j > 0 && c.parts[c.order[j]].before(&c.parts[c.order[j-1]]); j-- {
		c.order[j], c.order[j-1] = c.order[j-1], c.order[j]
	}
}

// valid reports whether all charges can be worked on.
func (c *charging) valid() bool { return c.wrong == nil }

// before reports whether a part is locked, and waited for, before another one.
func (p *chargePart) before(other *chargePart) bool {
	if p.at != other.at {
		return p.at < other.at
	}
	return p.hash.Fingerprint() < other.hash.Fingerprint()
}

// free keeps the memory for another request. What it refers to is kept with it, until that comes or the collector has run
// twice.
func (c *charging) free() {
	if cap(c.parts) > 2*inside.MostCharges {
		return // a request that was refused had too many
	}
	c.parts, c.order, c.held, c.saved, c.wrong = c.parts[:0], c.order[:0], c.held[:0], c.saved[:0], nil
	chargings.Put(c)
}

// lock locks the shards of all keys, each once, in an order that is the same for all requests.
func (c *charging) lock() {
	last := ^uint64(0)
	for _, i := range c.order {
		p := &c.parts[i]
		if p.at != last {
			last = p.at
			c.held = append(c.held, p.k.states.Lock(p.hash))
		}
		p.shard = c.held[len(c.held)-1]
	}
}

func (c *charging) unlock() {
	for _, shard := range c.held {
		shard.Unlock()
	}
	c.held = c.held[:0]
}

// looked is what look has found.
type looked uint8

const (
	lookedWell   looked = iota
	lookedRaised        // the state of a key is in a gate
	lookedAgain         // terms were retired: look once more
)

// begin reads the clocks. The shards must be locked.
func (c *charging) begin() {
	var process int64 // what the process clock shows
	for i := range c.parts {
		p := &c.parts[i]
		switch {
		case p.k.clock != nil:
			p.now = c.timeOf(i)
		case process == 0:
			process = clock.Now()
			fallthrough
		default:
			p.now = process
		}
	}
}

// timeOf is the same for all parts of a limiter, or a key of the request could be forgotten to make room for the next one.
func (c *charging) timeOf(part int) int64 {
	k := c.parts[part].k
	for i := range part {
		if c.parts[i].k == k {
			return c.parts[i].now
		}
	}
	return k.now()
}

// look asks the limits of all parts but one what they would answer. The shards must be locked.
func (c *charging) look(except int) looked {
	for i := range c.parts {
		p := &c.parts[i]
		if p.gate != nil || i == except {
			continue
		}
		slot := p.shard.Find(p.hash)
		switch {
		case slot == nil && !p.full:
			p.decision = p.k.decision(p.terms, p.terms.fresh(p.n))
		case slot != nil && slot.Tag() == raisedTag:
			return lookedRaised
		case slot == nil || p.why != ReasonNone:
			p.noRoom()
		case !p.k.adopt(p.shard, slot, p.hash, p.terms, p.now):
			if again := p.k.renew(p.terms); again != p.terms {
				p.terms = again
				return lookedAgain
			}
			p.noRoom() // keys have as many limits as there may be
		default:
			p.decision = p.k.decision(p.terms, p.terms.packed.peek(slot.State(), p.now, p.n))
		}
		p.refuseClosed()
	}
	return lookedWell
}

// noRoom decides on a key that has no state and finds no room, or that cannot be held to its limit.
func (p *chargePart) noRoom() {
	p.full = true
	if p.n == 0 || p.n > p.terms.permits {
		p.decision = p.k.decision(p.terms, p.terms.fresh(p.n))
	} else {
		p.decision = p.k.fullDecision(p.terms, p.now, p.n)
	}
}

func (p *chargePart) refuseClosed() {
	if p.k.closed.Load() {
		p.decision.Allowed, p.decision.Reason, p.decision.RetryAfter = false, ReasonClosed, Never
	}
}

// binding is the part that speaks for all.
func (c *charging) binding() int {
	b := -1
	for i := range c.parts {
		if b < 0 || binds(&c.parts[i].decision, &c.parts[b].decision) {
			b = i
		}
	}
	return b
}

// binds reports whether a speaks for both rather than b.
func binds(a, b *Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return b.Allowed
	case a.Allowed:
		return a.Remaining < b.Remaining
	}
	return a.RetryAfter > b.RetryAfter
}

// take takes the permits of all parts. If one of them cannot be taken, none is.
func (c *charging) take(reserve bool) (state looked, roomless int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.took = false
		if p.gate != nil { // was asked already
			if p.decision.Allowed {
				continue
			}
			c.undo(i)
			return c.look(i), -1
		}
		slot := p.shard.Find(p.hash)
		if slot != nil && slot.Tag() == raisedTag {
			c.undo(i)
			return lookedRaised, -1
		}
		adopted := slot != nil && p.why == ReasonNone && p.k.adopt(p.shard, slot, p.hash, p.terms, p.now)
		switch p.full = p.why != ReasonNone || p.full && !adopted; {
		case p.full:
			p.noRoom()
		case slot != nil && !adopted: // its terms were retired
			c.undo(i)
			return lookedAgain, i
		default:
			if adopted {
				p.saved = len(c.saved)
				c.saved = append(c.saved, slot.State()...)
			}
			if !p.take(slot, reserve) {
				c.undo(i)
				return lookedAgain, i
			}
		}
		p.refuseClosed()
		if p.decision.Allowed {
			continue
		}
		c.undo(i + 1)
		return c.look(i), -1
	}
	return lookedWell, -1
}

// take takes the permits from the state in a slot, or from a new one. It returns false if there is no room for that.
func (p *chargePart) take(slot table.Slot, reserve bool) bool {
	var r algo.Result
	p.added = false
	switch {
	case slot != nil && !reserve && p.terms.wide.fits(p.n):
		r = p.terms.wide.take(slot.State(), p.now, p.n)
	case slot != nil:
		r = p.terms.packed.take(slot.State(), p.now, p.n)
	case p.n == 0 || p.n > p.terms.permits:
		r = p.terms.fresh(p.n)
	default:
		if slot = p.k.add(p.shard, p.hash, p.terms, p.now); slot == nil {
			return false
		}
		r = p.terms.packed.take(slot.State(), p.now, p.n)
		p.shard.Due(p.hash, p.terms.packed.freshAt(slot.State()))
		p.added = true
	}
	p.answer(&r)
	if p.took = r.Allowed && p.n > 0; p.took && (reserve || p.k.returns()) {
		p.taking = taking{r.Mark, p.k.under(p.hash, p.terms)}
	}
	return true
}

// answer is what decision answers, in place: a decision is large.
func (p *chargePart) answer(r *algo.Result) {
	d := &p.decision
	d.Allowed, d.Reason, d.Limit = r.Allowed, reasonOf(*r), p.terms.permits
	d.Remaining, d.RetryAfter, d.ResetAfter, d.Policy = r.Remaining, r.RetryAfter, r.ResetAfter, p.k.policy
}

// undo makes the states of the first parts what they were.
func (c *charging) undo(parts int) {
	for i := parts - 1; i >= 0; i-- {
		p := &c.parts[i]
		if !p.took {
			continue
		}
		slot := p.shard.Find(p.hash)
		state, t := slot.State(), p.k.termsWith(slot.Tag())
		if p.added {
			p.k.forgotten(state, slot.Tag())
			p.shard.Remove(p.hash)
			continue
		}
		copy(state, c.saved[p.saved:])
		if t != p.terms { // a later part has the same key, under another plan
			t.packed.carry(p.terms.packed, state, p.now)
		}
		p.shard.Due(p.hash, t.packed.freshAt(state))
	}
}
