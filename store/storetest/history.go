package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// model is an algorithm together with a state, and what it says.
type model interface {
	take(now, n int64) algo.Result
	peek(now, n int64) algo.Result
	refund(now, n int64)
	cancel(now, n int64, m algo.Mark)
	charge(now, n, maxDebt int64)
	// room is how many permits charge would take of any number.
	room(now, maxDebt int64) int64
	// takeBack is what Return does with permits that were lent at a time.
	takeBack(now, n, lent int64)
}

type modelOf[S any, A algo.Algorithm[S]] struct {
	algorithm A
	state     S
}

func (m *modelOf[S, A]) take(now, n int64) (r algo.Result) {
	s, r := m.algorithm.Take(m.state, now, n)
	if r.Allowed {
		m.state = s
	}
	return r
}

func (m *modelOf[S, A]) peek(now, n int64) algo.Result { return m.algorithm.Peek(m.state, now, n) }

func (m *modelOf[S, A]) refund(now, n int64) { m.state = m.algorithm.Refund(m.state, now, n) }

func (m *modelOf[S, A]) cancel(now, n int64, mark algo.Mark) {
	m.state = m.algorithm.Cancel(m.state, now, n, mark)
}

func (m *modelOf[S, A]) charge(now, n, maxDebt int64) {
	m.state, _ = m.algorithm.Charge(m.state, now, n, maxDebt)
}

func (m *modelOf[S, A]) room(now, maxDebt int64) int64 {
	_, n := m.algorithm.Charge(m.state, now, algo.MaxPermits, maxDebt)
	return n
}

func (m *modelOf[S, A]) takeBack(now, n, lent int64) {
	var zero S
	_, r := m.algorithm.Take(zero, lent, 1)
	mark := r.Mark
	if _, ok := any(zero).(algo.TokenBucketState); ok { // a mark that says only when they were taken
		mark = algo.TokenBucketState{Last: lent, Part: -1}.Mark()
	}
	m.cancel(now, n, mark)
}

// newModel is the model of a limit in a time that counts in units of resolution, and of how long its longest wait may be.
func newModel(l weir.Limit, resolution time.Duration) (m model, n int64, err error) { //nolint:ireturn // one for each algorithm
	n, window := l.Rate().Permits, l.Rate().Period/resolution
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		n = l.Permits()
		a, err := algo.NewTokenBucket(l.Rate().Permits, window, n)
		return &modelOf[algo.TokenBucketState, algo.TokenBucket]{algorithm: a}, n, err
	case weir.AlgorithmFixedWindow:
		a, err := algo.NewFixedWindow(n, window, 0)
		return &modelOf[algo.WindowState, algo.Window]{algorithm: a}, n, err
	case weir.AlgorithmSlidingWindow:
		a, err := algo.NewSlidingWindow(n, window, l.Segments(), 0)
		return &modelOf[algo.SlidingWindowState, algo.SlidingWindow]{algorithm: a}, n, err
	case weir.AlgorithmSlidingCounter:
		a, err := algo.NewSlidingCounter(n, window, 0)
		return &modelOf[algo.SlidingCounterState, algo.SlidingCounter]{algorithm: a}, n, err
	case weir.AlgorithmConcurrency:
		a, err := algo.NewConcurrency(l.Permits())
		return &modelOf[algo.ConcurrencyState, algo.Concurrency]{algorithm: a}, l.Permits(), err
	default: // a calendar has days of its own, whatever the resolution is
		a, err := algo.NewCalendarWindow(l.Permits(), l.Calendar())
		return &modelOf[algo.WindowState, algo.Window]{algorithm: a}, l.Permits(), err
	}
}

