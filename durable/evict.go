package durable

import (
	"errors"
	"time"

	"github.com/weirhq/weir"
)

// inForce is how a record stands to what is in memory.
type inForce struct {
	ahead  int64 // that the record in force was written with
	left   int64 // the same, as the owner before has left it, until it is written anew: a crash would burn as much once more
	drawn  int64 // the same of the record that is being written
	erases bool  // the record is being deleted instead
	leave  bool  // what is asked for is a record that is not ahead, or none, so that the bucket can be dropped
	gone   bool  // the bucket was dropped

	voids    []string  // adjustments that were taken back, but may have been written
	voided   int       // how many of them are deleted with the record that is being written
	failures int       // how often writing has failed in a row
	again    time.Time // when it is tried again, also without a request
}

// mostLooked is how many keys are looked at for one that can be dropped.
const mostLooked = 64

// drop drops the key that has not been asked for longest, of some. A key can be dropped if it is not in use and its record
// says what is in memory, so that reading it again makes no difference. Where there is none, those that are ahead are written,
// so that they can be dropped a moment later: new keys never lock others out. The owner must be
// locked.
func (o *Owner) drop() bool {
	var oldest *bucket
	var ahead []*bucket
	looked, at := 0, int64(0)
	for _, b := range o.buckets {
		if looked++; looked > mostLooked {
			break
		}
		if !b.mu.TryLock() {
			continue
		}
		switch used := b.lastUsed(); {
		case !b.quiet():
		case !b.exact():
			ahead = append(ahead, b)
		case oldest == nil || used < at:
			oldest, at = b, used
		}
		b.mu.Unlock()
	}
	if oldest != nil && o.forget(oldest) {
		return true
	}
	for _, b := range ahead {
		b.mu.Lock()
		b.askToLeave()
		b.mu.Unlock()
	}
	return false
}

// forget drops a bucket from memory, if that makes no difference. The owner must be locked.
func (o *Owner) forget(b *bucket) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.quiet() || !b.exact() {
		return false
	}
	b.inForce.gone, b.ended = true, weir.ReasonClosed
	if b.timer != nil {
		b.timer.Stop()
	}
	o.dropped += b.taken
	delete(o.buckets, b.name)
	return true
}

// none reports whether the bucket has no state, as its record does not exist or has not been read.
func (b *bucket) none() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == nil
}

// lastUsed is when the last request for the key was.
func (b *bucket) lastUsed() int64 {
	if b.state == nil {
		return 0
	}
	return b.state.Time()
}

// quiet reports whether the bucket is not in use.
func (b *bucket) quiet() bool {
	return b.ended == 0 && !b.loading && !b.asked && !b.busy && b.writing.Len() == 0 && b.queue.Len() == 0 &&
		len(b.deadlines) == 0 && len(b.early) == 0 && len(b.trail) == 0 &&
		b.kept == 0
}

// exact reports whether the record in force says what is in memory.
func (b *bucket) exact() bool {
	return b.state == nil || !b.stale && b.inForce.ahead == 0 && b.revision >= 0
}

// askToLeave asks the writer for a record that is not ahead, or for none if all permits are there.
func (b *bucket) askToLeave() {
	if b.quiet() && b.state != nil {
		b.inForce.leave, b.asked = true, true
		b.owner.ask(b)
	}
}

// drawToLeave is what is written so that the bucket can be dropped, which may be nothing; ok is false if it is needed after all.
func (b *bucket) drawToLeave() (writes []Write, ok bool) {
	asked := b.inForce.leave
	b.inForce.leave = false
	if !asked || b.writing.Len() > 0 || b.queue.Len() > 0 || len(b.trail) > 0 || len(b.inForce.voids) > 0 {
		return nil, false
	}
	b.bring(time.Now())
	switch {
	case b.revision > 0 && b.state.Fresh():
		writes = []Write{{Name: b.name, Revision: b.revision}}
	case b.exact():
		return nil, true
	default:
		writes = []Write{{Name: b.name, Value: encodeRecord(b.name, b.state, 0), Revision: b.revision}}
	}
	b.ahead, b.next = ahead{}, 0
	b.inForce.drawn, b.inForce.erases = 0, writes[0].Value == nil
	b.busy, b.stale = true, false
	return writes, true
}

// enter takes in a waiter, at the bucket of its key.
func (o *Owner) enter(w *waiter) {
	b, err := o.bucket(recordKeyOf(&w.charge), false)
	if err == nil {
		b.enter(w)
		return
	}
	if w.fail(err); errors.Is(err, errFull) {
		w.decision[0], w.err = o.noRoom(&w.charge), nil
		w.counts.count(weir.ReasonTableFull)
	}
	w.stage = stageAnswered // so that it cannot be withdrawn from a bucket that is gone
	w.done(w)
}
