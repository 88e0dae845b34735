package durable

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestRecordsOfBefore: records of other algorithms were kept under the name that is now of token buckets only. They keep no key from
// being used or reset, and are deleted once all their permits are back, whether the key is in memory or not.
func TestRecordsOfBefore(t *testing.T) {
	batching(t, func(t *testing.T, c *counting, o *Owner) {
		was, err := store.NewRecord(weir.FixedWindow(weir.PerHour(10)), time.Now().UnixNano())
		if err != nil {
			t.Fatal(err)
		}
		was.Take(9)
		writes := make([]Write, 4)
		for key := range writes {
			writes[key] = Write{Name: batchName(key), Value: encodeRecord(batchName(key), was, 1)}
		}
		if _, err = c.Store(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
		if err = errors.Join(together(t, o, 1)...); err != nil { // keys 0 and 1
			t.Error(err)
		}
		value, _, err := c.Load(t.Context(), batchName(0))
		if err != nil {
			t.Fatal(err)
		}
		if state, _, err := decodeRecord(batchName(0), value); err != nil || state.Peek(0).Remaining != 999 {
			t.Errorf("%+v, %v", state, err)
		}
		if err := reset(t, o, "2"); err != nil {
			t.Error(err)
		}
		charge := store.Charge{Policy: "p", Key: "2", Limit: batchLimit, N: 1}
		if _, err := o.Do(t.Context(), store.Ask{Mode: store.ModeRefund}, []store.Charge{charge}, nil); err != nil {
			t.Error(err) // it leaves the key in memory
		}
		left := func(want int) {
			t.Helper()
			if all, err := c.Page(t.Context(), "", "", 10); err != nil || len(all) != want {
				t.Errorf("%d records, %v, want %d", len(all), err, want)
			}
		}
		time.Sleep(30 * time.Minute)
		left(4)
		time.Sleep(2 * time.Hour)
		left(0)
	})
}
