// Package storetest is the suite that every [store.Home], and every [store.Locks], must pass. A store of your own passes it by a
// test of a few lines:
//
//	func TestMemoryConforms(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Subject {
//			s := open(t) // empty, or with states that no other test uses
//			t.Cleanup(func() { s.Close() })
//			return storetest.Subject{Store: s, Other: open(t)}
//		})
//	}
//
// What the author of a store easily overlooks:
//   - A record needs more than the state and its limit: the reservations with the Mark of what each has taken (see
//     [algo.Algorithm]), and until when no loan is given back. Return has no Mark, only the limit and the time of the loan. It
//     must give nothing back if the limit was changed since, even if it was changed back, or if the clock was set back. As long
//     as such a loan could be given back, keep the record.
//   - Return gives back what Cancel would of permits that were taken at that time, in a state of which nothing else is known. Of
//     a token bucket that is the time in which the permits are regained less the time that has passed, fractions included. Of
//     windows it is what still counts in the window or segment of that time.
//   - Lend and Debit bring the record to the limit of the charge, as Take does. Return must not: it does nothing if the record
//     has another limit.
//   - Policy and Key are not all that a record is kept under: the algorithm of the limit is the third. Otherwise two processes
//     that differ in it would make the record anew in turn, and allow everything. Reset is of all algorithms.
//   - Debit makes debts of up to the limit, as Commit does, and returns the decision of a probe.
//   - A limit that changes while permits are reserved changes what a Mark means. Of a token bucket, what can have been regained
//     at the fastest of the rates since is not given back: see CancelAcross of [algo.Law]. Where windows begin at other times
//     than those of the Mark, permits that counted until then count as taken now, and those of windows that have ended are not
//     given back: a Mark says nothing about the new windows.
//   - The caller uses the slices of a call again. A Hold has charges of its own.
//
// Where the time of a store cannot be set, the suite asks again until the result is there, or a deadline has passed. It uses
// policies and keys with random names, so that subjects may share a place.
package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// Subject is a store to be tested. Only Store is required: the more of the others there are, the more is tested.
type Subject struct {
	// Store is the store.
	Store store.Home
	// Other is another handle to the same states, as another process has it. Default: Store.
	Other store.Home
	// Now is what the clock of the store shows, in Unix nanoseconds. Default: the wall clock. Without Advance it may be a
	// little wrong.
	Now func() int64
	// Advance moves the clock of the store, which must not move by itself. Histories of random calls are then compared exactly
	// with the algorithms. Default: nil, time passes by itself.
	Advance func(d time.Duration)
	// Resolution is the smallest time that the store can tell: clocks are rounded down to it, waits up. Default: 1 ns.
	Resolution time.Duration
	// Skewed returns another handle to the same states for a process whose clock is ahead by d, which may be negative. It is for
	// stores that use the clocks of their callers. Default: nil.
	Skewed func(d time.Duration) store.Home
	// Tentative allows a store to refuse a request because of permits that another request has for a moment, and gives back as it
	// is refused itself. So it is where several stores are asked one after the other. Refused requests of Contention are then
	// repeated until as many are allowed. Default: false, a refused request changes nothing for others.
	Tentative bool
	// Break makes the store unreachable for Store until repair is called. Default: nil.
	Break func() (repair func())
	// Steps is how many steps a random history takes. Default: 2000, and 300 without Advance.
	Steps int
}

// Run runs the suite. Each of its tests has a subject of its own, made by open.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	run(t, func(t *testing.T, test func(t *testing.T)) { //nolint:thelper // it is the test
		test(t)
	}, open)
}

// RunVirtual runs the suite in virtual time: each test, and the subject that open makes for it, in a bubble of package
// testing/synctest. Advance is set if it is not. The clock of the store must be that of package time, and goroutines that open
// has begun must end when the test does.
func RunVirtual(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	run(t, synctest.Test, func(t *testing.T) Subject {
		t.Helper()
		s := open(t)
		if s.Advance == nil {
			s.Advance = func(d time.Duration) {
				time.Sleep(d) //nolint:forbidigo // it is virtual
				synctest.Wait()
			}
		}
		return s
	})
}