// testHistories makes random calls, over both handles, and wants the answers of the algorithms themselves. Where time passes
// by itself, limits are such that it makes no difference to the permits of windows; see [history.compare] for waits and buckets.
func testHistories(s *suite) {
	seed := rand.Uint64() //nolint:gosec // a history is no secret
	s.Cleanup(func() {
		if s.Failed() {
			s.Logf("the seed was %d", seed)
		}
	})
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a history is no secret
	limits := s.limits(12)
	limits["concurrency"] = weir.AtOnce(6)
	if s.Advance != nil {
		limits["bucket of 7 per 3 s"] = weir.TokenBucket(weir.Per(7, 3*time.Second), 5)
		limits["bucket of 1 per 1 s"] = weir.TokenBucket(weir.PerSecond(1), 1)
		limits["bucket of 1000 per 1 s"] = weir.TokenBucket(weir.PerSecond(1000), 20_000)
		limits["window of 3 s"] = weir.FixedWindow(weir.Per(9, 3*time.Second))
		limits["sliding 4 s"] = weir.SlidingWindow(weir.Per(9, 4*time.Second), 7)
		limits["sliding 64"] = weir.SlidingWindow(weir.Per(99, 5*time.Second), 64)
		limits["counter 4 s"] = weir.SlidingCounter(weir.Per(11, 4*time.Second))
		limits["calendar minute"] = weir.CalendarWindow(9, algo.Calendar{Unit: algo.CalendarMinute})
	}
	for _, name := range slices.Sorted(mapKeys(limits)) {
		h := &history{suite: s, rng: rng, began: time.Now()}
		h.c = s.charge("history", name, limits[name], 0)
		var err error
		h.model, h.most, err = newModel(limits[name], h.unit())
		s.noError(name, err)
		for step := range s.Steps / 4 {
			if err := h.step(); err != nil {
				s.Fatalf("%s, step %d: %v\nafter %v", name, step, err, h.last)
			}
		}
	}
}

func mapKeys(m map[string]weir.Limit) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// history is a random one of a key.
type history struct {
	*suite

	rng   *rand.Rand
	c     store.Charge
	model model
	most  int64
	held  []heldPermits // by expiry
	lent  []store.Hold
	began time.Time
	steps int
	start int64 // by the clock of the store, where time passes by itself
	last  []string
}

type heldPermits struct {
	r    store.Hold
	n    int64
	mark algo.Mark
}

// unit is the time that the model counts in.
func (h *history) unit() time.Duration {
	if h.c.Limit.Algorithm() == weir.AlgorithmCalendarWindow {
		return 1
	}
	return h.Resolution
}

// now is the time of the model.
func (h *history) now() int64 {
	if h.Advance == nil { // it stands still
		if h.start == 0 {
			h.start = h.Now()
		}
		return h.start / int64(h.unit())
	}
	return (h.Now() - h.Now()%int64(h.Resolution)) / int64(h.unit())
}

func (h *history) didf(format string, args ...any) {
	if h.last = append(h.last, fmt.Sprintf(format, args...)); len(h.last) > 12 {
		h.last = h.last[1:]
	}
}

func (h *history) step() error {
	handle := h.Store
	if h.rng.IntN(2) == 0 {
		handle = h.Other
	}
	h.c.N = h.rng.Int64N(min(h.most, 5) + 2)
	if h.rng.IntN(10) == 0 {
		h.c.N = h.rng.Int64N(h.most + 2)
	}
	h.steps++
	h.expire()
	ds := make([]weir.Decision, 1)
	charges := []store.Charge{h.c}
	switch kind := h.rng.IntN(13); {
	case kind >= 10:
		if h.c.Limit.Algorithm() != weir.AlgorithmConcurrency {
			return h.loan(handle)
		}
	case kind < 3 && h.c.Limit.Algorithm() != weir.AlgorithmConcurrency:
		h.didf("take %d", h.c.N)
		if err := store.Take(h.ctx(), handle, charges, ds); err != nil {
			return err
		}
		want, _ := h.granted(ds[0], h.c.N)
		return h.compare(ds[0], want)
	case kind < 4:
		h.didf("peek %d", h.c.N)
		if err := store.Peek(h.ctx(), handle, charges, ds); err != nil {
			return err
		}
		return h.compare(ds[0], h.model.peek(h.now(), h.c.N))
	case kind < 5 && h.rng.IntN(3) == 0:
		h.didf("refund %d", h.c.N)
		h.refund()
		return store.Refund(h.ctx(), handle, charges)
	case kind < 7:
		return h.reserve(handle)
	case kind < 9 && len(h.held) > 0:
		return h.settle(handle)
	case h.Advance != nil:
		return h.pass(handle)
	}
	return nil
}

