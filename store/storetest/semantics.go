package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

// testGrants takes all permits of every algorithm, one by one and by turns from both handles.
func testGrants(s *suite) {
	const n = 7
	for name, l := range s.limits(n) {
		c := s.charge(name, "key", l, 1)
		for i := range int64(n) {
			from := s.Store
			if i%2 == 1 {
				from = s.Other
			}
			d := s.take(from, c)[0]
			want := weir.Decision{Allowed: true, Limit: n, Remaining: n - 1 - i, ResetAfter: d.ResetAfter, Policy: c.Policy}
			if d != want || d.ResetAfter <= 0 {
				s.Errorf("%s, permit %d: %+v, want %+v", name, i, d, want)
			}
		}
		for range 2 { // a refusal takes nothing and makes nothing longer
			d := s.take(s.Other, c)[0]
			want := weir.Decision{
				Reason: weir.ReasonLimited, Limit: n, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter, Policy: c.Policy,
			}
			if d != want || d.RetryAfter <= 0 || d.RetryAfter == weir.Never {
				s.Errorf("%s, refused: %+v", name, d)
			}
		}
	}
}

// testRetryAfter comes back after RetryAfter, and where time can be set also just before.
func testRetryAfter(s *suite) {
	for _, name := range []string{tokenBucket, fixedWindow, slidingWindow, slidingCounter} {
		c, d, began := s.usedUp(name)
		if s.Advance == nil {
			s.until(name+" grants again", time.Millisecond, func() bool { return s.take(s.Other, c)[0].Allowed })
			if waited := time.Since(began); waited < d.RetryAfter-time.Millisecond {
				s.Errorf("%s granted after %v, but said %v", name, waited, d.RetryAfter)
			}
			continue
		}
		s.Advance(d.RetryAfter - s.Resolution)
		if d := s.take(s.Other, c)[0]; d.Allowed || d.RetryAfter != s.Resolution {
			s.Errorf("%s, just before: %+v", name, d)
		}
		s.Advance(s.Resolution)
		if d := s.take(s.Other, c)[0]; !d.Allowed {
			s.Errorf("%s, on time: %+v", name, d)
		}
	}
}

// usedUp takes from a limit of an algorithm, of which permits come back soon, until it refuses, and returns the refusal and when
// that was asked for, or before. If they come back faster than the store answers, it is another limit.
func (s *suite) usedUp(name string) (c store.Charge, d weir.Decision, began time.Time) {
	s.Helper()
	for window := 400 * time.Millisecond; window < patience; window *= 2 {
		l := map[string]weir.Limit{
			tokenBucket:    weir.TokenBucket(weir.Per(2, window), 0),
			fixedWindow:    weir.FixedWindow(weir.Per(2, window)),
			slidingWindow:  weir.SlidingWindow(weir.Per(2, window), 4),
			slidingCounter: weir.SlidingCounter(weir.Per(2, window)),
		}[name]
		c = s.charge(name, window.String(), l, 1)
		for range 10 {
			began = time.Now()
			if d = s.take(s.Store, c)[0]; d.Allowed {
				continue
			}
			if d.RetryAfter <= 0 || d.RetryAfter > 2*window {
				s.Fatalf("%v: retry after %v", l, d.RetryAfter)
			}
			return c, d, began
		}
	}
	s.Fatalf("%s: not used up, the store is too slow", name)
	return c, d, began
}

// testRefusedUnderAnotherLimit: a limit that is raised holds for a key that has nothing left from the first request on, also
// if that is refused: permits come back as fast as it says from then on.
func testRefusedUnderAnotherLimit(s *suite) {
	window := 400 * time.Millisecond
	for name, slow := range map[string]weir.Limit{
		tokenBucket:    weir.TokenBucket(weir.Per(2, time.Hour), 0),
		slidingCounter: weir.SlidingCounter(weir.Per(2, time.Hour)),
	} {
		fast := limits.WithPermits(limits.WithRate(slow, weir.Per(2, window)), 2)
		c := s.charge(name+", raised", "key", slow, 2)
		if d := s.take(s.Store, c)[0]; !d.Allowed {
			s.Errorf("%s: %+v", name, d)
			continue
		}
		c.Limit, c.N = fast, 1
		d := s.take(s.Store, c)[0]
		if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > 2*window {
			s.Errorf("%s, raised: %+v", name, d)
			continue
		}
		if s.Advance == nil {
			s.until(name+" grants under the limit that was raised", time.Millisecond, func() bool {
				return s.take(s.Other, c)[0].Allowed
			})
			continue
		}
		s.Advance(d.RetryAfter)
		if d := s.take(s.Other, c)[0]; !d.Allowed {
			s.Errorf("%s, raised, on time: %+v", name, d)
		}
	}
}