// run runs the suite, each test by in.
func run(t *testing.T, in func(t *testing.T, test func(t *testing.T)), open func(t *testing.T) Subject) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(s *suite)
	}{
		{"EveryAlgorithmGrantsItsLimit", testGrants},
		{"PermitsComeBackAfterRetryAfter", testRetryAfter},
		{"Histories", testHistories},
		{"RefusedUnderAnotherLimit", testRefusedUnderAnotherLimit},
		{"LimitOfTheLastCharge", testLimitOfTheLastCharge},
		{"ProbeNeverNegativeOversized", testEdges},
		{"Misuse", testMisuse},
		{"KeysAreApart", testKeysAreApart},
		{"AllOrNothing", testAllOrNothing},
		{"Binding", testBinding},
		{"RefundAndReset", testRefundAndReset},
		{"SeveralAtOnce", testSeveral},
		{"Inspect", testInspect},
		{"ParametersChange", testParameters},
		{"CalendarsMove", testCalendars},
		{"AlgorithmsInTurn", testAlgorithms},
		{"ReservedUnderAnotherAlgorithm", testHeldAlgorithm},
		{"CommitLessAndMore", testCommit},
		{"CancelGivesBack", testCancel},
		{"SettledOnce", testSettledOnce},
		{"SettledByAnother", testSettledByAnother},
		{"SettledInPart", testSettledInPart},
		{"ReservedUnderAnotherLimit", testReservedUnderAnotherLimit},
		{"ReservationExpires", testExpiry},
		{"ConcurrencyIsReserved", testConcurrency},
		{"ReserveAllOrNothing", testReserveAllOrNothing},
		{"Debit", testDebit},
		{"LendAndReturn", testLend},
		{"ReturnLate", testReturnLate},
		{"LendMoreThanTheLimit", testLendNever},
		{"ReturnAfterAChange", testReturnChanged},
		{"ReturnUnderAnotherAlgorithm", testReturnAlgorithm},
		{"LoanMisuse", testLoanMisuse},
		{"ContentionOneKey", testContentionOneKey},
		{"ContentionSeveralKeys", testContentionSeveralKeys},
		{"ContentionReservations", testContentionReservations},
		{"ContentionLoans", testContentionLoans},
		{"ClocksDiffer", testSkew},
		{"ContextEnds", testContext},
		{"Unreachable", testBreak},
		{"Close", testClose},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T) { //nolint:thelper // it is the test
				c.test(newSuite(t, open(t)))
			})
		})
	}
}

// suite is a test of a subject.
type suite struct {
	*testing.T
	Subject

	policy string // a prefix that no other test has
}

// patience is how long anything may take.
const patience = 2 * time.Minute

func newSuite(t *testing.T, subject Subject) *suite {
	t.Helper()
	s := &suite{T: t, Subject: subject, policy: "storetest-" + rand.Text()}
	if s.Other == nil {
		s.Other = s.Store
	}
	if s.Now == nil {
		s.Now = func() int64 { return time.Now().UnixNano() }
	}
	if s.Resolution == 0 {
		s.Resolution = 1
	}
	if s.Steps == 0 {
		if s.Steps = 2000; s.Advance == nil {
			s.Steps = 300
		}
	}
	return s
}

// long is a window that neither begins nor ends while the suite runs, nor does a third of it.
func (s *suite) long() time.Duration {
	s.Helper()
	const day = 24 * time.Hour
	for d := 300 * day; d < 400*day; d += 7 * day {
		if at := time.Duration(s.Now() % int64(d)); at%(d/3) > d/20 && at%(d/3) < d/3-d/20 {
			return d
		}
	}
	s.Fatal("the clock of the store is in no window")
	return 0
}

// The names of limits.
const (
	tokenBucket    = "token-bucket"
	fixedWindow    = "fixed-window"
	slidingWindow  = "sliding-window"
	slidingCounter = "sliding-counter"
	calendarWindow = "calendar-window"
)

