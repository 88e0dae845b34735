package weir

import (
	"context"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/queue"
)

// caller is a caller that waits.
type caller struct {
	ctx      context.Context
	answer   chan struct{}    // holds at most one
	tick     <-chan time.Time // of the timer of the queue: the caller that hears it serves all; nil if there is none
	decision Decision         // of the moment of the answer: the limit may be another when the caller wakes up
	mark     algo.Mark
	under    under
}

// meter is a law together with a state.
type meter struct {
	law   algo.Law
	state []uint64

	// The state that the caller that waits at the end of the queue leaves behind, and when: so that the wait of the next
	// one takes one step, not one for each waiter.
	tail        []uint64
	tailAt      int64
	tailArrival uint64
	planned     bool
}

// apply makes the law that of the meter, whose state is still to be filled in.
func (m *meter) apply(law algo.Law) {
	n := law.Words()
	words := make([]uint64, 2*n)
	*m = meter{law: law, state: words[:n:n], tail: words[n:]}
}

// carry makes the law that of the meter, and its state one of this law.
func (m *meter) carry(law algo.Law, now int64) {
	old := *m
	m.apply(law)
	law.Carry(m.state, old.law, old.state, now)
}

func (m *meter) take(now, n int64) algo.Result { return m.law.Take(m.state, now, n) }

func (m *meter) grant(now int64) bool { return m.law.Grant(m.state, now) }

func (m *meter) peek(now, n int64) algo.Result { return m.law.Peek(m.state, now, n) }

func (m *meter) refund(now, n int64) { m.law.Refund(m.state, now, n) }

func (m *meter) cancel(now, n int64, mark algo.Mark) { m.law.Cancel(m.state, now, n, mark) }

func (m *meter) charge(now, n, mostDebt int64) (charged int64) {
	return m.law.Charge(m.state, now, n, mostDebt)
}

func (m *meter) fresh(now int64) bool { return m.law.Fresh(m.state, now) }

func (m *meter) freshAt() int64 { return m.law.FreshAt(m.state) }

// replan must be called when a caller left the queue unserved, or permits came or went in another way than by time and take.
func (m *meter) replan() { m.planned = false }

// wait is how long after now n permits can be taken if all callers in q are served before.
func (m *meter) wait(now int64, q *queue.Queue[caller], n int64) time.Duration {
	first := q.Oldest()
	if m.planned && m.tailAt >= now {
		// Go back to the last one that the plan covers.
		first = nil
		for w := q.Newest(); w != nil && w.Arrival() > m.tailArrival; w = w.Older() {
			first = w
		}
	} else {
		copy(m.tail, m.state)
		m.tailAt = now
	}
	for w := first; w != nil; w = w.Newer() {
		if d, ok := m.plan(w.Permits); !ok {
			m.planned = false
			return d
		}
		m.tailArrival = w.Arrival()
	}
	m.planned = true
	return m.until(now, m.law.Peek(m.tail, m.tailAt, n).RetryAfter)
}

// plan moves the tail past a waiter for n permits. It is not ok, and returns what to say to those behind, if no caller
// knows when the waiter will be served, or if that is past the range of time.
func (m *meter) plan(n int64) (d time.Duration, ok bool) {
	if r := m.law.Take(m.tail, m.tailAt, n); !r.Allowed {
		if d = m.until(m.tailAt, r.RetryAfter); d == 0 || d == Never {
			return d, false
		}
		m.tailAt += int64(d)
		m.law.Take(m.tail, m.tailAt, n)
	}
	return 0, true
}

// until is how long after now it is d after the tail; Never past the range of time.
func (m *meter) until(now int64, d time.Duration) time.Duration {
	at := m.tailAt + int64(d)
	if at < m.tailAt || at-now < 0 {
		return Never
	}
	return time.Duration(at - now)
}
