package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestBreakerIgnoresWhatAsksNothing makes calls that a store answers without being there: they are no news of it, whether it is
// given up or about to be.
func TestBreakerIgnoresWhatAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := newLink(newMemory(t, store.MemoryOptions{}))
		b := newBreaker(t, &hollow{m}, store.BreakerOptions{Failures: 3})
		nothing := func() {
			t.Helper()
			_, reserve := store.Reserve(ctx, b, nil, nil, time.Second)
			for name, err := range map[string]error{
				"take": store.Take(ctx, b, nil, nil), "peek": store.Peek(ctx, b, nil, nil), "refund": store.Refund(ctx, b, nil), "reserve": reserve,
				"debit": store.Debit(ctx, b, nil, nil), "commit": store.Commit(ctx, b, store.Hold{}, nil),
				"cancel": store.Cancel(ctx, b, store.Hold{}), "return": store.Return(ctx, b, store.Hold{}, 0),
			} {
				if err != nil {
					t.Errorf("%s of nothing: %v", name, err)
				}
			}
			foreign := store.Hold{ID: "foreign", Charges: []store.Charge{charge("p", hourly(5), 1, 0, 0)}}
			if err := store.Cancel(ctx, b, foreign); err != nil && !errors.Is(err, store.ErrNotReserved) && !errors.Is(err, store.ErrUnavailable) {
				t.Error(err)
			}
		}
		m.breaks()
		for range 3 {
			if b.Stats().State != store.BreakerClosed {
				t.Fatal("it opened early")
			}
			nothing()
			if err := takeError(ctx, b); !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if s := b.Stats(); s.State != store.BreakerOpen {
			t.Errorf("failures in a row, but for calls that ask nothing: %+v", s)
		}
		for range 20 {
			time.Sleep(time.Minute)
			nothing()
			if s := b.Stats(); s.State == store.BreakerClosed {
				t.Fatalf("closed by a call that asks nothing: %+v", s)
			}
		}
		m.down.Store(false)
		time.Sleep(time.Minute)
		if err := takeError(ctx, b); err != nil || b.Stats().State != store.BreakerClosed {
			t.Errorf("%v, %+v", err, b.Stats())
		}
	})
}

// hollow is a store that does not need its inner one where there is nothing to be asked, nor for an ID that is not one of its own.
type hollow struct{ *outage }

func (h *hollow) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if len(charges) == 0 {
		return store.Hold{}, nil
	}
	return h.outage.Do(ctx, ask, charges, decisions)
}

func (h *hollow) Settle(ctx context.Context, held store.Hold, actual []int64) error {
	switch {
	case held.ID == "foreign":
		return store.ErrNotReserved
	case held.ID == "" && held.Lent() == 0:
		return nil
	}
	return h.outage.Settle(ctx, held, actual)
}
