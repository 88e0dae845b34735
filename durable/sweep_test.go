package durable_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/internal/limits"
)

// TestSweepDeletes: keys that callers make up leave nothing behind once their permits are back, whether they are in memory, were
// dropped from it, or were left ahead by an owner that has died; those that still say something stay.
func TestSweepDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
		slow := ask(1, 0)
		slow.Key, slow.Limit = "slow", limits.WithRate(slow.Limit, weir.Per(1, 24*time.Hour))
		o, e := owned(t, m, durable.OwnerOptions{Reserve: 3, MaxKeys: 50})
		for i := range 300 {
			r := ask(1, 0)
			r.Key = fmt.Sprint(i)
			want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonNone)
		}
		want(t, spectest.Acquire(t.Context(), o, slow), weir.ReasonNone)
		before := m.Writes()
		if n := m.Records(); n != 301 {
			t.Fatalf("%d records", n)
		}
		time.Sleep(10 * time.Minute)
		if n := m.Records(); n != 1 {
			t.Errorf("%d records", n)
		}
		if n := m.Writes() - before; n != 0 {
			t.Errorf("%d writes", n)
		}
		r := ask(1, 0)
		for range 10 {
			r.Key = "ahead"
			spectest.Acquire(t.Context(), o, r)
		}
		e.Cut(true)
		time.Sleep(2 * time.Second)
		other, _ := owned(t, m, durable.OwnerOptions{})
		time.Sleep(10 * time.Minute)
		if n := m.Records(); n != 1 {
			t.Errorf("%d records after a crash", n)
		}
		r.N = 5
		want(t, spectest.Acquire(t.Context(), other, r), weir.ReasonNone)
		slow.N = 5
		want(t, spectest.Acquire(t.Context(), other, slow), weir.ReasonLimited)
		e.Cut(false)
	})
}

// TestKeysMakeRoom: keys that no caller waits for make room for others, whatever remains of them, and lose nothing by that.
func TestKeysMakeRoom(t *testing.T) {
	for _, reserve := range []int64{0, 1, 4} {
		t.Run(fmt.Sprint(reserve), func(t *testing.T) {
			bubble(t, durable.OwnerOptions{MaxKeys: 8, Reserve: reserve}, func(t *testing.T, _ *durable.Memory, o *durable.Owner, _ *durable.MemoryEngine) {
				granted := map[string]int{}
				for i := range 1000 {
					r := ask(1, 0)
					r.Key, r.Limit = fmt.Sprint(i%40), limits.WithRate(r.Limit, weir.Per(1, 1000*time.Hour))
					a := spectest.Acquire(t.Context(), o, r)
					if a.Reason == weir.ReasonTableFull { // those that are ahead are being written
						time.Sleep(2 * time.Millisecond)
						a = spectest.Acquire(t.Context(), o, r)
					}
					if a.Reason == weir.ReasonNone {
						granted[r.Key]++
					} else if a.Reason != weir.ReasonLimited {
						t.Fatalf("%d: %v %+v", i, a.Reason, a.Decision)
					}
				}
				for key, n := range granted {
					if n != 5 {
						t.Errorf("%d were granted to %q", n, key)
					}
				}
			})
		})
	}
}

// TestAdjustmentsOfAKey are its own, and the last ones.
func TestAdjustmentsOfAKey(t *testing.T) {
	bubble(t, durable.OwnerOptions{Sweep: time.Hour}, func(t *testing.T, m *durable.Memory, o *durable.Owner, _ *durable.MemoryEngine) {
		for _, key := range []string{"a", "a/b"} {
			for range 1010 {
				a := durable.Adjustment{Policy: "p", Key: key, Permits: -1, By: "x", Reason: "y"}
				if _, err := o.Adjust(context.Background(), perSecond, a); err != nil {
					t.Fatal(err)
				}
			}
		}
		all := must(o.Adjustments(t.Context(), "p", "a", 1000))
		for _, a := range all {
			if a.Key != "a" {
				t.Fatalf("%+v", a)
			}
		}
		if n := m.Records(); n != 2*1010+2 {
			t.Errorf("%d records", n)
		}
		time.Sleep(2 * time.Hour)
		if n := m.Records(); n != 2*1000 {
			t.Errorf("%d records after a sweep", n)
		}
		last := must(o.Adjustments(t.Context(), "p", "a", 1000))
		if len(last) != 1000 || !last[0].Time.Equal(all[0].Time) {
			t.Errorf("%d, %v", len(last), last[0].Time)
		}
	})
}
