package weir

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/tally"
)

// lending is the state of a token bucket whose word is lent: processors that take single permits at the same time would wait for
// one another at the word. So the bucket lends blocks of permits to cells, each of which is spent by the goroutines that the
// tally would count there. Spending reads no clock.
//
// Every call but Allow, and Wait of one permit, takes the lock, which collects what is lent. So does an Allow that finds its cell
// and the bucket empty: no caller is refused while there is a permit in another cell.
//
// A lent permit may be spent any time later. So the bucket is not filled beyond its burst less what is out, which is at least
// what the cells hold: permits that were taken from the bucket as of a time that is past. Take an interval that begins when they
// hold c <= out. In it callers get at most these c, and what the bucket gives. From the first change of the bucket in the
// interval on, that is at most burst - out, to which it was filled, and what comes until the last: together at most
// burst + rate x t.
//
// What is out grows by a whole block with the first one of a cell, in the step that takes it from the bucket. A first block that
// is smaller empties the bucket, which then lacks more than all blocks together. Nothing is out once all is collected. Until
// then, for a lentPeriod at most, a bucket that is nearly full may not regain what is out and spent.
type lending struct {
	cells [tally.Cells]struct {
		permits atomic.Int64
		_       [56]byte
	}

	// The following is under the lock.

	at     int64  // when the bucket lacked
	ahead  int64  // so much in the word to be full
	out    int64  // in the word
	taken  int64  // permits from the bucket
	active uint64 // the cells whose blocks are out
}

const (
	lentPeriod    = time.Millisecond
	lentOften     = 1000    // permits in a lentPeriod, to go on
	failsCounted  = 16      // one of so many exchanges that fail counts
	leastPatience = 1       // if what is lent is spent often
	mostPatience  = 1 << 10 // if it never is, and lending only costs
	leastBlock    = 8
	mostBlock     = 64
	blocksInBurst = 32
)

// prepareLending decides whether the bucket is large enough to lend from.
func (a *arrival) prepareLending() {
	a.ample = -1
	if a.block = min(a.burst/blocksInBurst, mostBlock); a.block >= leastBlock {
		a.ample = a.room / 2
		a.endure(leastPatience)
	}
}

// spend takes a lent permit from cell i.
func (a *arrival) spend(i uint) (ok bool) {
	c := &a.lending.cells[i].permits
	for n := c.Load(); n > 0; n = c.Load() {
		if c.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}

// borrow takes a permit, under the lock, and has the others of a block lent to cell i; not ok if nothing can be lent.
func (a *arrival) borrow(i uint) (ok bool) {
	if a.word.Load() != lent {
		return false
	}
	if a.spend(i) { // another caller has been here
		return true
	}
	l := a.lending
	l.pass(clock.Now(), a.scale)
	n := min(a.available(l.ahead), a.block)
	if n == 0 {
		return false
	}
	l.taken += n
	l.ahead += n * a.one
	if l.active&(1<<i) == 0 {
		l.active |= 1 << i
		l.out += a.block * a.one // also if this one is smaller: the next need not be
	}
	l.cells[i].permits.Store(n - 1)
	return true
}

// takeLent takes a lent permit, from cell i if there is one; not ok if none can be lent.
func (a *arrival) takeLent(i uint) (ok bool) {
	if a.spend(i) {
		return true
	}
	a.owner.mu.Lock()
	defer a.owner.mu.Unlock()
	return a.borrow(i)
}

// pass lets time pass until now.
func (l *lending) pass(now int64, scale uint64) {
	now = max(now, l.at)
	hi, gone := bits.Mul64(uint64(now-l.at), scale)
	if l.at = now; hi == 0 && l.ahead > l.out && gone < uint64(l.ahead-l.out) {
		l.ahead -= int64(gone)
	} else {
		l.ahead = l.out
	}
}

// collect takes back what is lent, under the lock. It returns by how much the bucket is short of full at time now.
func (a *arrival) collect() (ahead uint64, now int64) {
	l := a.lending
	l.pass(clock.Now(), a.scale)
	left := int64(0)
	for i := range l.cells {
		left += l.cells[i].permits.Swap(0)
	}
	a.allowed.Add(l.taken - left)
	if a.busy = l.taken-left >= lentOften; a.busy {
		a.endure(leastPatience)
	} else {
		a.endure(min(2*a.fails, mostPatience))
	}
	return uint64(l.ahead - left*a.one), l.at
}

// lend makes the word lent, under the lock, of a bucket that lacked so much at that time.
func (a *arrival) lend(ahead, at int64) {
	if a.lending == nil {
		a.lending = new(lending)
	}
	l := a.lending
	l.at, l.ahead, l.out, l.taken, l.active = at, ahead, 0, 0, 0
	a.word.Store(lent)
	if a.timer == nil {
		a.timer = time.AfterFunc(lentPeriod, a.look)
	}
}

// endure has the bucket lend after so many exchanges that fail.
func (a *arrival) endure(after int64) {
	a.fails = after
	a.patience.Store(after)
}

// contend notes that processors wait for one another at the word of a bucket that now lacks ahead. It lends if they do so often.
func (a *arrival) contend(ahead, now int64) {
	if ahead > a.ample || uint64(now)*0x9E3779B97F4A7C15>>60 != 0 || a.patience.Add(-1) != 0 {
		return
	}
	a.owner.lock()
	a.hot = true
	a.owner.unlock()
}

// look collects what is lent, so that little is lost by it, and goes on with lending while it is spent often.
func (a *arrival) look() {
	g := a.owner
	g.mu.Lock()
	defer g.unlock()
	wasLent := a.word.Load() == lent
	a.raise()
	if a.hot = wasLent && a.busy; a.hot {
		a.timer.Reset(lentPeriod)
	} else {
		a.timer = nil
	}
}