// limits are one limit of each algorithm, of n permits that do not come back while the suite runs.
func (s *suite) limits(n int64) map[string]weir.Limit {
	s.Helper()
	rate := weir.Per(n, s.long())
	return map[string]weir.Limit{
		tokenBucket:    weir.TokenBucket(rate, 0),
		fixedWindow:    weir.FixedWindow(rate),
		slidingWindow:  weir.SlidingWindow(rate, 3),
		slidingCounter: weir.SlidingCounter(rate),
		calendarWindow: weir.CalendarWindow(n, s.year()),
	}
}

// year is a calendar whose year does not begin while the suite runs.
func (s *suite) year() algo.Calendar {
	now := time.Unix(0, s.Now()).UTC()
	return algo.Calendar{Unit: algo.CalendarYear, Month: 1 + (now.Month()+5)%12}
}

func (s *suite) charge(name, key string, l weir.Limit, n int64) store.Charge {
	return store.Charge{Policy: s.policy + name, Key: key, Limit: l, N: n}
}

// ctx is a context that ends before the patience of the test does.
func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	return ctx
}

// take takes from a store, and tries again while it is unavailable.
func (s *suite) take(from store.Home, charges ...store.Charge) []weir.Decision {
	s.Helper()
	decisions := make([]weir.Decision, len(charges))
	if err := store.Take(s.ctx(), from, charges, decisions); err != nil {
		s.Fatalf("Take: %v", err)
	}
	return decisions
}

func (s *suite) peek(from store.Home, charges ...store.Charge) []weir.Decision {
	s.Helper()
	decisions := make([]weir.Decision, len(charges))
	if err := store.Peek(s.ctx(), from, charges, decisions); err != nil {
		s.Fatalf("Peek: %v", err)
	}
	return decisions
}

// left is how many permits a charge finds.
func (s *suite) left(c store.Charge) int64 {
	s.Helper()
	c.N = 0
	return s.peek(s.Store, c)[0].Remaining
}

func (s *suite) wantLeft(c store.Charge, want int64) {
	s.Helper()
	if got := s.left(c); got != want {
		s.Errorf("%v of %q: %d permits are left, want %d", c.Limit, c.Key, got, want)
	}
}

func (s *suite) reserve(from store.Home, expiry time.Duration, charges ...store.Charge) (store.Hold, []weir.Decision) {
	s.Helper()
	decisions, given := make([]weir.Decision, len(charges)), slices.Clone(charges)
	r, err := store.Reserve(s.ctx(), from, given, decisions, expiry)
	if err != nil {
		s.Fatalf("Reserve: %v", err)
	}
	clear(given) // the caller has other charges in it next
	if allowed := allAllowed(decisions); allowed != (r.ID != "") || allowed != (len(r.Charges) == len(charges)) {
		s.Fatalf("the reservation is %+v, the decisions are %+v", r, decisions)
	}
	if r.ID == "" {
		return r, decisions
	}
	for i := range charges {
		got, want := &r.Charges[i], &charges[i]
		if got.Policy != want.Policy || got.Key != want.Key || got.Limit != want.Limit || got.N != want.N {
			s.Fatalf("charge %d of the reservation is %+v, want %+v", i, *got, *want)
		}
	}
	if wrong := time.Duration(r.Expires - s.Now() - int64(expiry)).Abs(); wrong > time.Minute {
		s.Errorf("a reservation for %v expires at %d, now is %d", expiry, r.Expires, s.Now())
	}
	return r, decisions
}

func allAllowed(decisions []weir.Decision) bool {
	for _, d := range decisions {
		if !d.Allowed {
			return false
		}
	}
	return true
}

func (s *suite) noError(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

func (s *suite) wantError(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: %v, want %v", what, err, want)
	}
}

// until waits for a condition: with Advance, step by step.
func (s *suite) until(what string, step time.Duration, ok func() bool) {
	s.Helper()
	ctx := s.ctx()
	for !ok() {
		if ctx.Err() != nil {
			s.Fatalf("%s: not within %v", what, patience)
		}
		if s.Advance != nil {
			s.Advance(step)
			continue
		}
		pause := time.NewTimer(min(step, 20*time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}
