package weir

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/table"
)

// step is the work on the charges of one request as one: all of their cells are locked, in an order that is the same for all
// requests. Then all charges are done, or none is.
type step struct {
	act     act
	reserve bool // what is taken may be given back
	parts   []stepPart
	order   []int          // parts in the order in which their shards are locked, and in which they are waited for
	held    []*table.Shard // those that are locked
	gates   []int          // parts whose states are in gates, in the order in which these are locked
	saved   []uint64       // states as they were
	wrong   error          // why the charges cannot be worked on, nil if they can, and
	wrongAt int            // which one it is
}

// act is what a step does with its charges.
type act uint8

const (
	takeAll act = iota
	peekAll
	debitAll
)

// stepPart is the work on one charge.
type stepPart struct {
	cell

	of       chargeable
	key      string
	plan     *keyPlan // which the terms are from; nil if they are the limiter's
	n        int64
	at       uint64    // the shard, in an order of all shards of all limiters
	decision *Decision // the caller's
	took     bool      // permits, from a state that was
	added    bool      // by this request, or
	saved    int       // what stands here in step.saved
	forgiven int64     // of what is debited, in the table
	attempts int
}

// limiterIDs orders the locks of limiters.
var limiterIDs atomic.Uint64

// prepare works out what does not depend on other parts.
func (s *step) prepare(i int, p *stepPart) {
	p.hash, p.full, p.gate, p.attempts = p.of.hash(p.key), false, nil, 0
	if p.plan != nil {
		p.terms = p.plan.current()
	} else if p.bring(p.of.choose(p.key)); p.terms == nil {
		s.refuse(0, errInvalidLimit)
		return
	}
	p.at = p.k.id<<16 | uint64(p.k.states.IndexOf(p.hash))
	s.order = append(s.order, i)
	for j := i; j > 0 && s.parts[s.order[j]].before(&s.parts[s.order[j-1]]); j-- {
		s.order[j], s.order[j-1] = s.order[j-1], s.order[j]
	}
}

// before reports whether a part is locked, and waited for, before another one.
func (p *stepPart) before(other *stepPart) bool {
	if p.at != other.at {
		return p.at < other.at
	}
	return p.hash.Fingerprint() < other.hash.Fingerprint()
}