// testLimitOfTheLastCharge has a bucket with six permits asked under a limit of three: every call but a probe holds it to that,
// also if it comes under the limit of before next.
func testLimitOfTheLastCharge(s *suite) {
	l := s.limits(10)[tokenBucket]
	for what, t := range map[string]struct {
		call func(c store.Charge) // of one permit
		left int64
	}{
		"Take":             {func(c store.Charge) { s.take(s.Other, c) }, 2},
		"Take, refused":    {func(c store.Charge) { s.take(s.Other, s.withN(c, 4)) }, 3},
		"Reserve":          {func(c store.Charge) { s.reserve(s.Other, time.Hour, c) }, 2},
		"Reserve, refused": {func(c store.Charge) { s.reserve(s.Other, time.Hour, s.withN(c, 4)) }, 3},
		"Debit":            {func(c store.Charge) { s.debit(s.Other, c) }, 2},
		"Lend":             {func(c store.Charge) { s.lend(s.Other, c, 1) }, 2},
		"Refund": {func(c store.Charge) {
			s.noError("Refund", store.Refund(s.ctx(), s.Other, []store.Charge{c}))
		}, 3},
		"Peek": {func(c store.Charge) { s.peek(s.Other, c) }, 6},
		"Inspect": {func(c store.Charge) {
			_, err := store.Inspect(s.ctx(), s.Other, c)
			s.noError("Inspect", err)
		}, 6},
	} {
		c := s.charge("last", what, l, 4)
		s.take(s.Store, c)
		c.Limit, c.N = limits.WithPermits(l, 3), 1
		t.call(c)
		if c.Limit = l; s.left(c) != t.left {
			s.Errorf("%s: %d are left under the limit of before, want %d", what, s.left(c), t.left)
		}
	}
}

func testEdges(s *suite) {
	const n = 5
	for name, l := range s.limits(n) {
		probe, most := s.charge(name, "key", l, 0), s.charge(name, "key", l, n)
		s.wantNever(s.charge(name, "key", l, n+1), n)
		s.wantNever(s.charge(name, "key", l, algo.MaxPermits), n)
		if st, err := store.Inspect(s.ctx(), s.Store, probe); err != nil || st.Known {
			s.Errorf("%s: a refusal left %+v, %v", name, st, err)
		}
		if d := s.take(s.Store, probe)[0]; !d.Allowed || d.Remaining != n {
			s.Errorf("%s, probe: %+v", name, d)
		}
		if d := s.peek(s.Store, most)[0]; !d.Allowed || d.Remaining != n {
			s.Errorf("%s, peek: %+v", name, d)
		}
		s.wantLeft(probe, n)
		if d := s.take(s.Store, most)[0]; !d.Allowed || d.Remaining != 0 {
			s.Errorf("%s, all: %+v", name, d)
		}
		for _, d := range []weir.Decision{s.take(s.Store, probe)[0], s.peek(s.Store, probe)[0]} {
			if d.Allowed || d.Reason != weir.ReasonLimited || d.RetryAfter <= 0 {
				s.Errorf("%s, probe of none: %+v", name, d)
			}
		}
	}
	if err := store.Take(s.ctx(), s.Store, nil, nil); err != nil {
		s.Errorf("no charges: %v", err)
	}
}

// wantNever wants a charge to be refused for ever, with that many permits left.
func (s *suite) wantNever(c store.Charge, left int64) {
	s.Helper()
	for _, d := range []weir.Decision{s.take(s.Store, c)[0], s.peek(s.Store, c)[0]} {
		if d.Allowed || d.Reason != weir.ReasonNever || d.RetryAfter != weir.Never || d.Remaining != left {
			s.Errorf("%d permits of %v: %+v", c.N, c.Limit, d)
		}
	}
}

