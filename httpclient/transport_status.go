package httpclient

import (
	"strings"
	"time"

	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/ratelimitfields"
)

// HostStatus is what a [Transport] knows of a partition, usually a host.
type HostStatus struct {
	// HeldFor is how long nothing will be sent to it, 0 if a request would be sent at once.
	HeldFor time.Duration
	// Limits are those that the server has told and that have not reset since. Requests that were sent after the response with a
	// limit are subtracted from its Remaining, and Reset is the time from now. At most 8.
	Limits []ratelimitfields.ToldLimit
	// Waiting is how many requests are held back now, and InFlight how many are sent and have no response yet.
	Waiting  int
	InFlight int
	// Sent counts the requests that were sent, and Retried those of them that were sent again. HeldBack counts those that had to
	// wait, and NotSent those that failed because they would have waited for too long or found no room. Refused counts the
	// responses with status 429 or 503.
	Sent     uint64
	Retried  uint64
	HeldBack uint64
	NotSent  uint64
	Refused  uint64
}

// Status returns what is known of a host, or of a partition if the options have one. It returns false if nothing is known: no
// request was sent there, or it has been forgotten.
func (t *Transport) Status(partition string) (s HostStatus, ok bool) {
	h := t.hosts.find(keytext.Whole(partition))
	if h == nil {
		if h = t.hosts.find(strings.ToLower(partition)); h == nil {
			return s, false
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	at, _ := h.readyAt()
	s = HostStatus{
		HeldFor: max(at.Sub(now), 0), Waiting: h.queue.Len(), InFlight: h.flights.Len(),
		Sent: h.sent, Retried: h.repeats, HeldBack: h.heldBack, NotSent: h.failedFast, Refused: h.refusals,
	}
	for i := range h.budgets {
		b := &h.budgets[i]
		if !b.end.After(now) {
			continue
		}
		l := b.ToldLimit
		l.Remaining, l.Reset = max(b.left, 0), b.end.Sub(now)
		s.Limits = append(s.Limits, l)
	}
	return s, true
}
