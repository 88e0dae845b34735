package durable

import (
	"container/heap"
	"time"

	"github.com/weirhq/weir/internal/queue"
	"github.com/weirhq/weir/store"
)

// waiter is a request that has not been answered.
type waiter struct {
	request Request
	bucket  *bucket     // that it has entered
	settles *settlement // what it ends, if it is not a request for permits
	adjusts *adjusting  // what it changes, if that is what it is for
	loads   bool        // it waits only until the record has been read
	stays   bool        // what was done for it stays done in memory even if it cannot be written
	id      string      // of its reservation, if it makes one
	expires int64       // when that ends at the earliest
	counts  *counts     // where its outcome is counted, if it is
	answer  func(Answer)
	at      time.Time // its deadline
	place   int       // in the heap of deadlines, -1 if it is not there
	stage   stage
	queued  queue.Waiter[*waiter] // for permits, and then for a record

	// of those whose permits are taken but not yet durable
	taking     store.Taking
	generation int  // of the limit under which they were taken
	must       bool // it has to be in a record itself, as permits ahead do not do
	written    bool // it is in the record that is being written
	final      Answer
}

// settlement is what a reservation is ended with.
type settlement struct {
	reservation Reservation
	cancel      bool
	actual      int64
}

type stage uint8

const (
	stageLoading stage = iota // the record has not been read
	stageQueued
	stageWriting // its permits are taken, but not durable
	stageAnswered
)

// deadlines is a heap of waiters.
type deadlines []*waiter

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i]; d[i].place, d[j].place = i, j }

// Push implements [heap.Interface].
func (d *deadlines) Push(x any) {
	w := x.(*waiter) //nolint:errcheck,forcetypeassert // nothing else is pushed
	w.place = len(*d)
	*d = append(*d, w)
}

// Pop implements [heap.Interface].
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	w := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	w.place = -1
	return w
}

func (d *deadlines) add(w *waiter) { heap.Push(d, w) }

func (d *deadlines) remove(w *waiter) {
	if w.place >= 0 {
		heap.Remove(d, w.place)
	}
}

// line puts a waiter at the end of a queue.
func (w *waiter) line(q *queue.Queue[*waiter]) {
	w.queued = queue.Waiter[*waiter]{Value: w, Permits: w.request.N}
	q.Push(&w.queued)
}
