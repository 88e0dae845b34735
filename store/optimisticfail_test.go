package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// left is how many permits of a key the store behind has.
func left(t *testing.T, d *distant, key string, l weir.Limit) int64 {
	t.Helper()
	s, err := store.Inspect(t.Context(), d, store.Charge{Policy: "p", Key: key, Limit: l})
	if err != nil {
		t.Fatal(err)
	}
	return s.Decision.Remaining
}

// TestOptimisticUnreachable has the store fail: memory goes on until the drift is used up or the view is old, and what was
// granted meanwhile is told when the store is back.
func TestOptimisticUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{})
		defer shut(t, s)
		l := weir.TokenBucket(weir.PerDay(100), 0)
		take(t, s, "", l, 1)
		d.down.Store(true)
		for range 10 {
			if !take(t, s, "", l, 1).Allowed {
				t.Fatal("refused within the drift")
			}
		}
		decisions := make([]weir.Decision, 1)
		charges := []store.Charge{{Policy: "p", Limit: l, N: 1}}
		if err := store.Take(t.Context(), s, charges, decisions); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("beyond the drift: %v, %+v", err, decisions)
		}
		d.calls.Store(0)
		_ = rest(t.Context(), time.Minute)
		if calls := d.calls.Load(); calls < 12 || calls > 25 {
			t.Errorf("the store was tried %d times in a minute", calls)
		}
		if err := store.Take(t.Context(), s, charges, decisions); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("with an old view: %v", err)
		}
		d.down.Store(false)
		_ = rest(t.Context(), 6*time.Second)
		if got := left(t, d, "", l); got != 89 {
			t.Errorf("the store has %d left, not 89", got)
		}
	})
}

// TestOptimisticToldTwice has answers get lost: what the store has heard of may count twice, but never less than once.
func TestOptimisticToldTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{})
		defer shut(t, s)
		l := weir.TokenBucket(weir.PerDay(100), 0)
		take(t, s, "", l, 1)
		take(t, s, "", l, 4)
		d.deaf.Store(true)
		_ = rest(t.Context(), time.Minute)
		err := store.Take(t.Context(), s, []store.Charge{{Policy: "p", Limit: l, N: 1}}, make([]weir.Decision, 1))
		if !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
		d.deaf.Store(false)
		_ = rest(t.Context(), 6*time.Second)
		if got := left(t, d, "", l); got != 91 { // 1 + 4 + 4
			t.Errorf("the store has %d left, not 91", got)
		}
	})
}

// TestOptimisticCallerLeaves has the context of a caller end while the store is told: the call goes on, and counts once.
func TestOptimisticCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{Interval: 10 * time.Second})
		l := weir.TokenBucket(weir.PerDay(100), 0)
		take(t, s, "", l, 1)
		d.slow(50 * time.Millisecond) // before the drift is used up, as the store is told of that at once
		take(t, s, "", l, 10)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			start := time.Now()
			err := store.Take(ctx, s, []store.Charge{{Policy: "p", Limit: l, N: 1}}, make([]weir.Decision, 1))
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 20*time.Millisecond {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			cancel()
		}
		if !take(t, s, "", l, 1).Allowed {
			t.Error("refused")
		}
		if calls := d.calls.Load(); calls != 2 {
			t.Errorf("%d calls", calls)
		}
		shut(t, s)
		if got := left(t, d, "", l); got != 88 {
			t.Errorf("the store has %d left, not 88", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := store.Peek(ctx, s, nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
	})
}

// poisoned is a store that fails for a key.
type poisoned struct{ *distant }

var errPoison = errors.New("the record cannot be read")

func (p poisoned) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	for i := range charges {
		if ask.Mode == store.ModeDebit && strings.HasPrefix(charges[i].Key, "bad") {
			return store.Hold{}, errPoison
		}
	}
	return p.distant.Do(ctx, ask, charges, decisions)
}

// TestOptimisticOneKeyFails has the store fail for two of many keys: the others do not suffer.
func TestOptimisticOneKeyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Home: newMemory(t, store.MemoryOptions{})}
		s := newOptimistic(t, poisoned{d}, store.OptimisticOptions{})
		l := weir.TokenBucket(weir.PerDay(100), 0)
		keys := []string{"bad", "bad 2"}
		for i := range 100 {
			keys = append(keys, fmt.Sprint(i))
		}
		for range 2 {
			for _, key := range keys {
				take(t, s, key, l, 1)
			}
		}
		_ = rest(t.Context(), time.Second)
		for _, key := range keys[2:] {
			if got := left(t, d, key, l); got != 98 {
				t.Errorf("%q: %d are left", key, got)
			}
		}
		if err := s.Close(); !errors.Is(err, errPoison) {
			t.Errorf("Close: %v", err)
		}
	})
}

// TestOptimisticClose tells the store what is owed, once, and later calls fail. The bubble waits for all goroutines.
func TestOptimisticClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{})
		l := weir.TokenBucket(weir.PerDay(100), 0)
		for i := range 300 {
			for range 3 {
				take(t, s, fmt.Sprint(i), l, 1)
			}
		}
		d.slow(10 * time.Millisecond)
		for range 2 {
			shut(t, s)
		}
		for i := range 300 {
			if got := left(t, d, fmt.Sprint(i), l); got != 97 {
				t.Errorf("key %d: %d are left", i, got)
			}
		}
		decisions := make([]weir.Decision, 1)
		charges := []store.Charge{{Policy: "p", Key: "1", Limit: l, N: 1}}
		_, err := store.Reserve(t.Context(), s, charges, decisions, time.Minute)
		for name, err := range map[string]error{
			"Take": store.Take(t.Context(), s, charges, decisions), "Peek": store.Peek(t.Context(), s, charges, decisions),
			"Refund": store.Refund(t.Context(), s, charges), "Reset": store.Reset(t.Context(), s, "p", "1"), "Reserve": err,
		} {
			if !errors.Is(err, store.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestOptimisticCloseIsBounded closes while the store does not answer.
func TestOptimisticCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{})
		for i := range 1000 {
			take(t, s, fmt.Sprint(i), perSecond, 1)
			take(t, s, fmt.Sprint(i), perSecond, 1)
		}
		d.slow(time.Hour)
		_ = rest(t.Context(), 150*time.Millisecond)
		start := time.Now()
		if err := s.Close(); err == nil {
			t.Error("no error")
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
