package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
)

// LockedOptions configure a [Locked].
type LockedOptions struct {
	// Clock replaces the wall clock of this process: its Now is in Unix nanoseconds. Its AfterFunc is not used: locks are
	// waited for in real time. Default: nil.
	Clock weir.Clock
	// Lease is how long a lock lasts if its owner dies and does not unlock it: from 10 ms to 10 min. Nothing is written under a
	// lock that has passed to another owner. It should be several times what a call of the Locks takes. Default: 2 s.
	Lease time.Duration
	// Wait is how long a call takes at most, whatever the deadline of its context: from 1 ms to 1 h. Default: 5 s.
	Wait time.Duration
	// Skew is how far the clocks of the processes that share the states may differ: from 0 to 24 h. Records are kept so much
	// longer than they have to be. Default: 1 min.
	Skew time.Duration
}

// Locked is a [Home] over [Locks]. Each call locks its keys in the order of their names, reads what is kept for them, decides,
// and writes. It never allows more than the limits.
//
// A lock that another owner has is waited for, with growing random pauses, until the context ends or Wait is over, which is
// [ErrUnavailable]. A call whose lock is lost meanwhile begins anew. Calls of one Locked for the same key wait for one another in
// the process, without asking the Locks.
//
// # Callers that die
//
// Charges of several keys are one step even if the caller dies in the middle of it. The permits of all keys but the first are
// written as undecided. Then the first key, which is locked from the beginning, is written with a note that the request is
// allowed: at that moment it is. A later caller that finds undecided permits older than a lease looks at the first key. With the
// note they are taken; without it they are given back exactly. So undecided permits are missing for no longer than Lease and
// Skew.
//
// A reservation of several keys whose caller dies before it has it expires, as all do. If the caller dies in the middle of Commit
// or Cancel, the keys that it did not reach have the reservation canceled when it expires. If it dies in the middle of Refund,
// some keys have their permits back.
//
// # Clocks
//
// The clocks of all processes count. A record whose time is ahead of the clock of a process by up to [MostAhead] waits for that
// clock: nothing comes back before its time. One that is further ahead was written by a wrong clock: it goes on from now, with
// what was taken. So a clock that was ahead delays nothing for longer than MostAhead. It gives the permits of the time by which
// it was ahead, at most the limit, once.
//
// This is also true where clocks stay apart, as that of one process of several may: from the second time on that a record was
// taken back, up to 4 clocks that are ahead are told apart by how far (TestLockedClocks). Time then passes by the clock that is
// furthest behind, calendars included. A key that was not used in the time by which clocks are apart may get back that much less,
// once. The zero Locked is not usable: call [NewLocked].
type Locked struct {
	locks  Locks
	clock  weir.Clock
	lease  time.Duration
	wait   time.Duration
	skew   time.Duration
	queue  lockQueue
	closed atomic.Bool
}

var _ Home = (*Locked)(nil)

// NewLocked returns a store over locks, or an *[weir.OptionError]. Closing it does not close the locks.
func NewLocked(locks Locks, o LockedOptions) (*Locked, error) {
	s := &Locked{locks: locks, clock: o.Clock, lease: o.Lease, wait: o.Wait, skew: o.Skew, queue: newLockQueue()}
	for _, d := range []struct {
		name               string
		value              *time.Duration
		least, most, usual time.Duration
		accepted           string
	}{
		{"Lease", &s.lease, 10 * time.Millisecond, 10 * time.Minute, 2 * time.Second, "from 10ms to 10m"},
		{"Wait", &s.wait, time.Millisecond, time.Hour, 5 * time.Second, "from 1ms to 1h"},
		{"Skew", &s.skew, 0, 24 * time.Hour, time.Minute, "from 0 to 24h"},
	} {
		if *d.value == 0 {
			*d.value = d.usual
		}
		if *d.value < d.least || *d.value > d.most {
			return nil, &weir.OptionError{Option: "LockedOptions." + d.name, Value: d.value.String(), Accepted: d.accepted}
		}
	}
	if err := mustHave("NewLocked.locks", locks); err != nil {
		return nil, err
	}
	return s, nil
}

// Do implements [Home]. If a call that refunds or debits several keys is cut short, some of them may be done.
func (s *Locked) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (h Hold, err error) {
	if err := Check(ask, charges, decisions); err != nil {
		return Hold{}, err
	}
	//nolint:contextcheck // what comes after the call has a context of its own
	try := func(c *call) error { return c.take(charges, decisions) }
	switch ask.Mode {
	case ModeTake:
		if ask.Hold != 0 {
			//nolint:contextcheck // as above
			try = func(c *call) (err error) { h, err = c.reserve(charges, decisions, ask.Hold); return err }
		}
	case ModePeek:
		try = func(c *call) error { return c.peek(charges, decisions, ask.States) }
	case ModeLend:
		try = func(c *call) (err error) { h, err = c.lend(charges[0], &decisions[0], ask.Least); return err }
	case ModeReset:
		for _, of := range recordKeys(charges) {
			if err := s.reset(ctx, recordName(of)); err != nil {
				return Hold{}, err
			}
		}
		return Hold{}, nil
	default:
		done := make([]bool, len(charges)) // by attempts that lost a lock later
		if try = func(c *call) error { return c.refund(charges, done) }; ask.Mode == ModeDebit {
			try = func(c *call) error { return c.debit(charges, decisions, done) }
		}
	}
	if err := s.attempts(ctx, charges, try); err != nil {
		return Hold{}, err
	}
	return h, nil
}

