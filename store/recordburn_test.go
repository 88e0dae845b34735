package store_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// TestBurnReachesReservations: permits that may have been granted unseen are taken from what is there and, if that is not enough, from
// what reservations will give back; never more than that, and none of a concurrency limit.
func TestBurnReachesReservations(t *testing.T) {
	yearly := weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarYear})
	for _, c := range []struct {
		limit                          weir.Limit
		taken, reserved, burned        int64
		left, leftOnceCanceled, leftAt int64 // the last of them five hours later
	}{
		{weir.TokenBucket(weir.Per(1, time.Hour), 10), 0, 8, 1, 1, 9, 10},
		{weir.TokenBucket(weir.Per(1, time.Hour), 10), 0, 8, 2, 0, 8, 10},
		{weir.TokenBucket(weir.Per(1, time.Hour), 10), 0, 8, 5, 0, 5, 10},
		{weir.TokenBucket(weir.Per(1, time.Hour), 10), 2, 8, 5, 0, 3, 8},
		{weir.TokenBucket(weir.Per(1, time.Hour), 10), 0, 8, 100, 0, 0, 5},
		{weir.TokenBucket(weir.Per(1, time.Hour), 10), 10, 0, 100, 0, 0, 5},
		{yearly, 0, 8, 5, 0, 5, 5},
		{yearly, 1, 8, 100, 0, 0, 0},
		{weir.AtOnce(10), 0, 8, 5, 2, 10, 10},
	} {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
		r, err := store.NewRecord(c.limit, now)
		if err != nil {
			t.Fatal(err)
		}
		r.Take(c.taken)
		expires := int64(0)
		if c.reserved > 0 {
			if expires, _ = r.Reserve("id", c.reserved, time.Hour); expires == 0 {
				t.Fatal("not reserved")
			}
		}
		r.Burn(c.burned)
		if n := r.Peek(0).Remaining; n != c.left {
			t.Errorf("%+v: %d are left", c, n)
		}
		if c.reserved > 0 && !r.Cancel("id", expires) {
			t.Error("not canceled")
		}
		if n := r.Peek(0).Remaining; n != c.leftOnceCanceled {
			t.Errorf("%+v: %d are left once it was canceled", c, n)
		}
		if _, err := r.Advance(now+int64(5*time.Hour), c.limit); err != nil {
			t.Fatal(err)
		}
		if n := r.Peek(0).Remaining; n != c.leftAt {
			t.Errorf("%+v: %d are left five hours later", c, n)
		}
	}
}
