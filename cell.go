package weir

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/table"
)

// call is what a call on one key brings.
type call struct {
	k       *keyed
	hash    table.Hash
	terms   *terms // the limit; nil if that of the state is to stay
	full    bool   // there is no room for the key, or for its limit
	now     int64
	spot    table.Spot // where the key was touched
	refused uint64     // if takeTouched has refused it, which of the refusals of the shard it is
}

// touch has the memory load the state of the key while the process clock is read.
func (c *call) touch() {
	c.spot = c.k.states.Touch(c.hash)
	c.now = clock.Now()
}

// isPlain reports whether n permits are of a bucket that can have them, which is the limit that most keys have, by the process
// clock.
func (c *call) isPlain(n int64) bool {
	t := c.terms
	return t != nil && t.table != nil && uint64(n-1) < uint64(t.permits) && c.k.clock == nil && !c.k.closed.Load()
}

// takeTouched takes n permits that are plain, of a key that was touched, and fills d, which is nil if the verdict on one permit
// is enough. It counts. A verdict of locked is none: something is rare. See cell.try for the time.
func (c *call) takeTouched(n int64, d *Decision) (v verdict, added bool) {
	t := c.terms
	shard, alone := c.spot.Lock(c.hash)
	slot := c.spot.Find(c.hash)
	if slot == nil {
		if !alone {
			c.now = clock.Now() // the key may have been forgotten meanwhile, which was fresh later
		}
		if t.enter() {
			slot = c.insert(shard)
		}
		if added = slot != nil; !added {
			shard.Unlock()
			return locked, false
		}
	} else if slot.Tag() != t.tag || t.users.Load() < 0 {
		shard.Unlock()
		return locked, false
	}
	state := slot.State()
	var allowed bool
	var remaining int64
	var retryAfter, resetAfter time.Duration
	for {
		if d == nil {
			allowed = t.table.Grant(state, c.now)
		} else {
			allowed, remaining, retryAfter, resetAfter = t.table.Decide(state, c.now, n, true)
		}
		if allowed || alone {
			break
		}
		c.now, alone = clock.Now(), true
	}
	switch {
	case allowed:
		v = taken
		shard.Tally[tallied(true)]++
	case t.elsewhere(state, c.now):
		v = locked
	default:
		v = short
		shard.Tally[tallied(false)]++
		c.refused = uint64(shard.Tally[tallied(false)])
	}
	if added {
		shard.Due(c.hash, t.law.FreshAt(state))
	}
	shard.Unlock()
	if d != nil {
		d.Allowed, d.Reason, d.Limit, d.Policy = allowed, ReasonNone, t.permits, c.k.policy
		d.Remaining, d.RetryAfter, d.ResetAfter = remaining, retryAfter, resetAfter
		if !allowed {
			d.Reason = ReasonLimited
		}
	}
	return v, added
}

// decideSettled decides on n permits that are plain, of a state that is held to the terms, and fills d. They cannot be given back
// if they are taken.
func (c *call) decideSettled(state []uint64, d *Decision, n int64, take bool) {
	t := c.terms
	d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter = t.table.Decide(state, c.now, n, take)
	d.Limit, d.Policy, d.Reason = t.permits, c.k.policy, ReasonNone
	if !d.Allowed {
		d.Reason = ReasonLimited
	}
}

// insert tracks the key, which has no slot, under terms that were entered, if there is room for it.
func (c *call) insert(shard *table.Shard) table.Slot {
	slot := shard.Add(c.hash, c.terms.tag, c.now)
	if slot == nil {
		c.terms.leave()
		return nil
	}
	c.terms.law.Begin(slot.State(), c.now, c.k.returned.Load())
	return slot
}

// cell is the state of one key, found and locked: in its slot of the table, or in a gate while a caller waits for the key or its
// limit is overridden. Whatever is done to a key is done between lock and unlock of its cell.
type cell struct {
	call

	shard *table.Shard // locked, or to be locked together with others: see step
	slot  table.Slot   // nil if the key is not tracked
	gate  *keyGate     // locked; nil if the state is in the slot

	mark  algo.Mark // of permits that may be given back, and
	under under     // what they were taken under
}

