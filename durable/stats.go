package durable

import (
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/tally"
)

// OwnerStats say what an [Owner] has done in its term, and what it keeps now. Counters only grow.
type OwnerStats struct {
	// Epoch is that of the term.
	Epoch int64 `json:"epoch"`
	// Keys is how many keys are in memory.
	Keys int64 `json:"keys"`
	// WaitingPermits and WaitingRequests are what is waited for now, and by how many requests.
	WaitingPermits  int64 `json:"waiting_permits"`
	WaitingRequests int64 `json:"waiting_requests"`
	// PermitsAhead is how many permits a crash would burn now, at most.
	PermitsAhead int64 `json:"permits_ahead"`
	// Allowed is how many requests for permits were allowed, and GrantedPermits how many permits, those that were lent included.
	// Several charges of one request count one by one.
	Allowed        int64 `json:"allowed"`
	GrantedPermits int64 `json:"granted_permits"`
	// Refused counts the requests that were not.
	Refused RefusedStats `json:"refused"`
	// Writes is how many transactions were written, and Records how many records with them. FailedWrites is how many transactions
	// were not, or are not known to have been.
	Writes       int64 `json:"writes"`
	Records      int64 `json:"records"`
	FailedWrites int64 `json:"failed_writes"`
	// Rewound is how many records were read from a clock that was ahead by more than [store.MostAhead]: they went on from then,
	// with what was taken.
	Rewound int64 `json:"rewound"`
}

// RefusedStats count requests by why they were refused. Those for which there was no room are among Refused.
type RefusedStats struct {
	Refused     int64 `json:"refused"`
	Never       int64 `json:"never"`
	QueueFull   int64 `json:"queue_full"`
	Expired     int64 `json:"expired"`
	Canceled    int64 `json:"canceled"`
	Stopping    int64 `json:"stopping"`
	Unavailable int64 `json:"unavailable"`
}

// NodeStats say what a [Node] knows.
type NodeStats struct {
	// Owns reports whether this node is the owner.
	Owns bool `json:"owns"`
	// Owner is the address of the last owner that the node has heard of, "" if there is none, and Epoch that of its term.
	// It may be the owner no more, or not be reached: see OwnerUnreached.
	Owner string `json:"owner"`
	Epoch int64  `json:"epoch"`
	// OwnerUnreached is what the method of the node returns, in nanoseconds.
	OwnerUnreached time.Duration `json:"owner_unreached_ns"`
	// Terms is how many terms this node has had, the current one included.
	Terms int64 `json:"terms"`
	// WithoutOwner is for how long altogether this node has known of no owner that it could reach, in nanoseconds.
	WithoutOwner time.Duration `json:"without_owner_ns"`
	// Owned is what this node has done as the owner: counters are those of all of its terms, the rest is that of the current
	// term, if there is one.
	Owned OwnerStats `json:"owned"`
}

// counts are what an owner counts as it goes.
type counts struct {
	answered                [weir.ReasonUnavailable + 1]tally.Tally
	writes, records, failed atomic.Int64
	rewound                 atomic.Int64
}

// count counts a decision about a charge; calls that ask for no permits have no counts.
func (c *counts) count(why weir.Reason) {
	if c != nil {
		c.answered[why].Add()
	}
}

// Stats are those of the term. It looks at every key, one after the other.
func (o *Owner) Stats() OwnerStats {
	c := &o.counts
	of := func(why weir.Reason) int64 { return c.answered[why].Sum() }
	s := OwnerStats{
		Epoch: o.term.Epoch(), Allowed: of(weir.ReasonNone), Writes: c.writes.Load(), Records: c.records.Load(),
		FailedWrites: c.failed.Load(), Rewound: c.rewound.Load(),
		Refused: RefusedStats{
			Refused: of(weir.ReasonLimited) + of(weir.ReasonTableFull), Never: of(weir.ReasonNever),
			QueueFull: of(weir.ReasonQueueFull), Expired: of(weir.ReasonDeadline), Canceled: of(weir.ReasonCanceled),
			Stopping: of(weir.ReasonClosed), Unavailable: of(weir.ReasonUnavailable),
		},
	}
	o.mu.RLock()
	s.GrantedPermits = o.dropped
	o.mu.RUnlock()
	for _, b := range o.all() {
		b.mu.Lock()
		s.Keys++
		s.WaitingPermits += b.queue.Permits()
		s.WaitingRequests += int64(b.queue.Len())
		s.PermitsAhead += max(b.covered, b.inForce.left)
		s.GrantedPermits += b.taken
		b.mu.Unlock()
	}
	return s
}

// plus adds the counters of an earlier term.
func (s OwnerStats) plus(t OwnerStats) OwnerStats {
	s.Allowed += t.Allowed
	s.GrantedPermits += t.GrantedPermits
	s.Writes += t.Writes
	s.Records += t.Records
	s.FailedWrites += t.FailedWrites
	s.Rewound += t.Rewound
	r, u := &s.Refused, &t.Refused
	r.Refused += u.Refused
	r.Never += u.Never
	r.QueueFull += u.QueueFull
	r.Expired += u.Expired
	r.Canceled += u.Canceled
	r.Stopping += u.Stopping
	r.Unavailable += u.Unavailable
	return s
}

// Stats are those of the node.
func (n *Node) Stats() NodeStats {
	n.mu.Lock()
	s := NodeStats{Owns: n.owner != nil, Owner: n.address, Epoch: n.epoch, Terms: n.terms, WithoutOwner: n.without, Owned: n.past}
	if !n.lost.IsZero() {
		since := time.Since(n.lost)
		s.OwnerUnreached, s.WithoutOwner = max(since, 1), s.WithoutOwner+since
	}
	counted := n.counted
	n.mu.Unlock()
	if counted != nil {
		s.Owned = counted.Stats().plus(s.Owned)
	}
	return s
}

// OwnerUnreached returns for how long now this node has not been the owner, and has not reached it: none is known, the last one
// that is known cannot be connected to, or has not said for 3 s that it is the owner. It is 0 if there is an owner that it
// reaches.
func (n *Node) OwnerUnreached() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost.IsZero() {
		return 0
	}
	return max(time.Since(n.lost), 1)
}

// silentOwner is how long an owner in another process can have told no time until it counts as one that is not reached: a process
// that was the owner keeps its connections, and tells no time any more.
const silentOwner = 3 * tellEvery

// lookAgain looks whether the owner in another process is reached, and returns when to look again.
func (n *Node) lookAgain() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.noteOwner(time.Now()); n.lost.IsZero() {
		return tellEvery
	}
	return retryCampaign
}

// noteOwner notes whether there is an owner that can be reached. The node must be locked.
func (n *Node) noteOwner(now time.Time) {
	reached := n.owner != nil
	if n.peer != nil && !reached {
		heard := n.named // an owner that is new has told nothing yet
		if _, at := n.peer.Time(); at.After(heard) {
			heard = at
		}
		reached = now.Sub(heard) < silentOwner
	}
	switch {
	case reached && !n.lost.IsZero():
		n.without += now.Sub(n.lost)
		n.lost = time.Time{}
	case !reached && n.lost.IsZero():
		n.lost = now
	}
}

// countPast keeps the counters of a term that has ended.
func (n *Node) countPast() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counted != nil {
		n.past = OwnerStats{}.plus(n.past).plus(n.counted.Stats())
		n.counted = nil
	}
}
