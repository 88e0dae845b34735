package weir

import (
	"math"
	"math/bits"
	"time"

	"github.com/weirhq/weir/algo"
)

// wideBucket is packedBucket, written out for requests whose cost fits a word: algo.TokenBucket without copying its state.
// Times are pairs of nanoseconds and a part of one, in 1/num.
type wideBucket struct {
	most     int64 // permits that it can take at once; 0 if states have another form
	num, per int64
	step     wide // one permit
	full     wide // an empty bucket
}

// wide is some nanoseconds and some parts of one.
type wide struct{ ns, part int64 }

func (w *wideBucket) init(t *terms) {
	if _, ok := t.packed.(*packedBucket); !ok {
		return
	}
	w.num, w.per = t.bucket.Rate()
	w.step = wide{w.per / w.num, w.per % w.num}
	hi, lo := bits.Mul64(uint64(t.permits), uint64(w.per))
	ns, part := bits.Div64(hi, lo, uint64(w.num)) // a bucket is regained within 50 years
	w.full = wide{int64(ns), int64(part)}
	w.most = min(t.permits, math.MaxInt64/w.per)
}

// fits reports whether take can take n permits from a state in which no more is missing than there can be.
func (w *wideBucket) fits(n int64) bool { return uint64(n-1) < uint64(w.most) }

func (w *wideBucket) take(state []uint64, now, n int64) (r algo.Result) {
	lacks := wide{int64(state[0]) - now, int64(state[1])}
	if lacks.ns < 0 {
		lacks = wide{}
	}
	cost := w.step
	if n > 1 {
		units := uint64(n) * uint64(w.per)
		cost = wide{int64(units / uint64(w.num)), int64(units % uint64(w.num))}
	}
	end := wide{lacks.ns + cost.ns, lacks.part + cost.part}
	if end.part >= w.num {
		end.part -= w.num
		end.ns++
	}
	if w.full.less(end) {
		r.RetryAfter = w.sub(end, w.full).ceil()
	} else {
		r.Allowed = true
		lacks = end
		state[0], state[1] = uint64(now+end.ns), uint64(end.part)
	}
	if lacks.less(w.full) {
		left := w.sub(w.full, lacks)
		hi, lo := bits.Mul64(uint64(left.ns), uint64(w.num))
		lo, carry := bits.Add64(lo, uint64(left.part), 0)
		if hi += carry; hi == 0 {
			r.Remaining = int64(lo / uint64(w.per))
		} else {
			quo, _ := bits.Div64(hi, lo, uint64(w.per))
			r.Remaining = int64(quo)
		}
	}
	r.ResetAfter = lacks.ceil()
	return r
}

func (w *wideBucket) sub(x, y wide) wide {
	z := wide{x.ns - y.ns, x.part - y.part}
	if z.part < 0 {
		z.part += w.num
		z.ns--
	}
	return z
}

func (x wide) less(y wide) bool { return x.ns < y.ns || x.ns == y.ns && x.part < y.part }

func (x wide) ceil() time.Duration {
	if x.part > 0 {
		return time.Duration(x.ns + 1)
	}
	return time.Duration(x.ns)
}
