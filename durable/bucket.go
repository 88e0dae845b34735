package durable

import (
	"crypto/rand"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/heap"
	"github.com/weirhq/weir/internal/queue"
	"github.com/weirhq/weir/store"
)

// bucket is the limit of one key: its state in the memory of the owner, its queue, and how far what is durable allows
// to go.
//
// Permits go through it in the order of arrival: a request joins the queue unless it is empty and the permits are there. As
// soon as they are, they are taken from the state, and the request waits only until that is durable, which needs no write if
// the record in force is ahead by enough.
type bucket struct {
	owner *Owner
	name  string

	mu         sync.Mutex
	loading    bool
	known      bool          // the record was read
	state      *store.Record // nil until it was read, and as long as there is none
	revision   int64         // of the record in force, -1 if it is not known
	generation int           // counts the changes of the limit

	covered int64 // permits that can be taken before the next record
	next    int64 // the same, once the record that is being written is in force
	stale   bool  // the record in force must be written anew
	asked   bool  // the writer has been asked
	busy    bool  // a record is being written
	ahead   ahead
	inForce inForce

	trail     []*adjusting // that the next record is written with
	early     []*waiter    // those that came while the record was being read
	queue     queue.Queue[*waiter]
	writing   queue.Queue[*waiter] // whose permits are taken but not durable
	deadlines heap.Heap[*waiter]
	timer     *time.Timer
	timerAt   time.Time
	retryAt   time.Time   // nothing is allowed before, after a write has failed
	failure   error       // why it has
	kept      int         // by how many calls it is needed
	ended     weir.Reason // why nothing is allowed from now on, 0 while it goes on

	taken int64 // permits
}

// bring brings the state to now.
func (b *bucket) bring(now time.Time) {
	l := b.state.Limit()
	_, _ = b.state.Advance(b.owner.unix(now, l.Algorithm()), l)
}

// quick decides on a charge that needs neither a queue nor a write, if it is one: the permits are there, and the record in force
// is ahead by as many, or they are not there and the request does not wait.
func (b *bucket) quick(c *store.Charge, waits bool, d *weir.Decision) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended != 0 || b.state == nil || b.queue.Len() > 0 || b.writing.Len() > 0 || !b.retryAt.IsZero() ||
		!b.state.HeldTo(c.Limit) {
		return false
	}
	now := time.Now()
	_, _ = b.state.Advance(b.owner.unix(now, c.Limit.Algorithm()), c.Limit) // which it is held to
	if c.N <= b.covers() && b.owner.holdsAt(now) {
		if _, result := b.state.Take(c.N); result.Allowed {
			b.spend(c.N)
			b.owner.counts.count(weir.ReasonNone)
			*d = b.decision(c, result)
			return true
		}
	}
	result := b.state.Peek(c.N)
	if result.Allowed || waits || c.N > b.state.Most() {
		return false
	}
	b.owner.counts.count(weir.ReasonLimited)
	*d = b.refusal(c, weir.ReasonLimited, result)
	return true
}

// enter takes in a waiter.
func (b *bucket) enter(w *waiter) {
	b.mu.Lock()
	if b.inForce.gone { // since it was looked for
		b.mu.Unlock()
		b.owner.enter(w)
		return
	}
	w.bucket = b
	var after answers
	switch {
	case b.ended != 0:
		w.fail(errNotOwner)
		after.add(w)
	case !b.known:
		w.stage = stageLoading
		b.early = append(b.early, w)
		b.deadlines.Push(w)
		if !b.loading {
			b.loading = true
			b.owner.load(b)
		}
		b.arm()
	default:
		b.begin(w, &after)
		b.arm()
	}
	b.mu.Unlock()
	after.give()
}

// begin decides on a charge whose record has been read, or lets it wait.
func (b *bucket) begin(w *waiter, after *answers) {
	b.dropDeadline(w)
	if !w.loads {
		b.admit(w, after)
		return
	}
	after.add(w)
}

