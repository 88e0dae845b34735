package store

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// TestLeasedCallsOfTheInnerStore counts what is in hand and what the inner store has together.
func TestLeasedCallsOfTheInnerStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		l := newLeased(t, m, LeasedOptions{})
		ctx, c := t.Context(), Charge{Policy: "p", Key: "k", Limit: weir.TokenBucket(weir.PerHour(60), 1601), N: 1}
		bound := LeasedOptions{}.Bound(c.Limit)
		if bound.Lowered != 1600 {
			t.Fatalf("%+v", bound)
		}
		for range 100 {
			leasedTake(t, l, c.Limit, 1)
		}
		look := func(what string, want int64) {
			t.Helper()
			ds := make([]weir.Decision, 1)
			if err := Peek(ctx, l, []Charge{c}, ds); err != nil || ds[0].Remaining != want || !ds[0].Allowed || ds[0].Limit != 1600 {
				t.Errorf("%s: peek %+v, want %d; %v", what, ds[0], want, err)
			}
			if s, err := Inspect(ctx, l, c); err != nil || s.Decision.Remaining != want || s.Decision.Limit != 1600 {
				t.Errorf("%s: inspect %+v, want %d; %v", what, s.Decision, want, err)
			}
		}
		if held := l.Stats().Held; held < 10 {
			t.Fatalf("%d are in hand", held)
		}
		look("taken", 1500)
		refund := c
		refund.N = 50
		if err := Refund(ctx, l, []Charge{refund}); err != nil {
			t.Error(err)
		}
		look("refunded", 1550)
		ds := make([]weir.Decision, 1)
		r, err := Reserve(ctx, l, []Charge{refund}, ds, time.Minute)
		if err != nil || !ds[0].Allowed {
			t.Errorf("%+v, %v", ds, err)
		}
		look("reserved", 1500)
		if err = Commit(ctx, l, r, []int64{20}); err != nil {
			t.Error(err)
		}
		look("committed", 1530)
		if r, err = Reserve(ctx, l, []Charge{refund}, ds, time.Minute); err != nil || Cancel(ctx, l, r) != nil {
			t.Error(err)
		}
		look("canceled", 1530)
		if err = Debit(ctx, l, []Charge{refund}, ds); err != nil {
			t.Error(err)
		}
		look("debited", 1480)
		loan, d, err := Lend(ctx, l, refund, 1)
		if err != nil || !d.Allowed || loan.Charges[0].Limit.Permits() != 1600 {
			t.Errorf("%+v, %+v, %v", loan, d, err)
		}
		look("lent", 1430)
		if err := Return(ctx, l, loan, 50); err != nil {
			t.Error(err)
		}
		look("returned", 1480)
		if err := Reset(ctx, l, "p", "k"); err != nil {
			t.Error(err)
		}
		look("reset", 1600)
		if s := l.Stats(); s.Held != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestLeasedClose gives everything back, answers those who wait, and leaves no goroutine behind: the bubble would not end.
func TestLeasedClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		g := &gated{Home: m, gate: make(chan struct{})}
		l, err := NewLeased(g, LeasedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error)
		go func() {
			waiting <- Take(t.Context(), l, []Charge{{Policy: "p", Key: "slow", Limit: minutely, N: 1}}, make([]weir.Decision, 1))
		}()
		synctest.Wait()
		before := time.Now()
		if err = l.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(before); took != closeTime {
			t.Errorf("a store that does not answer is left after %v", took)
		}
		if err = <-waiting; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}

		l, err = NewLeased(m, LeasedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range 500 {
			leasedTake(t, l, minutely, 1)
		}
		if l.Stats().Held == 0 {
			t.Error("nothing is in hand")
		}
		for range 2 {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		if n := storeHas(t, m, minutely); n != 1100 {
			t.Errorf("%d are there", n)
		}
		charges, ds := []Charge{{Policy: "p", Key: "k", Limit: minutely, N: 1}}, make([]weir.Decision, 1)
		_, reserve := Reserve(t.Context(), l, charges, ds, time.Minute)
		_, inspect := Inspect(t.Context(), l, charges[0])
		_, _, lend := Lend(t.Context(), l, charges[0], 1)
		for i, err := range []error{
			Take(t.Context(), l, charges, ds), Peek(t.Context(), l, charges, ds), Refund(t.Context(), l, charges), reserve, inspect, lend,
			Debit(t.Context(), l, charges, ds), Reset(t.Context(), l, "p", "k"), Return(t.Context(), l, Hold{}, 0),
			Commit(t.Context(), l, Hold{}, nil), Cancel(t.Context(), l, Hold{}),
		} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		l.giveBackSince(charges, 0)
	})
}

// TestLeasedGiveBack undoes requests: permits come back to where they were, and no more than once.
func TestLeasedGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		l := newLeased(t, m, LeasedOptions{})
		charges := []Charge{{Policy: "p", Key: "k", Limit: minutely, N: 7}}
		for i := range 300 {
			since := l.now()
			if d := leasedTake(t, l, minutely, 7); !d.Allowed {
				t.Fatalf("%d: %+v", i, d)
			}
			letPass(time.Millisecond)
			if i%6 != 3 {
				l.giveBackSince(charges, since)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if n := storeHas(t, m, minutely); n != 1600-50*7 {
			t.Errorf("%d are there, want %d", n, 1600-50*7)
		}
	})
}

// TestLeasedGiveBackOfWhatWasPassedOn wants permits that the inner store has granted to stay taken: in the window in which they
// are given back they would be others.
func TestLeasedGiveBackOfWhatWasPassedOn(t *testing.T) {
	small := weir.TokenBucket(weir.PerHour(5), 0)
	m := newMemoryStore(t)
	l := newLeased(t, m, LeasedOptions{})
	since := l.now()
	if d := leasedTake(t, l, small, 3); !d.Allowed {
		t.Fatalf("%+v", d)
	}
	l.giveBackSince([]Charge{{Policy: "p", Key: "k", Limit: small, N: 3}, {Policy: "p", Key: "nobody", Limit: minutely, N: 1}}, since)
	if n := storeHas(t, m, small); n != 2 {
		t.Errorf("%d are there", n)
	}
	if lost := l.Stats().Lost; lost != 4 {
		t.Errorf("%d are lost", lost)
	}
}
