package algo

import (
	"math"
	"math/bits"
	"time"
)

// TableLaw is the bucket with states for tables under a clock that does not go back: they leave out Last. They take three words,
// or, if narrow, two where the rate has few permits in its lowest terms.
func (b TokenBucket) TableLaw(narrow bool) TableBucket { //nolint:ireturn // one of two
	if narrow && b.num <= maxUnits && b.full.ns < maxFillUnits/b.num {
		l := law[TokenBucketState, TokenBucket, unitWords]{b, unitWords(b.num)}
		return &unitBucket{l, b.num, b.per, b.per * b.burst}
	}
	most := min(b.burst, math.MaxInt64/b.per)
	return &spanBucket{law[TokenBucketState, TokenBucket, spanWords]{algorithm: b}, most}
}

// TableBucket is the law of a bucket in a table.
type TableBucket interface {
	Law

	// Decide is Take of 1 to burst permits that are not given back or, if they are not to be taken, Peek. It costs less, as
	// results that are small and have no Mark stay in registers.
	Decide(words []uint64, now, n int64, take bool) (allowed bool, remaining int64, retryAfter, resetAfter time.Duration)
}

// spanBucket takes in place what fits: that is several times cheaper.
type spanBucket struct {
	law[TokenBucketState, TokenBucket, spanWords]

	most int64 // permits whose cost in units of 1/num nanosecond is an int64
}

func (l *spanBucket) Take(words []uint64, now, n int64) (r Result) {
	if uint64(n-1) >= uint64(l.most) {
		return l.law.Take(words, now, n)
	}
	if r.Allowed, r.Remaining, r.RetryAfter, r.ResetAfter = l.Decide(words, now, n, true); r.Allowed {
		r.Mark = Mark{At: int64(words[0] + words[2]), Part: int64(words[1]), Taken: now}
	}
	return r
}

// Decide implements [TableBucket].
func (l *spanBucket) Decide(words []uint64, now, n int64, take bool) (
	allowed bool, remaining int64, retryAfter, resetAfter time.Duration,
) {
	if uint64(n-1) >= uint64(l.most) {
		r := l.law.Peek(words, now, n)
		if take {
			r = l.law.Take(words, now, n)
		}
		return r.Allowed, r.Remaining, r.RetryAfter, r.ResetAfter
	}
	b := &l.algorithm
	x := span{int64(words[0]) - now, int64(words[1])}
	if x.ns < 0 {
		x = span{}
	}
	want := b.step
	if n > 1 {
		units := uint64(n) * uint64(b.per)
		want = span{int64(units / uint64(b.num)), int64(units % uint64(b.num))}
	}
	end := b.add(x, want)
	if b.full.less(end) {
		retryAfter = b.sub(end, b.full).ceil()
	} else if allowed = true; take {
		x = end
		words[0], words[1] = uint64(now+end.ns), uint64(end.part)
	}
	if x.less(b.full) {
		left := b.sub(b.full, x)
		if hi, lo := bits.Mul64(uint64(left.ns), uint64(b.num)); hi == 0 && lo < 1<<63 { // a part is less than that
			remaining = int64((lo + uint64(left.part)) / uint64(b.per))
		} else {
			remaining = b.permits(left)
		}
	}
	return allowed, remaining, retryAfter, x.ceil()
}

func (l *spanBucket) Peek(words []uint64, now, n int64) (r Result) {
	if uint64(n-1) >= uint64(l.most) {
		return l.law.Peek(words, now, n)
	}
	r.Allowed, r.Remaining, r.RetryAfter, r.ResetAfter = l.Decide(words, now, n, false)
	return r
}

func (l *spanBucket) Grant(words []uint64, now int64) bool { return l.Take(words, now, 1).Allowed }

func (l *spanBucket) FreshAt(words []uint64) int64 {
	return int64(span{int64(words[0]), int64(words[1])}.ceil())
}

// unitBucket takes in place: a unit is a part of a nanosecond, one of num, so that permits are whole numbers of them.
type unitBucket struct {
	law[TokenBucketState, TokenBucket, unitWords]

	num, step, full int64 // units of a nanosecond, of a permit and of an empty bucket
}

