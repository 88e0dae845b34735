package reference

import (
	"math/big"
	"time"

	"github.com/weirhq/weir/algo"
)

// TokenBucket is the reference of [algo.TokenBucket].
type TokenBucket struct {
	permits, period *big.Int // the rate, in nanoseconds
	burst           int64
	have            *big.Int // what is in the bucket, in parts of which a permit has period; negative in debt
	last            int64
	moved           *big.Int // ns: how much earlier what was taken is regained because of what was given back since
}

var _ Limiter = (*TokenBucket)(nil)

// NewTokenBucket returns a full bucket.
func NewTokenBucket(permits int64, period time.Duration, burst int64) *TokenBucket {
	return &TokenBucket{
		permits: whole(permits), period: whole(int64(period)), burst: burst,
		have: times(whole(burst), whole(int64(period))), moved: whole(0),
	}
}

// At is how many permits are in the bucket at time now; negative in debt.
func (b *TokenBucket) At(now int64) *big.Rat { return new(big.Rat).SetFrac(b.at(now), b.period) }

// Set makes the bucket hold that many permits at time now, which must be a whole number of those parts of a permit that
// the bucket regains in a nanosecond divided by the permits of the rate.
func (b *TokenBucket) Set(now int64, permits *big.Rat) {
	parts := new(big.Rat).Mul(permits, new(big.Rat).SetInt(b.period))
	b.have, b.last = new(big.Int).Set(parts.Num()), now
}

func (b *TokenBucket) full() *big.Int { return times(whole(b.burst), b.period) }

// at is what is in the bucket at time now: min(burst, what there was + elapsed x rate).
func (b *TokenBucket) at(now int64) *big.Int {
	if now <= b.last {
		return b.have
	}

	return smaller(b.full(), plus(b.have, times(minus(whole(now), whole(b.last)), b.permits)))
}

func (b *TokenBucket) remaining(have *big.Int) int64 {
	return larger(whole(0), down(have, b.period)).Int64()
}

// until is how long it takes from a bucket that holds have to one that holds want.
func (b *TokenBucket) until(have, want *big.Int) *big.Int {
	return larger(whole(0), up(minus(want, have), b.permits))
}

func (b *TokenBucket) decide(have *big.Int, n int64) algo.Result {
	r := algo.Result{Remaining: b.remaining(have), ResetAfter: duration(b.until(have, b.full()))}
	need := times(whole(max(n, 1)), b.period)

	switch {
	case n < 0 || n > b.burst:
		r.RetryAfter = algo.Never
	case less(have, need):
		r.RetryAfter = duration(b.until(have, need))
	default:
		r.Allowed = true
	}

	return r
}

// Take implements [Limiter].
func (b *TokenBucket) Take(now, n int64) (algo.Result, Mark) {
	have := b.at(now)
	r := b.decide(have, n)

	if r.RetryAfter == algo.Never {
		return r, Mark{}
	}

	b.have, b.last = have, now
	if !r.Allowed || n == 0 {
		return r, Mark{}
	}

	b.have = minus(have, times(whole(n), b.period))
	r.Remaining, r.ResetAfter = b.remaining(b.have), duration(b.until(b.have, b.full()))

	return r, Mark{at: plus(times(whole(now), b.permits), b.missing()), moved: b.moved, taken: now}
}

// missing is what is missing to a full bucket: as a time, in parts of which a nanosecond has permits.
func (b *TokenBucket) missing() *big.Int { return minus(b.full(), b.have) }

// Peek implements [Limiter].
func (b *TokenBucket) Peek(now, n int64) algo.Result { return b.decide(b.at(now), n) }

// Wait is how long after now a total of n permits will have been available: how long it takes, without the burst for a
// limit, until the bucket would hold n.
func (b *TokenBucket) Wait(now, n int64) time.Duration {
	have, want := b.at(now), times(whole(max(n, 0)), b.period)
	// from full down to what there is and n more
	if span := down(plus(minus(b.full(), have), want), b.permits); !span.IsInt64() {
		return algo.Never
	}

	return duration(b.until(have, want))
}

// Refund implements [Limiter].
func (b *TokenBucket) Refund(now, n int64) {
	b.have, b.last = b.at(now), now
	back := smaller(times(whole(max(n, 0)), b.period), b.missing())
	b.have, b.moved = plus(b.have, back), plus(b.moved, up(back, b.permits))
}

// Cancel implements [Limiter].
//
// Without anything given back since the taking, the bucket, full at m.at as the taking left it, regains the n permits
// last of all, so they are missing as far as m.at lies ahead. What was given back since may have been taken before them:
// then they are regained earlier by as much. But what the bucket has not had the time to regain it lacks in any case.
func (b *TokenBucket) Cancel(now, n int64, m Mark) {
	b.have, b.last = b.at(now), now
	cost := times(whole(min(max(n, 0), b.burst)), b.period)
	left := minus(m.at, times(plus(whole(now), minus(b.moved, m.moved)), b.permits))
	newest := left.Cmp(b.missing()) == 0
	back := cost

	if !newest {
		if less(b.missing(), left) {
			left = whole(0) // something else than time and this limiter has changed the state
		}

		gone := times(larger(whole(0), minus(whole(now), whole(m.taken))), b.permits)
		back = larger(smaller(cost, left), minus(cost, gone))
	}

	back = smaller(larger(back, whole(0)), b.missing())
	b.have = plus(b.have, back)

	if !newest {
		b.moved = plus(b.moved, up(back, b.permits))
	}
}

// Charge implements [Limiter].
func (b *TokenBucket) Charge(now, n, maxDebt int64) int64 {
	b.have, b.last = b.at(now), now
	debt := smaller(times(whole(max(maxDebt, 0)), b.period), times(whole(int64(algo.MaxFill)), b.permits))
	n = larger(whole(0), smaller(whole(n), down(plus(b.have, debt), b.period))).Int64()
	b.have = minus(b.have, times(whole(n), b.period))

	return n
}

// Fresh implements [Limiter].
func (b *TokenBucket) Fresh(now int64) bool { return b.at(now).Cmp(b.full()) == 0 }