// lock finds the state and locks it. One in a gate is then held to the terms, or to the latest ones of a plan if there is one,
// and the time is that of the gate. For one in a slot, adopt and the clock are left to the caller.
func (c *cell) lock(latest *atomic.Pointer[terms]) {
	for {
		c.shard = c.k.states.Lock(c.hash)
		if c.find(); !c.inGate() || c.arrive(latest) {
			return
		}
	}
}

// lockTouched is lock of a key that was touched. It reports whether no caller has locked its state since, or may have.
func (c *cell) lockTouched() (alone bool) {
	c.shard, alone = c.spot.Lock(c.hash)
	if c.slot = c.spot.Find(c.hash); !c.inGate() {
		return alone
	}
	if !c.arrive(nil) {
		c.lock(nil)
	}
	return false
}

// arrive locks the gate in which the state is in place of the shard. It returns false if the state has left it: then nothing is
// locked.
func (c *cell) arrive(latest *atomic.Pointer[terms]) (alive bool) {
	g := c.k.busy[c.shard.Index()][c.hash]
	c.shard.Unlock()
	now, alive := g.arrive(c.terms, latest)
	if alive {
		c.gate, c.now = g, now
	}
	return alive
}

// find looks up the slot. It must be called again when a key was added to the table.
func (c *cell) find() { c.slot = c.shard.Find(c.hash) }

// inGate reports whether the state is in a gate, and not in the slot.
func (c *cell) inGate() bool { return c.slot != nil && c.slot.Tag() == raisedTag }

func (c *cell) unlock() {
	if c.gate != nil {
		c.gate.unlock()
		return
	}
	c.shard.Unlock()
}

// enter is lock for a call that takes nothing. It also reads the clock. If there are no terms that can be used, they are those of
// the state.
func (c *cell) enter() {
	c.lock(nil)
	if c.gate != nil {
		return
	}
	c.now = c.k.now()
	if c.slot != nil && (c.terms == nil || !c.adopt()) {
		c.terms = c.held()
	}
}

// held is the limit of the state in the slot.
func (c *cell) held() *terms { return c.k.termsWith(c.slot.Tag()) }

// settled reports whether the state in the slot is held to the terms.
func (c *cell) settled() bool { return c.slot.Tag() == c.terms.tag && c.terms.users.Load() >= 0 }

// adopt converts the state in the slot to the terms. It returns false if they were evicted meanwhile, and keys have as many other
// limits as there may be.
func (c *cell) adopt() bool {
	if c.settled() && !c.terms.elsewhere(c.slot.State(), c.now) {
		return true
	}
	k, t, old, state := c.k, c.terms, c.held(), c.slot.State()
	if old.elsewhere(state, c.now) && old.law.FreshAt(state)-c.now > old.lacks(k.mostDebt.Load()) {
		old.law.Begin(state, c.now, int64(state[len(state)-1]))
		old.law.Charge(state, c.now, old.permits, 0)
	}
	if old == t {
		return true
	}
	if !t.enter() {
		return c.renew() && c.adopt()
	}
	k.carry(state, old, t, c.now)
	c.slot.SetTag(t.tag)
	old.leave()
	k.movesOf(c.hash).Add(1)
	c.due()
	return true
}

// add tracks the key, which has no slot, and reports whether there is room for it and for its terms.
func (c *cell) add() bool {
	for !c.terms.enter() {
		if !c.renew() {
			return false
		}
	}
	c.slot = c.insert(c.shard)
	return c.slot != nil
}

// remove forgets the key, which has a slot that is held to the terms.
func (c *cell) remove() {
	c.k.forgotten(c.slot.State(), c.slot.Tag())
	c.shard.Remove(c.hash)
	c.slot = nil
}

// due must be called when the state in the slot may become fresh earlier than before, or is new.
func (c *cell) due() { c.shard.Due(c.hash, c.terms.law.FreshAt(c.slot.State())) }

