package durable

import (
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// The owner counts permits by the time of the limits, which no clock that is set moves: it is that of the wall when the first
// owner began, and goes on with the monotonic clock. Owners tell it to the other nodes, and the next one begins by its own wall
// clock if that agrees with what it was told to within a second. So what the way of a message takes does not add up, and windows
// keep their phase. A wall clock that differs by more is wrong: then the owner goes on with what it was told. Only where no node
// is left that knows the time does it begin anew, by the clock of the first owner.
//
// Windows of a calendar begin by the wall clock of the owner, as it is set.

// told is a time of the limits that was heard at an instant of this process. Its zero value is none.
type told struct {
	unix int64
	at   time.Time
}

// on is the time of the limits at an instant.
func (t told) on(now time.Time) int64 { return t.unix + int64(now.Sub(t.at)) }

// clocksAgree is how far the wall clock of a new owner may be from the time of the limits and be followed.
const clocksAgree = time.Second

// orWall is the time that a new owner begins with, whose wall clock shows wall.
func (t told) orWall(wall int64, now time.Time) told {
	if !t.at.IsZero() {
		if off := time.Duration(wall - t.on(now)); off > clocksAgree || off < -clocksAgree {
			return t
		}
	}
	return told{wall, now}
}

// tellEvery is how often an owner tells the others the time of the limits.
const tellEvery = time.Second

// unix is a time by which states of an algorithm are kept.
func (o *Owner) unix(now time.Time, a weir.Algorithm) int64 {
	if a == weir.AlgorithmCalendarWindow {
		return o.wall(now)
	}
	return o.time.on(now)
}

// since is that time when the term began, by the clock as it is set now, and at an instant.
func (o *Owner) since(now time.Time, a weir.Algorithm) [2]int64 {
	at := o.unix(now, a)
	return [2]int64{at - int64(now.Sub(o.began)), at}
}

// wall is what the wall clock shows at an instant that is about now.
func (o *Owner) wall(now time.Time) int64 {
	if o.options.Clock == nil {
		return now.UnixNano()
	}
	return o.options.Clock.Now() - int64(time.Since(now))
}

// clockWatch logs what clocks have done.
type clockWatch struct {
	mu     sync.Mutex
	off    time.Duration // by how much the wall clock was ahead of the time of the limits
	known  bool
	policy string // of a record that was ahead
	most   time.Duration
	keys   int
	timer  *time.Timer
}

// watchClock logs a wall clock that was set since the last time, or that of another node before.
func (o *Owner) watchClock(now time.Time) {
	off := time.Duration(o.wall(now) - o.time.on(now))
	w := &o.clocks
	w.mu.Lock()
	by, first := off-w.off, !w.known
	if far := by > store.MostAhead || by < -store.MostAhead; far || first {
		w.off, w.known = off, true
		if !far {
			by = 0
		}
	} else {
		by = 0
	}
	w.mu.Unlock()
	switch {
	case by == 0 || o.options.Logger == nil:
	case first:
		o.options.Logger.Warn("the clock of this node differs from that of the owners before: permits are counted by theirs, "+
			"calendars by this one", "epoch", o.term.Epoch(), "ahead", by.String())
	default:
		o.options.Logger.Warn("the clock of this node was set: permits are counted as if it had not been, calendars by it",
			"epoch", o.term.Epoch(), "ahead", by.String())
	}
}

// tellAfter is how long records that were ahead are counted before they are logged.
const tellAfter = time.Second

// wasAhead notes that a record was written by a clock that was ahead.
func (o *Owner) wasAhead(name string, by time.Duration) {
	o.counts.rewound.Add(1)
	if o.options.Logger == nil {
		return
	}
	policy := recordPolicy(name)
	w := &o.clocks
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys++; by > w.most {
		w.policy, w.most = policy, by
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(tellAfter, o.tellAhead)
	}
}

// tellAhead logs the records that were ahead since the last time.
func (o *Owner) tellAhead() {
	w := &o.clocks
	w.mu.Lock()
	keys, policy, most := w.keys, w.policy, w.most
	w.keys, w.policy, w.most, w.timer = 0, "", 0, nil
	w.mu.Unlock()
	if keys > 0 {
		o.options.Logger.Warn("records were written by a clock that was ahead of this one: they go on from now, with what "+
			"was taken", "epoch", o.term.Epoch(), "keys", keys, "policy", policy, "ahead", most.String())
	}
}

// hear notes the time that a peer was told, which is not asked any more. The node must be locked.
func (n *Node) hear(p Peer) {
	if p == nil {
		return
	}
	if unix, at := p.Time(); !at.IsZero() {
		n.heard = told{unix, at}
	}
}
