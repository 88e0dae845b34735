package httplimit

import (
	"bytes"
	"container/list"
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/weirhq/weir"
)

// host is what a [Transport] knows of a partition, usually a host: when the next request may be sent, and who waits.
type host struct {
	name    string
	options *TransportOptions
	place   *list.Element // in hosts, which also guards users
	users   int           // requests that wait or are on their way

	mu      sync.Mutex
	until   time.Time // after a refusal nothing is sent before
	budgets []budget
	sent    uint64 // requests so far: the number of the last one
	queue   list.List
	// After a hold, or to spread a budget, requests are sent one by one.
	paced bool
	step  time.Duration // between two, while paced
	gap   time.Duration // between two, to spread
	next  time.Time     // for the next one

	flights list.List // of *flight: the requests that were not answered yet, in their order

	heldBack, failedFast, repeats, refusals uint64
}

// flight is a request on its way.
type flight struct {
	number uint64
	at     time.Time
	place  *list.Element
}

// budget is a limit of the server.
type budget struct {
	ToldLimit // by the answer that counts

	by      flight        // the request that was answered so
	seen    uint64        // how many requests had been sent when the answer came
	end     time.Time     // when it resets
	left    int64         // Remaining, less what the server had not counted then
	longest time.Duration // of the times until a reset
}

// mostBudgets is how many limits of a host are remembered.
const mostBudgets = 8

// waiter is a request in the queue of a host.
type waiter struct {
	wake   chan struct{}
	until  time.Time     // the zero Time is never
	failed *LimitedError // it was taken out of the queue
}

func (w *waiter) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// readyAt is when the next request may be sent, which may be past, and the limit that binds, nil for a refusal without one.
func (h *host) readyAt() (at time.Time, by *budget) {
	at = h.until
	for i := range h.budgets {
		if b := &h.budgets[i]; b.left <= 0 && b.end.After(at) {
			at, by = b.end, b
		}
	}
	if h.next.After(at) {
		at = h.next
	}
	return at, by
}

// refuseAt is the error for a request that has position others before it and must be sent by until, nil if it can be.
func (h *host) refuseAt(now, until time.Time, position int) *LimitedError {
	if until.IsZero() {
		return nil
	}
	at, by := h.readyAt()
	wait := max(at.Sub(now), 0)
	if step := h.between(); position > 0 && step > 0 {
		wait = saturatingAdd(wait, time.Duration(min(int64(position), int64(weir.Never/step)-1)*int64(step)))
	}
	if wait == 0 || !now.Add(wait).After(until) {
		return nil
	}
	e := &LimitedError{Host: h.name, Server: true, Reason: weir.ReasonDeadline, RetryAfter: wait}
	if by != nil {
		e.Limit = by.Name
	}
	return e
}

// between is the time between two requests that are sent one by one.
func (h *host) between() (step time.Duration) {
	if h.paced {
		step = h.step
	}
	if h.options.Spread {
		step = max(step, h.gap)
	}
	return step
}

// check answers whether a request that comes now would be sent in time; nil if so.
func (h *host) check(until time.Time) *LimitedError {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.refuseAt(time.Now(), until, h.queue.Len())
	if e != nil {
		h.failedFast++
	}
	return e
}

// peek is check for an answer that is not counted.
func (h *host) peek(until time.Time) *LimitedError {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refuseAt(time.Now(), until, h.queue.Len())
}

// wait waits for the turn of a request.
func (h *host) wait(ctx context.Context, until time.Time) (*flight, error) {
	h.mu.Lock()
	now := time.Now()
	if at, _ := h.readyAt(); h.queue.Len() == 0 && !at.After(now) {
		defer h.mu.Unlock()
		return h.send(now), nil
	}
	e := h.refuseAt(now, until, h.queue.Len())
	if e == nil && h.queue.Len() >= h.options.QueueLimit {
		e = &LimitedError{Host: h.name, Server: true, Reason: weir.ReasonQueueFull}
		at, _ := h.readyAt()
		e.RetryAfter = max(at.Sub(now), 0)
	}
	if e != nil {
		h.failedFast++
		h.mu.Unlock()
		return nil, e
	}
	h.heldBack++
	w := &waiter{wake: make(chan struct{}, 1), until: until}
	place := h.queue.PushBack(w)
	h.mu.Unlock()
	return h.stand(ctx, w, place)
}