// take takes n permits if they are available, and fills d. It returns false if there is no room for the key or its limit. Mark
// and under are set only if the permits may be given back.
func (c *cell) take(d *Decision, n int64, reserve bool) (ok bool) {
	var r algo.Result
	switch {
	case c.gate != nil:
		var reason Reason
		r, reason = c.gate.take(c.now, n)
		*d = c.gate.decision(r, reason)
		c.mark, c.under = r.Mark, c.gate.takenUnder()
		return true
	case c.slot != nil:
		if !c.adopt() {
			return false
		}
		c.takeAdopted(d, n, reserve)
		return true
	case c.k.closed.Load():
		c.peek(d, n)
		return true
	case n == 0 || n > c.terms.permits:
		if c.foresee(d, n); reserve {
			c.keep(algo.Mark{}) // it may cost something in the end
		}
		return true
	default:
		if !c.add() {
			return false
		}
		r = c.terms.law.Take(c.slot.State(), c.now, n)
		c.due()
	}
	c.answer(d, &r)
	if reserve || c.k.returns() {
		c.keep(r.Mark)
	}
	return true
}

// takeAdopted is take from a slot whose state was converted to the terms.
func (c *cell) takeAdopted(d *Decision, n int64, reserve bool) {
	if c.k.closed.Load() {
		c.peek(d, n)
		return
	}
	r := c.terms.law.Take(c.slot.State(), c.now, n)
	c.answer(d, &r)
	if reserve || c.k.returns() {
		c.keep(r.Mark)
	}
}

// keep keeps how to give back what was taken.
func (c *cell) keep(m algo.Mark) { c.mark, c.under = m, c.k.under(c.hash, c.terms) }

// answer fills d with what the algorithm says. It does not copy it, as a decision is large.
func (c *cell) answer(d *Decision, r *algo.Result) {
	d.Allowed, d.Reason, d.Limit = r.Allowed, reasonOf(*r), c.terms.permits
	d.Remaining, d.RetryAfter, d.ResetAfter, d.Policy = r.Remaining, r.RetryAfter, r.ResetAfter, c.k.policy
}

// peek fills d with what take would.
func (c *cell) peek(d *Decision, n int64) {
	if c.gate != nil {
		*d = c.gate.decision(c.gate.peek(c.now, n))
		return
	}
	c.foresee(d, n)
	c.refuseClosed(d)
}

// foresee fills d with what the algorithm says, without a gate.
func (c *cell) foresee(d *Decision, n int64) {
	var r algo.Result
	switch {
	case c.slot != nil:
		r = c.terms.law.Peek(c.slot.State(), c.now, n)
	case n <= c.terms.permits && c.k.states.Full(c.now):
		c.refuseNew(d, n)
		return
	default:
		r = c.terms.fresh(n)
	}
	c.answer(d, &r)
}

// ask fills d with what try would, and takes nothing.
func (c *cell) ask(d *Decision, n int64) {
	switch {
	case n < 0 || c.terms == nil:
		*d = c.k.invalid()
	case c.full:
		c.now = c.k.now()
		c.noRoom(d, n)
	default:
		c.enter()
		c.peek(d, n)
		c.unlock()
	}
}

func (c *cell) refuseClosed(d *Decision) {
	if c.k.closed.Load() {
		d.Allowed, d.Reason, d.RetryAfter = false, ReasonClosed, Never
	}
}

// noRoom fills d with the decision on a key that cannot be tracked, or whose limit cannot.
func (c *cell) noRoom(d *Decision, n int64) {
	c.full = true
	if n <= c.terms.permits {
		c.refuseNew(d, n)
		return
	}
	r := c.terms.fresh(n)
	c.answer(d, &r)
	c.refuseClosed(d)
}

// refuseNew is the decision for want of room.
func (c *cell) refuseNew(d *Decision, n int64) {
	t := c.terms
	if c.k.bounds.Load().AdmitWhenFull {
		*d = Decision{Allowed: true, Limit: t.permits, Remaining: t.permits - n, Policy: c.k.policy}
	} else {
		*d = Decision{Reason: ReasonTableFull, Limit: t.permits, RetryAfter: time.Second, Policy: c.k.policy}
		// Then, at the earliest, a key can be forgotten. If no time makes one fresh, that is not known.
		if next := c.k.states.NextFresh(); next != table.NotByItself {
			d.RetryAfter = time.Duration(max(next, c.now+int64(time.Millisecond)) - c.now)
		}
	}
	c.refuseClosed(d)
}

// bring makes the terms those of a limit that was chosen for the key: nil if it cannot be used. A zero one stands for that of the
// limiter.
func (c *call) bring(limit Limit) {
	if limit == (Limit{}) {
		c.terms = c.k.base
		return
	}
	var why Reason
	c.terms, why = c.k.intern(limit)
	c.full = why == ReasonTableFull
}

