package weir

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/table"
)

// Charge is a part of a request that asks several limits as one: N permits of Key from Limiter.
type Charge struct {
	// Limiter has the limit. Required.
	Limiter *Keyed[string]
	// Key is whose permits they are.
	Key string
	// N is how many permits are asked for: see [Limiter] for 0, and for more than the limit. A negative N refuses the
	// request with ReasonInvalid.
	N int64
	// Plan is the limit that the key is held to, one of Limiter. Default: nil, the one that Limiter has for the key.
	Plan *Plan
}

// MostCharges is how many charges a request may have.
const MostCharges = 64

// TryAcquireAll takes the permits of all charges or of none, and never waits. It appends a lease for each of them to leases,
// and answers the place among them of the one that binds: if the request is refused, among the limits that refuse the one with
// the longest RetryAfter; if it is granted, the one with the fewest permits left; -1 if there are no charges. The request is
// granted if leases[binding] is, counted from where the first was appended.
//
// It is one atomic step over all limits: no other request sees a limit charged that another limit then refuses
// (TestChargesAreOneStep), also where somebody waits for a key, or its limit is overridden (TestChargesWithGatesAreOneStep). If
// the request is refused, no lease holds anything, and each decision is what its limit alone would have answered, Remaining
// being what is left now.
//
// The same key of the same limiter may stand in several charges. A request of more than MostCharges is refused with
// ReasonInvalid. Nothing is allocated if leases has room.
func TryAcquireAll(leases []Lease, charges ...Charge) (all []Lease, binding int) {
	return chargeAll(leases, charges, false)
}

// TryReserveAll is TryAcquireAll with costs that are settled later: each lease must end in Commit or Cancel.
func TryReserveAll(leases []Lease, charges ...Charge) (all []Lease, binding int) {
	return chargeAll(leases, charges, true)
}

// PeekAll answers what TryAcquireAll would, and takes nothing. Remaining is what is left now.
func PeekAll(decisions []Decision, charges ...Charge) (all []Decision, binding int) {
	c := newCharging(charges)
	if c == nil {
		return refuseCharges(decisions, charges, func(d Decision, _ int64) Decision { return d }), bindingOf(len(charges))
	}
	defer c.free()
	for c.lock(); ; c.lock() {
		c.begin()
		state := c.look(-1)
		c.unlock()
		if state == lookedAgain {
			continue
		}
		if state == lookedRaised {
			for i := range c.parts {
				c.parts[i].decision = c.parts[i].peek()
			}
		}
		break
	}
	for i := range c.parts {
		decisions = append(decisions, c.parts[i].decision)
	}
	return decisions, c.binding()
}

// AcquireAll is TryAcquireAll for a caller that is ready to wait in the queues of the limits, which it does one after the
// other, holding what it has already got, and giving it back if a later one refuses. The order of the limits and their keys
// is the same for all callers, so that no two wait for what the other one holds (TestAcquireAllInAnyOrder). The error is that
// of [Limiter.Acquire].
func AcquireAll(ctx context.Context, leases []Lease, charges ...Charge) (all []Lease, binding int, err error) {
	return waitAll(ctx, leases, charges, false)
}

// ReserveAll is AcquireAll with costs that are settled later, like TryReserveAll.
func ReserveAll(ctx context.Context, leases []Lease, charges ...Charge) (all []Lease, binding int, err error) {
	return waitAll(ctx, leases, charges, true)
}

// Plan is a limit that a Keyed has checked, for [Charge.Plan].
type Plan struct {
	k     *keyed
	terms atomic.Pointer[terms]
}

// Plan checks a limit that keys can be held to by a [Charge]: it takes effect at once and keeps the state, as described at
// [NewKeyedFunc], which k must have been made by. The zero Limit is that of the options. The error is an *[OptionError], or
// [ErrTableFull] if keys have 65,534 other limits.
func (k *Keyed[K]) Plan(l Limit) (*Plan, error) {
	if k.limitOf == nil {
		return nil, &OptionError{"Keyed.Plan", l.String(), "called on a limiter that NewKeyedFunc has made"}
	}
	p := &Plan{k: &k.keyed}
	if l == (Limit{}) || l == k.base.limit {
		p.terms.Store(k.base)
		return p, nil
	}
	t, why := k.plans.intern(l)
	if why == ReasonTableFull {
		t, why = k.untag(l)
	}
	switch why {
	case ReasonNone:
	case ReasonTableFull:
		return nil, ErrTableFull
	default:
		_, err := k.alike("Limit", l)
		return nil, err
	}
	p.terms.Store(t)
	return p, nil
}

