package weir_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/overload"
)

// regain is how long the limiters of kinds take to regain all permits, or nearly: see kind.regain.
const regain = 8 * time.Second

// setup is what the tests choose of a limiter, whatever its kind.
type setup struct {
	name    string
	limit   int64
	queue   int64
	order   bool
	maxDebt int64
	clock   weir.Clock
	slow    bool // permits come back so late that none do in a test in real time
}

// window is how long it takes until all permits are back.
func (o setup) window() time.Duration {
	if o.slow {
		return 365 * day
	}
	return regain
}

// calendar has windows of a minute: a bubble begins with one. Slow ones are of an hour, and the next one begins in half an hour.
func (o setup) calendar() algo.Calendar {
	if o.slow {
		return algo.Calendar{Unit: algo.CalendarHour, Minute: time.Now().UTC().Add(30 * time.Minute).Minute()}
	}
	return algo.Calendar{Unit: algo.CalendarMinute}
}

// kind is one kind of limiter, so that what holds for every kind is tested for every kind.
type kind struct {
	name    string
	timed   bool          // permits come back with time
	clocked bool          // has a Clock, and so does not compare deadlines with the wait
	keyed   bool          // is a key of a Keyed, which does not know for how long it has been idle
	regain  time.Duration // after which all permits are back, whatever was taken before
	build   func(o setup) (weir.Acquirer, error)
}

func newBucket(o setup) (weir.Acquirer, error) {
	return weir.New(weir.TokenBucket(weir.Per(o.limit, o.window()), o.limit), weir.Options{
		Name: o.name, QueueLimit: o.queue, NewestFirst: o.order,
		MaxDebt: o.maxDebt, Clock: o.clock,
	})
}

func newFixed(o setup) (weir.Acquirer, error) {
	return weir.New(weir.FixedWindow(weir.Per(o.limit, o.window())), weir.Options{
		Name: o.name, QueueLimit: o.queue, NewestFirst: o.order,
		MaxDebt: o.maxDebt, Clock: o.clock,
	})
}

func newSliding(o setup) (weir.Acquirer, error) {
	return weir.New(weir.SlidingWindow(weir.Per(o.limit, o.window()), 4), weir.Options{
		Name: o.name, QueueLimit: o.queue, NewestFirst: o.order,
		MaxDebt: o.maxDebt, Clock: o.clock,
	})
}

func newApproximate(o setup) (weir.Acquirer, error) {
	return weir.New(weir.SlidingCounter(weir.Per(o.limit, o.window())), weir.Options{
		Name: o.name, QueueLimit: o.queue, NewestFirst: o.order,
		MaxDebt: o.maxDebt, Clock: o.clock,
	})
}

func newCalendar(o setup) (weir.Acquirer, error) {
	return weir.New(weir.CalendarWindow(o.limit, o.calendar()), weir.Options{
		Name: o.name, QueueLimit: o.queue, NewestFirst: o.order,
		MaxDebt: o.maxDebt, Clock: o.clock,
	})
}

func newConcurrency(o setup) (weir.Acquirer, error) {
	return weir.NewConcurrency(o.limit, weir.Options{
		Name: o.name, QueueLimit: o.queue, NewestFirst: o.order, Clock: o.clock,
	})
}

func newAdaptive(o setup) (weir.Acquirer, error) {
	return overload.NewAdaptive(overload.AdaptiveOptions{
		Name: o.name, InitialLimit: o.limit, MinLimit: o.limit, MaxLimit: o.limit, QueueLimit: o.queue, NewestFirst: o.order,
		Clock: o.clock,
	})
}

// kinds are the limiters that hold permits of their own.
var kinds = []kind{
	{name: "token bucket", timed: true, regain: regain, build: newBucket},
	{name: "token bucket with a clock", timed: true, clocked: true, regain: regain, build: func(o setup) (weir.Acquirer, error) {
		o.clock = bubbleClock{}
		return newBucket(o)
	}},
	{name: "fixed window", timed: true, regain: regain, build: newFixed},
	{name: "sliding window", timed: true, regain: regain, build: newSliding},
	{name: "approximate sliding window", timed: true, regain: 2 * regain, build: newApproximate},
	{name: "calendar window", timed: true, regain: time.Minute, build: newCalendar},
	{name: "concurrency", build: newConcurrency},
}

// withChain is kinds, an adaptive limiter that is held to one limit, and a chain of two of kinds.
var withChain = append(slices.Clip(kinds), kind{name: "adaptive", build: newAdaptive}, kind{
	name: "chain", timed: true, regain: regain, build: func(o setup) (weir.Acquirer, error) {
		first, err := newBucket(o)
		if err != nil {
			return nil, err
		}
		second, err := newFixed(o)
		if err != nil {
			return nil, err
		}
		return weir.NewChain(first, second)
	},
})

// bubbleClock is a Clock of the time of the bubble: it takes a limiter through the paths of limiters with a Clock.
type bubbleClock struct{}

