package durable

import (
	"crypto/rand"
	"sync"
	"time"

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
	known      bool          // the record was read
	state      *store.Record // nil until it was read, and as long as there is none
	revision   int64         // of the record in force, -1 if it is not known
	generation int           // counts the changes of the limit

	covered int64 // permits that can be granted before the next record
	next    int64 // the same, once the record that is being written is in force
	stale   bool  // the record in force must be written anew
	asked   bool  // the writer has been asked
	busy    bool  // a record is being written
	ahead   ahead
	inForce inForce

	trail     []*adjusting // that the next record is written with
	early     []*waiter    // those who came while the record was being read
	queue     queue.Queue[*waiter]
	writing   queue.Queue[*waiter] // whose permits are taken but not durable
	deadlines deadlines
	timer     *time.Timer
	timerAt   time.Time
	retryAt   time.Time // nothing is granted before, after a write has failed
	failure   error     // why it has
	kept      int       // by how many calls it is needed
	ended     Outcome   // what everybody is answered from now on, 0 while it goes on

	granted int64 // permits
}

// bring brings the state to now.
func (b *bucket) bring(now time.Time) {
	l := b.state.Limit()
	_, _ = b.state.Advance(b.owner.unix(now, l.Algorithm()), l)
}

// quick decides on a request that needs neither a queue nor a write, if it is one: the permits are there, and the record in force
// is ahead by as many, or they are not there and the request does not wait.
func (b *bucket) quick(r *Request) (a Answer, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended != 0 || b.state == nil || b.queue.Len() > 0 || b.writing.Len() > 0 || !b.retryAt.IsZero() ||
		!b.state.HeldTo(r.Limit) {
		return Answer{}, false
	}
	now := time.Now()
	_, _ = b.state.Advance(b.owner.unix(now, r.Limit.Algorithm()), r.Limit) // which it is held to
	if r.N <= b.covers() && b.owner.holdsAt(now) {
		if _, result := b.state.Take(r.N); result.Allowed {
			b.spend(r.N)
			b.owner.counts.count(Granted)
			return Answer{Outcome: Granted, Decision: b.decision(r, result)}, true
		}
	}
	result := b.state.Peek(r.N)
	if result.Allowed || r.Wait > 0 || r.N > b.state.Most() {
		return Answer{}, false
	}
	b.owner.counts.count(Refused)
	return b.refusal(r, Refused, result), true
}

// enter takes in a request.
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
		a := b.refusal(&w.request, b.ended, algo.Result{})
		a.Err = errNotOwner
		after.add(w, a)
	case !b.known:
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
	case w.loads:
		b.deadlines.remove(w)
		after.add(w, Answer{Outcome: Granted})
	case w.settles != nil:
		b.settle(w, after)
	default:
		if err := b.exist(&w.request); err != nil {
			b.deadlines.remove(w)
			after.add(w, unavailable(w, err))
			return
		}
		if w.adjusts != nil {
			b.adjust(w, after)
			return
		}
		b.admit(w, after)
	}
}

