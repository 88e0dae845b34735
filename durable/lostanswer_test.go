package durable_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// deaf is a cluster whose writes can be made fail in a way.
type deaf struct {
	durable.Engine

	how atomic.Int32
}

const (
	deafNot       = iota // it hears of everything
	deafWritten          // they are carried out, but fail
	deafWithout          // they are carried out, but no answer comes
	deafUnwritten        // they are not, and no answer comes
)

type deafTerm struct {
	durable.Term

	engine *deaf
}

func (d *deaf) Campaign(ctx context.Context, address string) (durable.Term, error) {
	t, err := d.Engine.Campaign(ctx, address)
	return &deafTerm{t, d}, err
}

func (t *deafTerm) Store(ctx context.Context, writes []durable.Write) (revision int64, err error) {
	how := t.engine.how.Load()
	if how != deafUnwritten {
		revision, err = t.Term.Store(ctx, writes)
	}
	switch how {
	case deafNot:
		return revision, err
	case deafWritten:
		return 0, errLost
	}
	<-ctx.Done()
	return 0, fmt.Errorf("no answer: %w", ctx.Err())
}

// atOnce takes single permits as long as they are granted without a write, and returns how many.
func atOnce(o *durable.Owner, most int64) (granted int64) {
	for granted < most {
		ok := false
		ticket := enqueue(o, spectest.Request{Policy: "p", Limit: never(1000), N: 1}, func(a spectest.Answer) { ok = a.Reason == weir.ReasonNone })
		if !ok {
			ticket()
			return granted
		}
		granted++
	}
	return granted
}

// TestUnheardRecordCovers: the result of a write may be unknown, because it is under way or has failed. Then the record may be
// in force. If it is ahead by less than the one before, no more is allowed from then on than it is ahead: the next owner burns
// only as much, and would allow the rest again.
func TestUnheardRecordCovers(t *testing.T) {
	for name, how := range map[string]int32{"failed": deafWritten, "being written": deafWithout} {
		t.Run(name, func(t *testing.T) {
			unheard := int64(0)
			for first := int64(100); first < 140; first++ {
				synctest.Test(t, func(t *testing.T) { unheard = max(unheard, unheardRecord(t, first, how)) })
			}
			if unheard == 0 {
				t.Error("nothing was granted while it was not known which record was in force")
			}
		})
	}
}

func unheardRecord(t *testing.T, first int64, how int32) (granted int64) {
	t.Helper()
	m := must(durable.NewMemory(durable.MemoryOptions{Latency: 100 * time.Microsecond, TTL: 10 * time.Second}))
	d := &deaf{Engine: m.Engine()}
	term := must(d.Campaign(t.Context(), "a"))
	o := must(durable.NewOwner(term, durable.OwnerOptions{Reserve: 33, WriteTimeout: time.Second}))
	if n := drain(t, o, never(1000), first); n != first {
		t.Fatalf("%d", n)
	}
	lent := all(t.Context(), o, store.Ask{Mode: store.ModeLend, Least: 1}, store.Charge{Policy: "p", Limit: never(1000), N: 1})
	if len(lent.Hold.Charges) != 1 {
		t.Fatalf("%+v", lent)
	}
	time.Sleep(2 * time.Second) // so that the next record is ahead by half as much
	d.how.Store(how)
	if err := o.Settle(t.Context(), lent.Hold, []int64{0}); err != nil { // which is written, but Settle does not wait for that
		t.Fatal(err)
	}
	time.Sleep(101 * time.Millisecond) // for as long as nothing is granted after a failure
	d.how.Store(deafUnwritten)
	granted = atOnce(o, 1000)
	_ = term.Resign(t.Context())
	synctest.Wait()
	_ = o.Stop(t.Context())
	next, _ := owned(t, m, durable.OwnerOptions{})
	left, err := spectest.Peek(t.Context(), next, "p", "", never(1000))
	if err != nil || first+granted+left.Remaining > 1000 {
		t.Errorf("%d were granted, %d of them after an unknown write, and %d are left, %v", first+granted, granted, left.Remaining, err)
	}
	return granted
}