// stand waits in the queue. Only the first one has a timer.
func (h *host) stand(ctx context.Context, w *waiter, place *list.Element) (*flight, error) {
	var timer *time.Timer
	var due <-chan time.Time
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for {
		h.mu.Lock()
		if w.failed != nil {
			h.mu.Unlock()
			return nil, w.failed
		}
		if h.queue.Front() == place {
			now := time.Now()
			at, _ := h.readyAt()
			if !at.After(now) {
				h.queue.Remove(place)
				f := h.send(now)
				h.nudgeFirst()
				h.mu.Unlock()
				return f, nil
			}
			if timer == nil {
				timer = time.NewTimer(at.Sub(now))
				due = timer.C
			} else {
				timer.Reset(at.Sub(now))
			}
		}
		h.mu.Unlock()
		select {
		case <-w.wake:
		case <-due:
		case <-ctx.Done():
			h.mu.Lock()
			if w.failed == nil {
				h.queue.Remove(place)
				h.nudgeFirst()
			}
			h.mu.Unlock()
			return nil, context.Cause(ctx)
		}
	}
}

func (h *host) nudgeFirst() {
	if first := h.queue.Front(); first != nil {
		first.Value.(*waiter).nudge() //nolint:errcheck,forcetypeassert // nothing else stands there
	}
}

// send counts a request that is sent now.
func (h *host) send(now time.Time) *flight {
	h.sent++
	f := &flight{number: h.sent, at: now}
	f.place = h.flights.PushBack(f)
	if at, _ := h.readyAt(); h.paced && h.queue.Len() == 0 && now.Sub(at) >= h.step {
		h.paced = false // nobody was held back for a while
	}
	usedUp := false
	h.gap = 0
	for i := range h.budgets {
		b := &h.budgets[i]
		if b.Unit != Requests || !b.end.After(now) {
			continue
		}
		if b.left > 0 {
			b.left--
			usedUp = usedUp || b.left == 0
		}
		if b.left == 0 {
			h.pace(h.stepOf(b))
			continue
		}
		h.gap = max(h.gap, b.end.Sub(now)/time.Duration(b.left+1))
	}
	h.next = now.Add(h.between())
	if usedUp {
		h.dropLate(now)
	}
	return f
}

// pace lets requests go one by one from now on.
func (h *host) pace(step time.Duration) {
	if !h.paced {
		h.paced, h.step = true, 0
	}
	h.step = max(h.step, step)
}

// stepOf is the time between two requests at the pace of a limit.
func (h *host) stepOf(b *budget) time.Duration {
	window := b.Window
	if window == 0 {
		window = b.longest
	}
	if b.Limit <= 0 || window <= 0 || b.Unit != Requests {
		return h.options.ReleaseRate.Interval()
	}
	return min(window/time.Duration(b.Limit), h.options.MaxHold)
}

// dropLate lets those go who stand in the queue and would now be too late.
func (h *host) dropLate(now time.Time) {
	position := 0
	for place := h.queue.Front(); place != nil; {
		w := place.Value.(*waiter) //nolint:errcheck,forcetypeassert // nothing else stands there
		next := place.Next()
		if w.failed = h.refuseAt(now, w.until, position); w.failed != nil {
			h.failedFast++
			h.queue.Remove(place)
			w.nudge()
		} else {
			position++
		}
		place = next
	}
}

// failed counts a request that got no answer.
func (h *host) failed(f *flight) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flights.Remove(f.place)
}

func (h *host) retried() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repeats++
}

