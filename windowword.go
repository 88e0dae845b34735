package weir

import (
	"runtime"
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
		if old == held {
			runtime.Gosched()
			continue
		}
		if old&raised != 0 || a.epoch.Load() != epoch {
			return 0, 0, 0, locked
		}
		var passed int64
		number, used, passed = a.at(old, epoch, now)
		left = time.Duration(a.length - passed)
		switch {
		case used > a.limit || number-epoch >= windowEpochLife: // debt is carried into the next window
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
			if a.word.CompareAndSwap(old, wordOfWindow(number, used+n)) {
				return used + n, number, left, taken
			}
			continue
		}
		// Neither a refusal nor a window may rest on a time that was read before the word changed.
		before = old
		now = clock.Now()
	}
}

// at is the window of the word old at time now: its number, what is used in it, and what has passed of it, which is negative
// before it begins.
func (a *windowWord) at(old uint64, epoch, now int64) (number, used, passed int64) {
	number = epoch + int64((old>>windowShift-uint64(epoch))&windowNumbers)
	used = int64(old >> 1 & windowPermits)
	passed = now - a.origin - number*a.length
	if passed >= a.length && used <= a.limit {
		return number + passed/a.length, 0, passed % a.length
	}
	return number, used, passed
}

func wordOfWindow(number, used int64) uint64 { return uint64(number)<<windowShift | uint64(used)<<1 }

func (a *windowWord) raise() {
	old, ok := seize(&a.word)
	if !ok {
		return
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
	a.word.Store(wordOfWindow(window, int64(used)))
}

func (a *windowWord) counts() (granted, refused int64) { return a.granted.Sum(), a.refused.Sum() }

// try is that of arrival. A nil windowWord is not ok.
func (a *windowWord) try(l *Lease, n int64, reserve, refuse bool) (ok bool) {
	if a == nil || n <= 0 || n > a.limit {
		return false
	}
	used, number, left, v := a.take(n)
	if v == locked || v == short && !refuse {
		return false
	}
	l.permits = n
	a.tell(&l.decision, used, left, v)
	a.count(v == taken)
	if v == taken && reserve {
		l.claim, l.generation = newClaim(a.owner, n, algo.Mark{At: number})
	}
	return true
}

// tell says in d what became of a call that finds or leaves so many permits used in a window that still lasts for left.
func (a *windowWord) tell(d *Decision, used int64, left time.Duration, v verdict) {
	d.Limit, d.Remaining, d.ResetAfter, d.Policy = a.limit, a.limit-used, left, a.owner.policy
	if v == taken {
		d.Allowed = true
		return
	}
	d.Reason, d.RetryAfter = ReasonLimited, left
}

// ask implements sharer.
func (a *windowWord) ask(d *Decision, now, n int64) (old, next uint64, v verdict) {
	epoch := a.epoch.Load()
	old = a.word.Load()
	if old&raised != 0 || n > a.limit || a.epoch.Load() != epoch {
		return old, 0, locked
	}
	number, used, passed := a.at(old, epoch, now)
	if used > a.limit || passed < 0 || number-epoch >= windowEpochLife {
		return old, 0, locked
	}
	if v = short; used+n <= a.limit {
		v = taken
		used += n
		next = wordOfWindow(number, used)
	}
	a.tell(d, used, time.Duration(a.length-passed), v)
	return old, next, v
}

// mark implements sharer.
func (a *windowWord) mark(next uint64, now int64) algo.Mark {
	number, _, _ := a.at(next, a.epoch.Load(), now)
	return algo.Mark{At: number}
}

// count implements sharer.
func (a *windowWord) count(granted bool) {
	if granted {
		a.granted.Add()
	} else {
		a.refused.Add()
	}
}
