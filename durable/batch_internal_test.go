package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// counting is a term that notes what is written at a time.
type counting struct {
	Term

	mu      sync.Mutex
	batches [][]Write
}

func (c *counting) Store(ctx context.Context, writes []Write) (int64, error) {
	c.mu.Lock()
	c.batches = append(c.batches, writes)
	c.mu.Unlock()
	return c.Term.Store(ctx, writes)
}

func (c *counting) taken() [][]Write {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.batches
	c.batches = nil
	return all
}

// batching runs f with an owner that writes one batch at a time, which takes a millisecond, and the term that it writes with.
func batching(t *testing.T, f func(t *testing.T, c *counting, o *Owner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, err := NewMemory(MemoryOptions{Latency: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		term, err := m.Engine().Campaign(t.Context(), "here")
		if err != nil {
			t.Fatal(err)
		}
		c := &counting{Term: term}
		o, err := NewOwner(c, OwnerOptions{Reserve: 1, Writers: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := o.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		f(t, c, o)
	})
}

var batchLimit = weir.TokenBucket(weir.Per(1, time.Hour), 1000)

func batchName(key int) string { return recordKey("p", fmt.Sprint(key), 0) }

// takeBatched takes a permit of a key, and calls done with why not.
func takeBatched(o *Owner, key int, done func(error)) {
	c := store.Charge{Policy: "p", Key: fmt.Sprint(key), Limit: batchLimit, N: 1}
	Enqueue(o, store.Ask{}, c, func(d weir.Decision, _ store.Hold, err error) {
		if err == nil && !d.Allowed {
			err = errors.New(d.Reason.String())
		}
		done(err)
	})
}

// together takes a permit of each of some keys, which have been read before, and all of which are written after another one.
func together(t *testing.T, o *Owner, keys int) []error {
	t.Helper()
	var mu sync.Mutex
	answers := make([]error, keys+1)
	enqueue := func(key int) {
		takeBatched(o, key, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			answers[key] = err
		})
	}
	enqueue(keys)
	synctest.Wait() // it is being written
	for key := range keys {
		enqueue(key)
	}
	time.Sleep(time.Second)
	mu.Lock()
	defer mu.Unlock()
	return answers
}

// TestConflictFailsNobodyElse: if one record of a batch has another revision than it should have, as a write whose outcome was not
// known has come late, all of them are written nevertheless, each by itself.
func TestConflictFailsNobodyElse(t *testing.T) {
	for _, late := range []int{0, 1, 2} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			batching(t, func(t *testing.T, c *counting, o *Owner) {
				together(t, o, 3)
				value, revision, err := c.Load(t.Context(), batchName(late))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Store(t.Context(), []Write{{Name: batchName(late), Value: value, Revision: revision}}); err != nil {
					t.Fatal(err)
				}
				c.taken()
				for key, err := range together(t, o, 3) {
					if err != nil {
						t.Errorf("key %d: %v", key, err)
					}
				}
				if all := c.taken(); len(all) < 2 || len(all[1]) != 3 {
					t.Fatalf("they were not written together: %d", len(all))
				}
				if s := o.Stats(); s.FailedWrites != 0 {
					t.Errorf("%d writes have failed", s.FailedWrites)
				}
				for key := range 3 {
					value, _, err := c.Load(t.Context(), batchName(key))
					if err != nil {
						t.Fatal(err)
					}
					state, _, err := decodeRecord(batchName(key), value)
					if err != nil || state.Peek(0).Remaining != 998 {
						t.Errorf("key %d: %+v, %v", key, state, err)
					}
				}
			})
		})
	}
}

// TestLargeBatchesAreSplit: records of many reservations are written a few at a time, and no more records than an engine takes, so
// that each of them is written.
func TestLargeBatchesAreSplit(t *testing.T) {
	const large, keys, reservations = 6, 120, 2500
	batching(t, func(t *testing.T, c *counting, o *Owner) {
		for key := range large {
			state, err := store.NewRecord(batchLimit, time.Now().UnixNano())
			if err != nil {
				t.Fatal(err)
			}
			for i := range reservations {
				state.Reserve(fmt.Sprintf("reservation %20d", i), 0, time.Hour)
			}
			value := encodeRecord(batchName(key), state, 0)
			if len(value) > mostBatchBytes || large*len(value) < 2*mostBatchBytes {
				t.Fatalf("a record has %d bytes", len(value))
			}
			if _, err := c.Store(t.Context(), []Write{{Name: batchName(key), Value: value}}); err != nil {
				t.Fatal(err)
			}
		}
		for key, err := range together(t, o, keys) {
			if err != nil {
				t.Errorf("key %d: %v", key, err)
			}
		}
		c.taken()
		for key, err := range together(t, o, keys) {
			if err != nil {
				t.Errorf("key %d: %v", key, err)
			}
		}
		records, full, heavy := 0, 0, 0
		for _, batch := range c.taken() {
			size := 0
			for i := range batch {
				size += len(batch[i].Value)
			}
			records += len(batch)
			if full = max(full, len(batch)); len(batch) > 1 {
				heavy = max(heavy, size)
			}
		}
		if records != keys+1 || full < 10 || full > MostWrites || heavy < mostBatchBytes/4 || heavy > mostBatchBytes {
			t.Errorf("%d records, at most %d at a time, and %d bytes", records, full, heavy)
		}
	})
}

// TestAdjustmentsOfManyKeysAreSplit: the adjustment of a key is a record more, which counts among those that an engine takes at
// a time.
func TestAdjustmentsOfManyKeysAreSplit(t *testing.T) {
	const keys = 80
	batching(t, func(t *testing.T, c *counting, o *Owner) {
		together(t, o, keys)
		c.taken()
		takeBatched(o, keys, func(error) {})
		synctest.Wait() // it is being written
		var work sync.WaitGroup
		for key := range keys {
			work.Go(func() {
				a := Adjustment{Policy: "p", Key: fmt.Sprint(key), Permits: -1, By: "x", Reason: "y"}
				if _, err := o.Adjust(t.Context(), batchLimit, a); err != nil {
					t.Errorf("key %d: %v", key, err)
				}
			})
		}
		work.Wait()
		records, full := 0, 0
		for _, batch := range c.taken() {
			records, full = records+len(batch), max(full, len(batch))
		}
		if records != 2*keys+1 || full != MostWrites {
			t.Errorf("%d records, at most %d at a time", records, full)
		}
	})
}

// TestMalformedRecordIsNamed: a call for a key whose record cannot be read gets an error that names it, and other keys go on.
func TestMalformedRecordIsNamed(t *testing.T) {
	batching(t, func(t *testing.T, c *counting, o *Owner) {
		if _, err := c.Store(t.Context(), []Write{{Name: batchName(1), Value: []byte("nonsense")}}); err != nil {
			t.Fatal(err)
		}
		all := together(t, o, 2)
		want := fmt.Sprintf("the record %q: %v: its first byte is 110, not 2", batchName(1), ErrDamaged)
		if err := all[1]; err == nil || err.Error() != want || !errors.Is(err, ErrDamaged) {
			t.Errorf("%v, want %s", err, want)
		}
		if all[0] != nil || all[2] != nil {
			t.Errorf("%v, %v", all[0], all[2])
		}
	})
}
