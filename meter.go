package weir

import (
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/queue"
)

// meter is an algorithm together with its state.
type meter interface {
	take(now, n int64) algo.Result
	grant(now int64) bool // take(now, 1) where only the answer matters
	peek(now, n int64) algo.Result
	refund(now, n int64)
	cancel(now, n int64, m algo.Mark)
	charge(now, n, maxDebt int64) int64
	fresh(now int64) bool
	freshAt() int64
	// wait is how long after now n permits can be taken if all callers in q are served before.
	wait(now int64, q *queue.Queue[caller], n int64) time.Duration
	// replan must be called when a caller left the queue unserved, or permits came or went in another way than by time
	// and take.
	replan()
}

// metered implements meter for the algorithm A with state S.
type metered[S any, A algo.Algorithm[S]] struct {
	algorithm A
	state     S

	// The state that the caller that waits at the end of the queue leaves behind, and when: so that the wait of the next
	// one takes one step, not one for each waiter.
	tail        S
	tailAt      int64
	tailArrival uint64
	planned     bool
}

func (m *metered[S, A]) take(now, n int64) (r algo.Result) {
	if n == 0 { // a probe must leave the state as it is, from which Stats.Idle is told
		return m.peek(now, 0)
	}
	m.state, r = m.algorithm.Take(m.state, now, n)
	return r
}

func (m *metered[S, A]) grant(now int64) bool { return m.take(now, 1).Allowed }

func (m *metered[S, A]) peek(now, n int64) algo.Result { return m.algorithm.Peek(m.state, now, n) }

func (m *metered[S, A]) refund(now, n int64) { m.state = m.algorithm.Refund(m.state, now, n) }

func (m *metered[S, A]) cancel(now, n int64, mark algo.Mark) {
	m.state = m.algorithm.Cancel(m.state, now, n, mark)
}

func (m *metered[S, A]) charge(now, n, maxDebt int64) (charged int64) {
	m.state, charged = m.algorithm.Charge(m.state, now, n, maxDebt)
	return charged
}

func (m *metered[S, A]) fresh(now int64) bool { return m.algorithm.Fresh(m.state, now) }

func (m *metered[S, A]) freshAt() int64 { return m.algorithm.FreshAt(m.state) }

func (m *metered[S, A]) replan() { m.planned = false }

func (m *metered[S, A]) wait(now int64, q *queue.Queue[caller], n int64) time.Duration {
	first := q.Oldest()
	if m.planned && m.tailAt >= now {
		// Go back to the last one that the plan covers.
		first = nil
		for w := q.Newest(); w != nil && w.Arrival() > m.tailArrival; w = w.Older() {
			first = w
		}
	} else {
		m.tail, m.tailAt = m.state, now
	}
	for w := first; w != nil; w = w.Newer() {
		if d, ok := m.plan(w.Permits); !ok {
			m.planned = false
			return d
		}
		m.tailArrival = w.Arrival()
	}
	m.planned = true
	return m.until(now, m.algorithm.Peek(m.tail, m.tailAt, n).RetryAfter)
}

// plan moves the tail past a waiter for n permits. It is not ok, and returns what to say to those behind, if no caller
// knows when the waiter will be served, or if that is past the range of time.
func (m *metered[S, A]) plan(n int64) (d time.Duration, ok bool) {
	tail, r := m.algorithm.Take(m.tail, m.tailAt, n)
	if !r.Allowed {
		if d = m.until(m.tailAt, r.RetryAfter); d == 0 || d == Never {
			return d, false
		}
		m.tailAt += int64(d)
		tail, _ = m.algorithm.Take(tail, m.tailAt, n)
	}
	m.tail = tail
	return 0, true
}

// until is how long after now it is d after the tail; Never past the range of time.
func (m *metered[S, A]) until(now int64, d time.Duration) time.Duration {
	at := m.tailAt + int64(d)
	if at < m.tailAt || at-now < 0 {
		return Never
	}
	return time.Duration(at - now)
}

// slidingMeter is metered for the one state that is too large to be copied for each call.
type slidingMeter struct {
	metered[algo.SlidingWindowState, algo.SlidingWindow]
}

func (m *slidingMeter) take(now, n int64) algo.Result {
	if n == 0 { // see metered
		return m.peek(now, 0)
	}
	return m.algorithm.TakeIn(&m.state, now, n)
}

func (m *slidingMeter) grant(now int64) bool { return m.algorithm.Grant(&m.state, now, 1) }

// counterMeter is metered with a shorter way to a bare answer.
type counterMeter struct {
	metered[algo.SlidingCounterState, algo.SlidingCounter]
}

func (m *counterMeter) grant(now int64) bool { return m.algorithm.Grant(&m.state, now, 1) }
