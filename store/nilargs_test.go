package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestNilIsToldAtTheCall: a constructor or function that needs what it is not given says so at once, by an error or a panic that
// names it, and not by a nil dereference, now or later.
func TestNilIsToldAtTheCall(t *testing.T) {
	t.Parallel()
	var none *store.Memory
	for name, call := range map[string]func() error{
		"NewFleet":           func() error { _, err := store.NewFleet(nil, store.FleetOptions{}); return err },
		"NewLocked":          func() error { _, err := store.NewLocked(nil, store.LockedOptions{}); return err },
		"NewLeased":          func() error { _, err := store.NewLeased(nil, store.LeasedOptions{}); return err },
		"NewBreaker":         func() error { _, err := store.NewBreaker(nil, store.BreakerOptions{}); return err },
		"NewOptimistic":      func() error { _, err := store.NewOptimistic(nil, store.OptimisticOptions{}); return err },
		"NewReplicas":        func() error { _, err := store.NewReplicas(nil, store.ReplicasOptions{}); return err },
		"NewRecord":          func() error { _, err := store.NewRecord(weir.Limit{}, 0); return err },
		"pointer Fleet":      func() error { _, err := store.NewFleet(none, store.FleetOptions{}); return err },
		"pointer Locked":     func() error { _, err := store.NewLocked((*store.MemoryLocks)(nil), store.LockedOptions{}); return err },
		"pointer Leased":     func() error { _, err := store.NewLeased(none, store.LeasedOptions{}); return err },
		"pointer Breaker":    func() error { _, err := store.NewBreaker(none, store.BreakerOptions{}); return err },
		"pointer Optimistic": func() error { _, err := store.NewOptimistic(none, store.OptimisticOptions{}); return err },
		"Divided": func() error {
			_, err := store.Acquire(t.Context(), store.NewDivided(nil, nil), store.Ask{}, []store.Charge{durable("k", hourly(1), 1)}, make([]weir.Decision, 1))
			return err
		},
	} {
		if got := toldOf(call); !strings.HasPrefix(got, "weir: ") || strings.Contains(got, "invalid memory address") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// toldOf is the error of a call, or what it panics with.
func toldOf(call func() error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	if err := call(); err != nil {
		return err.Error()
	}
	return ""
}