// makeRoom prepares another attempt to track a key, and reports whether there is one.
func (c *cell) makeRoom(attempt int) bool {
	return attempt < mostReclaims && c.k.states.Reclaim(c.now)
}

// renew replaces terms that were evicted, and reports whether it did.
func (c *cell) renew() bool {
	old := c.terms
	c.terms = c.k.renew(old)
	return c.terms != old
}

// refund gives n permits back whatever their origin.
func (c *cell) refund(n int64) {
	switch {
	case c.gate != nil:
		c.gate.meter.refund(c.now, n)
		c.gate.cameBack(c.now)
	case c.slot != nil:
		c.terms.law.Refund(c.slot.State(), c.now, n)
		c.due()
	}
}

// reset makes the key one that has never been seen.
func (c *cell) reset() {
	c.k.resets.note(c.hash)
	c.refund(math.MaxInt64) // which a later key must know of: see forgotten
	if c.gate == nil && c.slot != nil {
		c.remove()
	}
}

// charge takes n permits whatever is left, and returns how many are forgiven.
func (c *cell) charge(n int64) (forgiven int64) {
	if c.gate != nil {
		c.gate.debit(c.now, n)
		return 0 // the gate has counted them
	}
	forgiven = n - c.terms.law.Charge(c.slot.State(), c.now, n, c.k.debt(c.terms))
	c.due()
	return forgiven
}

// cancel gives back n permits of a claim.
func (c *cell) cancel(n int64, of *claim) {
	switch g := c.gate; {
	case g == nil && c.slot == nil: // all permits are back
	case g == nil:
		c.k.giveBack(c.slot.State(), c.terms, c.now, n, of)
		c.due()
	case c.k.returns() || of.under == g.takenUnder():
		g.meter.cancel(c.now, n, of.mark)
		g.cameBack(c.now)
	default: // the limit has changed since
		c.k.giveBack(g.meter.state, g.terms, c.now, n, of)
		g.cameBack(c.now)
	}
}

// count counts a decision on n permits. The cell must be locked.
func (c *cell) count(n int64, allowed bool) {
	switch {
	case n == 0:
	case c.gate != nil:
		c.k.count(allowed)
	default:
		c.shard.Tally[tallied(allowed)]++
	}
}

// tallied is where a shard counts decisions.
func tallied(allowed bool) int {
	if allowed {
		return 0
	}
	return 1
}

// try takes n permits if they are available, and reports whether the key is new.
//
// The process clock is first read before the lock is taken, so that the others do not wait for it. A grant as of a moment ago is
// one that was made then, as no caller has touched the state since; if a caller has, the state knows a later time already. A
// refusal must not rest on an old time if the state has changed since: so it reads the clock again unless the lock tells that
// no caller has had it. Whatever is not plain reads it again, too. A clock that was given can be set forward between the two, and
// others may have seen that (TestKeyedLinearizable).
func (c *cell) try(d *Decision, n int64, reserve bool) (added bool) {
	if n < 0 || c.terms == nil {
		*d = c.k.invalid()
		return false
	}
	c.spot = c.k.states.Touch(c.hash) // while the clock is read
	c.now = c.k.now()
	return c.tryAt(d, n, reserve)
}

// tryAt is try of a key that was touched, with a time that the process clock has shown since.
func (c *cell) tryAt(d *Decision, n int64, reserve bool) (added bool) {
	for attempt := 0; !c.full; attempt++ {
		alone := c.lockTouched()
		if c.gate == nil && (!alone || c.k.clock != nil || c.slot != nil && !c.settled()) {
			c.now = c.k.now()
		}
		tracked := c.slot != nil
		ok := c.take(d, n, reserve)
		if ok {
			c.count(n, d.Allowed)
		}
		c.unlock()
		if ok {
			return !tracked && c.slot != nil
		}
		c.full = !c.makeRoom(attempt)
		c.now = c.k.now()
	}
	c.now = c.k.now()
	c.turnAway(d, n)
	return false
}

// turnAway is the decision on a call for which there is no room. It is counted.
func (c *cell) turnAway(d *Decision, n int64) {
	c.noRoom(d, n)
	if n == 0 {
		return
	}
	c.k.count(d.Allowed)
	if d.Allowed {
		c.k.untracked.Add(1)
	}
}