// Replaces says that from now on p stands where old stood, a plan of the same limiter. A key that is held to old until its next
// request, which is then under p, has regained permits at the rate of old until now, and at that of p since. Otherwise a key
// changes at its next request only (TestPlansThatReplaceOthers). If p had been replaced itself, that is forgotten; with an
// old of nil, nothing else is done.
func (p *Plan) Replaces(old *Plan) {
	to := p.terms.Load()
	to.next.Store(nil)
	if old == nil || old.k != p.k {
		return
	}
	if from := old.terms.Load(); from != to {
		from.next.Store(&succession{to, p.k.now()})
	}
}

// succession is what terms were replaced by, and when.
type succession struct {
	by *terms
	at int64
}

// mostSuccessions is how many limits, one after the other, a key that is not used is led through.
const mostSuccessions = 8

// carry makes a state that is held to old one that is held to t.
func (k *keyed) carry(state []uint64, old, t *terms, now int64) {
	var steps [mostSuccessions]*succession
	n, from, last := 0, old, int64(math.MinInt64)
	for from != t && n < len(steps) {
		s := from.next.Load()
		if s == nil || s.at > now || s.at < last {
			break
		}
		steps[n], from, last = s, s.by, s.at
		n++
	}
	if from != t {
		t.packed.carry(old.packed, state, now) // somebody has chosen another limit for this key
		return
	}
	for _, s := range steps[:n] {
		s.by.packed.carry(old.packed, state, s.at)
		old = s.by
	}
}

// Limit is the limit of the plan.
func (p *Plan) Limit() Limit { return p.terms.Load().limit }

// current is the terms of the plan, which may have been retired while no key had them.
func (p *Plan) current() *terms {
	t := p.terms.Load()
	if again := p.k.renew(t); again != t {
		p.terms.Store(again)
		return again
	}
	return t
}

// charging is the work on the charges of one request.
type charging struct {
	parts []chargePart
	order []int          // parts in the order in which their shards are locked, and in which they are waited for
	held  []*table.Shard // those that are locked
	saved []uint64       // states as they were
}

// chargePart is the work on one charge.
type chargePart struct {
	k        *keyed
	of       *Keyed[string]
	key      string
	hash     table.Hash
	terms    *terms
	n        int64
	at       uint64 // the shard, in an order of all shards of all limiters
	shard    *table.Shard
	now      int64
	why      Reason // the terms cannot be used
	full     bool   // there is no room for the key
	took     bool   // permits, from a state that was
	added    bool   // by this request, or
	saved    int    // what stands here in charging.saved
	attempts int
	decision Decision
	taking   taking
	gate     *keyGate // where the state is, if somebody waits for the key or its limit is overridden
}

var chargings = sync.Pool{New: func() any { return new(charging) }}

// limiterIDs orders the locks of limiters.
var limiterIDs atomic.Uint64

// newCharging prepares the work, and answers nil if the charges cannot be worked on.
func newCharging(charges []Charge) *charging {
	if len(charges) > MostCharges {
		return nil
	}
	c := chargings.Get().(*charging)
	c.parts = slices.Grow(c.parts[:0], len(charges))
	for i := range charges {
		charge := &charges[i]
		if charge.Limiter == nil || charge.N < 0 || charge.Plan != nil && charge.Plan.k != &charge.Limiter.keyed {
			c.free()
			return nil
		}
		k := &charge.Limiter.keyed
		c.parts = c.parts[:i+1]
		p := &c.parts[i] // of an earlier request: what is not set here is set before it is read
		p.k, p.of, p.key, p.n, p.hash = k, charge.Limiter, charge.Key, charge.N, charge.Limiter.hash(charge.Key)
		p.why, p.attempts, p.gate, p.took, p.added = ReasonNone, 0, nil, false, false
		if charge.Plan != nil {
			p.terms = charge.Plan.current()
		} else if p.terms, p.why = charge.Limiter.termsOf(charge.Key); p.why == ReasonInvalid {
			c.free()
			return nil
		}
		p.full = p.why == ReasonTableFull
		p.at = k.id<<16 | uint64(k.states.IndexOf(p.hash))
		c.order = append(c.order, i)
		for j := i; j > 0 && c.parts[c.order[j]].before(&c.parts[c.order[j-1]]); j-- {
			c.order[j], c.order[j-1] = c.order[j-1], c.order[j]
		}
	}
	return c
}

