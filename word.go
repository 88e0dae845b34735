package weir

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/tally"
)

// Bit 0 of a word is clear while the state lies in it. Otherwise the word is one of these.
const (
	raised = 1 // the state is in the meter, under the lock
	held   = 3 // a step over several words is about to store the state: calls wait for it
	lent   = 5 // the state is in the lending of an arrival, under the lock, and permits of it lie in its cells
)

// seize raises a word, and returns what it was; not ok if it is raised already.
func seize(w *atomic.Uint64) (old uint64, ok bool) {
	for {
		switch old = w.Load(); {
		case old == held:
			runtime.Gosched()
		case old&raised != 0:
			return 0, false
		case w.CompareAndSwap(old, raised):
			return old, true
		}
	}
}

// verdict is what a word says to a call that takes from it.
type verdict uint8

const (
	locked verdict = iota // ask under the lock
	short                 // there are not enough permits
	taken
)

// countedWord is a word that counts what is allowed from it, up to 63, in its bits 6 to 1: counting costs no second write.
type countedWord struct {
	_       [64]byte
	word    atomic.Uint64
	allowed atomic.Int64 // without those counted in the word
	folding atomic.Int64 // how many callers are about to move a full count from the word to allowed

	patience atomic.Int64 // how many exchanges may still fail before a bucket lends
	undone   atomic.Bool  // permits have been given back since the word was raised
	_        [28]byte
}

const (
	oneGrant      = 1 << 1
	grantsPerWord = 63
	grantBits     = grantsPerWord * oneGrant
	lowBits       = grantBits | raised
)

// load returns the word, which can count one more unless it is raised.
func (w *countedWord) load() (old uint64) {
	if old = w.word.Load(); old&grantBits == grantBits {
		old = w.fold()
	}
	return old
}

// fold is load if the count was full: it moves it to allowed. A caller that stops in between holds back the count of
// requests that were answered long before, so sum waits for it.
//
//go:noinline
func (w *countedWord) fold() (old uint64) {
	w.folding.Add(1)
	for old = w.word.Load(); old&grantBits == grantBits; old = w.word.Load() {
		if w.word.CompareAndSwap(old, old&^grantBits) {
			w.allowed.Add(grantsPerWord)
		}
	}
	w.folding.Add(-1)
	return old
}

// seize raises the word, and returns what it was; not ok if it is raised already.
func (w *countedWord) seize() (old uint64, ok bool) {
	if old, ok = seize(&w.word); ok {
		w.allowed.Add(int64(old & grantBits / oneGrant))
	}
	return old, ok
}

// sum needs a raised word: no caller can begin to fold.
func (w *countedWord) sum() int64 {
	for w.folding.Load() > 0 {
		runtime.Gosched()
	}
	return w.allowed.Load()
}

// divisor divides numbers below 2^63 by one that is known long before, by a multiplication: a division would cost as much as the
// exchange of a word.
//
// It is exact (Granlund and Montgomery, 1994): with 2^(l-1) < d <= 2^l and m the whole number above 2^(63+l) / d, m x d exceeds
// 2^(63+l) by at most 2^l, so that n x m / 2^(63+l) exceeds n / d by less than 1 / d.
type divisor struct {
	m     uint64
	shift uint8
}

// newDivisor returns the divisor by d, from 2 to 2^62.
func newDivisor(d uint64) divisor {
	l := bits.Len64(d - 1)
	m, _ := bits.Div64(1<<(l-1), 0, d)
	return divisor{m + 1, uint8(l - 1)}
}

func (v divisor) of(n uint64) uint64 {
	hi, _ := bits.Mul64(n, v.m)
	return hi >> (v.shift & 63)
}

// arrival is the state of a token bucket in one word: the time at which the bucket will be full, which is what the
// generic cell rate algorithm calls the theoretical arrival time, of the next permit. It is what
// algo.TokenBucketState calls Last + Ahead.
//
//	bits 63..7  the time in units of 1/num nanosecond, modulo 2^57
//	bits  6..1  how many requests were allowed: see countedWord
//	bit      0  raised: the state is in the meter, under the lock
//
// The time lies ahead of an epoch by less than half of the 57 bits, and so does the time of a call, up to the horizon: the
// difference between the two is what it is modulo 2^57. The epoch moves only under the lock; a caller that read the word before
// and the epoch after such a move fails its exchange, or, if the word came out the same, reads it right.
type arrival struct {
	countedWord

	epoch   atomic.Int64
	scale   uint64  // one nanosecond in the word
	one     int64   // one permit in the word
	permits divisor // by one
	nanos   divisor // by scale
	room    int64   // burst - 1 permits in the word
	horizon uint64  // nanoseconds from the epoch in which the word can be used
	burst   int64
	owner   *gate
	// returned is that of the state. It changes only under the lock, and the word with it: a call that reads it between reading
	// the word and exchanging it has the right one.
	returned atomic.Int64

	block   int64 // the permits that are lent at once
	ample   int64 // lacks at most so much to lend
	lending *lending
	timer   *time.Timer // of look, while that goes on; under the lock, like
	hot     bool        // lower is to lend,
	busy    bool        // whether what was collected last had been spent often, and
	fails   int64       // the patience that is due

	refused tally.Tally
}