// binding is the part that speaks for all, -1 if there is none.
func (s *step) binding() int {
	b := -1
	for i := range s.parts {
		if b < 0 || binds(s.parts[i].decision, s.parts[b].decision) {
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

// probe is the outcome of one pass over the charges.
type probe uint8

const (
	probeOK     probe = iota
	probeInGate       // a state is in a gate that is not locked
	probeFull         // there is no room for a key, yet
)

// run does all parts as one step. It returns false, and has done nothing, if their cells cannot be locked together: a key that is
// in a gate stands in several charges, or gates come and go all the time.
func (s *step) run() bool {
	s.gates = s.gates[:0]
	for attempts, distinct := 0, true; distinct && attempts < mostGateAttempts; {
		found, at := probeInGate, 0
		if s.lockGates() {
			s.lockShards()
			s.readClocks()
			found, at = s.pass()
			s.unlock()
		}
		switch found {
		case probeOK:
			return true
		case probeFull:
			p := &s.parts[at]
			p.full = !p.makeRoom(p.attempts)
			p.attempts++
		case probeInGate:
			attempts++
			distinct = s.findGates()
		}
	}
	return false
}

// mostGateAttempts is how often the gates of a request are looked up before its limits are asked one after the other: they come
// and go while others wait.
const mostGateAttempts = 16

// lockGates locks the gates that were found, unless a state has left one.
func (s *step) lockGates() bool {
	for n, i := range s.gates {
		p := &s.parts[i]
		if _, alive := p.gate.arrive(p.terms, p.plan); !alive {
			s.unlockGates(n)
			return false
		}
	}
	return true
}

func (s *step) unlockGates(first int) {
	for _, i := range s.gates[:first] {
		s.parts[i].gate.unlock()
	}
}

// lockShards locks the shards of all keys, each once.
func (s *step) lockShards() {
	last := ^uint64(0)
	for _, i := range s.order {
		p := &s.parts[i]
		if p.at != last {
			last = p.at
			s.held = append(s.held, p.k.states.Lock(p.hash))
		}
		p.shard = s.held[len(s.held)-1]
	}
}

func (s *step) unlockShards() {
	for _, shard := range s.held {
		shard.Unlock()
	}
	s.held = s.held[:0]
}

// unlock unlocks the shards before the gates, which may want to put their states back.
func (s *step) unlock() {
	s.unlockShards()
	s.unlockGates(len(s.gates))
}

// findGates looks up in which gates states are. It returns false if two charges are for one of them.
func (s *step) findGates() (distinct bool) {
	s.lockShards()
	s.gates = s.gates[:0]
	for i := range s.parts {
		p := &s.parts[i]
		p.gate = nil
		if p.find(); p.inGate() {
			p.gate = p.k.busy[p.shard.Index()][p.hash]
			s.gates = append(s.gates, i)
		}
	}
	s.unlockShards()
	gateOf := func(i int) uint64 { return s.parts[i].gate.id }
	slices.SortFunc(s.gates, func(a, b int) int { return cmp.Compare(gateOf(a), gateOf(b)) })
	for n := 1; n < len(s.gates); n++ {
		if gateOf(s.gates[n]) == gateOf(s.gates[n-1]) {
			return false
		}
	}
	return true
}

// readClocks sets the times of all parts. The shards and the gates must be locked.
func (s *step) readClocks() {
	var process int64 // what the process clock shows
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case p.k.clock != nil:
			p.now = s.timeOf(i)
		case process == 0:
			process = clock.Now()
			fallthrough
		default:
			p.now = process
		}
	}
}

// timeOf is the same for all parts of a limiter, or a key of the request could be forgotten to make room for the next one.
func (s *step) timeOf(part int) int64 {
	k := s.parts[part].k
	for i := range part {
		if s.parts[i].k == k {
			return s.parts[i].now
		}
	}
	return k.now()
}

// pass does all parts. If one of them refuses, or cannot be done yet, pass ends at it, and undoes those before. The states in
// gates are changed when all others have been, as that cannot fail. All cells must be locked.
func (s *step) pass() (found probe, at int) {
	if s.act == peekAll {
		return s.peek(-1), 0
	}
	s.saved = s.saved[:0]
	for i := range s.parts {
		p := &s.parts[i]
		p.took, p.added, p.forgiven = false, false, 0
		switch {
		case s.act == debitAll:
			found = s.debit(p)
		case p.gate != nil:
			p.full = false
			p.peek(p.decision, p.n)
		default:
			found = s.take(p)
		}
		if found != probeOK {
			s.undo(i)
			return found, i
		}
		if s.act == takeAll && !p.decision.Allowed {
			s.undo(i)
			return s.peek(i), i
		}
	}
	if s.act == takeAll {
		s.taken()
	} else {
		s.debited()
	}
	return probeOK, 0
}

// taken takes from the states in gates, which have allowed it under the same locks, and counts.
func (s *step) taken() {
	for i := range s.parts {
		p := &s.parts[i]
		if p.gate != nil {
			p.take(p.decision, p.n, s.reserve)
		}
		if p.n > 0 {
			p.shard.Tally[tallied(true)]++
		}
	}
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

// peek asks the limits of all parts but one what they would answer.
func (s *step) peek(except int) probe {
	for i := range s.parts {
		p := &s.parts[i]
		if i == except {
			continue
		}
		if p.gate == nil {
			if p.find(); p.inGate() {
				return probeInGate
			}
			if p.slot == nil && p.full || p.slot != nil && !p.adopt() {
				p.noRoom(p.decision, p.n)
				continue
			}
		}
		p.peek(p.decision, p.n)
	}
	return probeOK
}

// take takes the permits of a part whose state is in the table.
func (s *step) take(p *stepPart) probe {
	if p.find(); p.inGate() {
		return probeInGate
	}
	known := p.slot != nil && p.adopt()
	if p.full = p.full && !known; p.full {
		p.noRoom(p.decision, p.n)
		return probeOK
	}
	if known {
		p.saved = len(s.saved)
		s.saved = append(s.saved, p.slot.State()...)
		p.takeAdopted(p.decision, p.n, s.reserve)
	} else if !p.take(p.decision, p.n, s.reserve) {
		return probeFull
	}
	p.took = p.decision.Allowed && p.n > 0
	p.added = p.took && !known
	return probeOK
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

// undo makes the states of the first parts what they were.
func (s *step) undo(parts int) {
	for i := parts - 1; i >= 0; i-- {
		p := &s.parts[i]
		if !p.took {
			continue
		}
		p.find()
		if p.added {
			p.remove()
			continue
		}
		taken := p.terms
		copy(p.slot.State(), s.saved[p.saved:])
		if p.terms = p.held(); p.terms != taken { // a later part has the same key, under another plan
			p.terms.law.Carry(p.slot.State(), taken.law, p.slot.State(), p.now)
		}
		p.due()
		p.terms = taken
	}
}
