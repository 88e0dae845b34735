package durable

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/clock"
)

// A sweep goes through all records, a page at a time, and deletes what is not worth keeping: the record of a key that has had
// all its permits for a while, which equals none, and of the adjustments of a key all but the last. So what is kept is bounded
// by what is used, whatever keys callers make up.

const (
	// sweepMargin is for how long a key must have had all its permits: by more than clocks of nodes differ.
	sweepMargin = time.Minute
	// sweepPause is how long to rest after a page of which less than half was deleted.
	sweepPause = 10 * time.Millisecond
	// mostAdjustments is how many adjustments of a key are kept.
	mostAdjustments = 1000
)

// sweeping sweeps until the owner ends.
func (o *Owner) sweeping() {
	for {
		clock.Sleep(o.ctx, o.options.Sweep)
		if o.ctx.Err() != nil || o.writing.Err() != nil {
			return
		}
		if err := o.sweep(); err != nil && o.ctx.Err() == nil {
			o.failed("the records could not be gone through", err)
		}
	}
}

func (o *Owner) sweep() error {
	var trail trail
	for after := ""; o.ctx.Err() == nil; {
		page, err := o.page(after)
		if err != nil {
			return err
		}
		writes := make([]Write, 0, len(page))
		for i := range page {
			switch r := &page[i]; {
			case strings.HasPrefix(r.Name, trailPrefix):
				writes = trail.next(writes, r)
			case o.deletable(r):
				writes = append(writes, Write{Name: r.Name, Revision: r.Revision})
			}
		}
		if err := o.erase(writes); err != nil {
			return err
		}
		if len(page) < MostWrites {
			return nil
		}
		after = page[len(page)-1].Name
		if len(writes) < len(page)/2 {
			clock.Sleep(o.ctx, sweepPause)
		}
	}
	return nil
}

func (o *Owner) page(after string) ([]Named, error) {
	ctx, cancel := context.WithTimeout(o.ctx, o.options.WriteTimeout)
	defer cancel()
	return o.term.Page(ctx, "", after, MostWrites) //nolint:wrapcheck // it is logged as that of the engine
}

// erase deletes records. If one of them was written meanwhile, all stay until the next sweep.
func (o *Owner) erase(writes []Write) error {
	if len(writes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(o.ctx, o.options.WriteTimeout)
	defer cancel()
	if _, err := o.term.Store(ctx, writes); err != nil && !errors.Is(err, ErrConflict) {
		return err //nolint:wrapcheck // it is logged as that of the engine
	}
	return nil
}

// deletable reports whether a record can be deleted by itself. That of a key in memory is deleted by its bucket.
func (o *Owner) deletable(r *Named) bool {
	state, ahead, err := decodeRecord(r.Name, r.Value)
	other := errors.Is(err, errOther) // it is not that of a bucket, and counts if a process of before is the owner again
	if err != nil && !other {
		return false // the next request for the key reports it
	}
	before, a := time.Now().Add(-sweepMargin), state.Limit().Algorithm()
	if before.Before(o.began) {
		before = o.began
	}
	for _, at := range o.since(before, a) {
		if _, err := state.Advance(at, state.Limit()); err != nil {
			return false
		}
		state.Burn(ahead)
		ahead = 0
	}
	if fresh := state.Fresh(); other || !fresh {
		return fresh
	}
	o.mu.RLock()
	b := o.buckets[r.Name]
	o.mu.RUnlock()
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lastUsed() < o.unix(before, a) {
		b.askToLeave()
	}
	return false
}

// trail goes through the adjustments of a key, the oldest first.
type trail struct {
	key  string
	kept []Named
}

// next adds what is to be deleted, as there is one more.
func (t *trail) next(writes []Write, r *Named) []Write {
	key := r.Name[:strings.LastIndexByte(r.Name, '/')+1]
	if key != t.key {
		t.key, t.kept = key, t.kept[:0]
	}
	t.kept = append(t.kept, Named{Name: r.Name, Revision: r.Revision})
	if len(t.kept) > mostAdjustments {
		writes = append(writes, Write{Name: t.kept[0].Name, Revision: t.kept[0].Revision})
		t.kept = t.kept[1:]
	}
	return writes
}
