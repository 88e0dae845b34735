package weir

import (
	"sync"
	"sync/atomic"
)

// plans are the limits of the keys of a Keyed, each under a tag that its keys refer to.
type plans struct {
	// alike compiles a limit that keys can have beside those that they have.
	alike func(of string, l Limit) (*terms, error)
	byTag []atomic.Pointer[plansPage] // there are thousands of limiters with a few limits

	mu      sync.RWMutex
	byLimit map[Limit]*terms
	invalid map[Limit]struct{} // some that were refused, so that they need not be checked again
	free    []uint16
	next    int // the lowest tag that was never used
	swept   int // how many limits there may be before the next sweep

	idle atomic.Int64 // how many limits have lost their last key, or had none yet, since the last sweep
}

// plansPage are the limits of tags in a row.
type plansPage [1 << pageBits]atomic.Pointer[terms]

const (
	pageBits    = 8
	firstSweep  = 1024
	mostInvalid = 256
)

func (p *plans) begin(base *terms, alike func(of string, l Limit) (*terms, error)) {
	p.alike = alike
	p.byTag = make([]atomic.Pointer[plansPage], raisedTag>>pageBits+1)
	p.byLimit = map[Limit]*terms{base.limit: base}
	p.invalid = map[Limit]struct{}{}
	p.next, p.swept = baseTag+1, firstSweep
}

// intern returns the terms of a limit. They can be used if the reason is ReasonNone only, and are nil if it is ReasonInvalid.
func (p *plans) intern(l Limit) (*terms, Reason) {
	p.mu.RLock()
	t := p.byLimit[l]
	_, invalid := p.invalid[l]
	p.mu.RUnlock()
	if t != nil {
		return t, ReasonNone
	}
	if invalid {
		return nil, ReasonInvalid
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.byLimit[l]; other != nil {
		return other, ReasonNone
	}
	t, err := p.alike("", l)
	if err != nil {
		if len(p.invalid) >= mostInvalid {
			clear(p.invalid)
		}
		p.invalid[l] = struct{}{}
		return nil, ReasonInvalid
	}
	if len(p.byLimit) >= p.swept || len(p.free) == 0 && p.next == raisedTag && p.idle.Load() > 0 {
		p.sweep()
	}
	switch {
	case len(p.free) > 0:
		t.tag = p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
	case p.next < raisedTag:
		t.tag = uint16(p.next)
		p.next++
	default:
		t.tag = raisedTag // no state can be held to it
		t.users.Store(evicted)
		return t, ReasonTableFull
	}
	t.idle = &p.idle
	p.idle.Add(1)
	page := p.byTag[t.tag>>pageBits].Load()
	if page == nil {
		page = new(plansPage)
		p.byTag[t.tag>>pageBits].Store(page)
	}
	page[t.tag%(1<<pageBits)].Store(t)
	p.byLimit[l] = t
	return t, ReasonNone
}

// sweep forgets the limits that no key has. It is called once for each doubling of their number, so that a new limit costs
// the looking at two others.
func (p *plans) sweep() {
	p.idle.Store(0)
	for l, t := range p.byLimit {
		if t.tag != baseTag && t.users.CompareAndSwap(0, evicted) {
			delete(p.byLimit, l)
			p.free = append(p.free, t.tag)
		}
	}
	p.swept = max(firstSweep, 2*len(p.byLimit))
}