// exist makes the state of a key that has never been seen.
func (b *bucket) exist(l weir.Limit) (err error) {
	if b.state == nil {
		b.state, err = store.NewRecord(l, b.owner.unix(time.Now(), l.Algorithm()))
	}
	return err
}

// loaded takes in the record, which is nil if there is none, or why it is not known. What an owner before has left it ahead is
// burned, which it does not say until it is written anew: the next owner would burn as much once more.
func (b *bucket) loaded(state *store.Record, revision, ahead int64, err error) {
	b.mu.Lock()
	var after answers
	b.loading = false
	early := b.early
	b.early = nil
	if err == nil {
		b.known, b.state, b.revision, b.inForce.ahead, b.inForce.left = true, state, revision, ahead, ahead
	}
	for _, w := range early {
		if w.stage != stageLoading {
			continue // it has its result
		}
		switch {
		case b.ended != 0:
			b.dropDeadline(w)
			b.refuse(w, b.ended, algo.Result{}, &after)
		case err != nil:
			b.dropDeadline(w)
			w.fail(err)
			after.add(w)
		default:
			b.begin(w, &after)
		}
	}
	b.arm()
	b.mu.Unlock()
	after.give()
}

// admit decides on a charge whose turn it is to be looked at.
func (b *bucket) admit(w *waiter, after *answers) {
	now, c := time.Now(), &w.charge
	if err := b.ready(now, c.Limit, after); err != nil {
		w.fail(err)
		after.add(w)
		return
	}
	result := b.state.Peek(c.N)
	var why weir.Reason
	switch {
	case c.N > b.state.Most():
		why = weir.ReasonNever
	case w.waits && !now.Before(w.at):
		why = weir.ReasonDeadline
	case (b.queue.Len() == 0 || c.N == 0) && !b.paused(now) && b.can(w): // a probe ignores the queue
		b.take(w, after)
		return
	case !w.waits && b.paused(now): // it is not the limit that refuses
		w.fail(b.failure)
		after.add(w)
		return
	case !w.waits:
		why = weir.ReasonLimited
	case c.N > 0 && b.queue.Permits()+c.N > c.Queue: // a probe waits outside of the count
		why = weir.ReasonQueueFull
	default:
		b.join(w)
		return
	}
	b.refuse(w, why, result, after)
}

// ready brings the bucket, whose state need not exist, to now and to a limit, and serves those that came before.
func (b *bucket) ready(now time.Time, l weir.Limit, after *answers) error {
	if err := b.exist(l); err != nil {
		return err
	}
	if err := b.advance(b.owner.unix(now, l.Algorithm()), l); err != nil {
		return err
	}
	b.expire(now, after)
	b.serve(now, after)
	return nil
}

// paused reports whether a write has failed a moment ago.
func (b *bucket) paused(now time.Time) bool {
	if b.retryAt.IsZero() {
		return false
	}
	if now.Before(b.retryAt) {
		return true
	}
	b.retryAt, b.failure = time.Time{}, nil
	return false
}

func (b *bucket) join(w *waiter) {
	w.stage = stageQueued
	w.line(&b.queue)
	b.deadlines.Push(w)
}

// advance brings the state to now and to a limit.
func (b *bucket) advance(now int64, l weir.Limit) error {
	changed, err := b.state.Advance(now, l)
	if err != nil {
		return err
	}
	if changed {
		b.generation++
		b.uncover() // what records are ahead of the limit before would not stand for what is taken under this one
		b.ask()     // a smaller limit holds from now on, whatever happens
	}
	return nil
}

// take takes the permits of a charge, which are there, and decides it as soon as that is durable.
func (b *bucket) take(w *waiter, after *answers) {
	var result algo.Result
	w.taking, result = b.state.Take(w.charge.N)
	if w.hold > 0 {
		if w.id == "" {
			w.id = rand.Text()
		}
		w.expires = b.until(w.expires, w.hold)
		b.state.Hold(w.id, w.charge.N, w.expires)
		w.must = true
	}
	w.decision[0] = b.decision(&w.charge, result)
	w.generation = b.generation
	b.pass(w, after)
}