const (
	arrivalShift = 7
	mostAhead    = 1 << 55 // of the units in the word
	epochLife    = 1 << 54
)

// fit prepares the word for the bucket of g, and leaves it raised. It reports whether the bucket fits in a word.
func (a *arrival) fit(g *gate, bucket algo.TokenBucket, now int64) bool {
	a.word.Store(raised)
	a.owner = g
	num, per := bucket.Rate()
	hi, full := bits.Mul64(uint64(g.limit.Load()), uint64(per))
	if g.clock != nil || hi != 0 || full > mostAhead || epochLife/num < int64(time.Millisecond) {
		return false
	}
	a.burst = g.limit.Load()
	a.scale = uint64(num) << arrivalShift
	a.one = per << arrivalShift
	a.permits, a.nanos = newDivisor(uint64(a.one)), newDivisor(a.scale)
	a.room = int64(full)<<arrivalShift - a.one
	a.horizon = uint64(epochLife / num)
	a.epoch.Store(now)
	a.prepareLending()
	return true
}

// takeContended takes cost, the cost of some permits, after another caller changed the word at the same time. It tries again with
// the same time, which is correct though it may be less than generous, and reads the clock anew before it refuses. It returns by
// how much the bucket is short of full at time now: afterwards if it was taken, otherwise before. It does not count refusals.
func (a *arrival) takeContended(cost, began int64) (ahead, now int64, v verdict) {
	var before uint64 // the word before the clock was read; never equal to one that is not raised
	for before, now = raised, began; ; {
		epoch := a.epoch.Load()
		old, at := a.load(), uint64(now)*a.scale
		ahead = max(int64(old&^lowBits-at), 0)
		switch {
		case old == held:
			runtime.Gosched()
		case old&raised != 0 || uint64(now-epoch) >= a.horizon || a.epoch.Load() != epoch:
			return 0, now, locked
		case ahead <= a.room+a.one-cost:
			if a.word.CompareAndSwap(old, at+uint64(ahead+cost)|(old+oneGrant)&grantBits) {
				return ahead + cost, now, taken
			}
		case old == before:
			return ahead, now, short
		default:
			before = old
			now = clock.Now()
		}
	}
}

// available is how many whole permits there are when the bucket is short of full by ahead.
func (a *arrival) available(ahead int64) int64 {
	return int64(a.permits.of(uint64(max(a.room+a.one-ahead, 0))))
}

// duration is how long it takes to regain ahead, rounded up.
func (a *arrival) duration(ahead int64) time.Duration {
	return time.Duration(a.nanos.of(uint64(ahead) + a.scale - 1))
}

func (a *arrival) raise() {
	var ahead uint64
	at := a.epoch.Load()
	if a.word.Load() == lent { // which changes only under the lock
		ahead, at = a.collect()
		a.word.Store(raised)
	} else {
		old, ok := a.seize()
		if !ok {
			return
		}
		ahead = old&^lowBits - uint64(at)*a.scale
	}
	if a.undone.Load() {
		a.undone.Store(false)
		a.owner.touched = clock.Now()
	}
	s := a.state(ahead, at, a.returned.Load())
	state := a.owner.meter.state // as [algo.TokenBucket.Law] has it
	state[0], state[1], state[2], state[3] = uint64(s.Last), uint64(s.Ahead), uint64(s.Part), uint64(s.Returned)
}

// lower leaves the word raised if the state does not fit, which is so while the bucket is deep in debt.
func (a *arrival) lower() {
	state := a.owner.meter.state
	last, part, returned := state[0], state[2], int64(state[3])
	num := a.scale >> arrivalShift
	hi, ahead := bits.Mul64(state[1], num)
	if hi != 0 || ahead+part > mostAhead {
		return
	}
	if last-uint64(a.epoch.Load()) >= a.horizon/2 {
		a.epoch.Store(int64(last))
	}
	if returned != a.returned.Load() {
		a.returned.Store(returned)
	}
	if a.hot {
		a.hot = false
		a.lend(int64(ahead+part)<<arrivalShift, int64(last))
		return
	}
	a.word.Store((last*num + ahead + part) << arrivalShift)
}

func (a *arrival) counts() (allowed, refused int64) { return a.sum(), a.refused.Sum() }

// state is that of a bucket which is short of full by ahead at time now.
func (a *arrival) state(ahead uint64, now, returned int64) algo.TokenBucketState {
	whole := a.nanos.of(ahead)
	part := (ahead - whole*a.scale) >> arrivalShift
	return algo.TokenBucketState{Ahead: int64(whole), Part: int64(part), Last: now, Returned: returned}
}

