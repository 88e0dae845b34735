package store

import (
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// MostReservations is how many reservations of one key can be outstanding: more are refused with ReasonTableFull.
const MostReservations = 10_000

// MostAhead is how far the time of a record may be ahead of a clock. A clock that is behind by less sees no permits come back
// until it has caught up, so callers whose clocks differ a little gain none. A record that is further ahead was written by a
// wrong clock: it goes on from now, with what was taken. It is the same in Redis.
const MostAhead = 10 * time.Second

// mostLoan is for how long a loan is kept at most that was made by a clock which was wrong.
const mostLoan = int64(24 * time.Hour)

// record is what is kept for a key of a policy: the state, the limit that it is held to, and the outstanding reservations. All
// its methods depend on their arguments only; they change the record in place, and clone makes a copy to be changed.
type record struct {
	terms *terms
	at    int64 // the latest time at which it was changed
	// behind is how far the clock of the caller is behind that time, which is not kept: waits are told by that clock.
	behind int64
	state  []uint64 // as the law of the terms has it: the first word is its place in time
	held   []hold   // by expiry
	done   []done   // by id
	// sealed is until when nothing is given back of loans: what has become of their permits is not known, as the limit was
	// changed since, or the time was set back. It need not be known any more when all of them have come back anyway, which is
	// at unsealed. Both are 0 where there is nothing to be known.
	sealed, unsealed int64
	clocks           clocks
}

// hold is a reservation in a record.
type hold struct {
	id      string
	n       int64 // permits that are given back if it is canceled
	mark    algo.Mark
	expires int64
	// rate is the fastest that permits of a bucket can have come back at since, if its limit was changed since; otherwise zero.
	rate weir.Rate
	// void says that the state knows nothing of the permits any more.
	void bool
	// of is the name of the record that decides whether the permits are taken: see Locked. It is "" for a reservation.
	of string
}

// done says that a request of several records was allowed, which those of them that still hold permits for it do not know yet.
type done struct {
	id    string
	until int64 // when no record has to know any more
	left  int64 // how many records do not know yet
}

// newRecord is the record of a key that has never been seen.
func newRecord(t *terms, now int64) *record {
	r := &record{terms: t, at: now}
	r.begin()
	return r
}

// begin makes all permits available.
func (r *record) begin() {
	r.state = make([]uint64, r.terms.law.Words())
	r.terms.law.Begin(r.state, r.at, 0)
}

func (r *record) clone() *record {
	c := *r
	c.state, c.held, c.done = slices.Clone(r.state), slices.Clone(r.held), slices.Clone(r.done)
	c.clocks.ahead = slices.Clone(r.clocks.ahead)
	return &c
}

// settled reports whether ready would change nothing but the time.
func (r *record) settled(now int64, t *terms) bool {
	return r.terms == t && r.at-now <= int64(MostAhead) && (len(r.held) == 0 || r.held[0].expires > max(now, r.at))
}

// ready brings the record to now and to the limit t, or leaves the limit if t is nil, and returns the time that counts for it.
// If keep is true, the record must be kept even if the request is refused.
//
// Holds that have expired are canceled, but those that another record decides about stay: see undecided.
func (r *record) ready(now int64, t *terms) (at int64, keep bool) {
	if r.at-now > int64(MostAhead) {
		r.rewind(now)
		keep = true
	}
	r.at = max(r.at, now)
	r.behind = r.at - now
	if r.at >= r.unsealed {
		r.sealed, r.unsealed = 0, 0
	}
	keep = r.expire() || keep
	if t != nil && r.terms != t {
		r.carry(t)
	}
	return r.at, keep
}

// rewind takes the record back to now, as if no time had passed.
func (r *record) rewind(now int64) {
	back := r.at - now
	r.unsealed -= min(back, r.unsealed)
	r.seal(now + min(back, mostLoan))
	was := r.state[0]
	r.terms.law.Refund(r.state, now, 0)
	moved := int64(r.state[0] - was)
	for i := range r.held {
		h := &r.held[i]
		h.expires -= back
		h.mark.At += moved
		h.mark.Taken += moved
	}
	for i := range r.done {
		r.done[i].until -= back
	}
	r.at = now
}

// expire cancels the reservations that have expired, and reports whether there were any.
func (r *record) expire() bool {
	before := len(r.held)
	kept := r.held[:0]
	for i := range r.held {
		h := &r.held[i]
		if h.expires > r.at {
			kept = append(kept, r.held[i:]...)
			break
		}
		if h.of != "" {
			kept = append(kept, *h)
			continue
		}
		r.giveBack(h, h.n)
	}
	clear(r.held[len(kept):])
	r.held = kept
	r.done = slices.DeleteFunc(r.done, func(d done) bool { return d.until <= r.at })
	return len(kept) < before
}

// undecided is a hold that should have been settled by now, if there is one.
func (r *record) undecided(now int64) *hold {
	for i := range r.held {
		h := &r.held[i]
		switch {
		case h.expires > max(now, r.at) && r.at-now <= int64(MostAhead):
			return nil
		case h.of != "":
			return h
		}
	}
	return nil
}

// giveBack cancels n of the permits of a hold.
func (r *record) giveBack(h *hold, n int64) {
	switch {
	case h.void || n <= 0:
	case h.rate != weir.Rate{}:
		if b, err := algo.NewTokenBucket(h.rate.Permits, h.rate.Period, 1); err == nil {
			r.terms.law.CancelAcross(b.Law(), r.state, r.at, n, h.mark)
		}
	default:
		r.terms.law.Cancel(r.state, r.at, n, h.mark)
	}
}

// carry makes the record one that is held to t, which has the same algorithm.
func (r *record) carry(t *terms) {
	old := r.terms
	if old.text == t.text {
		r.terms = t
		return
	}
	r.seal(r.at)
	r.terms = t
	old.law.Refund(r.state, r.at, 0) // moves it to now
	from := int64(r.state[0]) - max(int64(old.limit.Segments())-1, 0)
	state := make([]uint64, t.law.Words())
	t.law.Carry(state, old.law, r.state, r.at)
	r.state = state
	for i := range r.held {
		h := &r.held[i]
		switch {
		case t.bucket != nil:
			h.rate = faster(faster(h.rate, old.limit.Rate()), t.limit.Rate())
		case t.law.SameMarks(old.law):
		case h.mark.At >= from: // those that counted until now count as taken now
			h.mark.At = int64(state[0])
		default: // the permits have come back
			h.void = true
		}
	}
}

// seal has nothing given back of loans under the limit, or the one before, that were made until a time.
func (r *record) seal(until int64) {
	if r.terms.limit.Algorithm() == weir.AlgorithmConcurrency { // which lends nothing
		return
	}
	r.sealed = max(r.sealed, until)
	r.unsealed = max(r.unsealed, r.terms.regained(until))
}

// take takes n permits if they are there. The record must be ready.
func (r *record) take(n int64) algo.Result { return r.told(r.terms.law.Take(r.state, r.at, n)) }

// peek returns what take would. The record must be ready.
func (r *record) peek(n int64) algo.Result { return r.told(r.terms.law.Peek(r.state, r.at, n)) }

// told is a result whose waits begin now and not at the time of the record, so that no caller comes back too early.
func (r *record) told(result algo.Result) algo.Result {
	if r.behind > 0 {
		result.RetryAfter = r.later(result.RetryAfter)
		result.ResetAfter = r.later(result.ResetAfter)
	}
	return result
}

// later is a wait that is not over before the clock has caught up with the record: one of 0 is for nothing, or of
// unknown length.
func (r *record) later(wait time.Duration) time.Duration {
	if wait <= 0 || wait >= algo.Never-time.Duration(r.behind) {
		return wait
	}
	return wait + time.Duration(r.behind)
}

// refund gives n permits back whatever their origin. The record must be ready.
func (r *record) refund(n int64) {
	r.terms.law.Refund(r.state, r.at, n)
	if r.terms.limit.Algorithm() != weir.AlgorithmConcurrency {
		return
	}
	for i := range r.held { // or they would come back again when they are settled
		h := &r.held[i]
		if !h.void {
			back := min(h.n, n)
			h.n -= back
			n -= back
		}
	}
}

// lend takes as many of n permits as there are, if there are at least so many as least. The record must be ready.
func (r *record) lend(least, n int64) (lent int64, result algo.Result) {
	if result = r.peek(least); !result.Allowed {
		return 0, result
	}
	lent = min(n, result.Remaining)
	return lent, r.take(lent)
}

// takeBack gives back n permits that were lent at a time, as far as they cannot have come back since. The record must be
// ready.
func (r *record) takeBack(n, lent int64) {
	if lent > r.at || r.unsealed > 0 && lent <= r.sealed { // a loan of the future is one from before the time went back
		return
	}
	m := algo.Mark{Part: noPart, Taken: lent}
	if r.terms.bucket == nil {
		m = r.terms.first(lent, 1).Mark
	}
	r.terms.law.Cancel(r.state, r.at, n, m)
}

// noPart makes a mark of a bucket one that says only when the permits were taken.
const noPart = -1

// debit takes n permits that were taken elsewhere. The record must be ready.
func (r *record) debit(n int64) algo.Result {
	r.terms.law.Charge(r.state, r.at, n, r.terms.most)
	return r.peek(0)
}

// hold keeps n permits, which were the last to be taken, for a reservation; of is "" or the record that decides about it.
func (r *record) hold(id string, n, expires int64, of string) {
	r.insert(hold{id: id, n: n, mark: r.terms.law.Mark(r.state), expires: expires, of: of})
}

// insert puts a hold where it belongs.
func (r *record) insert(h hold) {
	at, _ := slices.BinarySearchFunc(r.held, h, func(a, b hold) int {
		if a.expires <= b.expires {
			return -1
		}
		return 1
	})
	r.held = slices.Insert(r.held, at, h)
}

// full reports whether the record can hold no more.
func (r *record) full() bool { return len(r.held) >= MostReservations }

// find is where the hold of this id is, or -1; expires is a guess at its expiry.
func (r *record) find(id string, expires int64) int {
	from, _ := slices.BinarySearchFunc(r.held, expires, func(h hold, at int64) int {
		if h.expires < at {
			return -1
		}
		return 1
	})
	for i := from; i < len(r.held) && r.held[i].expires == expires; i++ {
		if r.held[i].id == id {
			return i
		}
	}
	return slices.IndexFunc(r.held, func(h hold) bool { return h.id == id })
}

// cancel ends the hold at i as if its permits had not been taken. The record must be ready.
func (r *record) cancel(i int) {
	r.giveBack(&r.held[i], r.held[i].n)
	r.held = slices.Delete(r.held, i, i+1)
}

// commit ends the hold at i with what it really cost. The record must be ready.
func (r *record) commit(i int, actual int64) {
	h := &r.held[i]
	switch {
	case r.terms.limit.Algorithm() == weir.AlgorithmConcurrency:
		r.giveBack(h, h.n)
	case actual > h.n:
		r.terms.law.Charge(r.state, r.at, actual-h.n, r.terms.most)
	default:
		r.giveBack(h, h.n-actual)
	}
	r.held = slices.Delete(r.held, i, i+1)
}

// keep ends the hold at i, the permits of which stay taken.
func (r *record) keep(i int) { r.held = slices.Delete(r.held, i, i+1) }

// finished says that the request id was allowed, for as long as a record may ask: until then, or until left records know.
func (r *record) finished(id string, until, left int64) {
	at, _ := slices.BinarySearchFunc(r.done, id, func(d done, id string) int { return strings.Compare(d.id, id) })
	r.done = slices.Insert(r.done, at, done{id, min(until, latest), left})
}

// isFinished is where the request id is noted as allowed.
func (r *record) isFinished(id string) (at int, ok bool) {
	return slices.BinarySearchFunc(r.done, id, func(d done, id string) int { return strings.Compare(d.id, id) })
}

// known says that some more records know that the request id was allowed, and reports whether that is news.
func (r *record) known(id string, records int64) bool {
	at, ok := r.isFinished(id)
	if !ok || records == 0 {
		return false
	}
	if r.done[at].left -= records; r.done[at].left <= 0 {
		r.done = slices.Delete(r.done, at, at+1)
	}
	return true
}

// reset makes all permits available and forgets the reservations. What other records have to know stays.
func (r *record) reset() {
	r.begin()
	r.held = nil
}

// fresh reports whether the record, which must be ready, equals that of a key that has never been seen.
func (r *record) fresh() bool {
	return r.unsealed <= r.at && len(r.held) == 0 && len(r.done) == 0 && r.terms.law.Fresh(r.state, r.at)
}

// freshAt is from when on the record equals that of a key that has never been seen, if no permits are taken: never earlier than
// that, and no later than it takes until reservations have expired. It is never if that is not known.
func (r *record) freshAt() int64 {
	at := max(r.at, r.unsealed)
	if r.terms.limit.Algorithm() != weir.AlgorithmConcurrency {
		at = max(at, r.terms.law.FreshAt(r.state))
	}
	if n := len(r.held); n > 0 {
		at = max(at, r.held[n-1].expires)
	}
	for i := range r.done {
		at = max(at, r.done[i].until)
	}
	return at
}

// freshIn is how long after the time of the record that is.
func (r *record) freshIn() int64 {
	if d := r.freshAt() - r.at; d >= 0 {
		return d
	}
	return never
}

// reserved is how many permits are reserved, by how many reservations.
func (r *record) reserved() (permits int64, reservations int) {
	for i := range r.held {
		if r.held[i].of == "" {
			permits += r.held[i].n
			reservations++
		}
	}
	return permits, reservations
}

// mostClocks is how many clocks that are ahead of a record are told apart.
const mostClocks = 4

// clocks is what a record knows of the clocks of the processes that share it without an owner. The time of the record is that of
// the clock which is furthest behind. Clocks that are ahead of it by more than [MostAhead] would otherwise have permits come
// back each time that they follow one that is not.
type clocks struct {
	// ahead is how far other clocks are ahead, in growing order.
	ahead []int64
	// back is how often the record has been taken back, up to sureAfter. Clocks are told apart from then on: one that was wrong
	// once is not taken for one that still is.
	back int64
}

const sureAfter = 2

// place is the time that a clock which shows now stands for, if the record is at a time: that by which the least time has passed.
func (c *clocks) place(now, at int64) int64 {
	if c.back < sureAfter {
		return now
	}
	for _, by := range slices.Backward(c.ahead) {
		if now-by >= at-int64(MostAhead) {
			return now - by
		}
	}
	return now
}

// behind notes that the record is taken back by a span, as there is a clock which is further behind than all others were.
func (c *clocks) behind(span int64) {
	known := c.ahead
	if c.back < sureAfter { // the time has gone on by a clock that is ahead since
		known = nil
		c.back++
	}
	all := []int64{span}
	for _, by := range known {
		if by += span; by-all[len(all)-1] > int64(MostAhead) && by <= latest && len(all) < mostClocks {
			all = append(all, by)
		}
	}
	c.ahead = all
}

// valid reports whether it can have been written.
func (c *clocks) valid() bool {
	before := int64(0)
	for _, by := range c.ahead {
		if by-before <= int64(MostAhead) || by > latest {
			return false
		}
		before = by
	}
	return len(c.ahead) <= mostClocks && 0 <= c.back && c.back <= sureAfter && (c.back == 0) == (len(c.ahead) == 0)
}

// readyFor is ready for one of several callers with clocks of their own.
func (r *record) readyFor(clock int64, t *terms) (keep bool) {
	now := r.clocks.place(clock, r.at)
	if back := r.at - now; back > int64(MostAhead) {
		r.clocks.behind(back)
	}
	_, keep = r.ready(now, t)
	return keep
}

// now is what the clock that the record was made ready by shows, on the scale of the record.
func (r *record) now() int64 { return r.at - r.behind }
