package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

// Locked is a [Store] over [Locks]. Each call locks its keys in the order of their names, reads what is kept for them, decides,
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
// once.
type Locked struct {
	locks  Locks
	clock  weir.Clock
	lease  time.Duration
	wait   time.Duration
	skew   time.Duration
	queue  lockQueue
	closed atomic.Bool
}

var _ Store = (*Locked)(nil)

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

// Take implements [Store].
func (s *Locked) Take(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if err := errors.Join(CheckTaken(charges), CheckDecisions(charges, decisions), CheckCharges(charges)); err != nil {
		return firstOf(err)
	}
	//nolint:contextcheck // what comes after the call has a context of its own
	return s.attempts(ctx, charges, func(c *call) error {
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
	})
}

// Peek implements [Store].
func (s *Locked) Peek(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if err := errors.Join(CheckDecisions(charges, decisions), CheckCharges(charges)); err != nil {
		return firstOf(err)
	}
	return s.attempts(ctx, charges, func(c *call) error {
		if _, err := c.judge(charges, decisions, false); err != nil {
			return err
		}
		return c.leave()
	})
}

// firstOf is the first of the errors that were joined.
func firstOf(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // it was joined just now
		return joined.Unwrap()[0]
	}
	return err
}

// judge decides on each of the charges without taking anything, and reports whether all are allowed. All records are ready
// then.
func (c *call) judge(charges []Charge, decisions []weir.Decision, reserve bool) (allowed bool, err error) {
	allowed = true
	for i := range c.keys {
		k := &c.keys[i]
		charge, d := charges[k.charge], &decisions[k.charge]
		t, err := compiled.terms(charge.Limit)
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

// Reserve implements [Store].
func (s *Locked) Reserve(
	ctx context.Context, charges []Charge, decisions []weir.Decision, expiry time.Duration,
) (r Reservation, err error) {
	err = errors.Join(CheckExpiry(expiry), CheckDecisions(charges, decisions), CheckCharges(charges))
	if err != nil {
		return Reservation{}, firstOf(err)
	}
	id, expires, granted := "", int64(0), false
	//nolint:contextcheck // what comes after the call has a context of its own
	err = s.attempts(ctx, charges, func(c *call) error {
		var failure error
		if granted, failure = c.judge(charges, decisions, true); failure != nil {
			return failure
		}
		if !granted {
			return c.adopt()
		}
		id, expires = rand.Text(), 0
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
			if failure = c.write(k); failure != nil {
				c.undo(id, c.keys[:i+1])
				return failure
			}
		}
		return nil
	})
	if err != nil || !granted {
		return Reservation{}, err
	}
	return newReservation(id, charges, expires), nil
}

// Refund implements [Store].
func (s *Locked) Refund(ctx context.Context, charges []Charge) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	refunded := make([]bool, len(charges)) // by attempts that lost a lock later
	return s.attempts(ctx, charges, func(c *call) error {
		for i := range c.keys {
			k := &c.keys[i]
			if k.rec == nil || refunded[k.charge] {
				continue
			}
			charge := charges[k.charge]
			t, err := compiled.terms(charge.Limit)
			if err != nil {
				return err
			}
			c.ready(k, t)
			k.rec.refund(charge.N)
			if err := c.write(k); err != nil {
				return err
			}
			refunded[k.charge] = true
		}
		return nil
	})
}

// Commit implements [Store].
func (s *Locked) Commit(ctx context.Context, r Reservation, actual []int64) error {
	if actual == nil {
		actual = []int64{}
	}
	return s.settle(ctx, r, actual)
}

// Cancel implements [Store].
func (s *Locked) Cancel(ctx context.Context, r Reservation) error { return s.settle(ctx, r, nil) }

// settle ends a reservation with what it cost, or cancels it if actual is nil.
func (s *Locked) settle(ctx context.Context, r Reservation, actual []int64) error {
	if err := CheckReservation(r, actual); err != nil {
		return err
	}
	charges := r.Charges
	if r.ID == "" {
		charges = nil
	}
	known := len(charges) == 0
	err := s.attempts(ctx, charges, func(c *call) error {
		for i := range c.keys {
			k := &c.keys[i]
			if k.rec == nil {
				continue
			}
			c.ready(k, nil)
			at := k.rec.find(r.ID, r.Expires)
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

// Reset implements [Store]. It also drops what cannot be read.
func (s *Locked) Reset(ctx context.Context, policy, key string) error {
	if err := checkName(policy, key); err != nil {
		return err
	}
	charges := []Charge{{Policy: policy, Key: key}}
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
	err := s.attempts(ctx, charges, drop)
	if _, ok := errors.AsType[*unreadableError](err); ok {
		short, cancel := context.WithTimeout(ctx, s.wait)
		defer cancel()
		return s.changeAll(short, recordName(policy, key), true, func(k *lockedKey) bool { k.rec = nil; return true })
	}
	return err
}

// Inspect implements [Store].
func (s *Locked) Inspect(ctx context.Context, charge Charge) (st State, err error) {
	charge.N = 0
	charges := []Charge{charge}
	if wrong := CheckCharges(charges); wrong != nil {
		return State{}, wrong
	}
	err = s.attempts(ctx, charges, func(c *call) error {
		k := &c.keys[0]
		known := k.rec != nil
		t, _ := compiled.terms(charge.Limit) // which was checked
		c.ready(k, t)
		st = k.rec.inspect(charge, known, c.skew)
		return nil
	})
	return st, err
}

// Close implements [Store].
func (s *Locked) Close() error {
	s.closed.Store(true)
	return nil
}

// String names it, for people.
func (s *Locked) String() string { return fmt.Sprintf("store over %T", s.locks) }
