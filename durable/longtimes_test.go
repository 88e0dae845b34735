//go:build !race

package durable_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// TestCalendarFollowsTheClock: windows of a calendar are those of the clock as it is set during a term. A day that it has begun too
// early is not granted again.
func TestCalendarFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{})) // time begins at midnight
		clock := new(wallClock)
		o, _ := owned(t, m, durable.OwnerOptions{Clock: clock})
		r := spectest.Request{Policy: "api", N: 900, Limit: weir.CalendarWindow(1000, algo.Calendar{Unit: algo.CalendarDay})}
		take := func(n int64, outcome weir.Reason) {
			t.Helper()
			r.N = n
			want(t, spectest.Acquire(t.Context(), o, r), outcome)
		}
		take(900, weir.ReasonNone)
		clock.set(30 * time.Hour) // it is the second day there
		take(50, weir.ReasonNone)
		clock.set(0)
		take(951, weir.ReasonLimited)
		take(950, weir.ReasonNone)
		take(1, weir.ReasonLimited)
		time.Sleep(26 * time.Hour) // it is the second day
		take(1, weir.ReasonLimited)
		time.Sleep(24 * time.Hour)
		take(1000, weir.ReasonNone)
	})
}

// TestIdleWritesNothing: time alone causes no write.
func TestIdleWritesNothing(t *testing.T) {
	bubble(t, durable.OwnerOptions{}, func(t *testing.T, m *durable.Memory, o *durable.Owner, _ *durable.MemoryEngine) {
		want(t, spectest.Acquire(t.Context(), o, ask(3, 0)), weir.ReasonNone)
		before := m.Writes()
		time.Sleep(24 * time.Hour)
		want(t, spectest.Acquire(t.Context(), o, ask(0, 0)), weir.ReasonNone)
		if n := m.Writes(); n != before {
			t.Errorf("%d writes", n-before)
		}
	})
}

// TestSweepKeepsWhatIsUsed: a key that is asked for while it is swept loses nothing.
func TestSweepKeepsWhatIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: 20 * time.Millisecond}))
		o, _ := owned(t, m, durable.OwnerOptions{Sweep: time.Second})
		for i := range 400 {
			want(t, spectest.Acquire(t.Context(), o, ask(4, 0)), weir.ReasonNone)
			want(t, spectest.Acquire(t.Context(), o, ask(2, 0)), weir.ReasonLimited)
			time.Sleep(70*time.Second + time.Duration(i)*10*time.Millisecond)
		}
	})
}
