package reference

import "github.com/weirhq/weir/algo"

// Concurrency is the reference of [algo.Concurrency].
type Concurrency struct{ limit, out int64 }

var _ Limiter = (*Concurrency)(nil)

// NewConcurrency returns a limiter of which nothing is out.
func NewConcurrency(limit int64) *Concurrency { return &Concurrency{limit: limit} }

// Take implements [Limiter].
func (c *Concurrency) Take(now, n int64) (algo.Result, Mark) {
	r := c.Peek(now, n)
	if r.Allowed {
		c.out += n
		r.Remaining -= n
	}

	return r, Mark{}
}

// Peek implements [Limiter].
func (c *Concurrency) Peek(_, n int64) algo.Result {
	free := max(0, c.limit-c.out)
	r := algo.Result{Remaining: free}

	switch {
	case n < 0 || n > c.limit:
		r.RetryAfter = algo.Never
	case n == 0:
		r.Allowed = free > 0
	default:
		r.Allowed = free >= n
	}

	return r
}

// Refund implements [Limiter].
func (c *Concurrency) Refund(_, n int64) { c.out = max(0, c.out-max(n, 0)) }

// Cancel implements [Limiter].
func (c *Concurrency) Cancel(now, n int64, _ Mark) { c.Refund(now, n) }

// Charge implements [Limiter].
func (c *Concurrency) Charge(_, n, maxDebt int64) int64 {
	n = chargeable(n, c.limit, maxDebt, whole(c.out))
	c.out += n

	return n
}

// Fresh implements [Limiter].
func (c *Concurrency) Fresh(int64) bool { return c.out == 0 }