// until is when a reservation ends here that ends at a time at other keys: then, unless their clock is another one.
func (b *bucket) until(expires int64, expiry time.Duration) int64 {
	own := b.state.Time() + int64(expiry)
	if expires-own > int64(store.MostAhead) {
		return own
	}
	return max(expires, own)
}

// pass decides a waiter that was served in memory as soon as that is durable.
func (b *bucket) pass(w *waiter, after *answers) {
	n := w.charge.N
	b.dropDeadline(w)
	if n == 0 && !w.must {
		after.add(w)
		return
	}
	if !w.must && b.writing.Len() == 0 && n <= b.covers() && b.owner.holds() {
		b.spend(n)
		after.add(w)
		return
	}
	w.stage = stageWriting
	w.line(&b.writing)
	b.deadlines.Push(w)
	b.ask()
}

// spend grants permits by which the record in force is ahead.
func (b *bucket) spend(n int64) {
	b.covered -= n
	b.next -= n
	b.taken += n
	if b.covered <= b.ahead.last/2 && b.ahead.last > 1 && !b.busy {
		b.ask() // before they run out
	}
}

// covers is how many permits can be taken whichever record is in force by now.
func (b *bucket) covers() int64 {
	if b.busy {
		return min(b.covered, b.next)
	}
	return b.covered
}

// uncover has the next grant wait for a record. It comes with everything that gives back what the record in force still keeps,
// as a reservation that was canceled: the next owner would give that back again, and what was taken of it meanwhile would not
// be among the permits that it can burn.
func (b *bucket) uncover() {
	b.covered, b.next = 0, 0
	b.ask()
}

// ask asks the writer for a record.
func (b *bucket) ask() {
	b.stale = true
	if !b.asked && !b.busy {
		b.asked = true
		b.owner.ask(b)
	}
}

// serve gives the queue what is there, the oldest first.
func (b *bucket) serve(now time.Time, after *answers) {
	if b.paused(now) {
		return
	}
	for front := b.queue.Front(); front != nil; front = b.queue.Front() {
		w := front.Value
		switch {
		case w.charge.N > b.state.Most(): // since the limit was changed
			b.withdraw(w, weir.ReasonNever, after)
		case b.can(w):
			b.queue.Remove(front)
			b.take(w, after)
		default:
			return
		}
	}
}

// can reports whether the permits of a waiter are there.
func (b *bucket) can(w *waiter) bool {
	return b.state.Peek(w.charge.N).Allowed && (w.hold == 0 || !b.state.Full())
}

// answers are those whose waiters have been decided. They are told once the lock has been let go.
type answers []*waiter

func (a *answers) add(w *waiter) {
	w.stage = stageAnswered
	w.counts.count(w.decision[0].Reason)
	*a = append(*a, w)
}

func (a answers) give() {
	for _, w := range a {
		w.done(w)
	}
}

func (b *bucket) decision(c *store.Charge, result algo.Result) weir.Decision {
	return weir.Decision{
		Allowed: result.Allowed, Limit: b.state.Most(), Remaining: result.Remaining, RetryAfter: result.RetryAfter,
		ResetAfter: result.ResetAfter, Policy: c.Policy,
	}
}

// refuse decides a waiter that gets nothing.
func (b *bucket) refuse(w *waiter, why weir.Reason, result algo.Result, after *answers) {
	if w.refuse(why); why != weir.ReasonUnavailable {
		w.decision[0] = b.refusal(&w.charge, why, result)
	}
	if d := &w.decision[0]; comesBack(why) && w.hold > 0 && result.Allowed && b.queue.Len() == 0 && b.state.Full() {
		d.Reason, d.RetryAfter = weir.ReasonTableFull, b.state.UntilExpiry()
	}
	after.add(w)
}