// claim makes l a lease that gives back what was taken, or is charged what it costs more than was reserved, which can be nothing.
func (c *cell) claim(l *Lease) {
	if l.decision.Allowed && !c.full && (l.permits > 0 || !c.k.returns()) {
		of := l.bind(c.k, l.permits)
		of.mark, of.under = c.mark, c.under
	}
}

// acquire takes n permits, and waits for them if it must.
func (c *cell) acquire(ctx context.Context, latest *atomic.Pointer[terms], n int64, reserve bool) (l Lease, err error) {
	k := c.k
	l.permits = n
	if n < 0 || c.terms == nil {
		l.decision = k.invalid()
		return l, l.Err()
	}
	if over(ctx) {
		l.decision = Decision{Reason: ReasonCanceled, Limit: k.base.permits, Policy: k.policy}
		return l, ended(ctx, n)
	}
	d := &l.decision
	for attempt := 0; !c.full; {
		c.lock(latest)
		if c.gate != nil {
			err = c.gate.acquireEntered(ctx, c.now, n, reserve, &l)
			return l, err
		}
		c.now = k.now()
		ok := c.take(d, n, reserve)
		if ok && d.Reason == ReasonLimited {
			if d.Reason = k.mayWait(ctx, d.RetryAfter, n); d.Reason == ReasonLimited {
				c.raise()
				c.unlock()
				continue
			}
		}
		if ok {
			c.count(n, d.Allowed)
		}
		c.unlock()
		if ok {
			if reserve || k.returns() {
				c.claim(&l)
			}
			return l, refusal(*d, n, noQueue(d.Reason, k.bounds.Load().QueueLimit))
		}
		c.full = !c.makeRoom(attempt)
		attempt++
	}
	c.now = k.now()
	c.turnAway(d, n)
	return l, l.Err()
}

// settle implements settler: it gives back what a claim has not cost, or charges what it has cost beyond it.
func (k *keyed) settle(of *claim, how settlement, actual int64) {
	if k.returns() {
		actual = 0
	} else if how < commit {
		return
	}
	cost := actual - of.permits
	if cost == 0 {
		return
	}
	c := cell{call: call{k: k, hash: of.under.key}}
	c.enter()
	switch {
	case cost < 0:
		c.cancel(-cost, of)
	case c.gate == nil && c.slot == nil && !c.addUnder(of.under.terms):
		k.forgive(cost)
	default:
		k.forgive(c.charge(cost))
	}
	c.unlock()
}

// addUnder is add for a key that permits of t were taken of.
func (c *cell) addUnder(t *terms) bool {
	if c.terms = t; t.tag == baseTag { // of an override, perhaps
		c.terms = c.k.base
	}
	return c.add()
}

// keyGate holds the state of a key while a caller waits for it, or while its limit is overridden. Its slot in the table is
// raised meanwhile, and is what keeps the key from being forgotten.
//
// Locks are taken in this order: of a gate, then of a shard.
type keyGate struct {
	gate

	k    *keyed
	hash table.Hash

	gone   bool        // the state is back in the table
	normal *terms      // what the limit was before it was overridden; nil if it is not
	until  int64       // the end of the override
	end    func() bool // stops the timer at its end
}

// raise moves the state of the slot, which stays locked, into a gate.
func (c *cell) raise() {
	k, t := c.k, c.held()
	g := new(keyGate)
	g.k, g.hash, g.terms = k, c.hash, t
	g.keeper = g
	g.returned = k.returns()
	// The options were checked.
	b := k.bounds.Load()
	_ = g.setUp(gateOptions{
		policy: k.policy, limit: t.permits, queueLimit: b.QueueLimit, newest: b.NewestFirst, maxDebt: b.MaxDebt,
	})
	g.meter.apply(t.law)
	copy(g.meter.state, c.slot.State())
	g.clock = k.clock
	g.owner, g.word = k, g
	c.slot.SetTag(raisedTag)
	i := c.shard.Index()
	if k.busy[i] == nil {
		k.busy[i] = make(map[table.Hash]*keyGate)
	}
	k.busy[i][c.hash] = g
}

// raise implements word: the state is never anywhere else while the gate lives.
func (g *keyGate) raise() {}

