package weir

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/table"
)

// step is the work on the charges of one request as one: all of their cells are locked, in an order that is the same for all
// requests. Then all charges are done, or none is.
type step struct {
	act     act
	reserve bool // what is taken may be given back
	final   bool // a refusal is not followed by waiting, and counts
	plain   bool // decide has done all parts
	parts   []stepPart
	order   []place  // of the parts, in the order in which their shards are locked
	near    bool     // several keys are in one shard, and may be one
	shards  int      // how many shards these are, once they have been locked
	gates   []int    // parts whose states are in gates, in the order in which these are locked
	saved   []uint64 // states as they were
	moved   bool     // keys were added, so that others may be elsewhere in the table
	wrong   error    // why the charges cannot be worked on, nil if they can, and
	wrongAt int      // which one it is
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

	of       *keys[string]
	key      string
	plan     *keyPlan // which the terms are from; nil if they are the limiter's
	n        int64
	decision *Decision // where it is written
	next     [3]uint64 // the state after it, of decide, whose states have at most so many words
	took     bool      // permits, from a state that was
	added    bool      // by this request, or
	saved    int       // what stands here in step.saved
	forgiven int64     // of what is debited, in the table
	attempts int
}

// prepare works out what does not depend on later parts.
func (s *step) prepare(i int) {
	p := &s.parts[i]
	p.full, p.gate, p.attempts, p.refused = false, nil, 0, 0
	if i > 0 && s.wrong == nil && sameText(s.parts[i-1].key, p.key) { // all limiters have one hash
		p.hash = s.parts[i-1].hash
	} else {
		p.hash = p.of.hash(p.key)
	}
	if i < touchedEarly {
		p.spot = p.k.states.Touch(p.hash)
	}
	if p.plan != nil {
		p.terms = p.plan.current()
	} else if p.bring(p.of.choose(p.key)); p.terms == nil {
		s.refuse(0, errInvalidLimit)
	}
}

// sort makes the order in which shards are locked, which is the same for all requests.
func (s *step) sort() {
	s.touch() // while that is made, shards are locked and the clock is read
	s.order, s.near = s.order[:0], false
	for i := range s.parts {
		p := &s.parts[i]
		at := place(p.k.id<<16|uint64(p.k.states.IndexOf(p.hash)))<<placeBits | place(i)
		s.order = append(s.order, at)
		j := i
		for ; j > 0 && s.order[j-1] > at; j-- {
			s.order[j-1], s.order[j] = at, s.order[j-1]
		}
		s.near = s.near || j > 0 && s.order[j-1].shard() == at.shard()
	}
}

// repeats reports whether several parts are of one key. They were sorted.
func (s *step) repeats() bool {
	if !s.near {
		return false
	}
	for n := 1; n < len(s.order); n++ {
		for before := n - 1; before >= 0 && s.order[before].shard() == s.order[n].shard(); before-- {
			if s.parts[s.order[before].part()].hash == s.parts[s.order[n].part()].hash {
				return true
			}
		}
	}
	return false
}

// bySums does what a step does of which each part has a key of its own: charges of one key are asked for their sum, under the
// plan of the first. Each of them has the decision on the sum, and a lease of its own permits, if there are leases.
func (s *step) bySums(own []Lease, ask func(sums *step) (all []Lease, binding int, err error)) (binding int, err error) {
	sums, of := new(step), make([]int, len(s.parts))
	for i := range s.parts {
		p := &s.parts[i]
		of[i] = slices.IndexFunc(sums.parts, func(sum stepPart) bool { return sum.k == p.k && sum.hash == p.hash })
		if of[i] < 0 {
			of[i] = len(sums.parts)
			sums.parts = append(sums.parts, *p)
			sums.parts[of[i]].decision = nil
			continue
		}
		sum := &sums.parts[of[i]]
		sum.n += min(p.n, math.MaxInt64-sum.n)
	}
	all, binding, err := ask(sums)
	for i := range s.parts {
		p, sum := &s.parts[i], &all[of[i]]
		if *p.decision = sum.decision; own == nil {
			continue
		}
		p.lend(&own[i], min(p.n, sum.permits))
		if c := sum.claim; c != nil && (p.n > 0 || !p.k.returns()) {
			share := own[i].bind(c.settler, p.n)
			share.mark, share.under = c.mark, c.under
		}
	}
	for i := range all {
		all[i].unbind()
	}
	return slices.Index(of, binding), err
}

