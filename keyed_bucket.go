package weir

import (
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/table"
)

// bucketWord is packedUnits, written out for the limit that most keys have: algo.TokenBucket in the one unit that is a part of
// everything, 1/num nanosecond.
type bucketWord struct {
	base *terms // nil if states have another form
	num  int64
	step int64 // one permit
	full int64 // an empty bucket
}

func (w *bucketWord) init(base *terms) {
	if _, ok := base.packed.(*packedUnits); !ok {
		return
	}
	num, per := base.bucket.Rate()
	if most := float64(base.most) * float64(num); most > 1<<60 {
		return
	}
	*w = bucketWord{base: base, num: num, step: per, full: per * base.permits}
	base.scale, base.bound = num, base.most*num
}

// allow is take(1) where only the answer matters.
func (w *bucketWord) allow(state []uint64, now int64) bool {
	at := now * w.num
	word := &state[0]
	full := max(int64(*word), at) + w.step
	if full-at > w.full {
		return false
	}
	*word = uint64(full)
	return true
}

// begin takes n permits of a key that has never been seen.
func (w *bucketWord) begin(slot table.Slot, now, n, returned int64) (freshAt int64) {
	full := now*w.num + n*w.step
	state := slot.State()
	state[0], state[1] = uint64(full), uint64(returned)
	return w.ceil(full)
}

func (w *bucketWord) take(state []uint64, now, n int64) (r algo.Result) {
	at := now * w.num
	word := &state[0]
	lacks := max(int64(*word)-at, 0)
	if over := lacks + n*w.step - w.full; over > 0 {
		r.RetryAfter = time.Duration(w.ceil(over))
	} else {
		lacks += n * w.step
		*word = uint64(at + lacks)
		r.Allowed = true
	}
	if lacks < w.full {
		r.Remaining = (w.full - lacks) / w.step
	}
	r.ResetAfter = time.Duration(w.ceil(lacks))
	return r
}

// ceil is units in nanoseconds, rounded up.
func (w *bucketWord) ceil(units int64) int64 {
	if w.num == 1 {
		return units
	}
	ns := units / w.num
	if units > ns*w.num {
		ns++
	}
	return ns
}

// allowWord is Allow for the limit that most keys have, and counts.
//
// The clock is read before the lock is taken, so that the others do not wait for it. A grant as of a moment ago is one that
// was made then, as no caller has touched the state since; if a caller has, the state knows a later time already. A refusal
// must not rest on an old time, so it reads the clock again.
func (k *keyed) allowWord(h table.Hash) (v verdict, added bool) {
	if k.word.base == nil || k.closed.Load() {
		return locked, false
	}
	now := k.now()
	shard := k.states.Lock(h)
	slot := shard.Find(h)
	switch {
	case slot == nil:
		now = k.now() // the key may have been forgotten meanwhile, which was fresh later
		if slot = shard.Add(h, baseTag, now); slot == nil {
			v = locked
			break
		}
		shard.Due(h, k.word.begin(slot, now, 1, k.returned.Load()))
		v, added = taken, true
		shard.Tally[0]++
	case slot.Tag() != baseTag || int64(slot.State()[0])-now*k.word.num > k.base.bound:
		v = locked
	case k.word.allow(slot.State(), now) || k.word.allow(slot.State(), k.now()):
		v = taken
		shard.Tally[0]++
	default:
		v = short
		shard.Tally[1]++
	}
	shard.Unlock()
	return v, added
}
