package httpclient

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/ratelimitfields"
)

// host is what a [Transport] knows of a partition, usually a host: when the next request may be sent, and who waits.
type host struct {
	name    string
	options *Options
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
		others := time.Duration(min(int64(position), int64(weir.Never/step)-1) * int64(step))
		wait += min(others, weir.Never-wait)
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

// check reports whether a request that comes now would be sent in time; nil if so.
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
		h.paced = false // no request was held back for a while
	}
	usedUp := false
	h.gap = 0
	for i := range h.budgets {
		b := &h.budgets[i]
		if b.Unit != ratelimitfields.Requests || !b.end.After(now) {
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
	if b.Limit <= 0 || window <= 0 || b.Unit != ratelimitfields.Requests {
		return limits.Interval(h.options.ReleaseRate)
	}
	return min(window/time.Duration(b.Limit), h.options.MaxHold)
}

// dropLate drops the requests in the queue that would now be too late.
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

// idle reports whether nothing that matters is lost if the host is forgotten.
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