// observe learns from the answer to a request, and tells whether it is a refusal that says when to come back.
func (h *host) observe(f *flight, status int, told *Told) (again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flights.Remove(f.place)
	refused := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	if refused {
		h.refusals++
	}
	if told.Cached {
		return false
	}
	now := time.Now()
	before, _ := h.readyAt()
	usedUp := false
	for i := range told.Limits {
		if b := h.learn(&told.Limits[i], f, now); b != nil && b.left <= 0 {
			usedUp = true
			h.pace(h.stepOf(b))
		}
	}
	switch {
	case told.HasRetryAfter && (refused || status == http.StatusForbidden):
		again = refused
		h.hold(now, told, f)
	case status == http.StatusTooManyRequests && !usedUp: // it does not say when
		h.pace(h.options.ReleaseRate.Interval())
		h.next = later(h.next, now.Add(h.step))
	default:
		again = refused && usedUp
	}
	after, _ := h.readyAt()
	if after.After(before) {
		h.dropLate(now)
	}
	if !after.Equal(before) {
		h.nudgeFirst()
	}
	return again
}

// hold sends nothing before a Retry-After has passed.
func (h *host) hold(now time.Time, told *Told, f *flight) {
	if !h.paced {
		h.pace(h.options.ReleaseRate.Interval())
	}
	wait := min(told.RetryAfter, h.options.MaxHold)
	h.until = later(h.until, now.Add(max(h.jittered(wait), h.options.ReleaseRate.Interval())))
	for i := range h.budgets { // a reset that is told beside it counts less
		if b := &h.budgets[i]; b.by.number == f.number && b.left <= 0 && b.end.After(h.until) {
			b.end = h.until
		}
	}
}

// jittered is d and a bit more.
func (h *host) jittered(d time.Duration) time.Duration {
	random := rand.Float64
	if h.options.Random != nil {
		random = h.options.Random
	}
	return d + min(max(time.Duration(random()*h.options.Jitter*float64(d)), 0), d)
}

// sameReset is how far apart two resets are at most that are one: they are told in whole seconds.
const sameReset = 1500 * time.Millisecond

// learn takes note of a limit, and answers it unless nothing needs to be remembered.
//
// Answers come in another order than the server has counted in. What it said to a request that was sent after the last answer
// came is news. Of requests that were on their way together, the one with the least left was counted last, unless a
// new window has begun.
func (h *host) learn(l *ToldLimit, f *flight, now time.Time) *budget {
	if l.Unit == ConcurrentRequests {
		return nil
	}
	b := h.budget(l, now)
	if b == nil {
		return nil
	}
	end := now.Add(h.jittered(min(l.Reset, h.options.MaxHold)))
	if b.end.After(now) && f.number <= b.seen {
		newWindow := f.number > b.by.number && end.Sub(b.end) > sameReset
		if !newWindow && (l.Remaining > b.Remaining || b.end.Sub(end) > sameReset) {
			b.left = b.Remaining - h.uncounted(b)
			return b
		}
	}
	if l.Reset == 0 {
		b.end, b.left = time.Time{}, 0 // nobody knows until when
		return nil
	}
	b.ToldLimit, b.by, b.seen, b.end = *l, *f, h.sent, end
	b.longest = max(b.longest, l.Reset)
	b.left = b.Remaining - h.uncounted(b)
	return b
}

// mostSkew is by how much a request may overtake another one on its way.
const mostSkew = 100 * time.Millisecond

// uncounted is how many requests the server may not have counted yet when it told a limit.
func (h *host) uncounted(b *budget) (n int64) {
	if b.Unit != Requests {
		return 0
	}
	since := b.by.at.Add(-mostSkew)
	for place := h.flights.Back(); place != nil; place = place.Prev() {
		if f := place.Value.(*flight); f.at.Before(since) { //nolint:errcheck,forcetypeassert // nothing else is there
			break
		}
		n++
	}
	return n
}

// budget is the one of this name, a new one, or nil if there are too many.
func (h *host) budget(l *ToldLimit, now time.Time) *budget {
	over := -1
	for i := range h.budgets {
		b := &h.budgets[i]
		if b.Name == l.Name && bytes.Equal(b.PartitionKey, l.PartitionKey) {
			return b
		}
		if !b.end.After(now) {
			over = i
		}
	}
	if over < 0 {
		if len(h.budgets) == mostBudgets {
			return nil
		}
		h.budgets = append(h.budgets, budget{})
		over = len(h.budgets) - 1
	}
	b := &h.budgets[over]
	*b = budget{ToldLimit: *l}
	return b
}

// idle tells whether nothing that matters is lost if the host is forgotten.
func (h *host) idle(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, _ := h.readyAt()
	return !at.After(now)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
