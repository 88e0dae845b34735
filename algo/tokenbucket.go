package algo

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// TokenBucket has up to Burst permits and regains them evenly, at a rate of permits per period.
//
// Over any interval t it allows at most burst + rate x t permits. A caller that asks for single permits as often as it likes gets
// at least rate x t - 1 of them. Debt made by Charge comes on top: at most maxDebt permits, once. With a burst of 1, permits are
// at least period / permits apart, rounded up to a nanosecond.
//
// The algorithm is the generic cell rate algorithm (ITU-T I.371) in its virtual scheduling form. The time of one permit, period /
// permits, need not be a whole number of nanoseconds: fractions are kept.
type TokenBucket struct {
	burst int64
	num   int64 // num permits in per nanoseconds, lowest terms
	per   int64
	step  span // one permit
	full  span // burst permits
}

// TokenBucketState is how far a bucket is from full. At time Last it lacked Ahead + Part/num nanoseconds of refilling, where num
// is the permits of [TokenBucket.Rate]. The zero value is a full bucket.
//
// Returned keeps Cancel from giving back too much. It is by how many nanoseconds refunds and cancellations have brought forward
// the time at which earlier permits are regained. No other method reads it. If a state was forgotten while Marks of it exist,
// begin the new one with the old Returned: the Marks are then worth nothing.
type TokenBucketState struct {
	Ahead, Part int64
	Last        int64
	Returned    int64 // modulo 2^64
}

// Mark is the Mark of a Take that led to the state s: for callers that keep the state in another form.
func (s TokenBucketState) Mark() Mark {
	return Mark{At: s.Last + s.Ahead + s.Returned, Part: s.Part, Taken: s.Last}
}

// span is a time of ns + part/num nanoseconds, 0 <= part < num.
type span struct{ ns, part int64 }

// NewTokenBucket returns a bucket of the given burst that regains permits per period. permits and burst are from 1 to
// [MaxPermits], period is from 1 ns to [MaxPeriod]. The rate is at most 10^9 permits a second, and an empty bucket is full after
// at most [MaxFill].
func NewTokenBucket(permits int64, period time.Duration, burst int64) (TokenBucket, error) {
	if err := checkPermits("permits", permits); err != nil {
		return TokenBucket{}, err
	}
	if err := checkPeriod("period", period); err != nil {
		return TokenBucket{}, err
	}
	if err := checkPermits("burst", burst); err != nil {
		return TokenBucket{}, err
	}
	if permits > int64(period) {
		return TokenBucket{}, &ParameterError{
			"permits", fmt.Sprint(permits), "at most 1 per nanosecond, here " + fmt.Sprint(int64(period)),
		}
	}
	g := gcd(permits, int64(period))
	b := TokenBucket{burst: burst, num: permits / g, per: int64(period) / g}
	b.step = span{b.per / b.num, b.per % b.num}
	full, ok := b.cost(burst)
	if !ok || (span{ns: int64(MaxFill)}).less(full) {
		return TokenBucket{}, &ParameterError{
			"burst", fmt.Sprint(burst), "small enough to be regained within 439200h (18300 days)",
		}
	}
	b.full = full
	return b, nil
}

// Burst is the max number of permits in the bucket.
func (b TokenBucket) Burst() int64 { return b.burst }

// Limit is the burst.
func (b TokenBucket) Limit() int64 { return b.burst }

// Rate is the rate of refilling as a reduced fraction: permits per period of nanoseconds.
func (b TokenBucket) Rate() (permits, period int64) { return b.num, b.per }

// FillTime returns how long an empty bucket takes to be full, rounded up.
func (b TokenBucket) FillTime() time.Duration {
	_, r := b.Take(TokenBucketState{}, 0, b.burst)
	return r.ResetAfter
}

// Take implements [Algorithm].
func (b TokenBucket) Take(s TokenBucketState, now, n int64) (TokenBucketState, Result) {
	r := b.TakeIn(&s, now, n)
	return s, r
}

// TakeIn is Take on a state in place, which is a quarter cheaper.
func (b *TokenBucket) TakeIn(s *TokenBucketState, now, n int64) Result {
	x := b.at(*s, now)
	if n < 0 || n > b.burst {
		return Result{Remaining: b.available(x), RetryAfter: Never, ResetAfter: x.ceil()}
	}
	want := b.step
	if n > 1 {
		want, _ = b.cost(n)
	}
	end := b.add(x, want)
	if b.full.less(end) {
		*s = s.lacking(x, now)
		return Result{
			Remaining:  b.available(x),
			RetryAfter: b.sub(end, b.full).ceil(),
			ResetAfter: x.ceil(),
		}
	}
	if n == 0 {
		*s = s.lacking(x, now)
		return Result{Allowed: true, Remaining: b.available(x), ResetAfter: x.ceil()}
	}
	*s = s.lacking(end, now)
	return Result{Allowed: true, Remaining: b.available(end), ResetAfter: end.ceil(), Mark: s.Mark()}
}