// expire cancels what has expired. It is seen by the store at the same time, as pass calls it then.
func (h *history) expire() {
	for h.Advance != nil && len(h.held) > 0 && h.held[0].r.Expires <= h.Now() {
		h.model.cancel(h.now(), h.held[0].n, h.held[0].mark)
		h.held = h.held[1:]
	}
}

func (h *history) refund() {
	h.model.refund(h.now(), h.c.N)
	if h.c.Limit.Algorithm() != weir.AlgorithmConcurrency {
		return
	}
	for i, n := 0, h.c.N; i < len(h.held); i++ {
		back := min(n, h.held[i].n)
		h.held[i].n -= back
		n -= back
	}
}

func (h *history) reserve(handle store.Home) error {
	expiry := time.Hour
	if h.Advance != nil && h.rng.IntN(2) == 0 {
		expiry = time.Duration(1+h.rng.Int64N(5000)) * time.Millisecond
	}
	h.didf("reserve %d for %v", h.c.N, expiry)
	ds := make([]weir.Decision, 1)
	r, err := store.Reserve(h.ctx(), handle, []store.Charge{h.c}, ds, expiry)
	if err != nil {
		return err
	}
	want, taken := h.granted(ds[0], h.c.N)
	if taken {
		now := h.Now()
		if early, late := r.Expires-now-int64(expiry), int64(h.Resolution); h.Advance != nil && (early < -late || early > late) {
			return fmt.Errorf("the reservation expires at %d, now is %d", r.Expires, now)
		}
		at, _ := slices.BinarySearchFunc(h.held, r.Expires, func(p heldPermits, at int64) int {
			if p.r.Expires <= at {
				return -1
			}
			return 1
		})
		h.held = slices.Insert(h.held, at, heldPermits{r, h.c.N, want.Mark})
	}
	return h.compare(ds[0], want)
}

func (h *history) settle(handle store.Home) error {
	i := h.rng.IntN(len(h.held))
	p := h.held[i]
	h.held = slices.Delete(h.held, i, i+1)
	if h.rng.IntN(2) == 0 {
		h.didf("cancel %d", p.n)
		h.model.cancel(h.now(), p.n, p.mark)
		return store.Cancel(h.ctx(), handle, p.r)
	}
	actual := h.rng.Int64N(p.n + 3)
	if h.inexact() {
		actual = min(actual, p.n+h.room())
	}
	h.didf("commit %d of %d", actual, p.n)
	switch {
	case h.c.Limit.Algorithm() == weir.AlgorithmConcurrency:
		h.model.cancel(h.now(), p.n, p.mark)
	case actual > p.n:
		h.model.charge(h.now(), actual-p.n, h.most)
	default:
		h.model.cancel(h.now(), p.n-actual, p.mark)
	}
	return store.Commit(h.ctx(), handle, p.r, []int64{actual})
}

// pass lets time pass, no further than to the next expiry, and has the store see it.
func (h *history) pass(handle store.Home) error {
	d := time.Duration(h.rng.Int64N(int64(2 * time.Second)))
	switch h.rng.IntN(8) {
	case 0:
		d = time.Duration(h.rng.Int64N(int64(time.Minute)))
	case 1:
		d = time.Duration(h.rng.Int64N(int64(5 * time.Millisecond)))
	}
	if len(h.held) == 0 {
		h.didf("pass %v", d)
		h.Advance(d)
		return nil
	}
	d = max(0, min(d, time.Duration(h.held[0].r.Expires-h.Now())))
	h.didf("pass %v", d)
	h.Advance(d)
	h.expire()
	h.model.refund(h.now(), 0)
	h.c.N = 0
	return store.Refund(h.ctx(), handle, []store.Charge{h.c})
}
