package durable

import (
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/queue"
	"github.com/weirhq/weir/store"
)

// bucket is the limit of one key: its state in the memory of the owner, who waits for it, and how far what is durable allows
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
	failed     error         // why it could not be read
	state      *store.Record // nil until it was read
	revision   int64         // of the record in force, -1 if it is not known
	generation int           // counts the changes of the limit

	covered int64 // permits that can be granted before the next record
	next    int64 // the same, once the record that is being written is in force
	stale   bool  // the record in force must be written anew
	asked   bool  // the writer has been asked
	busy    bool  // a record is being written
	ahead   ahead

	trail     []*adjusting // that the next record is written with
	early     []*waiter    // those who came while the record was being read
	queue     queue.Queue[*waiter]
	writing   writing
	deadlines deadlines
	timer     *time.Timer
	timerAt   time.Time
	retryAt   time.Time // nothing is granted before, after a write has failed
	ended     Outcome   // what everybody is answered from now on, 0 while it goes on

	granted, refused int64
}

// unixNow is the time by which states are kept.
func unixNow() int64 { return time.Now().UnixNano() }

// enter takes in a request.
func (b *bucket) enter(w *waiter) {
	b.mu.Lock()
	var after answers
	switch {
	case b.ended != 0:
		a := b.refusal(w, b.ended, algo.Result{})
		a.Err = errNotOwner
		after.add(w, a)
	case b.state == nil:
		w.stage = stageLoading
		b.early = append(b.early, w)
		b.deadlines.add(w)
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

// begin carries out a request, or lets it wait.
func (b *bucket) begin(w *waiter, after *answers) {
	switch {
	case w.settles != nil:
		b.settle(w, after)
	case w.adjusts != nil:
		b.adjust(w, after)
	default:
		b.admit(w, after)
	}
}

// answers are given once the lock has been let go.
type answers []func()

func (a *answers) add(w *waiter, answer Answer) {
	w.stage = stageAnswered
	f := w.answer
	*a = append(*a, func() { f(answer) })
}

func (a answers) give() {
	for _, f := range a {
		f()
	}
}

// loaded takes in the record, which is nil if there is none, or why it is not known.
func (b *bucket) loaded(state *store.Record, revision int64, err error) {
	b.mu.Lock()
	var after answers
	b.loading = false
	early := b.early
	b.early = nil
	if err == nil {
		b.state, b.revision = state, revision
	}
	for _, w := range early {
		if w.stage != stageLoading {
			continue // it has been answered
		}
		failure := err
		if failure == nil && b.state == nil && w.settles == nil {
			b.state, failure = store.NewRecord(w.request.Limit, unixNow())
		}
		switch {
		case b.ended != 0:
			b.deadlines.remove(w)
			after.add(w, b.refusal(w, b.ended, algo.Result{}))
		case failure != nil:
			b.deadlines.remove(w)
			after.add(w, unavailable(w, failure))
		default:
			b.begin(w, &after)
		}
	}
	b.arm()
	b.mu.Unlock()
	after.give()
}

// admit decides on a request whose turn it is to be looked at.
func (b *bucket) admit(w *waiter, after *answers) {
	b.deadlines.remove(w)
	if err := b.advance(w.request.Limit); err != nil {
		after.add(w, unavailable(w, err))
		return
	}
	now := time.Now()
	r := &w.request
	b.expire(now, after)
	b.serve(now, after)
	result := b.state.Peek(r.N)
	switch {
	case r.N > b.state.Most():
		b.refused++
		after.add(w, b.refusal(w, Never, result))
	case r.Wait > 0 && !now.Before(w.at):
		b.refused++
		after.add(w, b.refusal(w, Expired, result))
	case b.queue.Len() == 0 && !now.Before(b.retryAt) && b.can(w):
		b.take(w, after)
	case r.Wait == 0:
		b.refused++
		after.add(w, b.refusal(w, Refused, result))
	case r.N == 0: // a probe waits outside of the count
		b.join(w)
	case b.queue.Permits()+r.N > r.QueueLimit:
		b.refused++
		after.add(w, b.refusal(w, QueueFull, result))
	default:
		b.join(w)
	}
}

func (b *bucket) join(w *waiter) {
	w.stage = stageQueued
	w.queued = queue.Waiter[*waiter]{Value: w, Permits: w.request.N}
	b.queue.Push(&w.queued)
	b.deadlines.add(w)
}

// advance brings the state to now and to a limit.
func (b *bucket) advance(l weir.Limit) error {
	changed, err := b.state.Advance(unixNow(), l)
	if err != nil {
		return err
	}
	if changed {
		b.generation++
		b.ask() // a smaller limit holds from now on, whatever happens
	}
	return nil
}

// take takes the permits of a request, which are there, and answers it as soon as that is durable.
func (b *bucket) take(w *waiter, after *answers) {
	r := &w.request
	final := Answer{Outcome: Granted}
	var result algo.Result
	if r.Reserve > 0 {
		final.Reservation = Reservation{ID: rand.Text(), Policy: r.Policy, Key: r.Key, Permits: r.N}
		final.Reservation.Expires, result = b.state.Reserve(final.Reservation.ID, r.N, r.Reserve)
		w.must = true
	} else {
		w.taking, result = b.state.Take(r.N)
	}
	final.Decision = b.decision(w, result)
	w.generation = b.generation
	b.pass(w, final, after)
}

// pass answers a request that was carried out in memory as soon as that is durable.
func (b *bucket) pass(w *waiter, final Answer, after *answers) {
	w.final = final
	n := w.request.N
	b.deadlines.remove(w)
	if n == 0 && !w.must {
		after.add(w, final)
		return
	}
	if !w.must && b.writing.oldest == nil && n <= b.covers() && b.owner.holds() {
		b.covered -= n
		b.next -= n
		b.granted += n
		after.add(w, final)
		if b.covered <= b.ahead.last/2 && b.ahead.last > 1 && !b.busy {
			b.ask() // before they run out
		}
		return
	}
	w.stage = stageWriting
	b.writing.add(w)
	b.deadlines.add(w)
	b.ask()
}

// covers is how many permits can be granted whichever record is in force by now.
func (b *bucket) covers() int64 {
	if b.busy {
		return min(b.covered, b.next)
	}
	return b.covered
}

// ask asks the writer for a record.
func (b *bucket) ask() {
	b.stale = true
	if !b.asked && !b.busy {
		b.asked = true
		b.owner.ask(b)
	}
}

// serve gives those who wait what is there, the oldest first.
func (b *bucket) serve(now time.Time, after *answers) {
	if now.Before(b.retryAt) {
		return
	}
	for front := b.queue.Front(); front != nil; front = b.queue.Front() {
		w := front.Value
		switch {
		case w.request.N > b.state.Most(): // since the limit was changed
			b.withdraw(w, Never, after)
		case b.can(w):
			b.queue.Remove(front)
			b.take(w, after)
		default:
			return
		}
	}
}

// can tells whether the permits of a request are there.
func (b *bucket) can(w *waiter) bool {
	return b.state.Peek(w.request.N).Allowed && (w.request.Reserve == 0 || !b.state.Full())
}

// expire answers those whose deadline has passed.
func (b *bucket) expire(now time.Time, after *answers) {
	for len(b.deadlines) > 0 && !now.Before(b.deadlines[0].at) {
		b.withdraw(b.deadlines[0], Expired, after)
	}
}

// withdraw ends a request that has not been answered, and takes nothing for it.
func (b *bucket) withdraw(w *waiter, why Outcome, after *answers) {
	b.deadlines.remove(w)
	var result algo.Result
	switch w.stage {
	case stageQueued:
		b.queue.Remove(&w.queued)
	case stageWriting:
		b.writing.remove(w)
		b.undo(w)
		b.stale = b.stale || w.written
	case stageLoading: // it stays among the early ones, answered
	default:
		return
	}
	if b.state != nil {
		result = b.state.Peek(w.request.N)
	}
	b.refused++
	after.add(w, b.refusal(w, why, result))
}

// undo takes back what was taken for a request that is not granted.
func (b *bucket) undo(w *waiter) {
	switch {
	case w.settles != nil: // what was done stays done, in memory, and is written with the next record
		b.stale = true
	case w.adjusts != nil:
		b.unadjust(w)
	case w.final.Reservation.ID != "":
		b.state.Cancel(w.final.Reservation.ID, w.final.Reservation.Expires)
	case w.generation == b.generation:
		b.state.Undo(w.taking)
	}
}

// cancel ends a request whose caller has gone away.
func (b *bucket) cancel(w *waiter) {
	b.mu.Lock()
	var after answers
	if w.stage != stageAnswered {
		b.withdraw(w, Canceled, &after)
		if b.state != nil {
			b.serve(time.Now(), &after)
		}
		b.arm()
	}
	b.mu.Unlock()
	after.give()
}

// tick is called when somebody's time has come.
func (b *bucket) tick() {
	b.mu.Lock()
	var after answers
	b.timerAt = time.Time{}
	if b.ended == 0 {
		now := time.Now()
		if b.state != nil {
			_, _ = b.state.Advance(unixNow(), b.state.Limit())
		}
		b.expire(now, &after)
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
		_, _ = b.state.Advance(unixNow(), b.state.Limit()) // what it answers counts from then on
		wait := b.state.Peek(front.Permits).RetryAfter
		if front.Value.request.Limit.Algorithm == weir.AlgorithmConcurrency {
			wait = concurrencyPoll
		}
		turn := now.Add(max(wait, b.retryAt.Sub(now)))
		if at.IsZero() || turn.Before(at) {
			at = turn
		}
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

// concurrencyPoll is how often it is looked whether reservations have expired, as nothing else tells.
const concurrencyPoll = 50 * time.Millisecond

// settle ends a reservation, and answers once that is durable.
func (b *bucket) settle(w *waiter, after *answers) {
	b.deadlines.remove(w)
	if b.state == nil {
		after.add(w, unavailable(w, ErrNotReserved))
		return
	}
	_, _ = b.state.Advance(unixNow(), b.state.Limit())
	r, found := &w.settles.reservation, false
	if w.settles.cancel {
		found = b.state.Cancel(r.ID, r.Expires)
	} else {
		found = b.state.Settle(r.ID, r.Expires, w.settles.actual)
	}
	if !found {
		after.add(w, unavailable(w, ErrNotReserved))
		return
	}
	w.must = true
	b.pass(w, Answer{Outcome: Granted, Decision: b.decision(w, b.state.Peek(0))}, after)
	b.serve(time.Now(), after)
}

// ErrNotReserved says that a reservation does not exist, has expired, or was settled before.
var ErrNotReserved = errors.New("weir: the reservation has expired or was settled before")

// end answers everybody who is here or comes later, and stops the timer.
func (b *bucket) end(why Outcome) {
	b.mu.Lock()
	var after answers
	if b.ended == 0 {
		b.ended = why
		for len(b.deadlines) > 0 {
			b.withdraw(b.deadlines[0], why, &after)
		}
		for w := b.writing.oldest; w != nil; w = b.writing.oldest {
			b.withdraw(w, why, &after)
		}
		if b.timer != nil {
			b.timer.Stop()
		}
	}
	b.mu.Unlock()
	after.give()
}

func (b *bucket) decision(w *waiter, r algo.Result) weir.Decision {
	return weir.Decision{
		Allowed: r.Allowed, Limit: b.state.Most(), Remaining: r.Remaining, RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter,
		Policy: w.request.Policy,
	}
}

// refusal is the answer to a request that gets nothing.
func (b *bucket) refusal(w *waiter, why Outcome, r algo.Result) Answer {
	d := weir.Decision{
		Reason: reasons[why], Remaining: r.Remaining, RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter, Policy: w.request.Policy,
	}
	if b.state != nil {
		d.Limit = b.state.Most()
	}
	if why == Never {
		d.RetryAfter = weir.Never
	}
	return Answer{Outcome: why, Decision: d}
}

func unavailable(w *waiter, err error) Answer {
	return Answer{
		Outcome: Unavailable, Err: err, Decision: weir.Decision{Reason: weir.ReasonUnavailable, Policy: w.request.Policy},
	}
}