// take takes the permits of all charges or none.
func (c *call) take(charges []Charge, decisions []weir.Decision) error {
	allowed, err := c.judge(charges, decisions, false)
	if err != nil {
		return err
	}
	if !allowed {
		return c.adopt()
	}
	var taken []*lockedKey
	for i := range c.keys {
		k := &c.keys[i]
		n := charges[k.charge].N
		if decisions[k.charge] = DecisionOf(charges[k.charge], k.rec.terms.most, k.rec.take(n)); n > 0 {
			taken = append(taken, k)
		}
	}
	switch len(taken) {
	case 0:
		return c.adopt()
	case 1:
		return c.write(taken[0])
	}
	return c.takeAll(charges, taken)
}

// peek decides on the charges without taking anything, and fills states if there are any.
func (c *call) peek(charges []Charge, decisions []weir.Decision, states []State) error {
	known := make([]bool, len(c.keys))
	for i := range c.keys {
		known[i] = c.keys[i].rec != nil
	}
	if _, err := c.judge(charges, decisions, false); err != nil {
		return err
	}
	for i := range c.keys {
		if k := &c.keys[i]; states != nil {
			states[k.charge] = k.rec.inspect(charges[k.charge], known[i], c.skew)
		}
	}
	return c.leave()
}

// judge decides on each of the charges without taking anything, and reports whether all are allowed. All records are ready
// then.
func (c *call) judge(charges []Charge, decisions []weir.Decision, reserve bool) (allowed bool, err error) {
	allowed = true
	for i := range c.keys {
		k := &c.keys[i]
		charge, d := charges[k.charge], &decisions[k.charge]
		t, err := termsOf(charge.Limit)
		if err != nil {
			return false, err
		}
		if k.rec == nil {
			k.rec = newRecord(t, c.now)
		} else if keep := k.rec.readyFor(c.now, nil); keep {
			k.kept = k.rec.clone()
		}
		k.changed = k.rec.terms.text != t.text
		k.rec.ready(k.rec.now(), t)
		*d = DecisionOf(charge, t.most, k.rec.peek(charge.N))
		if d.Allowed && reserve && k.rec.full() {
			d.Allowed, d.Reason = false, weir.ReasonTableFull
			d.RetryAfter = time.Duration(max(k.rec.held[0].expires-k.rec.now(), 1))
		}
		allowed = allowed && d.Allowed
	}
	return allowed, nil
}

// adopt is leave, except that keys are held to the limits of the charges from now on.
func (c *call) adopt() error {
	for i := range c.keys {
		if k := &c.keys[i]; k.changed {
			k.kept = k.rec
		}
	}
	return c.leave()
}

