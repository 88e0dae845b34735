package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// ask notes that a bucket needs a record to be written. It never waits: a full channel is left to a goroutine.
func (o *Owner) ask(b *bucket) {
	select {
	case o.asked <- b:
	default:
		o.work.Go(func() {
			select {
			case o.asked <- b:
			case <-o.ctx.Done():
			}
		})
	}
}

// load reads the record of a bucket.
func (o *Owner) load(b *bucket) {
	o.work.Go(func() {
		ctx, cancel := context.WithTimeout(o.ctx, o.options.WriteTimeout)
		defer cancel()
		value, revision, err := o.term.Load(ctx, b.name)
		if err != nil {
			o.failed("a record could not be read", err)
			b.loaded(nil, 0, 0, err)
			return
		}
		var state *store.Record
		ahead := int64(0)
		if revision != 0 { // otherwise the key is new: its limit is not known yet
			state, ahead, err = o.recovered(b.name, value)
		}
		if errors.Is(err, errOther) { // it is none of this algorithm, and is written over
			state, ahead, err = nil, 0, nil
		}
		if err != nil {
			err = fmt.Errorf("the record %.80q: %w", b.name, err)
			o.warn("a record could not be read", err)
		}
		b.loaded(state, revision, ahead, err)
	})
}

// recovered is the state that a record stands for, and how many permits it is ahead: what may have been taken since it was
// written is taken for granted at the latest moment at which it can have been, which is when this term began. For records of
// this term it is the moment at which they were written, so whatever is dropped from memory must not be ahead.
func (o *Owner) recovered(name string, value []byte) (state *store.Record, ahead int64, err error) {
	state, ahead, err = decodeRecord(name, value)
	if err != nil {
		return nil, 0, err
	}
	burn, now := ahead, time.Now()
	o.watchClock(now)
	times := o.since(now, state.Limit().Algorithm())
	if by := time.Duration(state.Time() - times[0]); by > store.MostAhead {
		o.wasAhead(name, by)
	}
	for _, at := range times {
		if _, err = state.Advance(at, state.Limit()); err != nil {
			return nil, 0, fmt.Errorf("%w: %w", errMalformed, err)
		}
		state.Burn(burn)
		burn = 0
	}
	return state, ahead, nil
}

// write writes records as long as there are any, several of them as one transaction.
func (o *Owner) write() {
	for {
		var batch []*bucket
		select {
		case b := <-o.asked:
			batch = append(batch, b)
		case <-o.ctx.Done():
			return
		}
		for len(batch) < MostWrites {
			select {
			case b := <-o.asked:
				batch = append(batch, b)
				continue
			default:
			}
			break
		}
		o.writeBatch(batch)
	}
}

// drawn is what is written for a bucket: its record, and what belongs to it.
type drawn struct {
	bucket *bucket
	writes []Write
}

// mostBatchBytes is how large a transaction of several keys may be. The record of one key can be larger.
const mostBatchBytes = 256 << 10

func (o *Owner) writeBatch(batch []*bucket) {
	all := make([]drawn, 0, len(batch))
	count, size := 0, 0
	for _, b := range batch {
		d := drawn{b, b.draw(o.options.Reserve)}
		if len(d.writes) == 0 {
			continue
		}
		more := 0
		for i := range d.writes {
			more += len(d.writes[i].Value)
		}
		if count+len(d.writes) > MostWrites || count > 0 && size+more > mostBatchBytes {
			o.writeAll(all)
			all, count, size = all[:0], 0, 0
		}
		all, count, size = append(all, d), count+len(d.writes), size+more
	}
	o.writeAll(all)
}

