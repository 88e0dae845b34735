package durable

import (
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// errSlow says that a write has taken longer than it may.
var errSlow = fmt.Errorf("%w: a record was not written in time", store.ErrUnavailable)

// expire answers those whose deadline has passed.
func (b *bucket) expire(now time.Time, after *answers) {
	for len(b.deadlines) > 0 && !now.Before(b.deadlines[0].at) {
		b.withdraw(b.deadlines[0], weir.ReasonDeadline, after)
	}
}

// withdraw ends a waiter that has not been answered, and takes nothing for it.
func (b *bucket) withdraw(w *waiter, why weir.Reason, after *answers) {
	b.deadlines.remove(w)
	var result algo.Result
	switch w.stage {
	case stageQueued:
		b.queue.Remove(&w.queued)
	case stageWriting:
		b.writing.Remove(&w.queued)
		b.undo(w)
		b.stale = b.stale || w.written
	case stageLoading: // it stays among the early ones, answered
	default:
		return
	}
	if why == weir.ReasonDeadline && !w.waits { // for permits
		w.fail(errSlow)
		after.add(w)
		return
	}
	if b.state != nil {
		result = b.state.Peek(w.charge.N)
	}
	b.refuse(w, why, result, after)
}

// undo takes back what was taken for a request that is not granted, or that was and is part of one that is not.
func (b *bucket) undo(w *waiter) {
	switch {
	case w.stays: // what was done stays done, in memory, and is written with the next record
		b.stale = true
	case w.adjusts != nil:
		b.unadjust(w)
	case w.id != "":
		if b.state.Cancel(w.id, w.expires) && (w.written || w.stage == stageAnswered) {
			b.uncover()
		}
	case w.generation == b.generation:
		b.state.Undo(w.taking)
	}
}

// cancel ends a waiter whose caller has gone away.
func (b *bucket) cancel(w *waiter) {
	b.mu.Lock()
	var after answers
	if w.stage != stageAnswered {
		now := time.Now()
		if b.state != nil {
			b.bring(now)
		}
		b.withdraw(w, weir.ReasonCanceled, &after)
		if b.state != nil {
			b.serve(now, &after)
		}
		b.arm()
	}
	b.mu.Unlock()
	after.give()
}

// revoke takes back what a charge was granted of a request that was not, and serves those who wait. Nobody
// waits until that is durable: a crash before burns the permits.
func (b *bucket) revoke(w *waiter) {
	b.mu.Lock()
	var after answers
	now := time.Now()
	b.bring(now)
	b.undo(w)
	b.granted -= w.charge.N
	b.stale = true
	if b.ended == 0 {
		b.ask()
		b.serve(now, &after)
		b.arm()
	}
	b.mu.Unlock()
	after.give()
}

// tick is called when somebody's time has come.
func (b *bucket) tick() {
	b.mu.Lock()
	var after answers
	b.timerAt = time.Time{}
	if b.ended == 0 {
		now := time.Now()
		if b.state != nil {
			b.bring(now)
		}
		b.expire(now, &after)
		if again := b.inForce.again; !again.IsZero() && !now.Before(again) {
			b.inForce.again = time.Time{}
			b.ask()
		}
		if b.state != nil {
			b.serve(now, &after)
		}
		b.arm()
	}
	b.mu.Unlock()
	after.give()
}

// arm sets the one timer to whatever comes first: a deadline, or permits for the oldest.
func (b *bucket) arm() {
	var at time.Time
	if len(b.deadlines) > 0 {
		at = b.deadlines[0].at
	}
	if front := b.queue.Front(); front != nil && b.state != nil {
		now := time.Now()
		turn := b.retryAt
		if !b.paused(now) {
			b.bring(now) // its decisions count from then on
			wait := b.state.Peek(front.Permits).RetryAfter
			if expiry := b.state.UntilExpiry(); expiry > 0 && (wait == 0 || expiry < wait) {
				wait = expiry // of a reservation, which gives back its permits, or its place
			}
			turn = now.Add(wait)
		}
		if at.IsZero() || turn.Before(at) {
			at = turn
		}
	}
	if again := b.inForce.again; !again.IsZero() && (at.IsZero() || again.Before(at)) {
		at = again
	}
	if at.IsZero() || at.Equal(b.timerAt) {
		return
	}
	b.timerAt = at
	if b.timer == nil {
		b.timer = time.AfterFunc(time.Until(at), b.tick)
		return
	}
	b.timer.Reset(time.Until(at))
}

// settle ends a reservation with what it cost, or as if nothing had been taken, and reports whether there was one.
func (b *bucket) settle(h *store.Hold, actual int64, cancel bool) (found bool) {
	if b.state == nil {
		return false
	}
	b.bring(time.Now())
	if cancel {
		found = b.state.Cancel(h.ID, h.Expires)
	} else {
		found = b.state.Settle(h.ID, h.Expires, actual)
	}
	if found {
		b.uncover()
	}
	return found
}

// ErrNotReserved is returned if a reservation does not exist, has expired, or was settled before. It is that of package store.
var ErrNotReserved = store.ErrNotReserved

// end answers everybody who is here or comes later, and stops the timer.
func (b *bucket) end(why weir.Reason) {
	b.mu.Lock()
	var after answers
	if b.ended == 0 {
		b.ended = why
		for len(b.deadlines) > 0 {
			b.withdraw(b.deadlines[0], why, &after)
		}
		for b.writing.Len() > 0 {
			b.withdraw(b.writing.Oldest().Value, why, &after)
		}
		if b.timer != nil {
			b.timer.Stop()
		}
	}
	b.mu.Unlock()
	after.give()
}