// testMisuse wants errors that name what is wrong, and nothing taken.
func testMisuse(s *suite) {
	l := s.limits(5)[tokenBucket]
	slots := weir.AtOnce(3)
	good := s.charge("misuse", "key", l, 1)
	with := func(change func(c *store.Charge)) []store.Charge {
		c := s.charge("misuse", "other", l, 1)
		change(&c)
		return []store.Charge{good, c}
	}
	for option, charges := range map[string][]store.Charge{
		"Charge.N":                  with(func(c *store.Charge) { c.N = -1 }),
		"Charge.N ":                 with(func(c *store.Charge) { c.N = algo.MaxPermits + 1 }),
		"Charge.N  ":                with(func(c *store.Charge) { c.N = math.MinInt64 }),
		"Charge.Policy":             with(func(c *store.Charge) { c.Policy = "" }),
		"Charge.Policy ":            with(func(c *store.Charge) { c.Policy = strings.Repeat("p", store.MostPolicyBytes+1) }),
		"Charge.Key":                with(func(c *store.Charge) { c.Key = strings.Repeat("k", store.MostKeyBytes+1) }),
		"Charge.Key ":               with(func(c *store.Charge) { c.Key = "key" }),
		"Limit.Rate":                with(func(c *store.Charge) { c.Limit = weir.TokenBucket(weir.PerSecond(0), 1) }),
		"Limit.Segments":            with(func(c *store.Charge) { c.Limit = weir.SlidingWindow(weir.PerSecond(10), 65) }),
		"charges":                   make([]store.Charge, store.MostCharges+1),
		"decisions":                 {good},
		"Charge.Limit.Algorithm":    with(func(c *store.Charge) { c.Limit = slots }),
		"Limit.Calendar.Zone":       with(func(c *store.Charge) { c.Limit = zoned(time.FixedZone("Nowhere/Known", 3600)) }),
		"Limit.Calendar.Zone again": with(func(c *store.Charge) { c.Limit = zoned(time.FixedZone("Europe/Vienna", 7200)) }),
	} {
		decisions := make([]weir.Decision, len(charges))
		if option == "decisions" {
			decisions = make([]weir.Decision, 2)
		}
		s.wantOption("Take", option, store.Take(s.ctx(), s.Store, charges, decisions))
		if option != "Charge.Limit.Algorithm" { // which can be reserved
			_, err := store.Reserve(s.ctx(), s.Store, charges, decisions, time.Minute)
			s.wantOption("Reserve", option, err)
			s.wantOption("Peek", option, store.Peek(s.ctx(), s.Store, charges, decisions))
			if option != "decisions" {
				s.wantOption("Refund", option, store.Refund(s.ctx(), s.Store, charges))
			}
		}
	}
	for _, expiry := range []time.Duration{0, -1, store.LeastExpiry - 1, store.MostExpiry + 1} {
		_, err := store.Reserve(s.ctx(), s.Store, []store.Charge{good}, make([]weir.Decision, 1), expiry)
		s.wantOption("Reserve", "Ask.Hold", err)
	}
	for _, mode := range []store.Mode{store.ModePeek, store.ModeDebit, store.ModeRefund, store.ModeLend, store.ModeReset} {
		ask := store.Ask{Mode: mode, Hold: time.Minute, Least: 1}
		_, err := s.Store.Do(s.ctx(), ask, []store.Charge{good}, make([]weir.Decision, 1))
		s.wantOption("Do with a Hold", "Ask.Mode", err)
	}
	s.wantOption("Reset", "Charge.Policy", store.Reset(s.ctx(), s.Store, "", "key"))
	s.wantLeft(good, 5)
	r, _ := s.reserve(s.Store, time.Hour, good)
	s.wantOption("Commit", "actual", store.Commit(s.ctx(), s.Store, r, nil))
	s.wantOption("Commit", "actual", store.Commit(s.ctx(), s.Store, r, []int64{1, 1}))
	s.wantOption("Commit", "actual", store.Commit(s.ctx(), s.Store, r, []int64{-1}))
	s.noError("Cancel", store.Cancel(s.ctx(), s.Store, r))
	s.wantLeft(good, 5)
}

func zoned(z *time.Location) weir.Limit {
	return weir.CalendarWindow(3, algo.Calendar{Unit: algo.CalendarDay, Zone: z})
}

