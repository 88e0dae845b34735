// Package holds keeps the reservations of clients that cannot hold a verdict themselves: they get an id, and settle by it. A
// reservation that was made on one front of the server can be settled on another.
package holds

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/internal/heap"
	"github.com/weirhq/weir/policy"
)

const (
	// DefaultMost is how many reservations there may be at once unless [Options] say otherwise.
	DefaultMost = 100_000
	// DefaultExpiry is the expiry of a reservation whose client does not say.
	DefaultExpiry = time.Minute
	// LeastExpiry is the shortest that a client may say.
	LeastExpiry = time.Millisecond
	// MostExpiry is the longest.
	MostExpiry = 24 * time.Hour
)

var (
	// ErrUnknown says that there is no reservation with this id: there was none, it has expired, or it was settled before.
	ErrUnknown = errors.New("weir: there is no such reservation: it has expired, was settled before, or was never made")
	// ErrUnsettled says that it is not known what has become of a reservation that was to be settled.
	ErrUnsettled = errors.New("weir: it is not known whether the reservation was settled, as the owner of its limits cannot be " +
		"reached: if not, its permits come back when it expires")
	// ErrTooMany says that there are as many reservations as there may be.
	ErrTooMany = errors.New("weir: too many reservations are open")
	// ErrShare says that one caller has as many of them as it may have. It is ErrTooMany as well.
	ErrShare = fmt.Errorf("%w by this address", ErrTooMany)
	// ErrClosed says that the server ends.
	ErrClosed = errors.New("weir: reservations are closed, as the server ends")
)

// Options configure [Holds].
type Options struct {
	// Most is how many reservations may be open at once. Each needs about a kilobyte. Default: 100,000, also if it is less
	// than 1. One caller may have nine in ten of them: an IPv4 address, or a /64 of IPv6.
	Most int
}

// Holds are the open reservations. All methods are safe for concurrent use.
type Holds struct {
	most     int
	verdicts sync.Pool

	mu       sync.Mutex
	byID     map[string]*hold
	callers  map[netip.Prefix]int // how many of count each has
	due      heap.Heap[*hold]
	count    int // that are open, or being settled
	closed   bool
	timer    *time.Timer // fires no later than the first one in due expires, unless sweep is at work; nil until there was one
	sweeping bool
	idle     sync.Cond // count has become 0
}

// hold is an open reservation.
type hold struct {
	id      string
	verdict *policy.Verdict
	expires time.Time
	caller  netip.Prefix
	place   int // in due
}

// Before implements [heap.Item]: what expires first comes first.
func (h *hold) Before(other *hold) bool { return h.expires.Before(other.expires) }

// Placed implements [heap.Item].
func (h *hold) Placed(at int) { h.place = at }

// New returns holds without reservations. They must be closed.
func New(o Options) *Holds {
	h := &Holds{most: o.Most, byID: make(map[string]*hold), callers: make(map[netip.Prefix]int)}
	if h.most < 1 {
		h.most = DefaultMost
	}
	h.verdicts.New = func() any { return new(policy.Verdict) }
	h.idle.L = &h.mu
	return h
}

// Verdict is one to reserve with. It must end in [Holds.Keep] or [Holds.Drop].
func (h *Holds) Verdict() *policy.Verdict {
	v, _ := h.verdicts.Get().(*policy.Verdict)
	return v
}

// Drop takes a verdict of [Holds.Verdict] back that is not kept, because it is a refusal, for instance. What it has reserved is
// canceled. The verdict must not be used any more.
func (h *Holds) Drop(v *policy.Verdict) {
	v.Cancel()
	h.verdicts.Put(v)
}

