package httpclient

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/ratelimitfields"
)

// budget is a limit of the server.
type budget struct {
	ratelimitfields.ToldLimit // by the answer that counts

	by      flight        // the request that was answered so
	seen    uint64        // how many requests had been sent when the answer came
	end     time.Time     // when it resets
	left    int64         // Remaining, less what the server had not counted then
	longest time.Duration // of the times until a reset
}

// mostBudgets is how many limits of a host are remembered.
const mostBudgets = 8

// observe learns from the answer to a request, and reports whether it is a refusal that says when to come back.
func (h *host) observe(f *flight, status int, told *ratelimitfields.Told) (again bool) {
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
		h.pace(limits.Interval(h.options.ReleaseRate))
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
func (h *host) hold(now time.Time, told *ratelimitfields.Told, f *flight) {
	if !h.paced {
		h.pace(limits.Interval(h.options.ReleaseRate))
	}
	wait := min(told.RetryAfter, h.options.MaxHold)
	h.until = later(h.until, now.Add(max(h.jittered(wait), limits.Interval(h.options.ReleaseRate))))
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

// learn takes note of a limit, and returns it unless nothing needs to be remembered.
//
// Answers come in another order than the server has counted in. What it said to a request that was sent after the last answer
// came is news. Of requests that were on their way together, the one with the least left was counted last, unless a
// new window has begun.
func (h *host) learn(l *ratelimitfields.ToldLimit, f *flight, now time.Time) *budget {
	if l.Unit == ratelimitfields.ConcurrentRequests {
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
		b.end, b.left = time.Time{}, 0 // when it ends is not known
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
	if b.Unit != ratelimitfields.Requests {
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
func (h *host) budget(l *ratelimitfields.ToldLimit, now time.Time) *budget {
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
