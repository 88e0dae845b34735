package weir

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/table"
)

// chargeable is a limiter that can be charged together with others: a [Keyed] or a [KeyedConcurrency] whose keys are strings.
type chargeable interface {
	inner() *keyed // nil for a nil pointer
	hash(key string) table.Hash
	choose(key string) Limit
	offer(h table.Hash, key string)
	note(h table.Hash, key string)
}

var steps = sync.Pool{New: func() any { return new(step) }}

// newStep is inside.Step.
func newStep() any { return steps.Get() }

// Add adds a charge of limiter, which should be a chargeable. Plan is nil, or a *keyPlan of limiter.
func (s *step) Add(limiter any, key string, n int64, plan any) {
	i := len(s.parts)
	if i == cap(s.parts) {
		s.parts = slices.Grow(s.parts, 1)
	}
	s.parts = s.parts[:i+1]
	// It is of an earlier request: what is not set here is set before it is read.
	p := &s.parts[i]
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
		s.refuse(0, fmt.Errorf("weir: %d charges: must be at most %d", i+1, inside.MostCharges))
	case s.wrong != nil:
	case p.k == nil:
		s.refuse(i, fmt.Errorf("weir: charge %d has no Limiter", i+1))
	case n < 0:
		s.refuse(i, errNegativePermits)
	case p.plan != nil && p.plan.k != p.k:
		s.refuse(i, fmt.Errorf("weir: the Plan of charge %d is one of another Limiter", i+1))
	default:
		s.prepare(i, p)
	}
}

// refuse says which of the charges cannot be worked on, and why.
func (s *step) refuse(part int, why error) { s.wrongAt, s.wrong = part, why }

// free keeps the memory for another request. What it refers to is kept with it, until that comes or the collector has run
// twice.
func (s *step) free() {
	if cap(s.parts) > 2*inside.MostCharges {
		return // a request that was refused had too many
	}
	s.parts, s.order, s.wrong = s.parts[:0], s.order[:0], nil
	steps.Put(s)
}

// into appends a lease for each part to leases, and has the decisions filled there.
func (s *step) into(leases []Lease) (all, own []Lease) {
	first := len(leases)
	leases = slices.Grow(leases, len(s.parts))[:first+len(s.parts)]
	own = leases[first:]
	for i := range own {
		own[i].claim, own[i].generation = nil, 0
		s.parts[i].decision = &own[i].decision
	}
	return leases, own
}

// decisions is into where no leases are wanted.
func (s *step) decisions(all []Decision) []Decision {
	first := len(all)
	all = slices.Grow(all, len(s.parts))[:first+len(s.parts)]
	for i := range s.parts {
		s.parts[i].decision = &all[first+i]
	}
	return all
}

// refuseAll refuses charges before anything was asked. There are leases only if there are decisions in them.
func (s *step) refuseAll(own []Lease, why Reason) {
	for i := range s.parts {
		p := &s.parts[i]
		*p.decision = Decision{Reason: why}
		if why == ReasonInvalid {
			p.decision.RetryAfter = Never
		}
		if p.k != nil {
			p.decision.Limit, p.decision.Policy = p.k.base.permits, p.k.policy
		}
	}
	for i := range own {
		own[i].permits = s.parts[i].n
	}
}

// TryAll implements TryAcquireAll and TryReserveAll of keyset, and ends the work.
func (s *step) TryAll(leases []Lease, reserve bool) (all []Lease, binding int) {
	defer s.free()
	leases, own := s.into(leases)
	if s.wrong != nil {
		s.refuseAll(own, ReasonInvalid)
		return leases, s.binding()
	}
	return leases, s.charge(own, reserve, true)
}

// charge decides on all parts without waiting. Limits that refuse count it if the refusal is final.
func (s *step) charge(own []Lease, reserve, final bool) (binding int) {
	if len(own) == 0 {
		return -1
	}
	s.act, s.reserve = takeAll, reserve
	if !s.run() {
		s.oneByOne(own, final, (*stepPart).try)
		return s.binding()
	}
	if binding = s.binding(); !s.parts[binding].decision.Allowed {
		s.refused(own, final)
		return binding
	}
	for i := range s.parts {
		p := &s.parts[i]
		if own[i].permits = p.n; reserve || p.k.returns() {
			p.claim(&own[i])
		}
		if p.full && p.n > 0 {
			p.k.untracked.Add(1)
		}
		if p.added {
			p.of.offer(p.hash, p.key)
		}
	}
	return binding
}

