package algo

import "math"

// Concurrency allows up to Limit permits at a time. They come back when they are released by Cancel or Refund, not with time. All
// times are ignored.
type Concurrency struct{ limit int64 }

// ConcurrencyState is how many permits are out. The zero value is fresh.
type ConcurrencyState struct{ InUse int64 }

// NewConcurrency returns a limit of that many permits at a time, from 1 to [MaxPermits].
func NewConcurrency(limit int64) (Concurrency, error) {
	if err := checkPermits("limit", limit); err != nil {
		return Concurrency{}, err
	}
	return Concurrency{limit}, nil
}

// Limit implements [Algorithm].
func (c Concurrency) Limit() int64 { return c.limit }

// Take implements [Algorithm].
func (c Concurrency) Take(s ConcurrencyState, _, n int64) (ConcurrencyState, Result) {
	r := Result{Remaining: max(0, c.limit-s.InUse)}
	if n < 0 || n > c.limit {
		r.RetryAfter = Never
		return s, r
	}
	if s.InUse+max(n, 1) > c.limit {
		return s, r
	}
	s.InUse += n
	r.Allowed = true
	r.Remaining -= n
	return s, r
}

// Peek implements [Algorithm].
func (c Concurrency) Peek(s ConcurrencyState, _, n int64) Result {
	_, r := c.Take(s, 0, n)
	r.Remaining = max(0, c.limit-s.InUse)
	return r
}

// Refund implements [Algorithm].
func (c Concurrency) Refund(s ConcurrencyState, _, n int64) ConcurrencyState {
	s.InUse -= min(max(n, 0), s.InUse)
	return s
}

// Cancel implements [Algorithm]: it releases n permits.
func (c Concurrency) Cancel(s ConcurrencyState, now, n int64, _ Mark) ConcurrencyState {
	return c.Refund(s, now, n)
}

// Charge implements [Algorithm].
func (c Concurrency) Charge(s ConcurrencyState, _, n, maxDebt int64) (ConcurrencyState, int64) {
	n = room(n, c.limit, maxDebt, s.InUse)
	s.InUse += n
	return s, n
}

// Fresh implements [Algorithm].
func (c Concurrency) Fresh(s ConcurrencyState, _ int64) bool { return s.InUse == 0 }

// FreshAt implements [Algorithm]: it is math.MaxInt64 while a permit is out.
func (c Concurrency) FreshAt(s ConcurrencyState) int64 {
	if s.InUse > 0 {
		return math.MaxInt64
	}
	return math.MinInt64
}