// Grant is Take for callers that need only Allowed. It requires 1 <= n <= burst, and a state in which now is not before Last.
func (b *TokenBucket) Grant(s *TokenBucketState, now, n int64) bool {
	x := b.at(*s, now)
	want := b.step
	if n != 1 {
		want, _ = b.cost(n)
	}
	end := b.add(x, want)
	if b.full.less(end) {
		return false
	}
	*s = s.lacking(end, now)
	return true
}

// Peek implements [Algorithm].
func (b TokenBucket) Peek(s TokenBucketState, now, n int64) Result {
	_, r := b.Take(s, now, n)
	if r.Allowed && n > 0 {
		x := b.at(s, now)
		r = Result{Allowed: true, Remaining: b.available(x), ResetAfter: x.ceil()}
	}
	return r
}

// Wait is how long after now n permits in total will have become available; n may exceed the burst. It is when the last of a
// queue of callers that ask for n permits together is served. n = 0 waits for the end of a debt. It is [Never] if the bucket
// would need more than 292 years.
func (b TokenBucket) Wait(s TokenBucketState, now, n int64) time.Duration {
	want, ok := b.cost(n)
	if !ok {
		return Never
	}
	end := b.add(b.at(s, now), want)
	if end.ns < 0 {
		return Never
	}
	if !b.full.less(end) {
		return 0
	}
	return b.sub(end, b.full).ceil()
}

// Refund implements [Algorithm].
func (b TokenBucket) Refund(s TokenBucketState, now, n int64) TokenBucketState {
	x := b.at(s, now)
	back, ok := b.cost(n)
	if !ok || x.less(back) {
		back = x
	}
	s.Returned += int64(back.ceil())
	return s.lacking(b.sub(x, back), now)
}

// Cancel implements [Algorithm]. What the bucket has regained of the n permits since the Take is not given back, because others
// may have taken it. So a cancellation at t after the Take of a full bucket returns n - rate x t permits. One in a busy bucket,
// which regains the permits later, returns all n.
//
// Permits that Refund or another Cancel gave back since the Take count as if they were taken before it: the n permits have then
// been regained earlier by as much. A Take that nothing else has followed is undone exactly. Any Take returns at least n - rate x
// t.
func (b TokenBucket) Cancel(s TokenBucketState, now, n int64, m Mark) TokenBucketState {
	x := b.at(s, now)
	if n <= 0 {
		return s.lacking(x, now)
	}
	cost, _ := b.cost(min(n, b.burst))
	// How long it takes until the n permits are regained, if time passes evenly.
	left := span{m.At - s.Returned - now, m.Part}
	if left == x { // they are the last that are missing
		return s.lacking(b.sub(x, cost.min(x)), now)
	}
	back := span{}
	if left.ns >= 0 && left.less(x) && uint64(left.part) < uint64(b.num) { // otherwise m is not a Mark of this state
		back = cost.min(left)
	}
	if t := elapsed(m.Taken, now); t <= cost.ns {
		back = back.max(span{cost.ns - t, cost.part})
	}
	back = back.min(x)
	s.Returned += int64(back.ceil())
	return s.lacking(b.sub(x, back), now)
}

// Charge implements [Algorithm]. What is owed never takes longer than [MaxFill] to be regained, whatever maxDebt is.
func (b TokenBucket) Charge(s TokenBucketState, now, n, maxDebt int64) (TokenBucketState, int64) {
	x := b.at(s, now)
	most, ok := b.cost(maxDebt)
	if longest := (span{ns: int64(MaxFill)}); !ok || longest.less(most) {
		most = longest
	}
	most = b.add(b.full, most)
	if n <= 0 || !x.less(most) {
		return s.lacking(x, now), 0
	}
	n = min(n, b.permits(b.sub(most, x)))
	cost, _ := b.cost(n)
	return s.lacking(b.add(x, cost), now), n
}

// Fresh implements [Algorithm].
func (b TokenBucket) Fresh(s TokenBucketState, now int64) bool { return b.at(s, now) == span{} }

// FreshAt implements [Algorithm].
func (b TokenBucket) FreshAt(s TokenBucketState) int64 {
	if s == (TokenBucketState{}) {
		return math.MinInt64
	}
	return after(s.Last, int64(span{s.Ahead, s.Part}.ceil()))
}

