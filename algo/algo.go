// Package algo is the arithmetic of rate limiting, for code that keeps the states of limits itself: in a table, in a file, in
// a store on another machine. A program that only limits something needs package weir, and none of this.
//
// An algorithm is a value with checked parameters. Its methods are pure functions: they take a state, a time and a number of
// permits, and return a new state and a [Result]. The zero value of a state is a fresh one, of which nothing is used. No method
// reads a clock, takes a lock, knows a key or allocates.
//
// # Time
//
// Time is an int64 of nanoseconds on a scale of the caller's choice; only differences count. Keep it within ±2^62 (146 years). A
// time before the one in the state neither gives permits back nor takes any: the state goes on from the new time. A time that
// jumps ahead gives back at most the whole limit.
//
// # Exactness
//
// Integers do all arithmetic, and nothing is lost over any number of calls. Remaining is rounded down, and every wait is rounded
// up to a whole nanosecond. So a caller that comes back after RetryAfter is allowed if no other took permits in between, and one
// nanosecond earlier it is refused. TestHistoriesEqualReference compares each algorithm with numbers of any size.
package algo

import (
	"fmt"
	"math"
	"time"
)

// Never is the RetryAfter of a request that can never be allowed, because it asks for more permits than the limit has. It is the
// largest duration, not a time to sleep: test for it before waiting.
const Never time.Duration = math.MaxInt64

const (
	// MaxPermits is the largest limit, burst or number of permits per period: 10^15.
	MaxPermits int64 = 1e15
	// MaxPeriod is the max period or window: 3660 days.
	MaxPeriod = 3660 * 24 * time.Hour
	// MaxFill is the max time for an empty token bucket to become full: 18300 days.
	MaxFill = 5 * MaxPeriod
	// MaxSegments is the largest number of segments of a [SlidingWindow].
	MaxSegments = 64
)

// Result is the decision on one request.
type Result struct {
	// Allowed reports whether the permits were taken, or from Peek, whether they would be.
	Allowed bool
	// Remaining is how many permits remain after this call, rounded down, never negative.
	Remaining int64
	// RetryAfter is how long after now the same request would be allowed if no other took permits. It is 0 if the request was
	// allowed, and [Never] if it never can be. It is also 0 for a refusal of [Concurrency], whose permits come back on release,
	// at a time that cannot be foretold.
	RetryAfter time.Duration
	// ResetAfter is how long after now the state becomes fresh if no permits are taken. It is 0 for [Concurrency], where that is
	// not known.
	ResetAfter time.Duration
	// Mark identifies what was taken, for Cancel. It is the zero Mark unless permits were taken.
	Mark Mark
}

// Mark remembers when permits were taken, for Cancel. Permits of a window that has ended, and permits that a bucket has regained,
// are not given back twice. It can be written down, but only the algorithm that made a Mark can use it.
type Mark struct {
	At          int64 // the place in time that the state says: the number of a window, when it begins, or when a bucket is full
	Part, Taken int64 // of a bucket: the part of a nanosecond, which is negative if only Taken is known, and when they were taken
}

// Algorithm is what all algorithms have in common; S is the state.
//
// In every method n must not be negative; a negative n is refused like one that exceeds the limit, or ignored.
type Algorithm[S any] interface {
	// Take takes n permits if they are available at time now. n = 0 is a probe: it is allowed if at least one permit is
	// available, and takes nothing. More permits than the limit are refused with RetryAfter [Never], and the state does not
	// change.
	Take(s S, now, n int64) (S, Result)
	// Peek returns the result that Take would, and changes nothing. Its Remaining is that before the permits are taken.
	Peek(s S, now, n int64) Result
	// Refund adds n permits whatever their origin, at most up to fresh.
	Refund(s S, now, n int64) S
	// Cancel undoes a Take of n permits, or the part n of a larger one, that returned the Mark m. Call it once for each Mark. It
	// never makes more permits available than if they had not been taken, as long as time does not go back
	// (TestCancelNeverMints). A Refund of permits that were never taken may add as many more.
	Cancel(s S, now, n int64, m Mark) S
	// Charge takes n permits whether they are available or not, as far as the debt does not exceed maxDebt permits. It returns
	// how many it took.
	Charge(s S, now, n, maxDebt int64) (S, int64)
	// Fresh reports whether the state at time now equals a fresh one, so that it may be forgotten.
	Fresh(s S, now int64) bool
	// FreshAt is the time from which on the state equals a fresh one if no permits are taken. It is math.MinInt64 for a state
	// that has never been used.
	FreshAt(s S) int64
	// Limit is the max number of permits that can be taken at once.
	Limit() int64
}

// A ParameterError is a parameter of a constructor that is out of range.
type ParameterError struct {
	Parameter string // as in the signature of the constructor
	Value     string
	Accepted  string
}

// Error names the parameter, its value and what is accepted.
func (e *ParameterError) Error() string {
	return fmt.Sprintf("algo: %s is %s: must be %s", e.Parameter, e.Value, e.Accepted)
}

func checkPermits(name string, v int64) error {
	if v < 1 || v > MaxPermits {
		return &ParameterError{name, fmt.Sprint(v), "from 1 to 10^15"}
	}
	return nil
}

func checkPeriod(name string, d time.Duration) error {
	if d < 1 || d > MaxPeriod {
		return &ParameterError{name, d.String(), "from 1ns to 87840h (3660 days)"}
	}
	return nil
}

// elapsed is to - from, at least 0 and at most math.MaxInt64.
func elapsed(from, to int64) int64 {
	if to <= from {
		return 0
	}
	d := to - from
	if d < 0 { // the difference does not fit
		return math.MaxInt64
	}
	return d
}

// after is t + d where d >= 0, held at math.MaxInt64 where the sum does not fit.
func after(t, d int64) int64 {
	if sum := t + d; sum >= t {
		return sum
	}
	return math.MaxInt64
}
