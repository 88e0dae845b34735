package storetest

import (
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

func testCommit(s *suite) {
	for name, l := range s.limits(10) {
		c := s.charge(name, "k", l, 4)
		r, ds := s.reserve(s.Store, time.Hour, c)
		if ds[0].Remaining != 6 {
			s.Errorf("%s, reserved: %+v", name, ds)
		}
		s.noError("Commit of less", store.Commit(s.ctx(), s.Store, r, []int64{1}))
		s.wantLeft(c, 9)
		r, _ = s.reserve(s.Store, time.Hour, c)
		s.noError("Commit of as much", store.Commit(s.ctx(), s.Store, r, []int64{4}))
		s.wantLeft(c, 5)
		r, _ = s.reserve(s.Store, time.Hour, c)
		s.noError("Commit of none", store.Commit(s.ctx(), s.Store, r, []int64{0}))
		s.wantLeft(c, 5)
		c.N = 1
		r, _ = s.reserve(s.Store, time.Hour, c)
		s.noError("Commit of more", store.Commit(s.ctx(), s.Store, r, []int64{3}))
		s.wantLeft(c, 2)
		c.N = 0
		r, _ = s.reserve(s.Store, time.Hour, c)
		s.noError("Commit after a probe", store.Commit(s.ctx(), s.Store, r, []int64{1}))
		s.wantLeft(c, 1)
		c.N = 1
		r, _ = s.reserve(s.Store, time.Hour, c)
		s.noError("Commit into debt", store.Commit(s.ctx(), s.Store, r, []int64{8}))
		s.wantLeft(c, 0)
		before := s.take(s.Store, c)[0]
		c.N = 7
		s.noError("Refund of the debt", store.Refund(s.ctx(), s.Store, []store.Charge{c}))
		if c.N = 1; before.Allowed || s.take(s.Store, c)[0].Allowed {
			s.Errorf("%s: granted in debt", name)
		}
		s.noError("Refund", store.Refund(s.ctx(), s.Store, []store.Charge{c}))
		s.wantLeft(c, 1)
		// Debt has a bound: the limit.
		c = s.charge(name, "bound", l, 10)
		r, _ = s.reserve(s.Store, time.Hour, c)
		s.noError("Commit of far more", store.Commit(s.ctx(), s.Store, r, []int64{1e15}))
		c.N = 11
		s.noError("Refund", store.Refund(s.ctx(), s.Store, []store.Charge{c}))
		s.wantLeft(c, 1)
	}
}

func testCancel(s *suite) {
	for name, l := range s.limits(10) {
		a, b := s.charge(name, "a", l, 4), s.charge(name, "b", l, 3)
		first, _ := s.reserve(s.Store, time.Hour, a, b)
		second, ds := s.reserve(s.Other, time.Hour, b, a)
		if ds[0].Remaining != 4 || ds[1].Remaining != 2 {
			s.Errorf("%s: %+v", name, ds)
		}
		s.noError("Cancel", store.Cancel(s.ctx(), s.Other, first))
		s.wantLeft(a, 6)
		s.wantLeft(b, 7)
		s.noError("Commit", store.Commit(s.ctx(), s.Store, second, []int64{3, 2}))
		s.wantLeft(a, 8)
		s.wantLeft(b, 7)
	}
}

func testSettledOnce(s *suite) {
	c := s.charge("once", "k", s.limits(10)[fixedWindow], 4)
	for _, first := range []string{"commit", "cancel"} {
		r, _ := s.reserve(s.Store, time.Hour, c)
		if first == "commit" {
			s.noError("Commit", store.Commit(s.ctx(), s.Store, r, []int64{0}))
		} else {
			s.noError("Cancel", store.Cancel(s.ctx(), s.Store, r))
		}
		s.wantError("Cancel again", store.Cancel(s.ctx(), s.Other, r), store.ErrNotReserved)
		s.wantError("Commit again", store.Commit(s.ctx(), s.Store, r, []int64{4}), store.ErrNotReserved)
		s.wantLeft(c, 10)
	}
	forged := store.Hold{ID: "nobody-made-this", Charges: []store.Charge{c}}
	s.wantError("Cancel of a forged one", store.Cancel(s.ctx(), s.Store, forged), store.ErrNotReserved)
	s.noError("Cancel of the zero Reservation", store.Cancel(s.ctx(), s.Store, store.Hold{}))
	s.noError("Commit of the zero Reservation", store.Commit(s.ctx(), s.Store, store.Hold{}, nil))
	r, _ := s.reserve(s.Store, time.Hour, c)
	s.noError("Reset", store.Reset(s.ctx(), s.Store, c.Policy, c.Key))
	s.wantError("Cancel after Reset", store.Cancel(s.ctx(), s.Store, r), store.ErrNotReserved)
	s.wantLeft(c, 10)
}

func testSettledByAnother(s *suite) {
	for name, l := range s.limits(10) {
		c := s.charge(name, "k", l, 4)
		r, _ := s.reserve(s.Store, time.Hour, c)
		s.noError("Commit by another", store.Commit(s.ctx(), s.Other, r, []int64{3}))
		s.wantLeft(c, 7)
		r, _ = s.reserve(s.Other, time.Hour, c)
		s.noError("Cancel by another", store.Cancel(s.ctx(), s.Store, r))
		s.wantLeft(c, 7)
	}
}

// testSettledInPart has the key of one charge reset: what is left of the reservation can still be settled, once.
func testSettledInPart(s *suite) {
	for _, actual := range [][]int64{nil, {2, 2}} {
		key := fmt.Sprint(actual)
		a, b := s.charge("part", "a"+key, s.limits(10)[tokenBucket], 4), s.charge("part", "b"+key, s.limits(10)[fixedWindow], 3)
		r, _ := s.reserve(s.Store, time.Hour, a, b)
		s.noError("Reset", store.Reset(s.ctx(), s.Store, a.Policy, a.Key))
		s.noError("Settle of the rest", s.Other.Settle(s.ctx(), r, actual))
		s.wantLeft(a, 10)
		if actual == nil {
			s.wantLeft(b, 10)
		} else {
			s.wantLeft(b, 8)
		}
		s.wantError("Settle again", s.Other.Settle(s.ctx(), r, actual), store.ErrNotReserved)
	}
}

// testReservedUnderAnotherLimit changes limits while permits are reserved: they are given back, but for those that have come back
// by themselves.
func testReservedUnderAnotherLimit(s *suite) {
	if s.Advance == nil {
		s.Log("the time of the store cannot be set")
		return
	}
	const n, window = 10, 4 * time.Second
	reserved := func(name, key string, l weir.Limit) (c store.Charge, r store.Hold) {
		s.Advance(window - time.Duration(s.Now()%int64(window))) // a window begins
		c = s.charge(name, key, l, 6)
		r, _ = s.reserve(s.Store, time.Hour, c)
		return c, r
	}
	for name, l := range map[string]weir.Limit{
		tokenBucket:    weir.TokenBucket(weir.Per(n, window), 0),
		fixedWindow:    weir.FixedWindow(weir.Per(n, window)),
		slidingWindow:  weir.SlidingWindow(weir.Per(n, window), 4),
		slidingCounter: weir.SlidingCounter(weir.Per(n, window)),
	} {
		slower := limits.WithRate(l, weir.Per(n, 7*window/4))
		change := func(c store.Charge, n int64) store.Charge {
			c.Limit, c.N = slower, n
			if d := s.take(s.Other, c)[0]; !d.Allowed {
				s.Errorf("%s, changed: %+v", name, d)
			}
			return c
		}
		c, r := reserved(name, "at once", l)
		c = change(c, 4)
		s.noError("Cancel", store.Cancel(s.ctx(), s.Other, r))
		s.wantLeft(c, 6)
		c, r = reserved(name, "late", l)
		s.Advance(2 * window) // all are back
		c = change(c, n)
		s.noError("Cancel", store.Cancel(s.ctx(), s.Other, r))
		s.wantLeft(c, 0)
	}
	// What a bucket can have regained under the faster of both limits is not given back, whichever is the faster.
	fast := weir.TokenBucket(weir.Per(n, window), 0)
	slow := limits.WithRate(fast, weir.Per(n, 2*window))
	for key, change := range map[string][2]weir.Limit{"slower": {fast, slow}, "faster": {slow, fast}} {
		c, r := reserved(tokenBucket, key, change[0])
		c.Limit, c.N = change[1], 4
		s.take(s.Other, c)
		s.Advance(window / 5) // the fast one regains 2
		s.take(s.Other, s.withN(c, s.left(c)))
		s.noError("Cancel", store.Cancel(s.ctx(), s.Other, r))
		s.wantLeft(c, 4)
	}
}

// withN is a charge for n permits.
func (s *suite) withN(c store.Charge, n int64) store.Charge {
	c.N = n
	return c
}

// testExpiry lets reservations expire, and wants exactly their permits back, neither early nor twice.
func testExpiry(s *suite) {
	expiry := 300 * time.Millisecond
	for name, l := range s.limits(10) {
		c, long := s.charge(name, "k", l, 4), s.charge(name, "k", l, 1)
		kept, _ := s.reserve(s.Store, time.Hour, long)
		began := time.Now()
		r, _ := s.reserve(s.Store, expiry, c)
		if s.Advance != nil {
			s.Advance(expiry - s.Resolution)
			s.wantLeft(c, 5)
			s.Advance(s.Resolution)
			s.wantLeft(c, 9)
		} else {
			s.until(name+" has its permits back", expiry, func() bool { return s.left(c) == 9 })
			if early := expiry - time.Since(began); early > time.Millisecond {
				s.Errorf("%s: expired %v early", name, early)
			}
		}
		s.wantError("Commit after expiry", store.Commit(s.ctx(), s.Other, r, []int64{4}), store.ErrNotReserved)
		s.wantError("Cancel after expiry", store.Cancel(s.ctx(), s.Store, r), store.ErrNotReserved)
		s.wantLeft(c, 9)
		s.noError("Cancel of the other", store.Cancel(s.ctx(), s.Store, kept))
		s.wantLeft(c, 10)
	}
}

func testConcurrency(s *suite) {
	l := weir.AtOnce(3)
	c, one := s.charge("concurrency", "k", l, 2), s.charge("concurrency", "k", l, 1)
	first, ds := s.reserve(s.Store, time.Hour, c)
	if ds[0].Remaining != 1 || ds[0].Limit != 3 || ds[0].ResetAfter != 0 {
		s.Errorf("%+v", ds)
	}
	r, ds := s.reserve(s.Other, time.Hour, c)
	if d := ds[0]; r.ID != "" || d.Reason != weir.ReasonLimited || d.RetryAfter != 0 || d.Remaining != 1 {
		s.Errorf("refused: %+v", d)
	}
	second, _ := s.reserve(s.Other, time.Hour, one)
	s.wantLeft(c, 0)
	s.noError("Commit, whatever it cost", store.Commit(s.ctx(), s.Other, first, []int64{1}))
	s.wantLeft(c, 2)
	// The limit is lowered to less than is out, and raised.
	third, _ := s.reserve(s.Store, time.Hour, c)
	c.Limit, one.Limit = weir.AtOnce(1), weir.AtOnce(1)
	if _, ds := s.reserve(s.Store, time.Hour, one); ds[0].Allowed || ds[0].Limit != 1 {
		s.Errorf("lowered: %+v", ds)
	}
	s.noError("Cancel", store.Cancel(s.ctx(), s.Store, third))
	if _, ds := s.reserve(s.Store, time.Hour, one); ds[0].Allowed {
		s.Errorf("lowered, one is out: %+v", ds)
	}
	s.noError("Cancel", store.Cancel(s.ctx(), s.Store, second))
	one.Limit, c.Limit = weir.AtOnce(3), weir.AtOnce(3)
	s.wantLeft(one, 3)
	// What is refunded does not come back again when it is settled.
	r, _ = s.reserve(s.Store, time.Hour, c)
	s.noError("Refund", store.Refund(s.ctx(), s.Store, []store.Charge{c}))
	s.wantLeft(c, 3)
	other, _ := s.reserve(s.Store, time.Hour, c)
	s.noError("Cancel of what was refunded", store.Cancel(s.ctx(), s.Store, r))
	s.wantLeft(c, 1)
	s.noError("Cancel", store.Cancel(s.ctx(), s.Store, other))
	// A refund takes from the reservation that expires first, whichever was made first.
	later, _ := s.reserve(s.Store, 2*time.Hour, one)
	sooner, _ := s.reserve(s.Other, time.Hour, one)
	s.noError("Refund", store.Refund(s.ctx(), s.Store, []store.Charge{one}))
	s.wantLeft(c, 2)
	s.noError("Cancel of the one that expires later", store.Cancel(s.ctx(), s.Store, later))
	s.wantLeft(c, 3)
	s.noError("Cancel of what was refunded", store.Cancel(s.ctx(), s.Store, sooner))
	s.wantLeft(c, 3)
	// A caller that dies.
	s.reserve(s.Store, 200*time.Millisecond, c)
	s.until("the permits are back", 100*time.Millisecond, func() bool { return s.left(c) == 3 })
}

func testReserveAllOrNothing(s *suite) {
	rate := s.limits(5)[tokenBucket]
	slots := weir.AtOnce(1)
	a, b := s.charge("a", "k", rate, 2), s.charge("b", "k", slots, 1)
	r, _ := s.reserve(s.Store, time.Hour, a, b)
	for range 2 {
		none, ds := s.reserve(s.Other, time.Hour, a, b)
		if none.ID != "" || !ds[0].Allowed || ds[0].Remaining != 3 || ds[1].Allowed {
			s.Errorf("%+v, %+v", none, ds)
		}
	}
	s.wantLeft(a, 3)
	s.noError("Commit", store.Commit(s.ctx(), s.Store, r, []int64{1, 0}))
	s.wantLeft(a, 4)
	s.wantLeft(b, 1)
}