// exist makes the state of a key that has never been seen.
func (b *bucket) exist(r *Request) (err error) {
	if b.state == nil {
		b.state, err = store.NewRecord(r.Limit, b.owner.unix(time.Now(), r.Limit.Algorithm()))
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
			continue // it has been answered
		}
		switch {
		case b.ended != 0:
			b.deadlines.remove(w)
			after.add(w, b.refusal(&w.request, b.ended, algo.Result{}))
		case err != nil:
			b.deadlines.remove(w)
			after.add(w, unavailable(w, err))
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
	now := time.Now()
	r := &w.request
	if err := b.turn(now, r, after); err != nil {
		after.add(w, unavailable(w, err))
		return
	}
	result := b.state.Peek(r.N)
	switch {
	case r.N > b.state.Most():
		after.add(w, b.refusal(r, Never, result))
	case r.Wait > 0 && !now.Before(w.at):
		after.add(w, b.refusal(r, Expired, result))
	case b.queue.Len() == 0 && !b.paused(now) && b.can(r):
		b.take(w, after)
	case r.Wait == 0 && b.paused(now): // it is not the limit that refuses
		after.add(w, unavailable(w, b.failure))
	case r.Wait == 0:
		after.add(w, b.refusal(r, Refused, result))
	case r.N == 0: // a probe waits outside of the count
		b.join(w)
	case b.queue.Permits()+r.N > r.QueueLimit:
		after.add(w, b.refusal(r, QueueFull, result))
	default:
		b.join(w)
	}
}

// turn brings the bucket to now and to the limit of a request, and serves those who came before it.
func (b *bucket) turn(now time.Time, r *Request, after *answers) error {
	if err := b.advance(b.owner.unix(now, r.Limit.Algorithm()), r); err != nil {
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
	b.deadlines.add(w)
}

// advance brings the state to now and to the limit of a request.
func (b *bucket) advance(now int64, r *Request) error {
	changed, err := b.state.Advance(now, r.Limit)
	if err != nil {
		return err
	}
	if changed {
		b.generation++
		b.uncover() // what records are ahead of the limit before would not stand for what is granted under this one
		b.ask()     // a smaller limit holds from now on, whatever happens
	}
	return nil
}

// take takes the permits of a request, which are there, and answers it as soon as that is durable.
func (b *bucket) take(w *waiter, after *answers) {
	r := &w.request
	final := Answer{Outcome: Granted}
	var result algo.Result
	w.taking, result = b.state.Take(r.N)
	if r.Reserve > 0 {
		if w.id == "" {
			w.id = rand.Text()
		}
		expires := b.until(w.expires, r.Reserve)
		b.state.Hold(w.id, r.N, expires)
		final.Reservation = Reservation{ID: w.id, Policy: r.Policy, Key: r.Key, Permits: r.N, Expires: expires}
		w.must = true
	}
	final.Decision = b.decision(r, result)
	w.generation = b.generation
	b.pass(w, final, after)
}

// until is when a reservation ends here that ends at a time at other keys: then, unless their clock is another one.
func (b *bucket) until(expires int64, expiry time.Duration) int64 {
	own := b.state.Time() + int64(expiry)
	if expires-own > int64(store.MostAhead) {
		return own
	}
	return max(expires, own)
}

// pass serves a request that was carried out in memory as soon as that is durable.
func (b *bucket) pass(w *waiter, final Answer, after *answers) {
	w.final = final
	n := w.request.N
	b.deadlines.remove(w)
	if n == 0 && !w.must {
		after.add(w, final)
		return
	}
	if !w.must && b.writing.Len() == 0 && n <= b.covers() && b.owner.holds() {
		b.spend(n)
		after.add(w, final)
		return
	}
	w.stage = stageWriting
	w.line(&b.writing)
	b.deadlines.add(w)
	b.ask()
}

// spend grants permits by which the record in force is ahead.
func (b *bucket) spend(n int64) {
	b.covered -= n
	b.next -= n
	b.granted += n
	if b.covered <= b.ahead.last/2 && b.ahead.last > 1 && !b.busy {
		b.ask() // before they run out
	}
}

// covers is how many permits can be granted whichever record is in force by now.
func (b *bucket) covers() int64 {
	if b.busy {
		return min(b.covered, b.next)
	}
	return b.covered
}

// uncover has the next grant wait for a record. It comes with everything that gives back what the record in force still keeps
// for somebody, as a reservation that was canceled: whoever takes the limits over would give that back again, and what was
// granted of it meanwhile would not be among the permits that it can burn.
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

// serve gives those who wait what is there, the oldest first.
func (b *bucket) serve(now time.Time, after *answers) {
	if b.paused(now) {
		return
	}
	for front := b.queue.Front(); front != nil; front = b.queue.Front() {
		w := front.Value
		switch {
		case w.request.N > b.state.Most(): // since the limit was changed
			b.withdraw(w, Never, after)
		case b.can(&w.request):
			b.queue.Remove(front)
			b.take(w, after)
		default:
			return
		}
	}
}

// can reports whether the permits of a request are there.
func (b *bucket) can(r *Request) bool {
	return b.state.Peek(r.N).Allowed && (r.Reserve == 0 || !b.state.Full())
}
