package redis

import (
	"slices"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

// guardTime is how far a record may be ahead of the server's clock before it goes back to it, in microseconds.
const guardTime = int64(10 * time.Second / time.Microsecond)

// counting is package algo on a state, with the times of the script: microseconds.
type counting interface {
	take(now, n int64) algo.Result
	peek(now, n int64) algo.Result
	refund(now, n int64)
	cancel(now, n int64, m algoMark)
	charge(now, n, debt int64)
	fresh(now int64) bool
	mark() algoMark
	// carried is this state held to another limit of the same algorithm.
	carried(to weir.Limit, now int64) (counting, remarks)
	clone() counting
	place() int64
}

// algoMark is what a mark is made of.
type algoMark struct{ at, part, taken int64 }

func (m algoMark) mark() algo.Mark {
	return algo.TokenBucketState{Last: m.taken, Ahead: m.at - m.taken, Part: m.part}.Mark()
}

// remarks is what becomes of marks when the limit changes.
type remarks struct {
	across   bool // those of a bucket
	counted  bool // those from a place on count at another one
	from, to int64
}

// countingOf is counting for one algorithm.
type countingOf[S any, A algo.Algorithm[S]] struct {
	limit weir.Limit
	a     A
	s     S
	unit  int64 // of the algorithm's time in a microsecond
	carry func(to, old A, s S, now int64) S
	same  func(a, b A) bool
	at    func(s S) int64
	from  func(a A, s S) int64 // from which place on permits count
	build func(l weir.Limit) A
}

func (c *countingOf[S, A]) take(now, n int64) (r algo.Result) {
	c.s, r = c.a.Take(c.s, now*c.unit, n)
	return c.scaled(r)
}

func (c *countingOf[S, A]) peek(now, n int64) algo.Result {
	return c.scaled(c.a.Peek(c.s, now*c.unit, n))
}

func (c *countingOf[S, A]) scaled(r algo.Result) algo.Result {
	unit := time.Duration(c.unit)
	if r.RetryAfter != algo.Never {
		r.RetryAfter = (r.RetryAfter + unit - 1) / unit
	}
	r.ResetAfter = (r.ResetAfter + unit - 1) / unit
	return r
}

func (c *countingOf[S, A]) refund(now, n int64) { c.s = c.a.Refund(c.s, now*c.unit, n) }

func (c *countingOf[S, A]) cancel(now, n int64, m algoMark) {
	c.s = c.a.Cancel(c.s, now*c.unit, n, m.mark())
}

func (c *countingOf[S, A]) charge(now, n, debt int64) { c.s, _ = c.a.Charge(c.s, now*c.unit, n, debt) }
func (c *countingOf[S, A]) fresh(now int64) bool      { return c.a.Fresh(c.s, now*c.unit) }
func (c *countingOf[S, A]) place() int64              { return c.at(c.s) }

func (c *countingOf[S, A]) mark() algoMark {
	if s, ok := any(c.s).(algo.TokenBucketState); ok {
		return algoMark{s.Last + s.Ahead + s.Returned, s.Part, s.Last}
	}
	return algoMark{at: c.at(c.s)}
}

func (c *countingOf[S, A]) carried(to weir.Limit, now int64) (counting, remarks) {
	d := *c
	d.limit, d.a = to, c.build(to)
	r := remarks{across: c.limit.Algorithm() == weir.AlgorithmTokenBucket}
	if !r.across && !c.same(d.a, c.a) {
		c.refund(now, 0)
		r.counted, r.from = true, c.from(c.a, c.s)
	}
	d.s = c.carry(d.a, c.a, c.s, now*c.unit)
	if b, ok := any(&d.s).(*algo.TokenBucketState); ok { // a debt is held at what the bucket regains in MaxFill
		k := must(newBucket(to.Rate(), limitOf(to)))
		if longest := int64(algo.MaxFill) / microsecond; b.Ahead >= k.full.us+longest {
			b.Ahead, b.Part = k.full.us+longest, k.full.part
		}
	}
	r.to = d.at(d.s)
	return &d, r
}

func (c *countingOf[S, A]) clone() counting {
	d := *c
	return &d
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func bucketOf(l weir.Limit) algo.TokenBucket {
	burst := l.Permits()
	if burst == 0 {
		burst = l.Rate().Permits
	}
	// whole microseconds where the period is; otherwise a thousand periods are
	if int64(l.Rate().Period)%microsecond == 0 {
		return must(algo.NewTokenBucket(l.Rate().Permits, l.Rate().Period/1000, burst))
	}
	return must(algo.NewTokenBucket(l.Rate().Permits*1000, l.Rate().Period, burst))
}

// newCounting is a fresh state.
func newCounting(l weir.Limit) counting {
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return &countingOf[algo.TokenBucketState, algo.TokenBucket]{
			limit: l, a: bucketOf(l), unit: 1, build: bucketOf,
			carry: func(to, old algo.TokenBucket, s algo.TokenBucketState, now int64) algo.TokenBucketState {
				return to.Carry(old, s, now)
			},
			at: func(s algo.TokenBucketState) int64 { return s.Last },
		}
	case weir.AlgorithmFixedWindow:
		build := func(l weir.Limit) algo.Window {
			return must(algo.NewFixedWindow(l.Rate().Permits, l.Rate().Period/1000, 0))
		}
		return &countingOf[algo.WindowState, algo.Window]{
			limit: l, a: build(l), unit: 1, build: build, carry: algo.Window.Carry,
			same: func(a, b algo.Window) bool { return a.SameWindows(b) },
			at:   func(s algo.WindowState) int64 { return s.Window },
			from: func(_ algo.Window, s algo.WindowState) int64 { return s.Window },
		}
	case weir.AlgorithmSlidingWindow:
		build := func(l weir.Limit) algo.SlidingWindow {
			return must(algo.NewSlidingWindow(l.Rate().Permits, l.Rate().Period/1000, max(l.Segments(), 1), 0))
		}
		// the segments belong to the limit before the change
		return &countingOf[algo.SlidingWindowState, algo.SlidingWindow]{
			limit: l, a: build(l), unit: 1, build: build, carry: algo.SlidingWindow.Carry,
			same: func(a, b algo.SlidingWindow) bool { return a.SameWindows(b) },
			at:   func(s algo.SlidingWindowState) int64 { return s.Segment() },
			from: func(a algo.SlidingWindow, s algo.SlidingWindowState) int64 { return s.Segment() - segmentsOf(a) + 1 },
		}
	case weir.AlgorithmSlidingCounter:
		build := func(l weir.Limit) algo.SlidingCounter {
			return must(algo.NewSlidingCounter(l.Rate().Permits, l.Rate().Period/1000, 0))
		}
		return &countingOf[algo.SlidingCounterState, algo.SlidingCounter]{
			limit: l, a: build(l), unit: 1, build: build, carry: algo.SlidingCounter.Carry,
			same: func(a, b algo.SlidingCounter) bool { return a.SameWindows(b) },
			at:   func(s algo.SlidingCounterState) int64 { return s.Window },
			from: func(_ algo.SlidingCounter, s algo.SlidingCounterState) int64 { return s.Window },
		}
	case weir.AlgorithmCalendarWindow:
		build := func(l weir.Limit) algo.Window { return must(algo.NewCalendarWindow(l.Permits(), l.Calendar())) }
		return &countingOf[algo.WindowState, algo.Window]{
			limit: l, a: build(l), unit: 1000, build: build, carry: algo.Window.Carry,
			same: func(a, b algo.Window) bool { return a.SameWindows(b) },
			at:   func(s algo.WindowState) int64 { return s.Window },
			from: func(_ algo.Window, s algo.WindowState) int64 { return s.Window },
		}
	default:
		build := func(l weir.Limit) algo.Concurrency { return must(algo.NewConcurrency(l.Permits())) }
		return &countingOf[algo.ConcurrencyState, algo.Concurrency]{
			limit: l, a: build(l), unit: 1, build: build,
			carry: func(_, _ algo.Concurrency, s algo.ConcurrencyState, _ int64) algo.ConcurrencyState { return s },
			same:  func(_, _ algo.Concurrency) bool { return true },
			at:    func(algo.ConcurrencyState) int64 { return 0 },
		}
	}
}

// segmentsOf finds how many segments a window has.
func segmentsOf(w algo.SlidingWindow) int64 {
	for n := 1; ; n++ {
		if x := must(algo.NewSlidingWindow(w.Limit(), w.Window(), n, 0)); x.SameWindows(w) {
			return int64(n)
		}
	}
}

// held is a reservation of the reference.
type held struct {
	id      string
	n       int64
	mark    algoMark
	expires int64
	rate    weir.Rate // the fastest since the limit has changed
	void    bool
}

// reference is what the record of a key should be.
type reference struct {
	limit weir.Limit
	count counting
	last  int64 // 0 if there is no record
	held  []held
	// until when nothing is given back of loans, and until when that has to be known
	sealed, unsealed int64
}

// at is the time that counts where the clock shows now.
func (m *reference) at(now int64) int64 {
	if m.last > now && m.last-now <= guardTime {
		return m.last
	}
	return now
}

// ready brings the record to the time that counts and to a limit. changed reports whether it has to be written whatever comes.
func (m *reference) ready(now int64, l weir.Limit) (t int64, changed bool) {
	t = m.at(now)
	if t >= m.unsealed {
		m.sealed, m.unsealed = 0, 0
	}
	if m.count == nil {
		m.count, m.limit = newCounting(l), l
	}
	if m.last > t || m.limit != l {
		m.seal(t)
	}
	if m.last > t {
		back := m.last - t
		was := m.count.place()
		m.count.refund(t, 0)
		moved := m.count.place() - was
		for i := range m.held {
			m.held[i].mark.at += moved
			m.held[i].mark.taken -= back
			m.held[i].expires -= back
		}
		changed = true
	}
	for len(m.held) > 0 && m.held[0].expires <= t {
		h := m.held[0]
		m.held = m.held[1:]
		m.giveBack(t, h, h.n)
		changed = true
	}
	if m.limit != l {
		var r remarks
		before := m.limit
		m.count.refund(t, 0)
		m.count, r = m.count.carried(l, t)
		m.limit = l
		for i := range m.held {
			h := &m.held[i]
			switch {
			case h.void:
			case r.across:
				h.rate = faster(faster(h.rate, before.Rate()), l.Rate())
			case !r.counted:
			case h.mark.at >= r.from:
				h.mark.at = r.to
			default:
				h.void = true
			}
		}
		changed = true
	}
	return t, changed
}

// seal has nothing given back of the loans until t, as the limit changes or the clock was set back.
func (m *reference) seal(t int64) {
	back := max(0, m.last-t)
	const day = int64(24*time.Hour) / microsecond
	until := max(t, min(m.last, t+day))
	var end int64
	window := int64(m.limit.Rate().Period) / microsecond
	switch m.limit.Algorithm() {
	case weir.AlgorithmTokenBucket:
		k := must(newBucket(m.limit.Rate(), limitOf(m.limit)))
		end = until + k.full.us + 1
	case weir.AlgorithmFixedWindow:
		end = until - until%window + window
	case weir.AlgorithmSlidingWindow:
		end = until + window
	case weir.AlgorithmSlidingCounter:
		end = until - until%window + 2*window
	case weir.AlgorithmCalendarWindow:
		c := m.count.(*countingOf[algo.WindowState, algo.Window]) //nolint:forcetypeassert // it is one
		switch _, stop := c.a.Window(c.s.Window); {
		case back > 0:
			end = until + 367*day
		case m.last > 0:
			end = max(until, stop/microsecond)
		}
	default:
		return
	}
	m.sealed, m.unsealed = max(m.sealed, until), max(m.unsealed-back, end)
}

func faster(a, b weir.Rate) weir.Rate {
	if a == (weir.Rate{}) || limits.PerSecond(b) > limits.PerSecond(a) {
		return b
	}
	return a
}

func (m *reference) giveBack(t int64, h held, n int64) {
	switch {
	case h.void || n <= 0:
	case h.rate != weir.Rate{}:
		c := m.count.(*countingOf[algo.TokenBucketState, algo.TokenBucket]) //nolint:forcetypeassert // only buckets have rates
		old := bucketOf(weir.TokenBucket(h.rate, 1))
		c.s = c.a.CancelAcross(old, c.s, t, n, h.mark.mark())
	default:
		m.count.cancel(t, n, h.mark)
	}
}

// written is what is left after the record was written.
func (m *reference) written(t int64) {
	m.count.refund(t, 0)
	m.last = t
	if m.unsealed <= t {
		m.sealed, m.unsealed = 0, 0
	}
	if len(m.held) == 0 && m.count.fresh(t) && m.unsealed <= t {
		*m = reference{}
	}
}

// decide is Take, Peek and Reserve.
func (m *reference) decide(op byte, now int64, c store.Charge, id string, life int64) (weir.Decision, int64) {
	before := m.clone()
	t, changed := m.ready(now, c.Limit)
	var r algo.Result
	expires := int64(0)
	if op == opPeek {
		r = m.count.peek(t, c.N)
	} else {
		r = m.count.take(t, c.N)
	}
	switch {
	case op == opReserve && r.Allowed:
		expires = t + life
		h := held{id: id, n: c.N, mark: m.count.mark(), expires: expires}
		if c.N == 0 {
			h.mark = algoMark{}
		}
		i, _ := slices.BinarySearchFunc(m.held, expires+1, func(h held, e int64) int { return int(h.expires - e) }) // made first, first
		m.held = slices.Insert(m.held, i, h)
		changed = true
	case op == opTake && r.Allowed && c.N > 0:
		changed = true
	}
	if changed {
		m.written(t)
	} else {
		*m = before
	}
	return decisionOf(c, r, t-now), expires
}

func (m *reference) clone() reference {
	c := *m
	c.held = slices.Clone(m.held)
	if m.count != nil {
		c.count = m.count.clone()
	}
	return c
}

// decisionOf is the decision for which package algo answered r, where the record is ahead of the clock.
func decisionOf(c store.Charge, r algo.Result, ahead int64) weir.Decision {
	wait := max(0, ahead)
	l := law{unit: 1}
	r.RetryAfter, r.ResetAfter = l.wait(r.RetryAfter, wait), l.wait(r.ResetAfter, wait)
	return store.DecisionOf(c, limitOf(c.Limit), r)
}

// lend is Lend.
func (m *reference) lend(now int64, c store.Charge, least int64) (lent, taken int64, d weir.Decision) {
	before := m.clone()
	t, changed := m.ready(now, c.Limit)
	r := m.count.peek(t, least)
	if r.Allowed {
		lent = min(c.N, r.Remaining)
		r = m.count.take(t, lent)
	}
	if c.N = least; changed || lent > 0 {
		m.written(t)
	} else {
		*m = before
	}
	return lent, t, decisionOf(c, r, t-now)
}

// takeBack is Return.
func (m *reference) takeBack(now int64, l weir.Limit, taken, n int64) {
	if m.count == nil || m.limit != l {
		return
	}
	before := m.clone()
	t, changed := m.ready(now, l)
	if taken <= t && (taken > m.sealed || m.unsealed == 0) {
		mark := algoMark{part: -1, taken: taken}
		if l.Algorithm() != weir.AlgorithmTokenBucket {
			then := newCounting(l)
			then.take(taken, 1)
			mark = then.mark()
		}
		m.count.cancel(t, n, mark)
		changed = true
	}
	if changed {
		m.written(t)
	} else {
		*m = before
	}
}

// debit is Debit.
func (m *reference) debit(now int64, c store.Charge) weir.Decision {
	t, _ := m.ready(now, c.Limit)
	m.count.charge(t, c.N, limitOf(c.Limit))
	c.N = 0
	r := m.count.peek(t, 0)
	m.written(t)
	return decisionOf(c, r, t-now)
}

func limitOf(l weir.Limit) int64 {
	if l.Permits() != 0 {
		return l.Permits()
	}
	return l.Rate().Permits
}

// settle is Commit, and Cancel if actual is -1.
func (m *reference) settle(now int64, l weir.Limit, id string, actual int64) bool {
	before := *m
	t, changed := m.ready(now, l)
	i := slices.IndexFunc(m.held, func(h held) bool { return h.id == id })
	if i < 0 {
		if changed {
			m.written(t)
		} else {
			*m = before
		}
		return false
	}
	h := m.held[i]
	m.held = slices.Delete(m.held, i, i+1)
	actual = max(actual, 0)
	switch {
	case l.Algorithm() == weir.AlgorithmConcurrency:
		m.giveBack(t, h, h.n)
	case actual < h.n:
		m.giveBack(t, h, h.n-actual)
	default:
		m.count.charge(t, actual-h.n, limitOf(l))
	}
	m.written(t)
	return true
}

func (m *reference) refund(now int64, l weir.Limit, n int64) {
	t, _ := m.ready(now, l)
	m.count.refund(t, n)
	if l.Algorithm() == weir.AlgorithmConcurrency {
		for i := range m.held {
			if h := &m.held[i]; !h.void {
				k := min(n, h.n)
				h.n -= k
				n -= k
			}
		}
	}
	m.written(t)
}
