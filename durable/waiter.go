package durable

import (
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/queue"
	"github.com/weirhq/weir/store"
)

// waiter is a charge that has not been decided, or is not durable.
type waiter struct {
	charge  store.Charge  // with N as many permits as it takes
	hold    time.Duration // for how long they are reserved, 0 if they are taken
	waits   bool          // for permits that are not there
	bucket  *bucket       // that it has entered
	adjusts *adjusting    // what it changes, if that is what it is for
	loads   bool          // it waits only until the record has been read
	stays   bool          // what was done for it stays done in memory even if it cannot be written
	id      string        // of its reservation, if it makes one
	expires int64         // when that ends: at the earliest until it is made
	counts  *counts       // where its outcome is counted, if it is
	done    func(*waiter) // is called once, when it has been decided
	at      time.Time     // its deadline
	place   int           // among the deadlines, -1 if it is not there
	stage   stage
	queued  queue.Waiter[*waiter] // for permits, and then for a record

	// how it was decided, which counts once done is called
	decision [1]weir.Decision
	err      error // why it is ReasonUnavailable

	// of those whose permits are taken but not yet durable
	taking     store.Taking
	generation int  // of the limit under which they were taken
	must       bool // it has to be in a record itself, as permits ahead do not do
	written    bool // it is in the record that is being written
}

// newWaiter is that of a charge, for n permits. It waits for nothing but its record, until at.
func newWaiter(c *store.Charge, n int64, at time.Time, done func(*waiter)) *waiter {
	w := &waiter{charge: *c, done: done, at: at, place: -1}
	w.charge.N = n
	return w
}

// allowed reports whether it was done.
func (w *waiter) allowed() bool { return w.decision[0].Reason == weir.ReasonNone }

// refuse is the decision without permits.
func (w *waiter) refuse(why weir.Reason) {
	w.decision[0] = weir.Decision{Reason: why, Policy: w.charge.Policy}
	if why == weir.ReasonUnavailable {
		w.err = errOwnerGone
	}
}

// fail is the decision where there is none.
func (w *waiter) fail(err error) {
	w.refuse(weir.ReasonUnavailable)
	w.err = err
}

// failure is why something that asks for no permits was not done, nil if it was.
func (w *waiter) failure() error {
	switch why := w.decision[0].Reason; why {
	case weir.ReasonNone:
		return nil
	case weir.ReasonUnavailable:
		return w.err
	case weir.ReasonClosed:
		return errOwnerGone
	default:
		return fmt.Errorf("%w: it is not known whether it was done: %v", store.ErrUnavailable, why)
	}
}

// result is that of a call of the one charge.
func (w *waiter) result() Result {
	switch {
	case w.err != nil:
		return failed(w.err)
	case w.allowed() && w.hold > 0:
		return Result{Decisions: w.decision[:], Hold: store.Hold{ID: w.id, Expires: w.expires}}
	}
	return Result{Reason: w.decision[0].Reason, Decisions: w.decision[:]}
}

// cancel withdraws a waiter that has entered a bucket. It does nothing after the decision.
func (w *waiter) cancel() {
	if w.bucket != nil {
		w.bucket.cancel(w)
	}
}

type stage uint8

const (
	stageLoading stage = iota // the record has not been read
	stageQueued
	stageWriting // its permits are taken, but not durable
	stageAnswered
)

// Before implements [heap.Item]: the one whose deadline is earlier comes first.
func (w *waiter) Before(other *waiter) bool { return w.at.Before(other.at) }

// Placed implements [heap.Item].
func (w *waiter) Placed(at int) { w.place = at }

// line puts a waiter at the end of a queue.
func (w *waiter) line(q *queue.Queue[*waiter]) {
	w.queued = queue.Waiter[*waiter]{Value: w, Permits: w.charge.N}
	q.Push(&w.queued)
}