// wantOption wants an error about an option; what follows a space in its name does not count.
func (s *suite) wantOption(call, option string, err error) {
	s.Helper()
	option, _, _ = strings.Cut(option, " ")
	var misuse *weir.OptionError
	if !errors.As(err, &misuse) || misuse.Option != option {
		s.Errorf("%s with a wrong %s: %v", call, option, err)
	}
}

// testKeysAreApart has names that could be taken for one another.
func testKeysAreApart(s *suite) {
	l := s.limits(5)[tokenBucket]
	long := strings.Repeat("k", store.MostKeyBytes)
	names := [][2]string{
		{"a", "bc"},
		{"ab", "c"},
		{"abc", ""},
		{"a:b", "c"},
		{"a", "b:c"},
		{"a", "B:c"},
		{"a", "\x00\xff\n{}* "},
		{"a", "\x00\xff\n{}*"},
		{"{a}", "x"},
		{"ä€", "ßø"},
		{"a", long},
		{"a", long[1:] + "l"},
	}
	for i, name := range names {
		s.take(s.Store, s.charge(name[0], name[1], l, int64(i%5)+1))
	}
	for i, name := range names {
		s.wantLeft(s.charge(name[0], name[1], l, 0), 4-int64(i%5))
	}
}

func remaining(decisions []weir.Decision) (left []int64) {
	for _, d := range decisions {
		left = append(left, d.Remaining)
	}
	return left
}

func testAllOrNothing(s *suite) {
	for name, l := range s.limits(5) {
		a, c := s.charge(name+"a", "k", l, 2), s.charge(name+"c", "k", l, 1)
		b := s.charge(name+"b", "k", limits.WithPermits(l, 2), 2)
		if ds := s.take(s.Store, a, b, c); !allAllowed(ds) || fmt.Sprint(remaining(ds)) != "[3 0 4]" {
			s.Errorf("%s: %+v", name, ds)
		}
		for _, from := range []store.Home{s.Store, s.Other} {
			ds := s.take(from, a, b, c)
			refused := ds[0].Allowed && ds[1].Reason == weir.ReasonLimited && ds[2].Allowed
			if !refused || fmt.Sprint(remaining(ds)) != "[3 0 4]" {
				s.Errorf("%s, refused by one: %+v", name, ds)
			}
		}
		b.N = 3
		if ds := s.take(s.Other, c, b); !ds[0].Allowed || ds[1].Reason != weir.ReasonNever {
			s.Errorf("%s, never: %+v", name, ds)
		}
		b.N = 0
		if ds := s.take(s.Other, c, b); !ds[0].Allowed || ds[1].Reason != weir.ReasonLimited {
			s.Errorf("%s, probe: %+v", name, ds)
		}
		s.wantLeft(a, 3)
		s.wantLeft(c, 4)
	}
	many := make([]store.Charge, store.MostCharges)
	for i := range many {
		many[i] = s.charge("many", string(rune('A'+i)), s.limits(5)[fixedWindow], 1)
	}
	if ds := s.take(s.Store, many...); !allAllowed(ds) {
		s.Errorf("%d charges: %+v", len(ds), ds)
	}
	for _, c := range many {
		s.wantLeft(c, 4)
	}
}

func testBinding(s *suite) {
	day := weir.TokenBucket(weir.Per(2, s.long()), 0)
	hour := weir.TokenBucket(weir.Per(2, s.long()/24), 0)
	a, b, c := s.charge("a", "k", day, 1), s.charge("b", "k", hour, 2), s.charge("c", "k", day, 2)
	if ds := s.take(s.Store, a, b); !allAllowed(ds) || store.Binding(ds) != 1 {
		s.Errorf("the fewest permits bind: %+v", ds)
	}
	s.take(s.Store, c)
	if ds := s.take(s.Store, a, b, c); store.Binding(ds) != 2 {
		s.Errorf("the longest wait binds: %+v", ds)
	}
}