// lower implements word: it moves the state back, if no caller waits and the limit is the normal one.
func (g *keyGate) lower() {
	if g.gone || g.normal != nil {
		return
	}
	k := g.k
	shard := k.states.Lock(g.hash)
	slot := shard.Find(g.hash)
	copy(slot.State(), g.meter.state)
	slot.SetTag(g.terms.tag)
	shard.Due(g.hash, g.terms.law.FreshAt(slot.State()))
	if i := shard.Index(); len(k.busy[i]) == 1 {
		k.busy[i] = nil // a map keeps the memory of those that have gone
	} else {
		delete(k.busy[i], g.hash)
	}
	shard.Unlock()
	g.gone = true
	k.forgive(g.forgiven)
}

// counts implements word.
func (g *keyGate) counts() (allowed, refused int64) { return 0, 0 }

// arrive locks the gate for a call under the terms t, or under the latest ones of a plan if there is one, and returns the
// time. It is not alive if the state has left it.
func (g *keyGate) arrive(t *terms, latest *atomic.Pointer[terms]) (now int64, alive bool) {
	now = g.enter()
	if latest != nil {
		t = latest.Load()
	}
	if g.gone {
		g.unlock()
		return now, false
	}
	if g.normal != nil {
		if now < g.until {
			if t != nil && t != g.normal && t.enter() {
				g.normal.leave()
				g.normal = t
			}
			return now, true
		}
		g.endOverride(now)
	}
	if t != nil && t != g.terms && t.enter() {
		old := g.terms
		g.hold(t, now)
		old.leave()
	}
	return now, true
}

// hold makes t the limit, and serves callers that wait for permits that this makes available.
func (g *keyGate) hold(t *terms, now int64) {
	g.meter.carry(t.law, now)
	g.terms = t
	g.k.movesOf(g.hash).Add(1)
	g.limit.Store(t.permits)
	g.maxDebt = g.k.debt(t)
	for w := g.queue.Oldest(); w != nil; {
		next := w.Newer()
		if w.Permits > t.permits {
			g.answer(w, g.meter.peek(now, w.Permits), ReasonNever)
		}
		w = next
	}
	g.cameBack(now)
}

// mostOverrides is how many keys can be overridden at a time.
const mostOverrides = 1 << 16

// lockGate is lock that moves the state into a gate if it is in none.
func (c *cell) lockGate() error {
	if c.full || c.terms == nil { // the limit that was chosen for the key cannot be used
		c.terms, c.full = c.k.base, false
	}
	t, own := c.terms, c.terms
	if t == c.k.base {
		own = nil // that of the state may be a Plan
	}
	for attempt := 0; ; attempt++ {
		c.terms = own
		c.enter()
		switch {
		case c.gate != nil:
			return nil
		case c.k.closed.Load():
			c.unlock()
			return ErrClosed
		case c.slot == nil:
			c.terms = t
			c.add()
		}
		tracked := c.slot != nil
		if tracked {
			c.raise()
		}
		c.unlock()
		if !tracked && !c.makeRoom(attempt) {
			return inside.ErrTableFull
		}
	}
}

// override holds the state to t for d from now on.
func (g *keyGate) override(t *terms, now int64, d time.Duration) error {
	if g.closed {
		return ErrClosed
	}
	k := g.k
	if g.normal == nil {
		if k.overrides.Add(1) > mostOverrides {
			k.overrides.Add(-1)
			return inside.ErrTooManyOverrides
		}
		g.normal = g.terms
	} else {
		g.end()
	}
	g.until = clock.After(now, d)
	g.hold(t, now)
	expire := func() {
		if _, alive := g.arrive(nil, nil); alive {
			g.unlock()
		}
	}
	if g.clock != nil {
		g.end = g.clock.At(g.until, expire)
	} else {
		g.end = time.AfterFunc(d, expire).Stop
	}
	return nil
}

// endOverride goes back to the normal limit.
func (g *keyGate) endOverride(now int64) {
	g.end()
	normal := g.normal
	g.normal = nil
	g.k.overrides.Add(-1)
	g.hold(normal, now)
}

// counted implements keeper.
func (g *keyGate) counted(allowed bool) { g.k.count(allowed) }

// takenUnder implements keeper.
func (g *keyGate) takenUnder() under { return g.k.under(g.hash, g.terms) }
