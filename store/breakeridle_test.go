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
			_, reserve := b.Reserve(ctx, nil, nil, time.Second)
			for name, err := range map[string]error{
				"take": b.Take(ctx, nil, nil), "peek": b.Peek(ctx, nil, nil), "refund": b.Refund(ctx, nil), "reserve": reserve,
				"debit": b.Debit(ctx, nil, nil), "commit": b.Commit(ctx, store.Reservation{}, nil),
				"cancel": b.Cancel(ctx, store.Reservation{}), "return": b.Return(ctx, store.Loan{}, 0),
			} {
				if err != nil {
					t.Errorf("%s of nothing: %v", name, err)
				}
			}
			foreign := store.Reservation{ID: "foreign", Charges: []store.Charge{charge("p", hourly(5), 1, 0, 0)}}
			if err := b.Cancel(ctx, foreign); err != nil && !errors.Is(err, store.ErrNotReserved) && !errors.Is(err, store.ErrUnavailable) {
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

func (h *hollow) Take(ctx context.Context, charges []store.Charge, ds []weir.Decision) error {
	if len(charges) == 0 {
		return nil
	}
	return h.outage.Take(ctx, charges, ds)
}

func (h *hollow) Peek(ctx context.Context, charges []store.Charge, ds []weir.Decision) error {
	if len(charges) == 0 {
		return nil
	}
	return h.outage.Peek(ctx, charges, ds)
}

func (h *hollow) Refund(ctx context.Context, charges []store.Charge) error {
	if len(charges) == 0 {
		return nil
	}
	return h.outage.Refund(ctx, charges)
}

func (h *hollow) Debit(ctx context.Context, charges []store.Charge, ds []weir.Decision) error {
	if len(charges) == 0 {
		return nil
	}
	return h.outage.Debit(ctx, charges, ds)
}

func (h *hollow) Reserve(
	ctx context.Context, charges []store.Charge, ds []weir.Decision, expiry time.Duration,
) (store.Reservation, error) {
	if len(charges) == 0 {
		return store.Reservation{}, nil
	}
	return h.outage.Reserve(ctx, charges, ds, expiry)
}

func (h *hollow) Commit(ctx context.Context, r store.Reservation, actual []int64) error {
	if r.ID == "" {
		return nil
	}
	return h.outage.Commit(ctx, r, actual)
}

func (h *hollow) Cancel(ctx context.Context, r store.Reservation) error {
	switch r.ID {
	case "":
		return nil
	case "foreign":
		return store.ErrNotReserved
	}
	return h.outage.Cancel(ctx, r)
}

func (h *hollow) Return(ctx context.Context, l store.Loan, unspent int64) error {
	if l.Charge.N == 0 {
		return nil
	}
	return h.outage.Return(ctx, l, unspent)
}
