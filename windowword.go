package weir

import (
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/tally"
)

// windowWord is the state of a fixed window in one word:
//
//	bits 63..33  the number of the window, modulo 2^31
//	bits 32..1   the permits taken in it
//	bit      0   raised: the state is in the meter, under the lock
//
// The number counts from an epoch, as that of arrival does, and moves like it only under the lock.
type windowWord struct {
	_       [64]byte
	word    atomic.Uint64
	_       [56]byte
	epoch   atomic.Int64
	origin  int64
	length  int64
	limit   int64
	owner   *gate
	_       [24]byte
	granted tally.Tally
	refused tally.Tally
}

const (
	windowShift     = 33
	windowNumbers   = 1<<31 - 1
	windowPermits   = 1<<32 - 1
	windowEpochLife = 1 << 29
)

// init makes g a fixed window whose state lies in the word if it fits.
func (a *windowWord) init(g *gate, rate Rate) {
	a.word.Store(raised)
	a.owner = g
	if g.clock != nil || rate.Permits > windowPermits/2 {
		return
	}
	a.length, a.limit = int64(rate.Period), rate.Permits
	if a.origin = g.born % a.length; a.origin < 0 { // as algo.FixedWindow counts, whose time may be negative
		a.origin += a.length
	}
	number := (g.born - a.origin) / a.length
	a.epoch.Store(number)
	g.meter.state[0] = uint64(number)
	g.word = a
	a.lower()
}

// take takes n permits, which must be from 1 to the limit. It returns how many are used afterwards, or, if they were
// not taken, before, the number of the window, and how long it still lasts. It does not count.
func (a *windowWord) take(n int64) (used, number int64, left time.Duration, v verdict) {
	before, epoch := a.word.Load(), a.epoch.Load()
	for now := clock.Now(); ; {
		old := a.word.Load()
		if old&raised != 0 || a.epoch.Load() != epoch {
			return 0, 0, 0, locked
		}
		number = epoch + int64((old>>windowShift-uint64(epoch))&windowNumbers)
		used = int64(old >> 1 & windowPermits)
		passed := now - a.origin - number*a.length
		if used > a.limit { // debt is carried into the next window
			return 0, 0, 0, locked
		}
		if passed >= a.length {
			number += passed / a.length
			passed %= a.length
			used = 0
		}
		left = time.Duration(a.length - passed)
		switch {
		case number-epoch >= windowEpochLife:
			return 0, 0, 0, locked
		case passed < 0: // a caller saw a later window, or the clock has gone back
			if old == before {
				return 0, 0, 0, locked
			}
		case used+n > a.limit:
			if old == before {
				return used, number, left, short
			}
		default:
			if a.word.CompareAndSwap(old, uint64(number)<<windowShift|uint64(used+n)<<1) {
				return used + n, number, left, taken
			}
			continue
		}
		// Neither a refusal nor a window may rest on a time that was read before the word changed.
		before = old
		now = clock.Now()
	}
}

func (a *windowWord) raise() {
	var old uint64
	for {
		old = a.word.Load()
		if old&raised != 0 {
			return
		}
		if a.word.CompareAndSwap(old, old|raised) {
			break
		}
	}
	epoch := a.epoch.Load()
	state := a.owner.meter.state // as [algo.FixedWindow.Law] has it
	state[0], state[1], state[2] = uint64(epoch)+(old>>windowShift-uint64(epoch))&windowNumbers, old>>1&windowPermits, 0
}

// lower leaves the word raised if the state does not fit.
func (a *windowWord) lower() {
	window, used := int64(a.owner.meter.state[0]), a.owner.meter.state[1]
	if used > windowPermits || window < a.epoch.Load() {
		return
	}
	if window-a.epoch.Load() >= windowEpochLife/2 {
		a.epoch.Store(window)
	}
	a.word.Store(uint64(window)<<windowShift | used<<1)
}

func (a *windowWord) counts() (granted, refused int64) { return a.granted.Sum(), a.refused.Sum() }

// try decides on n permits without the lock; not ok if it needs the lock, or if it would refuse and must not.
func (a *windowWord) try(l *Lease, n int64, reserve, refuse bool) (ok bool) {
	if n <= 0 || n > a.limit {
		return false
	}
	used, number, left, v := a.take(n)
	if v == locked || v == short && !refuse {
		return false
	}
	l.permits = n
	d := &l.decision
	d.Limit, d.Remaining, d.ResetAfter, d.Policy = a.limit, a.limit-used, left, a.owner.policy
	if v == short {
		a.refused.Add()
		d.Reason, d.RetryAfter = ReasonLimited, left
		return true
	}
	a.granted.Add()
	d.Allowed = true
	if reserve {
		l.claim, l.generation = newClaim(a.owner, n, algo.Mark{At: number})
	}
	return true
}