func (bubbleClock) Now() int64 { return time.Now().UnixNano() }

func (bubbleClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

// subject is a limiter under test.
type subject struct {
	weir.Acquirer

	t       *testing.T
	kind    kind
	held    []weir.Lease
	waiting sync.WaitGroup
}

// Stats are those of the limiter without the limit, which only an Adaptive tells, and without Idle, see idle.
func (s *subject) Stats() weir.Stats {
	st := s.Acquirer.Stats()
	st.Limit, st.Idle = 0, 0
	return st
}

func (s *subject) idle() time.Duration { return s.Acquirer.Stats().Idle }

func (s *subject) Close() error { return closed(s.Acquirer) }

// forEach runs f once for every kind, in a bubble of its own, in which time is virtual.
func forEach(t *testing.T, kinds []kind, o setup, f func(t *testing.T, s *subject)) {
	t.Helper()
	for _, k := range append(keyedKinds(kinds), kinds...) {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, k.new(t, o)) })
		})
	}
}

// new makes a limiter that is closed when the test ends, so that no call waits for it then.
func (k kind) new(t *testing.T, o setup) *subject {
	t.Helper()
	l, err := k.build(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &subject{Acquirer: l, t: t, kind: k}
	t.Cleanup(func() {
		closeLimiter(t, l)
		s.waiting.Wait()
	})
	return s
}

// drain takes n permits, one by one.
func (s *subject) drain(n int64) {
	s.t.Helper()
	for range n {
		s.held = append(s.held, s.take(1))
	}
}

// free makes n of the permits that drain took available again, at once.
func (s *subject) free(n int64) {
	s.t.Helper()
	for range n {
		last := len(s.held) - 1
		s.held[last].Release()
		s.held = s.held[:last]
	}
	if r, ok := s.Acquirer.(interface{ Refund(n int64) }); ok {
		r.Refund(n)
	}
	synctest.Wait()
}

// take is TryAcquire where it must succeed.
func (s *subject) take(n int64) weir.Lease {
	s.t.Helper()
	l := s.TryAcquire(n)
	if !l.Allowed() {
		s.t.Fatalf("TryAcquire(%d) is refused: %+v", n, l.Decision())
	}
	return l
}

// refuse is TryAcquire where it must be refused.
func (s *subject) refuse(n int64, why weir.Reason) weir.Decision {
	s.t.Helper()
	d := s.TryAcquire(n).Decision()
	if d.Allowed || d.Reason != why {
		s.t.Fatalf("TryAcquire(%d) is %+v, want refused: %v", n, d, why)
	}
	return d
}

// available checks how many permits the limiter has left.
func (s *subject) available(want int64) {
	s.t.Helper()
	if got := s.Stats().Remaining; got != want {
		s.t.Fatalf("%d permits are available, want %d", got, want)
	}
}

// call is a caller of Acquire in a goroutine of its own.
type call struct {
	began time.Time
	mu    sync.Mutex
	done  bool
	lease weir.Lease
	err   error
	took  time.Duration
}

// wait calls Acquire with n permits, and returns when it has been answered or waits.
func (s *subject) wait(ctx context.Context, n int64) *call {
	return s.begin(func() (weir.Lease, error) { return s.Acquire(ctx, n) })
}

// begin calls acquire in a goroutine, and returns when it has been answered or waits.
func (s *subject) begin(acquire func() (weir.Lease, error)) *call {
	c := &call{began: time.Now()}
	s.waiting.Go(func() {
		lease, err := acquire()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.done, c.lease, c.err, c.took = true, lease, err, time.Since(c.began)
	})
	synctest.Wait()
	return c
}

// state is what has become of a call: "waiting", "granted", the reason of a refusal, or "canceled" with an error.
func (c *call) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.done:
		return "waiting"
	case c.err == nil && c.lease.Allowed():
		return "granted"
	case c.err == nil || errors.Is(c.err, weir.ErrRefused) == (c.lease.Decision().Reason == weir.ReasonCanceled):
		return "inconsistent: " + c.lease.Decision().Reason.String()
	default:
		return c.lease.Decision().Reason.String()
	}
}

// expect compares the states of calls with want, a list with blanks in between.
func expect(t *testing.T, want string, calls ...*call) {
	t.Helper()
	synctest.Wait()
	var states []string
	for _, c := range calls {
		states = append(states, c.state())
	}
	if got := strings.Join(states, " "); got != want {
		t.Fatalf("the callers are: %s, want: %s", got, want)
	}
}

func closeLimiter(t *testing.T, l weir.Acquirer) {
	t.Helper()
	if err := closed(l); err != nil {
		t.Errorf("Close() = %v", err)
	}
}

// closed closes l, which an Acquirer of another package need not be able to.
func closed(l weir.Acquirer) error {
	return l.(io.Closer).Close() //nolint:forcetypeassert // all limiters of weir can
}
