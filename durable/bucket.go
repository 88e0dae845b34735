package durable

import (
	"crypto/rand"
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
	retryAt   time.Time   // nothing is granted before, after a write has failed
	failure   error       // why it has
	kept      int         // by how many calls it is needed
	ended     weir.Reason // why nothing is granted from now on, 0 while it goes on

	granted int64 // permits
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

// begin decides on a charge whose record has been read, or lets it wait.
func (b *bucket) begin(w *waiter, after *answers) {
	b.deadlines.remove(w)
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
			continue // it has been answered
		}
		switch {
		case b.ended != 0:
			b.deadlines.remove(w)
			b.refuse(w, b.ended, algo.Result{}, &after)
		case err != nil:
			b.deadlines.remove(w)
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
	case b.queue.Len() == 0 && !b.paused(now) && b.can(w):
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

// ready brings the bucket, whose state need not exist, to now and to a limit, and serves those who came before.
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
	b.deadlines.add(w)
}

// advance brings the state to now and to a limit.
func (b *bucket) advance(now int64, l weir.Limit) error {
	changed, err := b.state.Advance(now, l)
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

// take takes the permits of a charge, which are there, and answers it as soon as that is durable.
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

// pass answers a waiter that was served in memory as soon as that is durable.
func (b *bucket) pass(w *waiter, after *answers) {
	n := w.charge.N
	b.deadlines.remove(w)
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