// before tells whether a part is locked, and waited for, before another one.
func (p *chargePart) before(other *chargePart) bool {
	if p.at != other.at {
		return p.at < other.at
	}
	return p.hash.Fingerprint() < other.hash.Fingerprint()
}

// free keeps the memory for another request. What it refers to is kept with it, until that comes or the collector has run
// twice.
func (c *charging) free() {
	c.parts, c.order, c.held, c.saved = c.parts[:0], c.order[:0], c.held[:0], c.saved[:0]
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
	var clock int64 // of the process
	for i := range c.parts {
		p := &c.parts[i]
		switch {
		case p.k.clock != nil:
			p.now = c.timeOf(i)
		case clock == 0:
			clock = processNow()
			fallthrough
		default:
			p.now = clock
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

// binds tells whether a speaks for both rather than b.
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

// take takes the permits from the state in a slot, or from a new one. It answers false if there is no room for that.
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

func bindingOf(charges int) int {
	if charges == 0 {
		return -1
	}
	return 0
}

// refuseCharges is the answer to charges that cannot be worked on.
func refuseCharges[A any](all []A, charges []Charge, answer func(Decision, int64) A) []A {
	for i := range charges {
		d := Decision{Reason: ReasonInvalid, RetryAfter: Never}
		if k := charges[i].Limiter; k != nil {
			d.Limit, d.Policy = k.base.permits, k.policy
		}
		all = append(all, answer(d, charges[i].N))
	}
	return all
}

func chargeAll(leases []Lease, charges []Charge, reserve bool) (all []Lease, binding int) {
	c := newCharging(charges)
	if c == nil {
		return refuseCharges(leases, charges, func(d Decision, n int64) Lease { return Lease{decision: d, permits: n} }),
			bindingOf(len(charges))
	}
	defer c.free()
	return c.charge(leases, reserve, true)
}

// charge decides. Limits that refuse count it if the refusal is final.
func (c *charging) charge(leases []Lease, reserve, final bool) (all []Lease, binding int) {
	if len(c.parts) == 0 {
		return leases, -1
	}
	for {
		c.lock()
		c.begin()
		c.saved = c.saved[:0]
		state, roomless := c.take(reserve)
		c.unlock()
		switch state {
		case lookedRaised:
			if all, at, ok := c.chargeGates(leases, reserve, final); ok {
				return all, at
			}
			return c.oneByOne(leases, reserve, final)
		case lookedAgain:
			if roomless < 0 {
				continue
			}
			c.makeRoom(roomless)
		case lookedWell:
			if binding = c.binding(); c.parts[binding].decision.Allowed {
				return c.granted(leases, reserve), binding
			}
			return c.refused(leases, final), binding
		}
	}
}

// makeRoom prepares another attempt to add the key of a part.
func (c *charging) makeRoom(part int) {
	p := &c.parts[part]
	p.full = !p.k.makeRoom(&p.terms, p.now, p.attempts)
	p.attempts++
}

func (c *charging) granted(leases []Lease, reserve bool) []Lease {
	leases = slices.Grow(leases, len(c.parts))
	for i := range c.parts {
		p := &c.parts[i]
		leases = leases[:len(leases)+1]
		l := &leases[len(leases)-1]
		l.decision, l.permits, l.claim, l.generation = p.decision, p.n, nil, 0
		if p.n == 0 {
			continue
		}
		p.k.granted.Add()
		switch {
		case p.full:
			p.k.untracked.Add(1)
		case reserve || p.k.returns():
			l.claim, l.generation = newClaim(p.k, p.n, p.taking.mark)
			l.claim.key, l.claim.under = p.hash, p.taking.under
		}
		if p.added {
			p.of.offer(p.hash, p.key)
		}
	}
	return leases
}

func (c *charging) refused(leases []Lease, final bool) []Lease {
	for i := range c.parts {
		p := &c.parts[i]
		l := Lease{decision: p.decision}
		if !p.decision.Allowed {
			l.permits = p.n
			if p.n > 0 && final {
				p.k.refused.Add()
				p.of.note(p.hash, p.key)
			}
		}
		leases = append(leases, l)
	}
	return leases
}

// mostGateAttempts is how often the gates of a request are looked up before its limits are asked one after the other: they come
// and go while others wait.
const mostGateAttempts = 16

// chargeGates is charge where the states of some keys are in gates, which it locks first, in the order of their numbers. It
// is not ok if they cannot be locked all together.
func (c *charging) chargeGates(leases []Lease, reserve, final bool) (all []Lease, binding int, ok bool) {
	for range mostGateAttempts {
		gates, distinct := c.findGates()
		if !distinct {
			break
		}
		if !c.enterGates(gates) {
			continue
		}
		c.lock()
		state, roomless := lookedAgain, -1
		if c.gatesStand() {
			state, roomless = c.takeWithGates(reserve)
		}
		c.unlock() // before the gates, which may want to put their states back
		for _, g := range gates {
			g.unlock()
		}
		if roomless >= 0 {
			c.makeRoom(roomless)
		}
		if state != lookedWell {
			continue
		}
		if binding = c.binding(); c.parts[binding].decision.Allowed {
			return c.granted(leases, reserve), binding, true
		}
		return c.refused(leases, final), binding, true
	}
	for i := range c.parts {
		c.parts[i].gate = nil
	}
	return leases, -1, false
}

// findGates looks up in which gates states are. They are not distinct if two charges are for one of them.
func (c *charging) findGates() (gates []*keyGate, distinct bool) {
	c.lock()
	defer c.unlock()
	distinct = true
	for i := range c.parts {
		p := &c.parts[i]
		p.gate = nil
		if slot := p.shard.Find(p.hash); slot != nil && slot.Tag() == raisedTag {
			p.gate = p.k.busy[p.shard.Index()][p.hash]
			distinct = distinct && !slices.Contains(gates, p.gate)
			gates = append(gates, p.gate)
		}
	}
	slices.SortFunc(gates, func(a, b *keyGate) int { return cmp.Compare(a.id, b.id) })
	return gates, distinct
}

// enterGates locks the gates, unless a state has left one.
func (c *charging) enterGates(gates []*keyGate) bool {
	for n, g := range gates {
		i := slices.IndexFunc(c.parts, func(p chargePart) bool { return p.gate == g })
		p := &c.parts[i]
		t := p.terms
		if p.why != ReasonNone {
			t = nil
		}
		if _, alive := g.arrive(t); !alive {
			for _, locked := range gates[:n] {
				locked.unlock()
			}
			return false
		}
	}
	return true
}

// gatesStand tells whether states are still where they were found.
func (c *charging) gatesStand() bool {
	for i := range c.parts {
		p := &c.parts[i]
		slot := p.shard.Find(p.hash)
		if raised := slot != nil && slot.Tag() == raisedTag; raised != (p.gate != nil) {
			return false
		}
	}
	return true
}

// takeWithGates is take with all gates locked as well. Those are charged once all others have been.
func (c *charging) takeWithGates(reserve bool) (state looked, roomless int) {
	c.begin()
	c.saved = c.saved[:0]
	for i := range c.parts {
		if p := &c.parts[i]; p.gate != nil {
			p.now, p.full, p.added = p.gate.now(), false, false
			p.decision = p.gate.decision(p.gate.gate.peek(p.now, p.n))
		}
	}
	if state, roomless = c.take(reserve); state != lookedWell || !c.parts[c.binding()].decision.Allowed {
		return state, roomless
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.gate != nil {
			r, reason := p.gate.take(p.now, p.n) // as it was just asked, under the same lock
			p.decision = p.gate.decision(r, reason)
			p.taking = taking{r.Mark, p.gate.under()}
		}
	}
	return state, roomless
}

// peek answers what the limit of a part says, wherever the state is.
func (p *chargePart) peek() Decision {
	if p.why != ReasonNone {
		p.now = p.k.now()
		p.noRoom()
		return p.decision
	}
	return p.k.peek(p.hash, p.terms, p.n)
}

// oneByOne reserves the permits of one part after the other, and cancels them if one refuses. Limits that refuse count it if
// the refusal is final.
func (c *charging) oneByOne(leases []Lease, reserve, final bool) (all []Lease, binding int) {
	first, refused := len(leases), -1
	for i := range c.parts {
		p := &c.parts[i]
		if refused >= 0 {
			leases = append(leases, Lease{decision: p.peek()})
			continue
		}
		var l Lease
		added := false
		if p.why != ReasonNone {
			l = p.k.untaggable(p.terms, p.why, p.n)
		} else {
			l, added = p.k.try(p.hash, p.terms, p.n, true)
		}
		leases = append(leases, l)
		switch {
		case !l.decision.Allowed:
			refused = i
			switch {
			case p.n == 0:
			case final:
				p.of.note(p.hash, p.key)
			default:
				p.k.refused.Undo()
			}
		case added:
			p.of.offer(p.hash, p.key)
		}
	}
	own := leases[first:]
	c.settleAll(own, refused >= 0, reserve)
	return leases, bindingLease(own)
}

// settleAll ends leases that were reserved one after the other: they are canceled if one was refused, and those that
// need not be settled later are spent.
func (c *charging) settleAll(own []Lease, refused, reserve bool) {
	for i := len(own) - 1; i >= 0; i-- {
		l := &own[i]
		switch {
		case refused:
			l.Cancel()
			if l.decision.Allowed && l.permits > 0 {
				c.parts[i].k.granted.Undo() // the request was not
				l.permits = 0
			}
			l.claim = nil
		case !reserve && l.claim != nil && !l.claim.settler.(*keyed).returns(): //nolint:errcheck,forcetypeassert // of a Keyed
			l.Release()
			l.claim = nil
		}
	}
}

func bindingLease(own []Lease) int {
	b := -1
	for i := range own {
		if b < 0 || binds(&own[i].decision, &own[b].decision) {
			b = i
		}
	}
	return b
}

func waitAll(ctx context.Context, leases []Lease, charges []Charge, reserve bool) (all []Lease, binding int, err error) {
	c := newCharging(charges)
	if c == nil {
		all, binding = chargeAll(leases, charges, reserve)
		for i := range charges {
			if charges[i].N < 0 {
				return all, binding, negative("AcquireAll", charges[i].N)
			}
		}
		return all, binding, nil
	}
	defer c.free()
	if ctx.Err() != nil {
		var n int64
		for i := range c.parts {
			n = max(n, c.parts[i].n)
		}
		leases = refuseCharges(leases, charges, func(d Decision, n int64) Lease {
			d.Reason, d.RetryAfter = ReasonCanceled, 0
			return Lease{decision: d, permits: n}
		})
		return leases, bindingOf(len(charges)), ended(ctx, n)
	}
	first := len(leases)
	leases, binding = c.charge(leases, reserve, false)
	if binding < 0 || leases[first+binding].decision.Allowed || c.hopeless(leases[first:]) {
		if binding >= 0 && !leases[first+binding].decision.Allowed {
			leases = c.refused(leases[:first], true)
		}
		return leases, binding, nil
	}
	clear(leases[first:])
	return c.wait(ctx, leases[:first], reserve)
}

// hopeless tells whether a limit refuses that no waiting helps with.
func (c *charging) hopeless(own []Lease) bool {
	for i := range own {
		c.parts[i].decision = own[i].decision
	}
	for i := range own {
		d := &own[i].decision
		if !d.Allowed && (d.Reason != ReasonLimited || c.parts[i].k.bounds.Load().QueueLimit == 0) {
			return true
		}
	}
	return false
}

// wait gets the permits of one part after the other, in the order of the locks.
func (c *charging) wait(ctx context.Context, leases []Lease, reserve bool) (all []Lease, binding int, err error) {
	first, refused := len(leases), false
	leases = append(leases, make([]Lease, len(c.parts))...)
	for _, i := range c.order {
		p, l := &c.parts[i], &leases[first+i]
		switch {
		case refused:
			l.decision = p.peek()
			continue
		case p.why != ReasonNone:
			*l = p.k.untaggable(p.terms, p.why, p.n)
		default:
			*l, err = p.k.acquire(ctx, p.hash, p.terms, p.n, true)
		}
		if err != nil || !l.decision.Allowed {
			refused, binding = true, i
			if p.n > 0 && err == nil {
				p.of.note(p.hash, p.key)
			}
		}
	}
	own := leases[first:]
	c.settleAll(own, refused, reserve)
	if !refused {
		binding = bindingLease(own)
	}
	return leases, binding, err
}
