package durable_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// TestResetAtFullTable: keys are reset at an owner that keeps as many keys as it may, all of them in use. Those that are in memory
// stay there, and no others come.
func TestResetAtFullTable(t *testing.T) {
	const keys = 100
	limit := weir.FixedWindow(weir.PerHour(1000))
	take := func(t *testing.T, o *durable.Owner, key string) {
		t.Helper()
		for range 30 {
			want(t, spectest.Acquire(t.Context(), o, spectest.Request{Policy: "p", Key: key, Limit: limit, N: 1}), weir.ReasonNone)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{}))
		o, _ := owned(t, m, durable.OwnerOptions{})
		take(t, o, "stored")
		if err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		o, _ = owned(t, m, durable.OwnerOptions{MaxKeys: keys})
		for i := range keys {
			take(t, o, fmt.Sprint(i))
		}
		for _, key := range []string{"0", "1", "2", "3", "4", "stored", "new"} {
			_, err := o.Do(t.Context(), store.Ask{Mode: store.ModeReset}, []store.Charge{{Policy: "p", Key: key}}, nil)
			if err != nil {
				t.Errorf("%s: %v", key, err)
			}
			if n := o.Stats().Keys; n != keys {
				t.Errorf("%d keys are in memory after the reset of %q, want %d", n, key, keys)
			}
		}
		if err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		o, _ = owned(t, m, durable.OwnerOptions{})
		for key, left := range map[string]int64{"0": 1000, "4": 1000, "stored": 1000, "new": 1000, "5": 970, "99": 970} {
			if d, err := spectest.Peek(t.Context(), o, "p", key, limit); err != nil || d.Remaining != left {
				t.Errorf("%s: %+v, %v, want %d left", key, d, err, left)
			}
		}
	})
}

// TestKeyedResetWhenFull: keys are reset although the file has as many as it may, all of them in use.
func TestKeyedResetWhenFull(t *testing.T) {
	const keys = 10
	k := openKeyed(t, filepath.Join(t.TempDir(), "quota"), year(1000), durable.KeyedOptions{MaxKeys: keys})
	for i := range keys {
		for range 30 {
			if d := k.Take(fmt.Sprint(i), 1); !d.Allowed {
				t.Fatalf("%d: %+v", i, d)
			}
		}
	}
	for _, key := range []string{"0", "1", "2", "new"} {
		if err := k.Reset(t.Context(), key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	for key, left := range map[string]int64{"0": 1000, "1": 1000, "2": 1000, "3": 970, "9": 970} {
		if d := k.Peek(key, 0); d.Remaining != left {
			t.Errorf("%s: %+v, want %d left", key, d, left)
		}
	}
}
