package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// testSkew has callers whose clocks differ take turns. A clock that is ahead may give a burst once, as it does when a clock
// is set, and never again and again.
func testSkew(s *suite) {
	const n = 10
	handles := []store.Home{s.Store, s.Other}
	allowed := int64(n)
	if s.Skewed != nil {
		handles = append(handles, s.Skewed(-time.Hour), s.Skewed(time.Hour))
		allowed += n
	}
	for name, l := range map[string]weir.Limit{
		tokenBucket:    weir.TokenBucket(weir.Per(n, time.Minute), 0),
		fixedWindow:    weir.FixedWindow(weir.Per(n, 10*time.Minute)),
		slidingWindow:  weir.SlidingWindow(weir.Per(n, 10*time.Minute), 0),
		slidingCounter: weir.SlidingCounter(weir.Per(n, 10*time.Minute)),
		calendarWindow: weir.CalendarWindow(n, algo.Calendar{
			Unit: algo.CalendarHour, Minute: (time.Unix(0, s.Now()).UTC().Minute() + 30) % 60,
		}),
	} {
		c := s.charge(name, "k", l, 1)
		granted, began := int64(0), time.Now()
		for i := range 8 * n {
			if s.take(handles[i%len(handles)], c)[0].Allowed {
				granted++
			}
		}
		passed := time.Since(began)
		if s.Advance != nil {
			passed = 0
		}
		most := allowed
		if back := int64(float64(passed) / float64(time.Minute) * n); name == tokenBucket {
			most += back + 1
		} else if s.Advance == nil {
			most += n // a window may have ended meanwhile
		}
		if granted < n || granted > most {
			s.Errorf("%s: %d were granted in %v, want from %d to %d", name, granted, passed, n, most)
		}
	}
}

// everyCall makes every call of the store, and returns their errors by name.
func (s *suite) everyCall(ctx context.Context, c store.Charge, r store.Hold) map[string]error {
	charges, ds := []store.Charge{c}, make([]weir.Decision, 1)
	_, reserved := store.Reserve(ctx, s.Store, charges, ds, time.Minute)
	_, inspected := store.Inspect(ctx, s.Store, c)
	_, _, lent := store.Lend(ctx, s.Store, c, c.N)
	return map[string]error{
		"Take": store.Take(ctx, s.Store, charges, ds), "Peek": store.Peek(ctx, s.Store, charges, ds), "Reserve": reserved,
		"Refund": store.Refund(ctx, s.Store, charges), "Commit": store.Commit(ctx, s.Store, r, []int64{0}),
		"Cancel": store.Cancel(ctx, s.Store, r), "Reset": store.Reset(ctx, s.Store, c.Policy, c.Key), "Inspect": inspected,
		"Debit": store.Debit(ctx, s.Store, charges, ds), "Lend": lent,
		"Return": store.Return(ctx, s.Store, store.Hold{Charges: charges, Taken: s.Now()}, c.N),
	}
}

// testContext calls with contexts that have ended: such a call does nothing.
func testContext(s *suite) {
	c := s.charge("context", "k", s.limits(5)[tokenBucket], 1)
	r, _ := s.reserve(s.Store, time.Hour, c)
	ended, cancel := context.WithCancel(s.Context())
	cancel()
	charges, ds := []store.Charge{c}, make([]weir.Decision, 1)
	for what, err := range s.everyCall(ended, c, r) {
		s.wantError(what, err, context.Canceled)
	}
	s.wantLeft(c, 4)
	s.noError("Cancel", store.Cancel(s.ctx(), s.Store, r))
	late, cancel := context.WithDeadline(s.Context(), time.Now().Add(-time.Second))
	defer cancel()
	s.wantError("Take", store.Take(late, s.Store, charges, ds), context.DeadlineExceeded)
	s.wantLeft(c, 5)
}

// testBreak has the store unreachable for a while: that is an error, and never an answer about a limit.
func testBreak(s *suite) {
	if s.Break == nil {
		s.Log("the subject cannot be broken")
		return
	}
	c := s.charge("broken", "k", s.limits(5)[fixedWindow], 1)
	r, _ := s.reserve(s.Store, time.Hour, c)
	repair := s.Break()
	charges, ds := []store.Charge{c}, make([]weir.Decision, 1)
	ctx := s.ctx()
	for what, err := range s.everyCall(ctx, c, r) {
		s.wantError(what+" of an unreachable store", err, store.ErrUnavailable)
		if errors.Is(err, store.ErrNotReserved) || errors.Is(err, store.ErrClosed) {
			s.Errorf("%s of an unreachable store: %v", what, err)
		}
	}
	repair()
	s.until("the store is back", 10*time.Millisecond, func() bool { return store.Peek(ctx, s.Store, charges, ds) == nil })
	s.wantLeft(c, 4)
	s.noError("Cancel", store.Cancel(ctx, s.Store, r))
	s.wantLeft(c, 5)
}

// testClose closes one handle, twice.
func testClose(s *suite) {
	c := s.charge("close", "k", s.limits(5)[tokenBucket], 1)
	r, _ := s.reserve(s.Store, time.Hour, c)
	s.noError("Close", s.Store.Close())
	s.noError("Close again", s.Store.Close())
	for what, err := range s.everyCall(s.ctx(), c, r) {
		s.wantError(what+" after Close", err, store.ErrClosed)
	}
	if s.Other == s.Store {
		return
	}
	if d := s.take(s.Other, c)[0]; !d.Allowed || d.Remaining != 3 {
		s.Errorf("another handle: %+v", d)
	}
	s.noError("Cancel by another", store.Cancel(s.ctx(), s.Other, r))
}