// refusal is the decision about a charge that gets nothing.
func (b *bucket) refusal(c *store.Charge, why weir.Reason, result algo.Result) weir.Decision {
	d := weir.Decision{
		Reason: why, Remaining: result.Remaining, RetryAfter: result.RetryAfter, ResetAfter: result.ResetAfter, Policy: c.Policy,
	}
	if b.state != nil {
		d.Limit = b.state.Most()
	}
	switch {
	case why == weir.ReasonNever:
		d.RetryAfter = weir.Never
	case comesBack(why) && b.state != nil && b.queue.Len() > 0:
		d.RetryAfter = b.untilTurn(c.N)
	}
	return d
}

// comesBack reports whether the limit would allow a request later that it refuses now.
func comesBack(why weir.Reason) bool {
	return why == weir.ReasonLimited || why == weir.ReasonQueueFull || why == weir.ReasonDeadline
}

// untilTurn is how long it takes, if no waiter goes away, until n permits are there beside those that are waited for; at least so
// long where only the next window is known.
func (b *bucket) untilTurn(n int64) time.Duration {
	all, most := b.queue.Permits()+max(n, 1), b.state.Most()
	if all <= most {
		return b.state.Peek(all).RetryAfter
	}
	wait, rest := b.state.Peek(most).RetryAfter, uint64(all-most)
	limit := b.state.Limit()
	permits, period := uint64(limit.Rate().Permits), uint64(limit.Rate().Period)
	switch limit.Algorithm() {
	case weir.AlgorithmConcurrency, weir.AlgorithmCalendarWindow:
		return wait
	case weir.AlgorithmTokenBucket:
	default: // they come by windows
		rest = (rest + permits - 1) / permits * permits
	}
	hi, lo := bits.Mul64(rest, period)
	if hi >= permits {
		return math.MaxInt64 - 1 // which is not weir.Never
	}
	more, part := bits.Div64(hi, lo, permits)
	if part > 0 {
		more++
	}
	if more > math.MaxInt64-1-uint64(wait) {
		return math.MaxInt64 - 1
	}
	return wait + time.Duration(more)
}

// errSlow says that a write has taken longer than it may.
var errSlow = fmt.Errorf("%w: a record was not written in time", store.ErrUnavailable)

// expire decides the waiters whose deadline has passed.
func (b *bucket) expire(now time.Time, after *answers) {
	for len(b.deadlines) > 0 && !now.Before(b.deadlines[0].at) {
		b.withdraw(b.deadlines[0], weir.ReasonDeadline, after)
	}
}

// dropDeadline has a waiter, if it has a deadline, not be withdrawn at it.
func (b *bucket) dropDeadline(w *waiter) {
	if w.place >= 0 {
		b.deadlines.Remove(w.place)
	}
}

// withdraw ends a waiter that has no result yet, and takes nothing for it.
func (b *bucket) withdraw(w *waiter, why weir.Reason, after *answers) {
	b.dropDeadline(w)
	var result algo.Result
	switch w.stage {
	case stageQueued:
		b.queue.Remove(&w.queued)
	case stageWriting:
		b.writing.Remove(&w.queued)
		b.undo(w)
		b.stale = b.stale || w.written
	case stageLoading: // it stays among the early ones, with its result
	default:
		return
	}
	if why == weir.ReasonDeadline && !w.waits { // for permits
		w.fail(errSlow)
		after.add(w)
		return
	}
	if b.state != nil {
		result = b.state.Peek(w.charge.N)
	}
	b.refuse(w, why, result, after)
}

// undo takes back what was taken for a request that is not allowed, or that was and is part of one that is not.
func (b *bucket) undo(w *waiter) {
	switch {
	case w.stays: // what was done stays done, in memory, and is written with the next record
		b.stale = true
	case w.adjusts != nil:
		b.unadjust(w)
	case w.id != "":
		if b.state.Cancel(w.id, w.expires) && (w.written || w.stage == stageAnswered) {
			b.uncover()
		}
	case w.generation == b.generation:
		b.state.Undo(w.taking)
	}
}