// Carry converts a state of the bucket old into one of b. It keeps the permits in it at time now, up to the burst of b, rounded
// down by less than one nanosecond of refilling. They are not scaled. A debt stays owed, rounded up likewise, up to what b
// regains in [MaxFill]. A Mark from before is worthless to Cancel: see CancelAcross.
func (b TokenBucket) Carry(old TokenBucket, s TokenBucketState, now int64) TokenBucketState {
	x := old.at(s, now)
	s.Returned += s.Ahead + 1 // so that no Mark is good any more
	if old.full.less(x) {     // in debt, which stays owed
		debt := old.sub(x, old.full)
		whole, rest := old.split(debt)
		longest := span{ns: int64(MaxFill)}
		owed, ok := b.cost(whole)
		if !ok || longest.less(owed) {
			owed = longest
		}
		owed = b.add(owed, b.scale(rest, old.per, true)).min(longest)
		return s.lacking(b.add(b.full, owed), now)
	}
	whole, rest := old.split(old.sub(old.full, x))
	if whole >= b.burst {
		return s.lacking(span{}, now)
	}
	held, _ := b.cost(whole)
	held = b.add(held, b.scale(rest, old.per, false))
	if !held.less(b.full) {
		return s.lacking(span{}, now)
	}
	return s.lacking(b.sub(b.full, held), now)
}

// at is what is missing to full at time now.
func (b *TokenBucket) at(s TokenBucketState, now int64) span {
	gone := elapsed(s.Last, now)
	if s.Ahead < gone {
		return span{}
	}
	return span{s.Ahead - gone, s.Part}
}

// lacking is the state s when x is missing to full at time now.
func (s TokenBucketState) lacking(x span, now int64) TokenBucketState {
	s.Ahead, s.Part, s.Last = x.ns, x.part, now
	return s
}

// cost is the time that n permits take to be regained; not ok if it exceeds an int64.
func (b *TokenBucket) cost(n int64) (span, bool) {
	if n <= 0 {
		return span{}, true
	}
	hi, lo := bits.Mul64(uint64(n), uint64(b.per))
	if hi >= uint64(b.num) {
		return span{}, false
	}
	quo, rem := bits.Div64(hi, lo, uint64(b.num))
	return span{int64(quo), int64(rem)}, quo <= math.MaxInt64
}

// split divides x into whole permits and a rest below one, in units of 1/num nanosecond.
func (b *TokenBucket) split(x span) (whole, rest int64) {
	hi, lo := bits.Mul64(uint64(x.ns), uint64(b.num))
	lo, carry := bits.Add64(lo, uint64(x.part), 0)
	if hi += carry; hi == 0 { // nearly always, and several times cheaper
		return int64(min(lo/uint64(b.per), math.MaxInt64)), int64(lo % uint64(b.per))
	}
	if hi >= uint64(b.per) {
		return math.MaxInt64, 0
	}
	quo, rem := bits.Div64(hi, lo, uint64(b.per))
	return int64(min(quo, math.MaxInt64)), int64(rem)
}

func (b *TokenBucket) permits(x span) int64 {
	whole, _ := b.split(x)
	return whole
}

// scale is the time of part/whole permits, 0 <= part < whole.
func (b *TokenBucket) scale(part, whole int64, up bool) span {
	// b.per x part / whole, in units of 1/num nanosecond
	hi, lo := bits.Mul64(uint64(b.per), uint64(part))
	quo, rem := bits.Div64(hi, lo, uint64(whole))
	if up && rem > 0 {
		quo++
	}
	return span{int64(quo) / b.num, int64(quo) % b.num}
}

func (b *TokenBucket) available(x span) int64 {
	if !x.less(b.full) {
		return 0
	}
	if x == (span{}) {
		return b.burst
	}
	return b.permits(b.sub(b.full, x))
}

func (b *TokenBucket) add(x, y span) span {
	z := span{x.ns + y.ns, x.part + y.part}
	if z.part >= b.num {
		z.part -= b.num
		z.ns++
	}
	return z
}

// sub is x - y, which must not be negative.
func (b *TokenBucket) sub(x, y span) span {
	z := span{x.ns - y.ns, x.part - y.part}
	if z.part < 0 {
		z.part += b.num
		z.ns--
	}
	return z
}

func (x span) less(y span) bool { return x.ns < y.ns || x.ns == y.ns && x.part < y.part }

func (x span) min(y span) span {
	if y.less(x) {
		return y
	}
	return x
}

func (x span) max(y span) span {
	if x.less(y) {
		return y
	}
	return x
}

func (x span) ceil() time.Duration {
	if x.part > 0 {
		return time.Duration(x.ns + 1)
	}
	return time.Duration(x.ns)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
