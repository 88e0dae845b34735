package store

import (
	"sync"

	"github.com/weirhq/weir"
)

// part is those charges of a request that one home decides on.
type part struct {
	charges   []Charge
	decisions []weir.Decision
	at        []int // where they are in the request
	took      took  // of a Fleet: which of its layers took the permits
	held      Hold  // of a Divided: what was reserved of the permits
}

// parts are those of a request, in the order in which they are asked: what can be given back best comes first.
type parts [3]part

var partsPool = sync.Pool{New: func() any { return new(parts) }} //nolint:gochecknoglobals // memory that is used again

// splitBy cuts a request into parts; place is where the part of a charge is. Call end afterwards.
func splitBy(charges []Charge, place func(c *Charge) int) *parts {
	p := partsPool.Get().(*parts)
	for i := range charges {
		q := &p[place(&charges[i])]
		q.charges = append(q.charges, charges[i])
		q.decisions = append(q.decisions, weir.Decision{})
		q.at = append(q.at, i)
	}
	return p
}

// end fills the decisions of the request, unless they are nil, and ends the use of the parts.
func (p *parts) end(decisions []weir.Decision) {
	for i := range p {
		q := &p[i]
		if len(q.charges) == 0 {
			continue
		}
		for j, at := range q.at {
			if decisions != nil {
				decisions[at] = q.decisions[j]
			}
		}
		clear(q.charges)
		clear(q.decisions)
		*q = part{charges: q.charges[:0], decisions: q.decisions[:0], at: q.at[:0]}
	}
	partsPool.Put(p)
}

// each calls f for the parts that have charges, until one returns an error.
func (p *parts) each(f func(i int, q *part) error) error {
	for i := range p {
		if q := &p[i]; len(q.charges) > 0 {
			if err := f(i, q); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeAll takes all parts or none: ask takes the permits of one, and makes its decisions. After a refusal or an error, undo gives
// back what was taken before, the last first, and the parts that come later are not asked.
func (p *parts) takeAll(ask func(i int, q *part) error, undo func(q *part)) error {
	for i := range p {
		q := &p[i]
		if len(q.charges) == 0 {
			continue
		}
		err := ask(i, q)
		if err == nil && allGranted(q.decisions) {
			continue
		}
		for j := i - 1; j >= 0; j-- {
			if len(p[j].charges) > 0 {
				undo(&p[j])
			}
		}
		for j := i + 1; j < len(p); j++ {
			p[j].notAsked()
		}
		return err
	}
	return nil
}

// notAsked fills the decisions of a part that was not asked: Allowed, with Remaining 0.
func (q *part) notAsked() {
	for i := range q.charges {
		t, _ := termsOf(q.charges[i].Limit) // which was checked
		q.decisions[i] = notAsked(&q.charges[i], t)
	}
}

// givenBack has the decisions say that nothing is taken of a part, which was allowed.
func (q *part) givenBack() {
	for i := range q.decisions {
		d := &q.decisions[i]
		if d.Remaining = min(d.Remaining+q.charges[i].N, d.Limit); d.Remaining == d.Limit {
			d.ResetAfter = 0
		}
	}
}

// inTurn calls f for one charge at a time.
func inTurn(ask Ask, charges []Charge, decisions []weir.Decision, f func(ask Ask, c []Charge, d []weir.Decision) error) error {
	states := ask.States
	for i := range charges {
		ask.States = states[i : i+1]
		if err := f(ask, charges[i:i+1], decisions[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}