// place is a shard, in an order of all shards of all limiters, and a part whose key is in it.
type place uint64

const placeBits = 8

func (p place) part() int { return int(p % (1 << placeBits)) }

func (p place) shard() uint64 { return uint64(p >> placeBits) }

// sameText reports whether two texts are one place in memory, as the keys of a request often are.
func sameText(a, b string) bool {
	return len(a) == len(b) && unsafe.StringData(a) == unsafe.StringData(b) //nolint:gosec // nothing is read through it
}

// touchedEarly is how many parts have their states loaded when they are added. The memory answers while the next ones are made;
// that of many parts is asked at once, as fewer calls are then in flight beside it.
const touchedEarly = 4

// touch has the states of all other parts loaded at once.
func (s *step) touch() {
	for i := touchedEarly; i < len(s.parts); i++ {
		if p := &s.parts[i]; p.terms != nil {
			p.spot = p.k.states.Touch(p.hash)
		}
	}
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
		if _, alive := p.gate.arrive(p.terms, p.plan.latest()); !alive {
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

// lockShards locks the shards of all keys, each once, and waits for batches that have seized the slots of keys: they may decide
// by a later time than what a clock shows before.
func (s *step) lockShards() {
	var shard *table.Shard
	last := ^uint64(0)
	s.shards = 0
	for _, at := range s.order {
		p := &s.parts[at.part()]
		if at.shard() == last {
			p.spot.Renew(p.hash)
		} else {
			last = at.shard()
			shard, _ = p.spot.Lock(p.hash)
			s.shards++
		}
		p.shard = shard
		p.spot.Settle(p.hash)
	}
}

// find looks up the slot of a part whose shard was locked, from where it was touched unless keys have been added since.
func (s *step) find(p *stepPart) {
	if s.moved {
		p.find()
	} else {
		p.slot = p.spot.Find(p.hash)
	}
}

func (s *step) unlockShards() {
	last := ^uint64(0)
	for _, at := range s.order {
		if at.shard() != last {
			last = at.shard()
			s.parts[at.part()].shard.Unlock()
		}
	}
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
	s.saved, s.moved, s.plain = s.saved[:0], false, false
	if s.act == peekAll {
		return s.peek(-1), 0
	}
	if s.plain = s.decide(); s.plain {
		return probeOK, 0
	}
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

// decide does all parts if each is plain, and has a state of its own that is held to its limit, as is usual. All are decided
// before any state is changed. It returns false, and has changed none, if there is another part. All cells must be locked.
func (s *step) decide() bool {
	if s.act != takeAll || s.reserve || s.shards < len(s.parts) { // of those in one shard, two may be of one key
		return false
	}
	refused := false
	for i := range s.parts {
		p := &s.parts[i]
		p.slot = p.spot.Find(p.hash)
		if p.slot == nil || !p.isPlain(p.n) || !p.settled() {
			return false
		}
		for i, w := range p.slot.State() { // few words: a call would cost more
			p.next[i] = w
		}
		if p.decideSettled(p.next[:], p.decision, p.n, true); p.decision.Allowed {
			continue
		}
		if refused = true; p.terms.elsewhere(p.slot.State(), p.now) {
			return false
		}
	}
	for i := range s.parts {
		p := &s.parts[i]
		p.full, p.added = false, false
		switch {
		case !refused:
			state := p.slot.State()
			for i := range state {
				state[i] = p.next[i]
			}
			p.shard.Tally[tallied(true)]++
		case p.decision.Allowed:
			p.decideSettled(p.slot.State(), p.decision, p.n, false)
		case s.final:
			p.shard.Tally[tallied(false)]++
			p.refused = uint64(p.shard.Tally[tallied(false)])
		}
	}
	return true
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

// peek asks the limits of all parts but one what they would answer. Those before it have been undone.
func (s *step) peek(except int) probe {
	for i := range s.parts {
		p := &s.parts[i]
		if i == except {
			continue
		}
		if p.gate == nil {
			if s.find(p); p.inGate() {
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
	if s.find(p); p.inGate() {
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
	} else {
		s.moved = true // even if there turns out to be no room
		if !p.take(p.decision, p.n, s.reserve) {
			return probeFull
		}
	}
	p.took = p.decision.Allowed && p.n > 0
	p.added = p.took && !known
	return probeOK
}

// undo makes the states of the first parts what they were.
func (s *step) undo(parts int) {
	for i := parts - 1; i >= 0; i-- {
		p := &s.parts[i]
		if !p.took {
			continue
		}
		if !s.moved && p.slot.Tag() == p.terms.tag {
			// It became fresh at this time before, too, and its shard has been locked since: the table knows when it is due.
			copy(p.slot.State(), s.saved[p.saved:])
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

// chargeable is a limiter that can be charged together with others: a [Keyed] or a [KeyedConcurrency] whose keys are strings.
type chargeable interface {
	inner() *keys[string] // nil for a nil pointer
}

// newStep is inside.Step.
func newStep() any { return new(step) }

// Add adds a charge of limiter, which should be a chargeable, or is nil if there is a plan. Plan is nil, or a *keyPlan of
// limiter. The decision is written to d, or into the lease if d is nil.
func (s *step) Add(limiter any, key string, n int64, plan any, d *Decision) {
	i := len(s.parts)
	if i == cap(s.parts) {
		s.parts = slices.Grow(s.parts, 1)
	}
	s.parts = s.parts[:i+1]
	// It is of an earlier request: what is not set here is set before it is read.
	p := &s.parts[i]
	p.key, p.n, p.decision, p.terms = key, n, d, nil
	p.plan, _ = plan.(*keyPlan)
	var of *keys[string]
	switch l := limiter.(type) {
	case nil:
		if p.plan != nil {
			of = p.plan.of
		}
	case *Keyed[string]: // quicker than the question below
		of = l.inner()
	case chargeable:
		of = l.inner()
	}
	if p.of, p.k = of, nil; of != nil {
		p.k = &of.keyed
	}
	switch {
	case i >= inside.MostCharges:
		s.refuse(0, fmt.Errorf("weir: %d charges: must be at most %d", i+1, inside.MostCharges))
	case p.k == nil:
		s.refuse(i, fmt.Errorf("weir: charge %d has no Limiter", i+1))
	case n < 0:
		s.refuse(i, errNegativePermits)
	case p.plan != nil && p.plan.k != p.k:
		s.refuse(i, fmt.Errorf("weir: the Plan of charge %d is one of another Limiter", i+1))
	default:
		s.prepare(i)
	}
}

// refuse says which of the charges cannot be worked on, and why. The first one counts.
func (s *step) refuse(part int, why error) {
	if s.wrong == nil {
		s.wrongAt, s.wrong = part, why
	}
}

// free forgets the charges, and keeps the memory for another request. What it refers to is kept with it, until that comes.
func (s *step) free() {
	if cap(s.parts) > 2*inside.MostCharges {
		s.parts = nil // a request that was refused had too many
	}
	s.parts, s.wrong = s.parts[:0], nil
}

// into appends a lease for each part to leases. Decisions that have no other place are written there.
func (s *step) into(leases []Lease) (all, own []Lease) {
	first := len(leases)
	leases = slices.Grow(leases, len(s.parts))[:first+len(s.parts)]
	own = leases[first:]
	for i := range own {
		own[i].claim, own[i].generation = nil, 0
		if p := &s.parts[i]; p.decision == nil {
			p.decision = &own[i].decision
		}
	}
	return leases, own
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
		s.parts[i].lend(&own[i], s.parts[i].n)
	}
}

// lend makes l the lease of n permits of a part, with its decision.
func (p *stepPart) lend(l *Lease, n int64) {
	if l.permits = n; p.decision != &l.decision {
		l.decision = *p.decision
	}
}

// Take implements that of keyset, and ends the work.
func (s *step) Take() (binding int) {
	defer s.free()
	if s.wrong != nil || !s.debitable() {
		s.refuseAll(nil, ReasonInvalid)
		return s.binding()
	}
	if s.sort(); s.repeats() {
		return s.trySums(nil, false)
	}
	return s.charge(nil, false, true)
}

// trySums is Take, or TryAll with leases, where several parts are of one key.
//
//go:noinline
func (s *step) trySums(own []Lease, reserve bool) (binding int) {
	binding, _ = s.bySums(own, func(sums *step) (all []Lease, binding int, err error) {
		all, binding = sums.TryAll(nil, reserve)
		return all, binding, nil
	})
	return binding
}

// TryAll implements TryAcquireAll and TryReserveAll of keyset, and ends the work.
func (s *step) TryAll(leases []Lease, reserve bool) (all []Lease, binding int) {
	defer s.free()
	leases, own := s.into(leases)
	if s.wrong != nil {
		s.refuseAll(own, ReasonInvalid)
		return leases, s.binding()
	}
	if s.sort(); s.repeats() {
		return leases, s.trySums(own, reserve)
	}
	return leases, s.charge(own, reserve, true)
}

// charge decides on all parts without waiting. Limits that refuse count it if the refusal is final. There are no leases if
// nothing is ever given back.
func (s *step) charge(own []Lease, reserve, final bool) (binding int) {
	if len(s.parts) == 0 {
		return -1
	}
	s.act, s.reserve, s.final = takeAll, reserve, final
	if !s.run() {
		if own == nil {
			own = make([]Lease, len(s.parts))
		}
		s.oneByOne(own, final, (*stepPart).try)
		return s.binding()
	}
	if binding = s.binding(); !s.parts[binding].decision.Allowed {
		s.refused(own, final)
		return binding
	}
	if s.plain && own == nil {
		return binding
	}
	for i := range s.parts {
		p := &s.parts[i]
		if own != nil {
			if p.lend(&own[i], p.n); reserve || p.k.returns() {
				p.claim(&own[i])
			}
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

// refused makes leases of decisions of which one refuses, and counts it if that is final.
func (s *step) refused(own []Lease, final bool) {
	for i := range s.parts {
		p, n := &s.parts[i], int64(0)
		if !p.decision.Allowed {
			n = p.n
		}
		if own != nil {
			p.lend(&own[i], n)
		}
		switch {
		case n == 0 || !final:
		case p.refused > 0: // and counted
			p.of.noteDrawn(p.hash, p.key, p.refused)
		default:
			p.k.count(false)
			p.of.note(p.hash, p.key)
		}
	}
}

// Peek implements that of keyset, and ends the work.
func (s *step) Peek() (binding int) {
	defer s.free()
	if s.wrong != nil {
		s.refuseAll(nil, ReasonInvalid)
		return s.binding()
	}
	if s.sort(); s.repeats() {
		binding, _ = s.bySums(nil, func(sums *step) (all []Lease, binding int, err error) {
			all, _ = sums.into(nil)
			return all, sums.Peek(), nil
		})
		return binding
	}
	if s.act = peekAll; !s.run() {
		for i := range s.parts {
			p := &s.parts[i]
			p.gate, p.full = nil, p.terms.untagged()
			p.ask(p.decision, p.n)
		}
	}
	return s.binding()
}
