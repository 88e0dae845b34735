package manualclock_test

import (
	"math"
	"math/bits"
	"sync"
	"testing"
	"time"

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

// TestManyTimersAreCalledInTime has more timers than a clock can look through for each of them.
func TestManyTimersAreCalledInTime(t *testing.T) {
	const timers = 60_000
	c := manualclock.New(0)
	begin, last, called := time.Now(), int64(-1), 0
	for i := range timers {
		at := int64(i) * 7919 % timers
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
	c.Advance(timers)
	if took := time.Since(begin); called != timers/2 || took > 2*time.Second {
		t.Errorf("%d called in %v", called, took)
	}
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