// try takes the permits of a part so that they can be given back.
func (p *stepPart) try(l *Lease) {
	if p.cell.try(&l.decision, p.n, true) {
		p.of.offer(p.hash, p.key)
	}
	l.permits = p.n
	p.claim(l)
}

// refused makes leases of decisions of which one refuses, and counts it if that is final.
func (s *step) refused(own []Lease, final bool) {
	for i := range own {
		p := &s.parts[i]
		own[i].permits = 0
		if p.decision.Allowed {
			continue
		}
		own[i].permits = p.n
		if p.n > 0 && final {
			p.k.count(false)
			p.of.note(p.hash, p.key)
		}
	}
}

// oneByOne takes the permits of one part after the other, in the order of the locks. If one refuses, it gives them back and
// returns that part, which counts it if the refusal is final; otherwise -1.
func (s *step) oneByOne(own []Lease, final bool, take func(*stepPart, *Lease)) (refused int) {
	refused = -1
	for _, i := range s.order {
		p, l := &s.parts[i], &own[i]
		p.gate, p.full = nil, p.terms.untagged()
		if refused >= 0 {
			l.permits = 0
			p.ask(p.decision, p.n)
			continue
		}
		if take(p, l); l.decision.Allowed {
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
			p.k.granted.Undo() // the request was not
			l.permits = 0
		}
		l.claim = nil
	case !s.reserve && l.claim != nil && !p.k.returns():
		l.Release()
		l.claim = nil
	}
}

// WaitAll implements AcquireAll and ReserveAll of keyset, and ends the work.
func (s *step) WaitAll(ctx context.Context, leases []Lease, reserve bool) (all []Lease, binding int, err error) {
	mustContext(ctx)
	defer s.free()
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
	if binding = s.charge(own, reserve, false); binding < 0 || own[binding].decision.Allowed {
		return leases, binding, nil
	}
	if hopeless, why := s.hopeless(); hopeless {
		s.refused(own, true)
		return leases, binding, refusal(own[binding].decision, s.parts[binding].n, why)
	}
	refused := s.oneByOne(own, true, func(p *stepPart, l *Lease) {
		*l, err = p.acquire(ctx, p.plan, p.n, true)
	})
	if refused >= 0 {
		return leases, refused, err
	}
	return leases, s.binding(), nil
}

// hopeless reports whether a limit refuses that no waiting helps with, and why if it has no queue.
func (s *step) hopeless() (is bool, why error) {
	for i := range s.parts {
		switch p := &s.parts[i]; {
		case p.decision.Allowed:
		case p.decision.Reason != ReasonLimited:
			return true, nil
		case p.k.bounds.Load().QueueLimit == 0:
			is, why = true, ErrNoQueue
		}
	}
	return is, why
}

// PeekAll implements that of keyset, and ends the work.
func (s *step) PeekAll(decisions []Decision) (all []Decision, binding int) {
	defer s.free()
	decisions = s.decisions(decisions)
	if s.wrong != nil {
		s.refuseAll(nil, ReasonInvalid)
		return decisions, s.binding()
	}
	if s.act = peekAll; !s.run() {
		for i := range s.parts {
			p := &s.parts[i]
			p.gate, p.full = nil, p.terms.untagged()
			p.ask(p.decision, p.n)
		}
	}
	return decisions, s.binding()
}

// DebitAll implements that of keyset, and ends the work.
func (s *step) DebitAll(decisions []Decision) (all []Decision, binding int) {
	defer s.free()
	decisions = s.decisions(decisions)
	if s.wrong != nil || !s.debitable() {
		s.refuseAll(nil, ReasonInvalid)
		return decisions, s.binding()
	}
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
			p.k.granted.Add()
		}
		if p.added {
			p.of.offer(p.hash, p.key)
		}
	}
	return decisions, s.binding()
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