func testRefundAndReset(s *suite) {
	for name, l := range s.limits(5) {
		c := s.charge(name, "k", l, 4)
		s.noError("Refund of a key never seen", store.Refund(s.ctx(), s.Store, []store.Charge{c}))
		s.wantLeft(c, 5)
		s.take(s.Store, c)
		c.N = 3
		s.noError("Refund", store.Refund(s.ctx(), s.Other, []store.Charge{c}))
		s.wantLeft(c, 4)
		c.N = 100
		s.noError("Refund of more", store.Refund(s.ctx(), s.Other, []store.Charge{c}))
		s.wantLeft(c, 5)
		c.N = 5
		s.take(s.Store, c)
		r := store.Reset(s.ctx(), s.Other, c.Policy, c.Key)
		s.noError("Reset", r)
		s.wantLeft(c, 5)
		s.noError("Reset again", store.Reset(s.ctx(), s.Other, c.Policy, c.Key))
		if d := s.take(s.Store, c)[0]; !d.Allowed {
			s.Errorf("%s after Reset: %+v", name, d)
		}
	}
}

// testSeveral has calls with two charges, which reach both.
func testSeveral(s *suite) {
	for name, l := range s.limits(10) {
		charges := []store.Charge{s.charge(name, "a", l, 4), s.charge(name, "b", l, 6)}
		decisions, states := make([]weir.Decision, 2), make([]store.State, 2)
		want := func(what string, left ...int64) {
			s.Helper()
			_, err := s.Store.Do(s.ctx(), store.Ask{Mode: store.ModePeek, States: states}, charges, decisions)
			if err != nil || !slices.Equal(remaining(decisions), left) {
				s.Errorf("%s, %s: %+v, %v, want %d left", name, what, decisions, err, left)
			}
			for i := range states {
				if st := &states[i]; st.Known != (left[i] < 10) || st.Decision.Remaining != left[i] {
					s.Errorf("%s, %s: the state of charge %d is %+v, want %d left", name, what, i, st, left[i])
				}
			}
		}
		want("never seen", 10, 10)
		s.debit(s.Store, charges...)
		want("debited", 6, 4)
		s.take(s.Other, s.withN(charges[0], 2), s.withN(charges[1], 1))
		want("taken", 4, 3)
		s.noError("Refund", store.Refund(s.ctx(), s.Other, []store.Charge{s.withN(charges[0], 1), s.withN(charges[1], 3)}))
		want("refunded", 5, 6)
		_, err := s.Other.Do(s.ctx(), store.Ask{Mode: store.ModeReset}, charges, nil)
		s.noError("Reset", err)
		want("reset", 10, 10)
	}
}

func testInspect(s *suite) {
	for name, l := range s.limits(5) {
		c := s.charge(name, "k", l, 2)
		st, err := store.Inspect(s.ctx(), s.Store, c)
		want := store.State{Decision: weir.Decision{Allowed: true, Limit: 5, Remaining: 5, Policy: c.Policy}}
		if err != nil || st != want {
			s.Errorf("%s, never seen: %+v, %v", name, st, err)
		}
		s.take(s.Store, c)
		c.N = 1
		r, _ := s.reserve(s.Store, time.Hour, c)
		now := s.Now()
		st, err = store.Inspect(s.ctx(), s.Other, c)
		if err != nil || !st.Known || st.Decision.Remaining != 2 || st.Reserved != 1 || st.Reservations != 1 {
			s.Errorf("%s: %+v, %v", name, st, err)
		}
		if st.Forgotten != 0 && st.Forgotten < now+int64(st.Decision.ResetAfter-time.Second) {
			s.Errorf("%s: forgotten at %d, now is %d: %+v", name, st.Forgotten, now, st.Decision)
		}
		s.noError("Cancel", store.Cancel(s.ctx(), s.Store, r))
		st, err = store.Inspect(s.ctx(), s.Other, c)
		if err != nil || st.Decision.Remaining != 3 || st.Reserved != 0 || st.Reservations != 0 {
			s.Errorf("%s, canceled: %+v, %v", name, st, err)
		}
	}
}

// testParameters changes limits while there is state: what is available stays, up to the new limit, and is never multiplied.
func testParameters(s *suite) {
	for name, l := range s.limits(10) {
		c := s.charge(name, "k", l, 4)
		s.take(s.Store, c) // 6 are left
		c.Limit = limits.WithPermits(l, 3)
		d := s.peek(s.Other, c)[0]
		if d.Limit != 3 || d.Reason != weir.ReasonNever {
			s.Errorf("%s, lowered: %+v", name, d)
		}
		was := s.left(c)
		if was > 3 {
			s.Errorf("%s, lowered: %d are left of 3", name, was)
		}
		if c.N = 1; l.Algorithm() == weir.AlgorithmTokenBucket {
			if d := s.take(s.Other, c)[0]; !d.Allowed || d.Remaining != 2 {
				s.Errorf("%s, lowered: %+v", name, d)
			}
			was = 2
		}
		c.Limit = limits.WithPermits(l, 40)
		if got := s.left(c); l.Algorithm() == weir.AlgorithmTokenBucket && got != was || got > 36 {
			s.Errorf("%s, raised: %d are left, after %d", name, got, was)
		}
	}
}

