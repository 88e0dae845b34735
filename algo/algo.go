// Package algo holds the arithmetic of rate limiting: pure functions over small states of fixed size.
//
// Every algorithm is a value that holds its checked parameters, and has a state type whose zero value means "fresh":
// nothing used yet. The methods take a state, a time and a number of permits, and answer a new state and a [Result].
// They read no clock, take no lock, know no key and never allocate, so that the same arithmetic serves one limiter in a
// process, a table of millions of keys, or a store on another machine.
//
// # Time
//
// Time is an int64 of nanoseconds on whatever scale the caller keeps to; only differences count. It should stay within
// ±2^62 (146 years). A time that lies before the one stored in the state neither gives permits back nor takes any:
// the state goes on from the new time as if no time had passed. A time that jumps ahead restores at most everything.
//
// # Exactness
//
// All arithmetic is in integers, 128 bits wide where 64 do not suffice, and loses nothing: the results equal those of
// unbounded rational arithmetic, over any number of calls. Remaining is rounded down and every wait is rounded up to a
// whole nanosecond, so that a caller that comes back after RetryAfter is admitted if nobody else came in between, and
// one nanosecond earlier is not. Each algorithm is compared with a reference in numbers of any size on random histories
// (TestHistoriesEqualReference).
package algo

import (
	"fmt"
	"math"
	"time"
)

// Never is the RetryAfter of a request that cannot succeed however long the caller waits, because it asks for more
// permits than the limit ever holds. It is the largest duration, not a time to sleep: test for it before waiting.
const Never time.Duration = math.MaxInt64

const (
	// MaxPermits is the largest limit, burst or number of permits per period: 10^15.
	MaxPermits int64 = 1e15
	// MaxPeriod is the longest period or window: 3660 days.
	MaxPeriod = 3660 * 24 * time.Hour
	// MaxFill is the longest time that an empty token bucket may need to become full: 18300 days.
	MaxFill = 5 * MaxPeriod
	// MaxSegments is the largest number of segments of a [SlidingWindow].
	MaxSegments = 64
)

// Result is what an algorithm says of one request.
type Result struct {
	// Allowed reports whether the permits were (or, from Peek, would be) granted.
	Allowed bool
	// Remaining is how many permits are left after this call, rounded down, never negative.
	Remaining int64
	// RetryAfter is how long after now the same request would be granted if nobody else took permits: 0 if it was
	// granted, [Never] if it never can be. It is also 0 for a refusal of [Concurrency], whose permits come back
	// when somebody releases them and at no time that could be foretold.
	RetryAfter time.Duration
	// ResetAfter is how long after now the state becomes fresh if nobody takes permits. It is 0 for [Concurrency],
	// where nobody knows.
	ResetAfter time.Duration
	// Mark identifies what was taken, for Cancel. It is the zero Mark unless permits were granted.
	Mark Mark
}

// Mark remembers where in the history of a state permits were taken, so that Cancel gives back exactly what the taking
// still costs: permits of a window that has ended, or that a bucket has long refilled, are not given back twice.
// It means nothing to an algorithm other than the one that made it.
type Mark struct {
	at, part, taken int64
}

// MarkAt is the Mark of permits taken in the window number at of a [FixedWindow], with part 0: for callers that keep its
// state in another form. For a [TokenBucket] use [TokenBucketState.Mark], which also knows what was returned.
func MarkAt(at, part int64) Mark { return Mark{at, part, math.MinInt64} }

// Algorithm is what all algorithms have in common; S is the state.
//
// In every method n must not be negative; a negative n is refused like one that exceeds the limit, or ignored.
type Algorithm[S any] interface {
	// Take grants n permits if they are available at time now. n = 0 is a probe: it is allowed if at least one permit
	// is available and takes nothing. More permits than the limit are refused with RetryAfter [Never] and the state
	// is returned as it was.
	Take(s S, now, n int64) (S, Result)
	// Peek answers what Take would, and changes nothing. Its Remaining is that before the taking.
	Peek(s S, now, n int64) Result
	// Refund adds n permits whatever their origin, at most up to fresh.
	Refund(s S, now, n int64) S
	// Cancel undoes a Take of n permits, or the part n of a larger one, that answered the Mark m; once for each Mark.
	// It never makes more permits available than if they had not been taken, as long as time does not go back
	// (TestCancelNeverMints). Where Refund gave back permits that had never been taken, it may make as many more
	// available.
	Cancel(s S, now, n int64, m Mark) S
	// Charge takes n permits whether they are available or not, as far as the debt does not exceed maxDebt permits, and
	// answers how many it took.
	Charge(s S, now, n, maxDebt int64) (S, int64)
	// Fresh reports whether the state at time now equals a fresh one, so that it may be forgotten.
	Fresh(s S, now int64) bool
	// FreshAt is the time from which on the state equals a fresh one if nobody takes permits. It is
	// math.MinInt64 for a state that has never been used.
	FreshAt(s S) int64
	// Limit is the largest number of permits that can ever be granted at once.
	Limit() int64
}

// A ParameterError says which parameter of a constructor is out of range.
type ParameterError struct {
	Parameter string // as it stands in the constructor's signature
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