// Keep keeps a reserved verdict until it is settled by its id, or canceled because expiry has passed: from 1 ms to 24 h, or 0
// for a minute, and no longer than [Longest] says. The verdict belongs to the holds from now on and must not be used any more:
// what is sent of it is copied before. If it is not kept, it was canceled, and the error is the reason. The caller is the
// address that asks, which has a share of all holds there may be; the zero Addr is that of all callers whose address is not
// known.
//
// An id is 26 letters and digits, and cannot be guessed.
func (h *Holds) Keep(v *policy.Verdict, expiry time.Duration, caller netip.Addr) (id string, err error) {
	if expiry == 0 {
		expiry = DefaultExpiry
	}
	if expiry < LeastExpiry || expiry > MostExpiry {
		h.Drop(v)
		return "", fmt.Errorf("weir: expiry %v: must be from %v to %v", expiry, LeastExpiry, MostExpiry)
	}
	kept := &hold{
		id: rand.Text(), verdict: v, expires: time.Now().Add(min(expiry, Longest(v))), caller: clientip.Prefixes{}.Mask(caller),
	}
	if err := h.add(kept); err != nil {
		h.Drop(v)
		return "", err
	}
	return kept.id, nil
}

func (h *Holds) add(kept *hold) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return ErrClosed
	case h.count >= h.most:
		return ErrTooMany
	case h.callers[kept.caller] >= h.most-h.most/10:
		return ErrShare
	}
	h.count++
	h.callers[kept.caller]++
	h.byID[kept.id] = kept
	h.due.Push(kept)
	if h.due[0] == kept {
		h.arm()
	}
	return nil
}

// Longest is for how long a verdict can be kept: 24 h, or shortly less than the longest Hold among its policies that are shared
// or durable, as what keeps their limits cancels by itself what was not settled until then.
func Longest(v *policy.Verdict) time.Duration {
	hold := time.Duration(0)
	for i := range v.Parts {
		if p := v.Parts[i].Policy; p.Shared() {
			own := p.Hold
			if own == 0 {
				own = DefaultExpiry // it is that of a policy, too
			}
			hold = max(hold, own)
		}
	}
	if hold == 0 {
		return MostExpiry
	}
	return max(hold-min(hold/10, time.Second), LeastExpiry)
}

// Commit ends a reservation with what it really cost: for each limit that it was charged to the cost becomes actual, from 0; a
// negative number stands for what was reserved. What is less comes back, what is more is charged, as far as the debt of a limit
// goes. The error is ErrUnknown, also where a store says that it has expired there meanwhile; ErrUnsettled where the owner of
// durable limits cannot be told; or nil.
func (h *Holds) Commit(id string, actual int64) error {
	expired, unsettled := false, false
	err := h.settle(id, func(v *policy.Verdict) {
		v.Commit(func(*policy.Part) int64 { return actual })
		expired, unsettled = v.Expired(), v.Unsettled()
	})
	switch {
	case expired:
		return ErrUnknown
	case unsettled:
		return ErrUnsettled
	}
	return err
}

// Cancel ends a reservation as if the request had never come. The error is ErrUnknown, or nil.
func (h *Holds) Cancel(id string) error {
	return h.settle(id, (*policy.Verdict).Cancel)
}

func (h *Holds) settle(id string, how func(*policy.Verdict)) error {
	h.mu.Lock()
	kept := h.byID[id]
	if kept == nil {
		h.mu.Unlock()
		return ErrUnknown
	}
	delete(h.byID, id)
	h.due.Remove(kept.place)
	h.mu.Unlock()
	h.end(kept, how)
	return nil
}

// end settles a hold that was taken out of the table.
func (h *Holds) end(kept *hold, how func(*policy.Verdict)) {
	how(kept.verdict) // may ask a store
	h.verdicts.Put(kept.verdict)
	h.mu.Lock()
	h.count--
	if h.callers[kept.caller]--; h.callers[kept.caller] == 0 {
		delete(h.callers, kept.caller)
	}
	if h.count == 0 {
		h.idle.Broadcast()
	}
	h.mu.Unlock()
}

// Len is how many reservations are open.
func (h *Holds) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byID)
}

// Close cancels all reservations that are open, and returns when all that were being settled are. From now on none is kept, and
// none is known. It can be called more than once.
func (h *Holds) Close() {
	h.mu.Lock()
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	left := h.due
	h.due = nil
	clear(h.byID)
	h.mu.Unlock()
	h.cancelAll(left)
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.count > 0 {
		h.idle.Wait()
	}
}