// leave writes what time has changed where the request takes nothing.
func (c *call) leave() error {
	for i := range c.keys {
		if k := &c.keys[i]; k.kept != nil {
			k.rec = k.kept
			if err := c.write(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// reserve reserves the permits of all charges or none.
func (c *call) reserve(charges []Charge, decisions []weir.Decision, expiry time.Duration) (Hold, error) {
	allowed, err := c.judge(charges, decisions, true)
	if err != nil {
		return Hold{}, err
	}
	if !allowed {
		return Hold{}, c.adopt()
	}
	id, expires := rand.Text(), int64(0)
	for i := range c.keys {
		expires = max(expires, c.keys[i].rec.at+int64(expiry))
	}
	for i := range c.keys {
		k := &c.keys[i]
		charge := charges[k.charge]
		decisions[k.charge] = DecisionOf(charge, k.rec.terms.most, k.rec.take(charge.N))
		until := k.rec.at + int64(expiry)
		if expires-until <= int64(MostAhead) { // otherwise clocks have made the times of the records different
			until = expires
		}
		k.rec.hold(id, charge.N, until, "")
		if err := c.write(k); err != nil {
			c.undo(id, c.keys[:i+1])
			return Hold{}, err
		}
	}
	return newReservation(id, charges, expires), nil
}

// refund gives permits back, except for charges that are done.
func (c *call) refund(charges []Charge, done []bool) error {
	for i := range c.keys {
		k := &c.keys[i]
		if k.rec == nil || done[k.charge] {
			continue
		}
		charge := charges[k.charge]
		t, err := termsOf(charge.Limit)
		if err != nil {
			return err
		}
		c.ready(k, t)
		k.rec.refund(charge.N)
		if err := c.write(k); err != nil {
			return err
		}
		done[k.charge] = true
	}
	return nil
}

// debit takes permits whether they are there or not, except for charges that are done.
func (c *call) debit(charges []Charge, decisions []weir.Decision, done []bool) error {
	for i := range c.keys {
		k := &c.keys[i]
		charge := charges[k.charge]
		t, err := termsOf(charge.Limit)
		if err != nil {
			return err
		}
		c.ready(k, t)
		n := charge.N
		if done[k.charge] {
			n = 0
		}
		decisions[k.charge] = DecisionOf(Charge{Policy: charge.Policy}, t.most, k.rec.debit(n))
		if err := c.write(k); err != nil {
			return err
		}
		done[k.charge] = true
	}
	return nil
}

// lend takes what there is of the permits of a charge, and least at least.
func (c *call) lend(charge Charge, d *weir.Decision, least int64) (h Hold, err error) {
	k := &c.keys[0]
	t, err := termsOf(charge.Limit)
	if err != nil {
		return Hold{}, err
	}
	c.ready(k, t)
	lent, r := k.rec.lend(least, charge.N)
	if *d = DecisionOf(Charge{Policy: charge.Policy, N: least}, t.most, r); d.Allowed {
		charge.N = lent
		h = Hold{Charges: []Charge{charge}, Taken: k.rec.at}
	}
	return h, c.write(k)
}

// reset forgets a record. It also drops what cannot be read.
func (s *Locked) reset(ctx context.Context, name string) error {
	drop := func(c *call) error {
		k := &c.keys[0]
		if k.rec == nil {
			return nil
		}
		c.ready(k, nil)
		if k.rec.reset(); len(k.rec.done) == 0 {
			k.rec = nil
		}
		return c.write(k)
	}
	err := s.attemptsOf(ctx, []string{name}, drop)
	if _, ok := errors.AsType[*unreadableError](err); ok {
		short, cancel := context.WithTimeout(ctx, s.wait)
		defer cancel()
		return s.changeAll(short, name, true, func(k *lockedKey) bool { k.rec = nil; return true })
	}
	return err
}

// Settle implements [Home].
func (s *Locked) Settle(ctx context.Context, h Hold, actual []int64) error {
	if err := CheckSettle(h, actual); err != nil {
		return err
	}
	if h.lent() {
		return s.attempts(ctx, h.Charges, func(c *call) error { return c.takeBack(&h, h.unspent(actual)) })
	}
	known := len(h.Charges) == 0
	err := s.attempts(ctx, h.Charges, func(c *call) error {
		for i := range c.keys {
			k := &c.keys[i]
			if k.rec == nil {
				continue
			}
			c.ready(k, nil)
			at := k.rec.find(h.ID, h.Expires)
			switch {
			case at < 0 || k.rec.held[at].of != "":
				continue
			case actual == nil:
				k.rec.cancel(at)
			default:
				k.rec.commit(at, actual[k.charge])
			}
			if err := c.write(k); err != nil {
				return err
			}
			known = true
		}
		return nil
	})
	if err == nil && !known {
		return ErrNotReserved
	}
	return err
}

// takeBack gives back what was not spent of a loan.
func (c *call) takeBack(loan *Hold, unspent int64) error {
	k := &c.keys[0]
	t, err := termsOf(loan.Charges[0].Limit)
	if err != nil || k.rec == nil || k.rec.terms.text != t.text {
		return err
	}
	c.ready(k, nil)
	k.rec.takeBack(unspent, loan.Taken)
	return c.write(k)
}

// Close implements [Home].
func (s *Locked) Close() error {
	s.closed.Store(true)
	return nil
}

// String names it, for people.
func (s *Locked) String() string { return fmt.Sprintf("store over %T", s.locks) }

// lockQueue has calls of one process for the same key wait for one another, so that they do not get in each other's way at the
// Locks. Keys share places in it by their hash.
type lockQueue struct {
	seed   maphash.Seed
	places []chan struct{}
}

const lockPlaces = 64

func newLockQueue() lockQueue {
	q := lockQueue{maphash.MakeSeed(), make([]chan struct{}, lockPlaces)}
	for i := range q.places {
		q.places[i] = make(chan struct{}, 1)
	}
	return q
}

// enter waits until no other call that has entered has a place of one of the names. free ends that.
func (q *lockQueue) enter(ctx context.Context, names []string) (free func(), err error) {
	var wanted, had uint64
	for _, name := range names {
		wanted |= 1 << (maphash.String(q.seed, name) % lockPlaces)
	}
	free = func() {
		for ; had != 0; had &= had - 1 {
			<-q.places[bits.TrailingZeros64(had)]
		}
	}
	for ; wanted != 0; wanted &= wanted - 1 { // always in the same order, so that no two calls wait for each other
		i := bits.TrailingZeros64(wanted)
		select {
		case q.places[i] <- struct{}{}:
			had |= 1 << i
		case <-ctx.Done():
			free()
			return nil, ctx.Err()
		}
	}
	return free, nil
}
