// Package queue keeps the calls that wait for permits, in the order in which they are served. It has neither a clock nor a lock:
// the caller holds a lock around every call.
package queue

// Queue holds waiters, linked in order of arrival, and the sum of the permits that they wait for. The zero value is an
// empty queue that serves the oldest first. Every operation takes constant time.
type Queue[T any] struct {
	// NewestFirst serves the last to arrive first.
	NewestFirst bool

	oldest, newest *Waiter[T]
	permits        int64
	length         int
	arrivals       uint64
}

// Waiter is one place in a queue. It is in at most one queue at a time.
type Waiter[T any] struct {
	Value   T
	Permits int64

	older, newer *Waiter[T]
	arrival      uint64
	queued       bool
}

// Arrival numbers the waiters of one queue in the order in which they came, from 1.
func (w *Waiter[T]) Arrival() uint64 { return w.arrival }

// Newer is the call that came next after w and still waits, or nil.
func (w *Waiter[T]) Newer() *Waiter[T] { return w.newer }

// Older is the call that came last before w and still waits, or nil.
func (w *Waiter[T]) Older() *Waiter[T] { return w.older }

// Queued reports whether w is in a queue.
func (w *Waiter[T]) Queued() bool { return w.queued }

// Front is the call that is served next, or nil.
func (q *Queue[T]) Front() *Waiter[T] {
	if q.NewestFirst {
		return q.newest
	}
	return q.oldest
}

// Oldest is the call that has waited longest, or nil.
func (q *Queue[T]) Oldest() *Waiter[T] { return q.oldest }

// Newest is the call that came last, or nil.
func (q *Queue[T]) Newest() *Waiter[T] { return q.newest }

// Permits is the sum of the permits of all waiters.
func (q *Queue[T]) Permits() int64 { return q.permits }

// Len is the number of waiters.
func (q *Queue[T]) Len() int { return q.length }

// Push adds w as the newest. w must not be queued.
func (q *Queue[T]) Push(w *Waiter[T]) {
	q.arrivals++
	w.older, w.newer, w.arrival, w.queued = q.newest, nil, q.arrivals, true
	if q.newest == nil {
		q.oldest = w
	} else {
		q.newest.newer = w
	}
	q.newest = w
	q.permits += w.Permits
	q.length++
}

// Remove takes w out, wherever it stands. w must be in q.
func (q *Queue[T]) Remove(w *Waiter[T]) {
	if w.older == nil {
		q.oldest = w.newer
	} else {
		w.older.newer = w.newer
	}
	if w.newer == nil {
		q.newest = w.older
	} else {
		w.newer.older = w.older
	}
	w.older, w.newer, w.queued = nil, nil, false
	q.permits -= w.Permits
	q.length--
}
