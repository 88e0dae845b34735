package redis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

func TestTakeOfEveryAlgorithm(t *testing.T) {
	s := startServer(t).open(Options{})
	ctx := context.Background()
	for _, l := range []weir.Limit{
		weir.TokenBucket(weir.Per(5, time.Hour), 0),
		weir.FixedWindow(weir.Per(5, 300*24*time.Hour)),
		weir.SlidingWindow(weir.Per(5, 300*24*time.Hour), 0),
		weir.SlidingWindow(weir.Per(5, 300*24*time.Hour), 7),
		weir.SlidingCounter(weir.Per(5, 300*24*time.Hour)),
		weir.CalendarWindow(5, year()),
	} {
		c := []store.Charge{{Policy: l.String(), Key: "k", Limit: l, N: 2}}
		d := make([]weir.Decision, 1)
		for i, want := range []weir.Decision{
			{Allowed: true, Remaining: 3},
			{Allowed: true, Remaining: 1},
			{Remaining: 1, Reason: weir.ReasonLimited},
		} {
			if err := store.Take(ctx, s, c, d); err != nil {
				t.Fatal(l, err)
			}
			g := d[0]
			if g.Allowed != want.Allowed || g.Remaining != want.Remaining || g.Reason != want.Reason || g.Limit != 5 ||
				g.ResetAfter <= 0 || g.Allowed != (g.RetryAfter == 0) || g.Policy != l.String() {
				t.Errorf("%v: take %d: %+v", l, i, g)
			}
		}
		c[0].N = 6
		if err := store.Take(ctx, s, c, d); err != nil || d[0].Reason != weir.ReasonNever || d[0].RetryAfter != weir.Never ||
			d[0].Remaining != 1 {
			t.Errorf("%v: never: %+v, %v", l, d[0], err)
		}
		c[0].N = 0
		if err := store.Peek(ctx, s, c, d); err != nil || !d[0].Allowed || d[0].Remaining != 1 {
			t.Errorf("%v: peek: %+v, %v", l, d[0], err)
		}
		state, err := store.Inspect(ctx, s, c[0])
		if err != nil || !state.Known || state.Forgotten == 0 || state.Decision.Remaining != 1 {
			t.Errorf("%v: inspect: %+v, %v", l, state, err)
		}
		r, err := store.Reserve(ctx, s, c, d, time.Minute)
		if err != nil || r.ID == "" || !d[0].Allowed {
			t.Fatalf("%v: reserve: %+v, %v", l, r, err)
		}
		if err := store.Commit(ctx, s, r, []int64{4}); err != nil {
			t.Errorf("%v: commit: %v", l, err)
		}
		if err := store.Cancel(ctx, s, r); !errors.Is(err, store.ErrNotReserved) {
			t.Errorf("%v: cancel: %v", l, err)
		}
		if err := store.Peek(ctx, s, c, d); err != nil || d[0].Allowed || d[0].Remaining != 0 || d[0].RetryAfter <= 0 {
			t.Errorf("%v: peek: %+v, %v", l, d[0], err)
		}
		if err := store.Reset(ctx, s, c[0].Policy, c[0].Key); err != nil {
			t.Error(err)
		}
		if err := store.Peek(ctx, s, c, d); err != nil || !d[0].Allowed || d[0].Remaining != 5 || d[0].ResetAfter != 0 {
			t.Errorf("%v: peek: %+v, %v", l, d[0], err)
		}
	}
}