// testAlgorithms has two processes that differ in the algorithm of a limit: each finds what it left, whatever the other does, so
// that both limits hold. A reset reaches both.
func testAlgorithms(s *suite) {
	const n, turns = 20, 30
	all := s.limits(n)
	all["concurrency"] = weir.AtOnce(n)
	allowed := func(from store.Home, c store.Charge) bool {
		if c.Limit.Algorithm() != weir.AlgorithmConcurrency {
			return s.take(from, c)[0].Allowed
		}
		_, decisions := s.reserve(from, time.Hour, c)
		return decisions[0].Allowed
	}
	for first, l := range all {
		for second, other := range all {
			if first >= second {
				continue
			}
			a, b := s.charge(first, second, l, 1), s.charge(first, second, other, 1)
			for round := range 2 {
				var got [2]int
				for range turns {
					if allowed(s.Store, a) {
						got[0]++
					}
					if allowed(s.Other, b) {
						got[1]++
					}
				}
				if got != [2]int{n, n} {
					s.Errorf("%s and %s in turn, round %d: %d were allowed, want %d of each", first, second, round, got, n)
				}
				s.noError("Reset", store.Reset(s.ctx(), s.Other, a.Policy, a.Key))
			}
			for _, c := range []store.Charge{a, b} {
				if state, err := store.Inspect(s.ctx(), s.Store, c); err != nil || state.Known {
					s.Errorf("%s and %s: %v after a reset: %+v, %v", first, second, c.Limit, state, err)
				}
			}
		}
	}
}

// testHeldAlgorithm changes the algorithm of a limit while permits are reserved, and back: they go back to where they are from.
func testHeldAlgorithm(s *suite) {
	const n = 10
	all := s.limits(n)
	for name, l := range all {
		c := s.charge("held", name, l, 6)
		canceled, _ := s.reserve(s.Store, time.Hour, c)
		c.N = 2
		committed, _ := s.reserve(s.Store, time.Hour, c)
		other := c
		if other.Limit = all[fixedWindow]; name == fixedWindow {
			other.Limit = all[tokenBucket]
		}
		s.take(s.Other, other)
		s.noError("Cancel", store.Cancel(s.ctx(), s.Other, canceled))
		s.noError("Commit", store.Commit(s.ctx(), s.Other, committed, []int64{1}))
		s.wantLeft(other, n-2)
		s.wantLeft(c, n-1)
	}
}

// testCalendars changes the calendar of a limit while there is state: what was taken of the window stays taken, also if the new
// one begins later.
func testCalendars(s *suite) {
	const half, days, months = 12, 14, 28
	now := time.Unix(0, s.Now()).UTC()
	calendars := []algo.Calendar{ // none of whose windows ends while the suite runs
		s.year(),
		{Unit: algo.CalendarMonth, Day: 1 + (now.Day()+days)%months},
		{Unit: algo.CalendarWeek, Weekday: int(now.Weekday()+3) % 7},
		{Unit: algo.CalendarDay, Hour: (now.Hour() + half) % (2 * half)},
	}
	for i, before := range calendars {
		for j, after := range calendars {
			c := s.charge("calendar", fmt.Sprint(i, " then ", j), weir.CalendarWindow(20, before), 7)
			s.take(s.Store, c)
			c.Limit = weir.CalendarWindow(20, after)
			if left := s.left(c); left != 13 {
				s.Errorf("%v, then %v: %d are left, want 13", before, after, left)
			}
			c.N = 1
			s.take(s.Other, c)
			c.Limit = weir.CalendarWindow(20, before)
			if left := s.left(c); left != 12 {
				s.Errorf("%v, then %v, and back: %d are left, want 12", before, after, left)
			}
		}
	}
}
