package storetest

import (
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	parts "github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

func (s *suite) debit(from store.Home, charges ...store.Charge) []weir.Decision {
	s.Helper()
	decisions := make([]weir.Decision, len(charges))
	if err := store.Debit(s.ctx(), from, charges, decisions); err != nil {
		s.Fatalf("Debit: %v", err)
	}
	return decisions
}

// lend wants a loan that fits its decision.
func (s *suite) lend(from store.Home, c store.Charge, least int64) (store.Hold, weir.Decision) {
	s.Helper()
	before := s.Now()
	l, d, err := store.Lend(s.ctx(), from, c, least)
	if err != nil {
		s.Fatalf("Lend: %v", err)
	}
	want := c
	want.N = l.Lent()
	is := len(l.Charges) == 1 && l.Charges[0] == want && l.Lent() >= least
	if d.Allowed != is || !d.Allowed && l.Lent() != 0 || l.Lent() > c.N {
		s.Fatalf("at least %d of %d: the loan is %+v, the decision %+v", least, c.N, l, d)
	}
	const second = int64(time.Second)
	if d.Allowed && (l.Taken < before-second || l.Taken > s.Now()+second) {
		s.Errorf("lent at %d, but the clock shows %d", l.Taken, s.Now())
	}
	return l, d
}

func (s *suite) giveBack(to store.Home, l store.Hold, unspent int64) {
	s.Helper()
	if err := store.Return(s.ctx(), to, l, unspent); err != nil {
		s.Fatalf("Return: %v", err)
	}
}

// moment waits until the clock of the store shows another time.
func (s *suite) moment() {
	s.Helper()
	if s.Advance != nil {
		s.Advance(s.Resolution)
		return
	}
	const tick = 20 * time.Millisecond // of clocks that are a little wrong
	began := s.Now()
	s.until("the clock goes on", time.Millisecond, func() bool { return s.Now()-began > int64(max(s.Resolution, tick)) })
}

// testDebit takes what is not there, up to a debt of the limit, and wants the answer of a probe.
func testDebit(s *suite) {
	const n = 10
	for name, l := range s.limits(n) {
		c := s.charge(name, "k", l, 4)
		d := s.debit(s.Store, c)[0]
		want := weir.Decision{Allowed: true, Limit: n, Remaining: 6, ResetAfter: d.ResetAfter, Policy: c.Policy}
		if d != want || d.ResetAfter <= 0 {
			s.Errorf("%s: %+v, want %+v", name, d, want)
		}
		c.N = 0
		if d = s.debit(s.Other, c)[0]; !d.Allowed || d.Remaining != 6 {
			s.Errorf("%s, a debit of none: %+v", name, d)
		}
		c.N = 8
		for range 2 { // the second finds a debt
			d = s.debit(s.Other, c)[0]
			want = weir.Decision{
				Reason: weir.ReasonLimited, Limit: n, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter, Policy: c.Policy,
			}
			if d != want || d.RetryAfter <= 0 || d.RetryAfter == weir.Never {
				s.Errorf("%s, in debt: %+v, want %+v", name, d, want)
			}
		}
		c.N = 10
		s.noError("Refund of the debt", store.Refund(s.ctx(), s.Store, []store.Charge{c}))
		if c.N = 1; s.take(s.Store, c)[0].Allowed {
			s.Errorf("%s: granted in debt", name)
		}
		s.noError("Refund", store.Refund(s.ctx(), s.Store, []store.Charge{c}))
		s.wantLeft(c, 1)
		// What exceeds a debt of the limit is forgotten.
		c = s.charge(name, "bound", l, algo.MaxPermits)
		s.debit(s.Store, c)
		s.debit(s.Other, c)
		c.N = 2*n - 1
		s.noError("Refund", store.Refund(s.ctx(), s.Store, []store.Charge{c}))
		s.wantLeft(c, n-1)
	}
	limits := s.limits(n)
	a, b := s.charge("a", "k", limits[tokenBucket], 3), s.charge("b", "other", limits[fixedWindow], 12)
	ds := s.debit(s.Store, a, b)
	if ds[0].Policy != a.Policy || ds[0].Remaining != 7 || ds[1].Policy != b.Policy || ds[1].Allowed {
		s.Errorf("two at once: %+v", ds)
	}
	s.debit(s.Store)
}

// testLend lends what there is, and gives back what was not spent.
func testLend(s *suite) {
	const n = 10
	for name, l := range s.limits(n) {
		c := s.charge(name, "k", l, 4)
		c.Consistency, c.Fail = store.ConsistencyLeased, store.FailLocal // which the loan keeps
		first, d := s.lend(s.Store, c, 1)
		want := weir.Decision{Allowed: true, Limit: n, Remaining: 6, ResetAfter: d.ResetAfter, Policy: c.Policy}
		if d != want || d.ResetAfter <= 0 {
			s.Errorf("%s: %+v, want %+v", name, d, want)
		}
		c.N = 100
		if _, d = s.lend(s.Other, c, 7); d.Allowed || d.Reason != weir.ReasonLimited || d.Remaining != 6 || d.RetryAfter <= 0 {
			s.Errorf("%s, 7 of 6: %+v", name, d)
		}
		if _, d = s.lend(s.Other, c, n+1); d.Reason != weir.ReasonNever || d.RetryAfter != weir.Never || d.Remaining != 6 {
			s.Errorf("%s, more than the limit: %+v", name, d)
		}
		s.wantLeft(c, 6)
		second, d := s.lend(s.Other, c, 6)
		if second.Lent() != 6 || d.Remaining != 0 {
			s.Errorf("%s, all that is left: %+v, %+v", name, second, d)
		}
		if _, d := s.lend(s.Store, c, 1); d.Allowed || d.Reason != weir.ReasonLimited || d.RetryAfter <= 0 {
			s.Errorf("%s, none is left: %+v", name, d)
		}
		s.giveBack(s.Other, first, 3)
		s.wantLeft(c, 3)
		s.giveBack(s.Store, second, 0)
		s.wantLeft(c, 3)
		s.giveBack(s.Store, store.Hold{}, 0)
		c.N = 3
		if d := s.take(s.Store, c)[0]; !d.Allowed {
			s.Errorf("%s: what came back is %+v", name, d)
		}
	}
}

// testLendNever asks for more than the limit of a key that was never seen.
func testLendNever(s *suite) {
	const n = 10
	c := s.charge("never seen", "k", s.limits(n)[tokenBucket], n+1)
	if _, d := s.lend(s.Store, c, n+1); d.Reason != weir.ReasonNever {
		s.Errorf("more than the limit of a key that was never seen: %+v", d)
	}
	if st, err := store.Inspect(s.ctx(), s.Store, c); err != nil || st.Known {
		s.Errorf("a refusal left %+v, %v", st, err)
	}
}

// testReturnLate returns what has come back by itself, or was granted to others since: nothing of that is given back twice.
func testReturnLate(s *suite) {
	if s.Advance == nil {
		s.Log("the time of the store cannot be set")
		return
	}
	const n = 10
	rate := weir.Per(n, 4*time.Second)
	for name, l := range map[string]weir.Limit{
		fixedWindow:    weir.FixedWindow(rate),
		slidingWindow:  weir.SlidingWindow(rate, 4),
		slidingCounter: weir.SlidingCounter(rate),
		calendarWindow: weir.CalendarWindow(n, algo.Calendar{Unit: algo.CalendarMinute}),
	} {
		c := s.charge(name, "k", l, n)
		loan, _ := s.lend(s.Store, c, n)
		s.Advance(2 * time.Minute) // two windows, or more
		c.N = 4
		if d := s.take(s.Other, c)[0]; !d.Allowed {
			s.Errorf("%s: %+v", name, d)
		}
		s.giveBack(s.Store, loan, n)
		s.wantLeft(c, 6)
	}
	// A bucket gives back what has not been regained since, to the last digit.
	c := s.charge(tokenBucket, "k", weir.TokenBucket(rate, 0), n) // a permit in 400 ms
	loan, _ := s.lend(s.Store, c, n)
	s.Advance(1400 * time.Millisecond)
	c.N = 3
	if d := s.take(s.Other, c)[0]; !d.Allowed || d.ResetAfter != 4*time.Second-200*time.Millisecond {
		s.Errorf("3 of 3.5 that were regained: %+v", d)
	}
	s.giveBack(s.Other, loan, 5) // 1.5 of them
	c.N = 0
	if d := s.peek(s.Store, c)[0]; d.Remaining != 2 || d.ResetAfter != 3200*time.Millisecond {
		s.Errorf("0.5 permits were there, and 1.5 given back: %+v", d)
	}
	loan, _ = s.lend(s.Store, s.charge(tokenBucket, "k", c.Limit, 2), 2)
	s.Advance(time.Second)
	before := s.peek(s.Store, c)[0]
	s.giveBack(s.Other, loan, 2)
	if after := s.peek(s.Store, c)[0]; after != before {
		s.Errorf("all were regained: before the return %+v, after it %+v", before, after)
	}
}

// testReturnChanged changes limits while permits are lent: nothing is given back, even if the limit is changed back.
func testReturnChanged(s *suite) {
	const n = 10
	for name, l := range s.limits(n) {
		c := s.charge(name, "k", l, 3)
		first, _ := s.lend(s.Store, c, 3)
		second, _ := s.lend(s.Other, c, 3)
		s.moment()
		other := c
		other.Limit, other.N = parts.WithPermits(l, 2*n), 1
		s.take(s.Other, other)
		left := s.left(other)
		s.giveBack(s.Store, first, 3)
		if got := s.left(other); got != left {
			s.Errorf("%s, changed: %d are left after a return, before it %d", name, got, left)
		}
		c.N = 1
		s.take(s.Store, c)
		left = s.left(c)
		s.giveBack(s.Other, second, 3)
		if got := s.left(c); got != left {
			s.Errorf("%s, changed back: %d are left after a return, before it %d", name, got, left)
		}
		s.moment()
		third, _ := s.lend(s.Store, c, 1)
		s.wantLeft(c, left-1)
		s.giveBack(s.Other, third, 1)
		s.wantLeft(c, left)
	}
	for name, l := range s.limits(n) { // what was lent has come back, and is not what the new limit counts
		if s.Advance == nil {
			break
		}
		short := parts.WithRate(l, weir.Per(l.Rate().Permits, min(l.Rate().Period, 4*time.Second)))
		if l.Algorithm() == weir.AlgorithmCalendarWindow {
			short = weir.CalendarWindow(l.Permits(), algo.Calendar{Unit: algo.CalendarMinute})
		}
		c := s.charge("short "+name, "k", short, 3)
		loan, _ := s.lend(s.Store, c, 3)
		c.Limit, c.N = l, 5
		s.take(s.Other, c)
		s.Advance(2 * time.Minute)
		left := s.left(c)
		s.giveBack(s.Store, loan, 3)
		s.wantLeft(c, left)
	}
}

// testReturnAlgorithm changes the algorithm while permits are lent: they go back to where they are from.
func testReturnAlgorithm(s *suite) {
	const n = 10
	limits := s.limits(n)
	c := s.charge("algorithm", "k", limits[tokenBucket], 5)
	loan, _ := s.lend(s.Store, c, 5)
	s.moment()
	c.Limit, c.N = limits[fixedWindow], 4
	s.take(s.Other, c)
	s.giveBack(s.Store, loan, 5)
	s.wantLeft(c, 6)
	c.Limit = limits[tokenBucket]
	s.wantLeft(c, 10)
}

// testLoanMisuse wants errors that name what is wrong, and nothing taken.
func testLoanMisuse(s *suite) {
	good := s.charge("misuse", "k", s.limits(5)[tokenBucket], 3)
	with := func(change func(c *store.Charge)) store.Charge {
		c := good
		change(&c)
		return c
	}
	slots := weir.AtOnce(3)
	for option, c := range map[string]store.Charge{
		"Charge.N":               with(func(c *store.Charge) { c.N = algo.MaxPermits + 1 }),
		"Charge.Policy":          with(func(c *store.Charge) { c.Policy = "" }),
		"Charge.Key":             with(func(c *store.Charge) { c.Key = strings.Repeat("k", store.MostKeyBytes+1) }),
		"Limit.Rate":             with(func(c *store.Charge) { c.Limit = weir.TokenBucket(weir.PerSecond(0), 1) }),
		"Charge.Limit.Algorithm": with(func(c *store.Charge) { c.Limit = slots }),
	} {
		l, _, err := store.Lend(s.ctx(), s.Store, c, 1)
		s.wantOption("Lend", option, err)
		if l.Lent() != 0 {
			s.Errorf("Lend with a wrong %s: %+v", option, l)
		}
		s.wantOption("Debit", option, store.Debit(s.ctx(), s.Store, []store.Charge{c}, make([]weir.Decision, 1)))
	}
	s.wantOption("Debit", "decisions", store.Debit(s.ctx(), s.Store, []store.Charge{good}, nil))
	s.wantOption("Debit", "Charge.Key", store.Debit(s.ctx(), s.Store, []store.Charge{good, good}, make([]weir.Decision, 2)))
	for _, least := range []int64{-1, 0, 4, algo.MaxPermits} {
		_, _, err := store.Lend(s.ctx(), s.Store, good, least)
		s.wantOption("Lend", "Ask.Least", err)
	}
	s.wantLeft(good, 5)
	l, _ := s.lend(s.Store, good, 1)
	for _, unspent := range []int64{-1, 4, algo.MaxPermits} {
		s.wantOption("Return", "unspent", store.Return(s.ctx(), s.Store, l, unspent))
		s.wantOption("Settle", "actual", s.Store.Settle(s.ctx(), l, []int64{l.Lent() - unspent}))
	}
	s.wantLeft(good, 2)
}

// testContentionLoans has callers borrow, spend some and return the rest, until nothing is left: all of them together spend
// what there is, and never more.
func testContentionLoans(s *suite) {
	const n = 400
	for name, l := range s.limits(n) {
		var lent, spent [callers]int64
		all, some := s.charge(name, "all", l, 0), s.charge(name, "some", l, 0)
		s.crowd(func(i int, handle store.Home) {
			for _, c := range []store.Charge{all, some} {
				for round := 1; round <= n+1; round++ { // which is more than there can be
					c.N = int64(1 + (i+round)%7)
					var (
						loan store.Hold
						d    weir.Decision
					)
					if !s.insist("Lend", func() (err error) {
						loan, d, err = store.Lend(s.Context(), handle, c, 1)
						return err
					}) || !d.Allowed {
						break
					}
					if c.Key == all.Key {
						lent[i] += loan.Lent()
						continue
					}
					use := min(loan.Lent(), int64(1+round%3))
					spent[i] += use
					if err := store.Return(s.Context(), handle, loan, loan.Lent()-use); err != nil {
						s.Errorf("Return: %v", err)
						return
					}
				}
			}
		})
		total, used := int64(0), int64(0)
		for i := range callers {
			total += lent[i]
			used += spent[i]
		}
		if total != n {
			s.Errorf("%s: %d were lent of %d", name, total, n)
		}
		s.wantLeft(all, 0)
		// The last ones may have come back after others had found nothing. A bucket keeps the moments for which they were out.
		left := s.left(some)
		if lost := n - used - left; lost != 0 && (l.Algorithm() != weir.AlgorithmTokenBucket || lost != 1) {
			s.Errorf("%s: %d were spent of %d, and %d are left", name, used, n, left)
		}
	}
}