// ask implements sharer.
func (a *arrival) ask(d *Decision, now, n int64) (old, next uint64, v verdict) {
	epoch := a.epoch.Load()
	old = a.load()
	if old&raised != 0 || n > a.burst || uint64(now-epoch) >= a.horizon || a.epoch.Load() != epoch {
		return old, 0, locked
	}
	at := uint64(now) * a.scale
	ahead, cost := max(int64(old&^lowBits-at), 0), n*a.one
	if over := ahead + cost - a.room - a.one; over > 0 {
		d.Reason, d.RetryAfter, v = ReasonLimited, a.duration(over), short
	} else {
		d.Allowed, v = true, taken
		ahead += cost
		next = at + uint64(ahead) | (old+oneGrant)&grantBits
	}
	d.Limit, d.Remaining, d.ResetAfter, d.Policy = a.burst, a.available(ahead), a.duration(ahead), a.owner.policy
	return old, next, v
}

// mark implements sharer. What the state's Returned is changes only under the lock, and the word with it.
func (a *arrival) mark(next uint64, now int64) algo.Mark {
	return a.state(next&^lowBits-uint64(now)*a.scale, now, a.returned.Load()).Mark()
}

// try decides on n permits without the lock; not ok if it needs the lock, or if it would refuse and must not.
//
// A refusal must not rest on a time that was read before the word changed. So the word is read before the clock as
// well as after it; only if it is the same is the refusal final.
//
// The decision is written before the word is exchanged, which waits for what was written: a caller that copies the lease need
// not.
func (a *arrival) try(l *Lease, n int64, reserve, refuse bool) (ok bool) {
	if n <= 0 || n > a.burst {
		return false
	}
	l.permits = n
	before := a.word.Load()
	for now := clock.Now(); ; l.decision = (Decision{}) {
		old, next, v := a.ask(&l.decision, now, n)
		switch {
		case v == taken:
			if reserve {
				l.bind(a, n).mark = a.mark(next, now)
			}
			if a.word.CompareAndSwap(old, next) {
				return true
			}
		case old == held:
			runtime.Gosched()
		case v == locked || !refuse:
			l.unbind()
			return false
		case old == before:
			l.unbind()
			a.refused.Add()
			return true
		default:
			before = old
			now = clock.Now()
		}
	}
}

// settle implements settler.
func (a *arrival) settle(c *claim, how settlement, actual int64) {
	if how < commit || !a.undo(c.mark, c.permits-actual) {
		a.owner.settle(c, how, actual)
	}
}

// undo gives back n of the permits of m without the lock. It is ok only if no caller has taken any since, of which
// [algo.TokenBucket.Cancel] gives back all that are missing, and if it does not need the lock.
//
// No clock is read. If the bucket is full now, it is so from an earlier time on, which makes no difference but to Stats.Idle:
// that begins when the word is raised.
//
// The time in the word must be within half of the horizon. An epoch that moves after it was read here lies behind that, and the
// word with it, so that the exchange fails and never writes a time before the epoch.
func (a *arrival) undo(m algo.Mark, n int64) (ok bool) {
	if n <= 0 {
		return false
	}
	epoch := a.epoch.Load()
	old := a.word.Load()
	since := uint64(m.At - a.returned.Load() - epoch)
	if old&raised != 0 || since >= a.horizon/2 || a.epoch.Load() != epoch {
		return false
	}
	start, full := uint64(epoch)*a.scale, since*a.scale+uint64(m.Part)<<arrivalShift
	if old&^lowBits != start+full {
		return false
	}
	full -= min(full, uint64(n*a.one))
	if !a.undone.Load() {
		a.undone.Store(true) // before it is: Stats must not see an old time
	}
	return a.word.CompareAndSwap(old, start+full|old&grantBits)
}

// count implements sharer. The word counts what is allowed.
func (a *arrival) count(allowed bool) {
	if !allowed {
		a.refused.Add()
	}
}

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
	allowed tally.Tally
	refused tally.Tally
}

const (
	windowShift     = 33
	windowNumbers   = 1<<31 - 1
	windowPermits   = 1<<32 - 1
	windowEpochLife = 1 << 29
)

// init makes g a fixed window whose state lies in the word if it fits.
func (a *windowWord) fit(g *gate, rate Rate) {
	a.word.Store(raised)
	a.owner = g
	if g.clock != nil || rate.Permits > windowPermits/2 {
		return
	}
	a.length, a.limit = int64(rate.Period), rate.Permits
	if a.origin = g.born % a.length; a.origin < 0 { // as algo.Window counts, whose time may be negative
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
	state := a.owner.meter.state // as [algo.Window.Law] has it
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

func (a *windowWord) counts() (allowed, refused int64) { return a.allowed.Sum(), a.refused.Sum() }

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
		l.bind(a.owner, n).mark = algo.Mark{At: number}
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
func (a *windowWord) count(allowed bool) {
	if allowed {
		a.allowed.Add()
	} else {
		a.refused.Add()
	}
}
