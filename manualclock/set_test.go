package manualclock_test

import (
	"math"
	"math/bits"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/cputime"
	"github.com/weirhq/weir/manualclock"
)

// TestSetMovesToTheTimeItIsGiven sets a clock from far away, where the difference is no duration.
func TestSetMovesToTheTimeItIsGiven(t *testing.T) {
	for _, from := range []int64{math.MinInt64, -5, 0, 5, math.MaxInt64} {
		for _, to := range []int64{math.MinInt64, -1 << 62, -5, 0, 5, 1 << 62, math.MaxInt64} {
			c := manualclock.New(from)
			if c.Set(to); c.Now() != to {
				t.Errorf("set from %d to %d, it shows %d", from, to, c.Now())
			}
		}
	}
}

// TestSetsDoNotAddUp sets a clock in several goroutines at once. It shows one of the times that it was set to.
func TestSetsDoNotAddUp(t *testing.T) {
	c := manualclock.New(0)
	var setters sync.WaitGroup
	for i := range 8 {
		setters.Go(func() {
			for j := range 3000 {
				c.Set(1 << ((i + j) % 40))
				if now := c.Now(); bits.OnesCount64(uint64(now)) > 1 {
					t.Errorf("it shows %#x", now)
					return
				}
			}
		})
	}
	setters.Wait()
}

// TestManyTimersAreCalledInTime has eight times as many timers take less than 30 times as much time of processors. If each were
// looked for among all, it would be 64 times.
func TestManyTimersAreCalledInTime(t *testing.T) {
	const few, many = 10_000, 80_000
	var took [2]time.Duration
	for range 3 {
		took = [2]time.Duration{callsTimers(t, few), callsTimers(t, many)}
		if took[1] < 30*took[0] {
			return
		}
	}
	t.Errorf("%d timers take %v, and %d take %v", few, took[0], many, took[1])
}

// callsTimers sets so many timers, stops every second one, and lets the time pass at which the others are called. It returns how
// long processors are busy with that.
func callsTimers(t *testing.T, timers int) time.Duration {
	t.Helper()
	began, err := cputime.Used()
	if err != nil {
		t.Fatal(err)
	}
	c := manualclock.New(0)
	last, called := int64(-1), 0
	for i := range timers {
		at := int64(i) * 7919 % int64(timers)
		stop := c.AfterFunc(time.Duration(at), func() {
			if now := c.Now(); now != at || now <= last {
				t.Errorf("called at %d after %d, want %d", now, last, at)
			}
			last = at
			called++
		})
		if i%2 == 0 && (!stop() || stop()) {
			t.Error("a timer is not stopped once")
		}
	}
	c.Advance(time.Duration(timers))
	if called != timers/2 {
		t.Errorf("%d of %d timers are called", called, timers/2)
	}
	ended, err := cputime.Used()
	if err != nil {
		t.Fatal(err)
	}
	return ended - began
}

// TestNilFunctionPanicsWhereItIsSet and not in a later Advance, which knows of neither. The clock goes on.
func TestNilFunctionPanicsWhereItIsSet(t *testing.T) {
	var c manualclock.Clock
	for want, set := range map[string]func(){
		"weir: manualclock: AfterFunc: nil function": func() { c.AfterFunc(1, nil) },
		"weir: manualclock: At: nil function":        func() { c.At(1, nil) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("%v, want %s", got, want)
				}
			}()
			set()
		}()
	}
	if c.Advance(5); c.Now() != 5 {
		t.Errorf("the clock shows %d", c.Now())
	}
}