// writeAll writes what was drawn as one transaction. If a record does not have the revision that it should have, as a write whose
// outcome was not known has come late, nothing was written: then each bucket is written by itself, so that none fails for
// another one, and over what is found.
func (o *Owner) writeAll(all []drawn) {
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(o.writing, o.options.WriteTimeout) // a write that was begun is ended
	defer cancel()
	writes := all[0].writes
	if len(all) > 1 {
		writes = make([]Write, 0, MostWrites)
		for i := range all {
			writes = append(writes, all[i].writes...)
		}
	}
	begun := time.Now()
	o.watchClock(begun)
	revision, err := o.store(ctx, writes)
	if errors.Is(err, ErrConflict) {
		if len(all) > 1 {
			for i := range all {
				o.writeAll(all[i : i+1])
			}
			return
		}
		writes[0].Revision = -1
		revision, err = o.store(ctx, writes)
	}
	if err != nil {
		o.counts.failed.Add(1)
		o.failed("records could not be written", err)
		o.unable(begun, err)
	} else {
		o.failing.Store(0)
		o.counts.writes.Add(1)
		o.counts.records.Add(int64(len(writes)))
	}
	for i := range all {
		all[i].bucket.wrote(revision, err)
	}
}

// store writes records. Where the revision is not known, as a write has failed, it is that which is found: only this owner
// can have written it during its term.
func (o *Owner) store(ctx context.Context, writes []Write) (revision int64, err error) {
	for i := range writes {
		if w := &writes[i]; w.Revision < 0 {
			if _, w.Revision, err = o.term.Load(ctx, w.Name); err != nil {
				return 0, fmt.Errorf("%w", err)
			}
		}
	}
	revision, err = o.term.Store(ctx, writes)
	if err != nil {
		return 0, fmt.Errorf("%w", err)
	}
	return revision, nil
}

// unable notes that a write has failed, and ends the term if none has succeeded for as long as one may take. The engine may hear
// of an owner that cannot write, as when its disk is full or stands still, and then no process can become the owner that could.
func (o *Owner) unable(begun time.Time, err error) {
	if errors.Is(err, ErrConflict) {
		return
	}
	since := int64(begun.Sub(o.began))
	if !o.failing.CompareAndSwap(0, since) {
		since = o.failing.Load()
	}
	if since == 0 || time.Since(o.began)-time.Duration(since) < o.options.WriteTimeout || o.ctx.Err() != nil {
		return
	}
	o.depose(err)
	ctx, cancel := context.WithTimeout(o.ctx, o.options.WriteTimeout)
	defer cancel()
	_ = o.term.Resign(ctx) // or it ends by itself
}

// failed looks whether a failure ends the term.
func (o *Owner) failed(what string, err error) {
	if errors.Is(err, ErrDeposed) {
		o.depose(err)
		return
	}
	o.warn(what, err)
}

// draw is the record that a bucket wants to be written now, and what is written with it.
func (b *bucket) draw(reserve int64) []Write {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = false
	if b.ended != 0 || b.state == nil || b.busy {
		return nil
	}
	if writes, ok := b.drawToLeave(); ok {
		return writes
	}
	most := reserve - 1
	if reserve == 0 {
		most = max(1, b.state.Most()/10) - 1 //nolint:mnd // a tenth
	}
	if b.state.Limit().Algorithm() == weir.AlgorithmConcurrency {
		most = 0 // all of its grants are reservations, which are written
	}
	trail := b.trail[:min(len(b.trail), mostTrail)]
	for _, a := range trail {
		a.drawn = true
	}
	for x := b.writing.Oldest(); x != nil; x = x.Newer() {
		x.Value.written = x.Value.adjusts == nil || x.Value.adjusts.drawn
	}
	b.next = b.ahead.choose(time.Now(), b.covered, b.writing.Permits(), most)
	b.inForce.drawn, b.inForce.erases = b.next, false
	b.busy, b.stale = true, false
	writes := []Write{{Name: b.name, Value: encodeRecord(b.name, b.state, b.next), Revision: b.revision}}
	for _, a := range trail {
		writes = append(writes, a.write())
	}
	b.trail = b.trail[len(writes)-1:]
	b.inForce.voided = min(len(b.inForce.voids), mostTrail)
	for _, name := range b.inForce.voids[:b.inForce.voided] {
		writes = append(writes, Write{Name: name, Revision: -1})
	}
	return writes
}