// cancel ends a waiter whose caller has gone away.
func (b *bucket) cancel(w *waiter) {
	b.mu.Lock()
	var after answers
	if w.stage != stageAnswered {
		now := time.Now()
		if b.state != nil {
			b.bring(now)
		}
		b.withdraw(w, weir.ReasonCanceled, &after)
		if b.state != nil {
			b.serve(now, &after)
		}
		b.arm()
	}
	b.mu.Unlock()
	after.give()
}

// revoke takes back what a charge took for a request that was refused, and serves the queue. It does not wait until that is
// durable: a crash before burns the permits.
func (b *bucket) revoke(w *waiter) {
	b.mu.Lock()
	var after answers
	now := time.Now()
	b.bring(now)
	b.undo(w)
	b.taken -= w.charge.N
	b.stale = true
	if b.ended == 0 {
		b.ask()
		b.serve(now, &after)
		b.arm()
	}
	b.mu.Unlock()
	after.give()
}

// tick is called when the deadline of a waiter has passed.
func (b *bucket) tick() {
	b.mu.Lock()
	var after answers
	b.timerAt = time.Time{}
	if b.ended == 0 {
		now := time.Now()
		if b.state != nil {
			b.bring(now)
		}
		b.expire(now, &after)
		if again := b.inForce.again; !again.IsZero() && !now.Before(again) {
			b.inForce.again = time.Time{}
			b.ask()
		}
		if b.state != nil {
			b.serve(now, &after)
		}
		b.arm()
	}
	b.mu.Unlock()
	after.give()
}

// arm sets the one timer to whatever comes first: a deadline, or permits for the oldest.
func (b *bucket) arm() {
	var at time.Time
	if len(b.deadlines) > 0 {
		at = b.deadlines[0].at
	}
	if front := b.queue.Front(); front != nil && b.state != nil {
		now := time.Now()
		turn := b.retryAt
		if !b.paused(now) {
			b.bring(now) // its decisions count from then on
			wait := b.state.Peek(front.Permits).RetryAfter
			if expiry := b.state.UntilExpiry(); expiry > 0 && (wait == 0 || expiry < wait) {
				wait = expiry // of a reservation, which gives back its permits, or its place
			}
			turn = now.Add(wait)
		}
		if at.IsZero() || turn.Before(at) {
			at = turn
		}
	}
	if again := b.inForce.again; !again.IsZero() && (at.IsZero() || again.Before(at)) {
		at = again
	}
	if at.IsZero() || at.Equal(b.timerAt) {
		return
	}
	b.timerAt = at
	if b.timer == nil {
		b.timer = time.AfterFunc(time.Until(at), b.tick)
		return
	}
	b.timer.Reset(time.Until(at))
}

// settle ends a reservation with what it cost, or as if nothing had been taken, and reports whether there was one.
func (b *bucket) settle(h *store.Hold, actual int64, cancel bool) (found bool) {
	if b.state == nil {
		return false
	}
	b.bring(time.Now())
	if cancel {
		found = b.state.Cancel(h.ID, h.Expires)
	} else {
		found = b.state.Settle(h.ID, h.Expires, actual)
	}
	if found {
		b.uncover()
	}
	return found
}

// ErrNotReserved is returned if a reservation does not exist, has expired, or was settled before. It is that of package store.
var ErrNotReserved = store.ErrNotReserved

// end decides all waiters, also those that come later, and stops the timer.
func (b *bucket) end(why weir.Reason) {
	b.mu.Lock()
	var after answers
	if b.ended == 0 {
		b.ended = why
		for len(b.deadlines) > 0 {
			b.withdraw(b.deadlines[0], why, &after)
		}
		for b.writing.Len() > 0 {
			b.withdraw(b.writing.Oldest().Value, why, &after)
		}
		if b.timer != nil {
			b.timer.Stop()
		}
	}
	b.mu.Unlock()
	after.give()
}
