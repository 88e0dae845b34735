package store

import (
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// optimisticKey is what an [Optimistic] knows of a key.
type optimisticKey struct {
	nearKey[optimisticKey]

	terms *terms
	drift int64

	// The view.
	known  bool
	at     int64                 // when the last answer came
	bucket *algo.TokenBucket     // nil for windows
	state  algo.TokenBucketState // of a bucket
	next   algo.TokenBucketState // the state if the permits that were judged are taken
	left   int64                 // permits of a window
	reset  int64                 // when all permits of a window are back
	// Requests of a window for refused permits and more are refused until a time.
	refused, until int64
	full           int64 // the store has no room for the key, until then

	// What the store does not know.
	owed int64  // permits that were taken
	held int64  // those of them that requests on their way may give back: the store is told of them when they have ended
	told uint64 // counts how often it was told of them nevertheless
	sent int64  // those of a call under way

	flight *optimisticFlight // the call under way, or nil
	alone  bool              // nothing may be allowed until it has ended
	doubt  bool              // its answer may be from before permits were given back
	single bool              // calls with others have failed
	unsure bool              // the store may have heard of what is owed
}

// remember begins to keep the key of a charge, or returns nil if it must not or if there is no room. Its shard must be locked.
func (o *Optimistic) remember(hash uint64, c *Charge, now int64) *optimisticKey {
	if at := o.shardAt(hash); o.passing[at][c.recordKey()] > 0 || !o.room(&o.shards[at]) {
		return nil
	}
	k := new(optimisticKey)
	o.add(&k.nearKey, k, hash, c, now)
	return k
}

func (*Optimistic) idle(k *optimisticKey) bool { return k.owed == 0 && k.sent == 0 && k.flight == nil }

func (o *Optimistic) stale(k *optimisticKey, now int64) bool {
	return now-k.at > o.keep && !k.refusing(now)
}

func (*Optimistic) withdrawn(*optimisticKey) {} // a copy only refuses

type verdict uint8

const (
	verdictAsk verdict = iota
	verdictGrant
	verdictRefuse
)

// hold has the key held to t. What is owed stays so.
func (k *optimisticKey) hold(o *Optimistic, t *terms) {
	if k.terms == t {
		return
	}
	if k.terms == nil || k.terms.text != t.text {
		k.known, k.until, k.full = false, 0, 0
	}
	k.terms, k.drift, k.bucket = t, o.o.driftOf(t), t.bucket
}

// judge decides on n permits by the view, if it can: then d is the decision, and next the state of a bucket of which they are
// taken. If it is verdictGrant and may says so, take may follow, with k.next. It does not change the key.
func (k *optimisticKey) judge(o *Optimistic, n, now int64, next *algo.TokenBucketState, d *weir.Decision) verdict {
	if now < k.full {
		*d = k.decision(n, algo.Result{RetryAfter: time.Duration(k.full - now)})
		if d.Reason == weir.ReasonLimited {
			d.Reason = weir.ReasonTableFull
		}
		return verdictRefuse
	}
	if !k.known || o.o.Recheck > 0 && now-k.at > max(int64(o.o.Recheck), o.keep) {
		return verdictAsk
	}
	var r algo.Result
	if k.bucket != nil {
		*next = k.state
		r = k.bucket.TakeIn(next, max(now, k.state.Last), n)
	} else {
		r = algo.Result{Remaining: max(k.left, 0), ResetAfter: time.Duration(max(k.reset-now, 0))}
		switch {
		case n > k.terms.most:
			r.RetryAfter = algo.Never
		case now < k.until && max(n, 1) >= k.refused:
			r.RetryAfter = time.Duration(k.until - now)
		case max(n, 1) > k.left:
			return verdictAsk
		default:
			r.Allowed = true
			r.Remaining -= n
		}
	}
	if !r.Allowed {
		*d = k.decision(n, r)
		return verdictRefuse
	}
	if now-k.at > o.keep {
		return verdictAsk
	}
	*d = k.decision(n, r)
	return verdictGrant
}

// decision is [DecisionOf] without copying a charge.
func (k *optimisticKey) decision(n int64, r algo.Result) weir.Decision {
	d := weir.Decision{
		Allowed: r.Allowed, Limit: k.terms.most, Remaining: r.Remaining,
		RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter, Policy: k.policy,
	}
	switch {
	case r.Allowed:
	case n > k.terms.most:
		d.Reason, d.RetryAfter = weir.ReasonNever, weir.Never
	default:
		d.Reason = weir.ReasonLimited
	}
	return d
}

// may reports whether n permits may be taken without the store knowing, as part of the call mine.
func (k *optimisticKey) may(n int64, mine *optimisticFlight) bool {
	return (!k.alone || k.flight == mine) && n <= k.drift-k.owed-k.sent
}

// take takes n permits, which were judged just now.
func (k *optimisticKey) take(n int64) {
	k.owed += n
	if k.bucket != nil {
		k.state = k.next
		return
	}
	k.left -= n
}

// peek is what a view says to n permits, however old it is.
func (k *optimisticKey) peek(n, now int64) weir.Decision {
	switch {
	case !k.known:
		return k.decision(n, algo.Result{Allowed: n <= k.terms.most, Remaining: k.terms.most, RetryAfter: never})
	case k.bucket != nil:
		return k.decision(n, k.bucket.Peek(k.state, max(now, k.state.Last), n))
	}
	return k.decision(n, algo.Result{
		Allowed: true, Remaining: max(k.left, 0), ResetAfter: time.Duration(max(k.reset-now, 0)),
	})
}

// see makes the answer of the store to n permits the view. What is still owed was not in it.
func (k *optimisticKey) see(o *Optimistic, n int64, d *weir.Decision, now int64) {
	k.known, k.at, k.until, k.full = !k.doubt, now, 0, 0
	if d.Reason == weir.ReasonTableFull {
		k.known, k.full = false, now+int64(min(max(d.RetryAfter, 1), o.o.Interval))
		return
	}
	if k.bucket != nil {
		k.state, _ = k.bucket.Charge(bucketState(k.bucket, d, now), now, k.owed, k.terms.most)
		return
	}
	k.left, k.reset = d.Remaining-k.owed, after(now, d.ResetAfter)
	if d.Allowed || d.Reason != weir.ReasonLimited {
		return
	}
	wait := d.RetryAfter
	if k.terms.limit.Algorithm() == weir.AlgorithmSlidingCounter {
		wait = max(wait, o.o.Interval/10)
	}
	k.refused, k.until = max(n, 1), after(now, wait)
}

// optimisticHold is what a request on its way has taken of a key.
type optimisticHold struct {
	told uint64
	at   int64
}

// takeHeld is take for a request that may give the permits back.
func (k *optimisticKey) takeHeld(n, now int64) optimisticHold {
	k.take(n)
	k.held += n
	return optimisticHold{k.told, now}
}

// keep ends a hold of n permits, which stay taken.
func (k *optimisticKey) keep(n int64, h optimisticHold) {
	if h.told == k.told {
		k.held -= n
	}
}

// giveBack ends a hold of n permits as if they had not been taken. If the store was told of them meanwhile they stay taken: they
// may count in a window that has ended, or have come back since.
func (k *optimisticKey) giveBack(n int64, h optimisticHold, now int64) {
	if h.told != k.told {
		return
	}
	k.held -= n
	k.owed -= n
	if k.bucket != nil { // no more than cannot have come back since
		m := algo.Mark{Part: noPart, Taken: h.at}
		k.state = k.bucket.Cancel(k.state, max(now, k.state.Last), n, m)
		return
	}
	k.available(n)
}

// refund gives back n permits that are owed and not held, whatever their origin.
func (k *optimisticKey) refund(n, now int64) {
	k.owed -= n
	if k.bucket != nil {
		k.state = k.bucket.Refund(k.state, max(now, k.state.Last), n)
		return
	}
	k.available(n)
}

// available makes n more permits of a window available.
func (k *optimisticKey) available(n int64) {
	if k.left += n; k.left > 0 {
		k.until = 0
	}
}

// forget drops what the store does not know.
func (k *optimisticKey) forget() {
	k.owed, k.held = 0, 0
	k.told++
}

// telling is how many permits the store is told of now: all that are owed, or those that are not held.
func (k *optimisticKey) telling(all bool) int64 {
	if all {
		return k.owed
	}
	return k.owed - k.held
}

// land ends the part of a key in a call.
func (k *optimisticKey) land() {
	if k.doubt {
		k.known, k.doubt = false, false
	}
	k.flight, k.alone = nil, false
}

// mistrust has the next request ask the store.
func (k *optimisticKey) mistrust() {
	k.known, k.until, k.full = false, 0, 0
	k.doubt = k.flight != nil
}

// refusing reports whether the view refuses every request.
func (k *optimisticKey) refusing(now int64) bool {
	switch {
	case !k.known:
		return false
	case k.bucket != nil:
		return !k.bucket.Peek(k.state, max(now, k.state.Last), 1).Allowed
	}
	return now < k.until && k.refused <= 1
}

// bucketState is the state of a bucket of which d tells, now. ResetAfter is how far it is from full, rounded up to a nanosecond,
// for which no permit must be missing.
func bucketState(b *algo.TokenBucket, d *weir.Decision, now int64) algo.TokenBucketState {
	s := algo.TokenBucketState{Ahead: int64(max(d.ResetAfter, 0)), Last: now}
	if b.Peek(s, now, 0).Remaining < d.Remaining {
		s = algo.TokenBucketState{Last: now}
		b.TakeIn(&s, now, b.Burst()-d.Remaining)
	}
	return s
}