const (
	// retryPause is how long nothing is allowed after a write has failed.
	retryPause = 100 * time.Millisecond
	// mostRetryShift bounds how long it takes until a record is written that no request waits for any more.
	mostRetryShift = 6
)

// wrote takes in what has become of the record that draw returned.
func (b *bucket) wrote(revision int64, err error) {
	b.mu.Lock()
	var after answers
	switch {
	case err != nil:
		b.revision, b.covered = -1, b.covers()
		b.stale = true
		b.inForce.failures++
		b.inForce.again = time.Now().Add(retryPause << min(b.inForce.failures, mostRetryShift))
		b.failure = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		b.retryAt = time.Now().Add(retryPause)
		for b.writing.Len() > 0 {
			w := b.writing.Newest().Value
			b.dropDeadline(w)
			b.writing.Remove(&w.queued)
			b.undo(w)
			w.fail(b.failure)
			after.add(w)
		}
	default:
		b.revision, b.covered, b.inForce.ahead = revision, b.next, b.inForce.drawn
		b.inForce.left = 0
		b.ahead.inForce(time.Now())
		if b.inForce.erases {
			b.revision = 0
		}
		b.inForce.voids = b.inForce.voids[b.inForce.voided:]
		b.inForce.voided, b.inForce.failures, b.inForce.again = 0, 0, time.Time{}
		if b.busy = false; b.ended == 0 {
			b.confirm(&after)
		}
	}
	if b.busy = false; b.ended == 0 {
		b.arm()
	}
	b.mu.Unlock()
	after.give()
}

// confirm returns to the requests that are in the record in force now, or that it covers.
func (b *bucket) confirm(after *answers) {
	for b.writing.Len() > 0 {
		w := b.writing.Oldest().Value
		switch n := w.charge.N; {
		case !b.owner.holds(): // they get their result from depose, unless a sign of life comes late
			b.ask()
			return
		case w.written:
		case w.must || n > b.covered:
			b.ask()
			return
		default:
			b.covered -= n
		}
		b.writing.Remove(&w.queued)
		b.dropDeadline(w)
		b.taken += w.charge.N
		after.add(w)
	}
	if b.stale {
		b.ask()
	}
}

// settleAll writes the records of all keys that are ahead as they are, so that nothing is burned. What cannot be written keeps
// none of the others from it.
func (o *Owner) settleAll(ctx context.Context) (err error) {
	var batch []Write
	size := 0
	for _, b := range o.all() {
		own := b.settling()
		more := 0
		for i := range own {
			more += len(own[i].Name) + len(own[i].Value)
		}
		if len(batch) > 0 && (len(batch)+len(own) > MostWrites || size+more > mostBatchBytes) {
			if failed := o.settleBatch(ctx, batch); err == nil {
				err = failed
			}
			if ctx.Err() != nil || errors.Is(err, ErrDeposed) {
				return err
			}
			batch, size = batch[:0], 0
		}
		batch, size = append(batch, own...), size+more
	}
	if len(batch) > 0 {
		if failed := o.settleBatch(ctx, batch); err == nil {
			err = failed
		}
	}
	return err
}

// settling is what has to be written of a bucket when its owner ends.
func (b *bucket) settling() []Write {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == nil || b.loading || b.exact() {
		return nil
	}
	writes := []Write{{Name: b.name, Value: encodeRecord(b.name, b.state, 0), Revision: b.revision}}
	for _, name := range b.inForce.voids[:min(len(b.inForce.voids), MostWrites-1)] {
		writes = append(writes, Write{Name: name, Revision: -1})
	}
	return writes
}

// settleBatch writes several records, each by itself if one of them was written late.
func (o *Owner) settleBatch(ctx context.Context, writes []Write) error {
	_, err := o.store(ctx, writes)
	if errors.Is(err, ErrConflict) {
		err = nil
		for i := range writes {
			writes[i].Revision = -1
			_, alone := o.store(ctx, writes[i:i+1])
			err = errors.Join(err, alone)
		}
	}
	if err != nil {
		return fmt.Errorf("weir: what the records are ahead of is burned: %w", err)
	}
	return nil
}
