package weir

import (
	"cmp"
	"context"
	"slices"

	"github.com/weirhq/weir/internal/inside"
)

// WaitAll implements AcquireAll and ReserveAll of keyset, and ends the work.
func (s *step) WaitAll(ctx context.Context, leases []Lease, reserve bool) (all []Lease, binding int, err error) {
	defer s.free() // also if there is no context
	mustContext(ctx)
	leases, own := s.into(leases)
	if s.wrong != nil {
		s.refuseAll(own, ReasonInvalid)
		return leases, s.binding(), refusal(own[s.wrongAt].decision, s.parts[s.wrongAt].n, s.wrong)
	}
	if over(ctx) {
		s.refuseAll(own, ReasonCanceled)
		var n int64
		for i := range s.parts {
			n = max(n, s.parts[i].n)
		}
		return leases, s.binding(), ended(ctx, n)
	}
	if s.sort(); s.repeats() {
		binding, err = s.bySums(own, func(sums *step) ([]Lease, int, error) { return sums.WaitAll(ctx, nil, reserve) })
		return leases, binding, err
	}
	if binding = s.charge(own, reserve, false); binding < 0 || s.parts[binding].decision.Allowed {
		return leases, binding, nil
	}
	if hopeless, why := s.hopeless(); hopeless {
		s.refused(own, true)
		return leases, binding, refusal(own[binding].decision, s.parts[binding].n, why)
	}
	refused := s.oneByOne(own, true, func(p *stepPart, l *Lease) {
		*l, err = p.acquire(ctx, p.plan.latest(), p.n, true)
	})
	if refused >= 0 {
		return leases, refused, err
	}
	return leases, s.binding(), nil
}

// hopeless reports whether a limit refuses that no waiting helps with, and why if that is for want of a queue alone.
func (s *step) hopeless() (is bool, why error) {
	never := false
	for i := range s.parts {
		switch p := &s.parts[i]; {
		case p.decision.Allowed:
		case p.decision.Reason != ReasonLimited:
			never = true
		case p.n > 0 && p.k.bounds.Load().QueueLimit == 0: // what asks for none takes no room in one
			p.decision.Reason, why = ReasonQueueFull, ErrNoQueue // as of a call that asks this limit alone
		}
	}
	if never {
		return true, nil
	}
	return why != nil, why
}

// waiting appends the parts in the order in which they are waited for, which is the same for all requests, too.
func (s *step) waiting(parts []int) []int {
	for _, at := range s.order {
		parts = append(parts, at.part())
	}
	slices.SortStableFunc(parts, func(a, b int) int {
		x, y := &s.parts[a], &s.parts[b]
		return cmp.Or(cmp.Compare(x.k.id, y.k.id), cmp.Compare(x.hash.Fingerprint(), y.hash.Fingerprint()))
	})
	return parts
}

// oneByOne takes the permits of one part after the other, in the order of the locks. If one refuses, it gives them back and
// returns that part, which counts it if the refusal is final; otherwise -1.
func (s *step) oneByOne(own []Lease, final bool, take func(*stepPart, *Lease)) (refused int) {
	refused = -1
	for _, i := range s.waiting(make([]int, 0, inside.MostCharges)) {
		p, l := &s.parts[i], &own[i]
		p.gate, p.full = nil, p.terms.untagged()
		if refused >= 0 {
			p.ask(p.decision, p.n)
			p.lend(l, 0)
			continue
		}
		take(p, l)
		if *p.decision = l.decision; l.decision.Allowed {
			continue
		}
		refused = i
		switch {
		case p.n == 0 || l.decision.Reason == ReasonCanceled:
		case final:
			p.of.note(p.hash, p.key)
		default:
			p.k.refused.Undo()
		}
	}
	for i := len(own) - 1; i >= 0; i-- {
		s.end(&s.parts[i], &own[i], refused >= 0)
	}
	return refused
}

// end ends a lease that was taken to be given back: it is canceled if another part refused, and spent if it need not be settled
// later.
func (s *step) end(p *stepPart, l *Lease, refused bool) {
	switch {
	case refused:
		l.Cancel()
		if l.Permits() > 0 {
			p.k.allowed.Undo() // the request was not
			l.permits = 0
		}
		l.claim = nil
	case !s.reserve && l.claim != nil && !p.k.returns():
		l.Release()
		l.claim = nil
	}
}

// try takes the permits of a part so that they can be given back.
func (p *stepPart) try(l *Lease) {
	if p.cell.try(&l.decision, p.n, true) {
		p.of.offer(p.hash, p.key)
	}
	l.permits = p.n
	p.claim(l)
}

// Debit implements that of keyset, and ends the work.
func (s *step) Debit() (binding int) {
	defer s.free()
	if s.wrong != nil || !s.debitable() {
		s.refuseAll(nil, ReasonInvalid)
		return s.binding()
	}
	s.sort()
	if s.act = debitAll; !s.run() {
		s.debitOneByOne()
	}
	for i := range s.parts {
		p := &s.parts[i]
		if p.n == 0 {
			continue
		}
		p.k.forgive(p.forgiven)
		if !p.full {
			p.k.allowed.Add()
		}
		if p.added {
			p.of.offer(p.hash, p.key)
		}
	}
	return s.binding()
}

// debitable reports whether the permits of all parts come back with time.
func (s *step) debitable() bool {
	for i := range s.parts {
		if p := &s.parts[i]; p.n > 0 && p.k.returns() {
			return false
		}
	}
	return true
}

// debitOneByOne charges one part after the other.
func (s *step) debitOneByOne() {
	for i := range s.parts {
		p := &s.parts[i]
		p.gate, p.full, p.added, p.forgiven = nil, p.terms.untagged(), false, 0
		for found := probeFull; found != probeOK; {
			p.enter()
			if found = s.debit(p); p.gate != nil && p.n > 0 {
				p.charge(p.n)
			}
			p.owes()
			p.unlock()
			if found == probeFull {
				p.full = !p.makeRoom(p.attempts)
				p.attempts++
			}
		}
	}
	for i := range s.parts { // those after a part may have had its key
		if p := &s.parts[i]; !p.full {
			p.gate = nil
			p.ask(p.decision, 0)
		}
	}
}

// debit charges a part whose state is in the table, whatever is left.
func (s *step) debit(p *stepPart) probe {
	if p.gate != nil {
		p.full = false
		return probeOK
	}
	if p.find(); p.inGate() {
		return probeInGate
	}
	p.full = p.full && p.slot == nil
	switch {
	case p.full:
		p.forgiven = p.n
	case p.slot != nil:
		if !p.adopt() {
			p.terms = p.held()
		}
		p.saved = len(s.saved)
		s.saved = append(s.saved, p.slot.State()...)
	case p.n > 0:
		s.moved = true
		if p.added = p.add(); !p.added {
			return probeFull
		}
	}
	if p.slot != nil && p.n > 0 {
		p.forgiven = p.charge(p.n)
		p.took = true
	}
	return probeOK
}

// debited charges the states in gates, and fills the decisions as of the same moment for all.
func (s *step) debited() {
	for _, i := range s.gates {
		if p := &s.parts[i]; p.n > 0 {
			p.charge(p.n)
		}
	}
	for i := range s.parts {
		s.parts[i].owes()
	}
}

// owes fills the decision of a part that was debited with what is left, as of the same moment for all.
func (p *stepPart) owes() {
	if p.gate == nil {
		if p.full && p.n > 0 {
			p.refuseNew(p.decision, 0)
			return
		}
		if p.find(); p.slot != nil {
			p.terms = p.held() // those of the last part that has this key
		}
	}
	p.peek(p.decision, 0)
}