// maxFillUnits is the longest time of filling of a bucket in two words, in units. Longer ones would not fit with their debt.
const maxFillUnits = 1 << 60

func (l *unitBucket) Take(words []uint64, now, n int64) (r Result) {
	if uint64(n-1) >= uint64(l.algorithm.burst) {
		return l.law.Take(words, now, n)
	}
	if r.Allowed, r.Remaining, r.RetryAfter, r.ResetAfter = l.Decide(words, now, n, true); r.Allowed {
		ns, part := l.layout.split(int64(words[0]))
		r.Mark = Mark{At: ns + int64(words[1]), Part: part, Taken: now}
	}
	return r
}

// Decide implements [TableBucket].
func (l *unitBucket) Decide(words []uint64, now, n int64, take bool) (
	allowed bool, remaining int64, retryAfter, resetAfter time.Duration,
) {
	at := now * l.num
	lacks := max(int64(words[0])-at, 0)
	if over := lacks + n*l.step - l.full; over > 0 {
		retryAfter = time.Duration(l.ceil(over))
	} else if allowed = true; take {
		lacks += n * l.step
		words[0] = uint64(at + lacks)
	}
	if lacks < l.full {
		remaining = (l.full - lacks) / l.step
	}
	return allowed, remaining, retryAfter, time.Duration(l.ceil(lacks))
}

func (l *unitBucket) Peek(words []uint64, now, n int64) (r Result) {
	if uint64(n-1) >= uint64(l.algorithm.burst) {
		return l.law.Peek(words, now, n)
	}
	r.Allowed, r.Remaining, r.RetryAfter, r.ResetAfter = l.Decide(words, now, n, false)
	return r
}

func (l *unitBucket) Grant(words []uint64, now int64) bool {
	at := now * l.num
	full := max(int64(words[0]), at) + l.step
	if full-at > l.full {
		return false
	}
	words[0] = uint64(full)
	return true
}

func (l *unitBucket) FreshAt(words []uint64) int64 { return l.ceil(int64(words[0])) }

// ceil is units in nanoseconds, rounded up.
func (l *unitBucket) ceil(units int64) int64 {
	if l.num == 1 {
		return units
	}
	ns := units / l.num
	if units > ns*l.num {
		ns++
	}
	return ns
}

// spanWords are the time at which a bucket is full in nanoseconds, the part of one, and Returned.
type spanWords struct{}

func (spanWords) words() int { return 3 }

func (spanWords) load(w []uint64, now int64) TokenBucketState {
	return fullAt(int64(w[0]), int64(w[1]), int64(w[2]), now)
}

func fullAt(at, part, returned, now int64) TokenBucketState {
	s := TokenBucketState{Last: now, Returned: returned}
	if ahead := at - now; ahead >= 0 {
		s.Ahead, s.Part = ahead, part
	}
	return s
}

func (spanWords) save(w []uint64, s TokenBucketState) {
	w[0], w[1], w[2] = uint64(s.Last+s.Ahead), uint64(s.Part), uint64(s.Returned)
}

func (spanWords) valid(w []uint64) bool { return validTime(w[0]) }

// unitWords are the time at which a bucket is full in units of a part of a nanosecond, so many of which it is divided into, and
// Returned.
type unitWords int64

// maxUnits is the max number of parts. Times reach 36 years.
const maxUnits = 8

func (unitWords) words() int { return 2 }

func (num unitWords) load(w []uint64, now int64) TokenBucketState {
	at, part := num.split(int64(w[0]))
	return fullAt(at, part, int64(w[1]), now)
}

// split divides units into nanoseconds and a part of one.
func (num unitWords) split(units int64) (ns, part int64) {
	if num == 1 {
		return units, 0
	}
	if ns, part = units/int64(num), units%int64(num); part < 0 {
		ns, part = ns-1, part+int64(num)
	}
	return ns, part
}

func (num unitWords) save(w []uint64, s TokenBucketState) {
	at := min(s.Last+s.Ahead, math.MaxInt64/int64(num)-1) // a debt may take longer than that
	w[0], w[1] = uint64(at*int64(num)+s.Part), uint64(s.Returned)
}

func (unitWords) valid([]uint64) bool { return true }
