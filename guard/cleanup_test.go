package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
)

// longInterval keeps the timer out of a test.
func longInterval(o *guard.Options) { o.CleanupInterval = 1e6 * time.Second }

func TestGuardCleanupForgetsTheStale(t *testing.T) {
	g, clock := on(t, longInterval)
	drain(t, g, "192.0.2.1", 1)
	clock.Advance(1)
	drain(t, g, "192.0.2.2", 1)
	clock.Advance(300*time.Second - 1)
	if c := g.Cleanup(); c != (guard.Cleanup{Complete: true, Tracked: 2}) { // exactly StaleEntry is not longer
		t.Errorf("%+v", c)
	}
	clock.Advance(1)
	if c := g.Cleanup(); c != (guard.Cleanup{Complete: true, Stale: 1, Tracked: 1}) {
		t.Errorf("%+v", c)
	}
	if g.Reset("192.0.2.1") || !g.Reset("192.0.2.2") {
		t.Error("the wrong one was forgotten")
	}
	if st := g.Stats(); st.Cleanups != 2 || st.Stale != 1 || st.Evicted != 0 {
		t.Errorf("%+v", st)
	}
}

// TestGuardCleanupKeepsWhoWouldGain has endpoints that are stale, and would gain something by being forgotten.
func TestGuardCleanupKeepsWhoWouldGain(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(o *guard.Options)
		use    func(t *testing.T, g *guard.Guard)
		until  time.Duration // when it may be forgotten
	}{
		{
			"locked out",
			func(o *guard.Options) { o.MaxSoftViolations, o.HardLockout = 1, time.Hour },
			func(t *testing.T, g *guard.Guard) {
				drain(t, g, "192.0.2.1", 12)
				says(t, g, "192.0.2.1", weir.ReasonHardLockout, time.Hour)
			},
			time.Hour,
		},
		{
			"bucket not full",
			func(o *guard.Options) { o.RefillTokensPerSecond = 0.01 },
			func(t *testing.T, g *guard.Guard) { drain(t, g, "192.0.2.1", 12) },
			1200 * time.Second,
		},
		{
			"violations count",
			func(o *guard.Options) {
				o.CapacityTokens, o.SoftViolationWindow, o.CooldownReset = 1, 500*time.Second, time.Hour
			},
			func(t *testing.T, g *guard.Guard) {
				drain(t, g, "192.0.2.1", 1)
				check(t, g, "192.0.2.1")
			},
			500*time.Second + 1,
		},
		{
			"violations count until it has cooled down",
			func(o *guard.Options) {
				o.CapacityTokens, o.SoftViolationWindow, o.CooldownReset = 1, time.Hour, 500*time.Second
			},
			func(t *testing.T, g *guard.Guard) {
				drain(t, g, "192.0.2.1", 1)
				check(t, g, "192.0.2.1")
			},
			500 * time.Second,
		},
		{
			"lockouts escalate",
			func(o *guard.Options) {
				o.CapacityTokens, o.MaxSoftViolations, o.LockoutFactor, o.HardLockout = 1, 1, 2, time.Minute
				o.CooldownReset = 600 * time.Second
			},
			func(t *testing.T, g *guard.Guard) {
				drain(t, g, "192.0.2.1", 1)
				check(t, g, "192.0.2.1")
			},
			660 * time.Second,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, clock := on(t, func(o *guard.Options) {
				longInterval(o)
				o.MaxTrackedEndpoints = 1
				c.change(o)
			})
			c.use(t, g)
			clock.Advance(c.until - 1)
			if d := g.Cleanup(); d.Stale != 0 || d.Tracked != 1 {
				t.Errorf("%+v", d)
			}
			if d := check(t, g, "192.0.2.2"); d.Reason != weir.ReasonTrackingCap { // nor does another endpoint get its place
				t.Errorf("%+v", d)
			}
			clock.Advance(1)
			if d := g.Cleanup(); d.Stale != 1 || d.Tracked != 0 {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestGuardCleanupBoundsRemovals forgets no more than MaxEvictionCapacity at a time, and goes on where it has ended.
func TestGuardCleanupBoundsRemovals(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		longInterval(o)
		o.MaxEvictionCapacity = 64
	})
	for i := range 200 {
		drain(t, g, address6(i).String(), 1)
	}
	clock.Advance(301 * time.Second)
	for _, want := range []guard.Cleanup{
		{Stale: 64, Tracked: 136},
		{Stale: 64, Tracked: 72},
		{Stale: 64, Tracked: 8},
		{Stale: 8, Complete: true},
		{Complete: true},
	} {
		if c := g.Cleanup(); c != want {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
}

// TestGuardCleanupIsBoundedInTime runs on a clock that moves by a second whenever it is read. The next cleanup goes on where one
// has ended.
func TestGuardCleanupIsBoundedInTime(t *testing.T) {
	clock := &stepClock{Clock: manualclock.New(0)}
	o := guard.DefaultOptions()
	longInterval(&o)
	o.Clock = clock
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for i := range 1000 {
		drain(t, g, address6(i).String(), 1)
	}
	clock.Advance(301 * time.Second)
	clock.step.Store(int64(time.Second))
	left := int64(1000)
	for round := 1; left > 0; round++ {
		before := clock.Now()
		c := g.Cleanup()
		took := time.Duration(clock.Now() - before)
		if c.Stale == 0 || took > 8*time.Second || c.Complete && c.Tracked > 0 || round > 10 {
			t.Fatalf("cleanup %d in %v: %+v", round, took, c)
		}
		left = c.Tracked
	}
}

// stepClock moves whenever it is read.
type stepClock struct {
	*manualclock.Clock

	step atomic.Int64
}

func (c *stepClock) Now() int64 {
	c.Advance(time.Duration(c.step.Load()))
	return c.Clock.Now()
}

// TestGuardCleanupRotates has cleanups that can forget only a part each. The first part is another one each time, so that endpoints
// which become stale at any place do not wait for ever, though others are always there.
func TestGuardCleanupRotates(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		longInterval(o)
		o.MaxEvictionCapacity = 64
	})
	first := map[netip.Addr]bool{}
	for i := range 1000 {
		first[address6(i)] = true
		drain(t, g, address6(i).String(), 1)
	}
	clock.Advance(301 * time.Second)
	made := 1000
	for range 1000/64 + 2 {
		g.Cleanup()
		for range 64 { // as many stale ones come as have gone
			drain(t, g, address6(made).String(), 1)
			made++
		}
		clock.Advance(301 * time.Second)
	}
	for addr := range first {
		if g.Reset(addr.String()) {
			t.Errorf("%v is still there", addr)
		}
	}
}

// TestGuardOverTheCapForgetsTheOldestSeen lowers the cap of a guard.
func TestGuardOverTheCapForgetsTheOldestSeen(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		longInterval(o)
		o.MaxSoftViolations, o.HardLockout, o.MaxEvictionCapacity = 1, time.Hour, 64
	})
	const locked, others = 10, 200
	for i := range locked { // those that were seen longest ago
		drain(t, g, address6(i).String(), 12)
		says(t, g, address6(i).String(), weir.ReasonHardLockout, time.Hour)
	}
	for i := locked; i < locked+others; i++ {
		clock.Advance(ms)
		drain(t, g, address6(i).String(), 1)
	}
	clock.Advance(time.Second)
	drain(t, g, address6(locked).String(), 1) // which makes it the last one seen
	clock.Advance(time.Second)
	if err := g.SetMaxTrackedEndpoints(50); err != nil {
		t.Fatal(err)
	}
	if d, _ := g.CheckAddr(address6(locked + 1)); !d.Allowed { // one that is tracked stays welcome
		t.Errorf("%+v", d)
	}
	for _, want := range []guard.Cleanup{
		{Evicted: 64, Tracked: 146},
		{Evicted: 64, Tracked: 82},
		{Evicted: 32, Tracked: 50, Complete: true},
		{Complete: true, Tracked: 50},
	} {
		if c := g.Cleanup(); c != want {
			t.Fatalf("%+v, want %+v", c, want)
		}
	}
	tracked := func(i int) bool {
		d, _ := g.Peek(address6(i).String())
		return d.Reason == weir.ReasonHardLockout
	}
	for i := range locked {
		if !tracked(i) {
			t.Errorf("the lockout of %d has ended", i)
		}
	}
	// Of the others those stay that were seen last.
	for i := locked; i < locked+others; i++ {
		want := i <= locked+1 || i >= locked+others-38
		if got := g.Reset(address6(i).String()); got != want {
			t.Errorf("endpoint %d is tracked: %v, want %v", i, got, want)
		}
	}
	for _, n := range []int{-1} {
		if err := g.SetMaxTrackedEndpoints(n); err == nil || !strings.Contains(err.Error(), "MaxTrackedEndpoints is -1: must be from 0") {
			t.Error(err)
		}
	}
}

// TestGuardCapIsRaisedAndLifted changes the cap of a full guard.
func TestGuardCapIsRaisedAndLifted(t *testing.T) {
	g, _ := on(t, func(o *guard.Options) { o.MaxTrackedEndpoints = 2 })
	next := 0
	fill := func(want int) {
		t.Helper()
		n := 0
		for ; n < 100; n++ {
			if d, _ := g.CheckAddr(address6(next)); !d.Allowed {
				break
			}
			next++
		}
		if n != want {
			t.Errorf("%d new endpoints, want %d", n, want)
		}
	}
	fill(2)
	_ = g.SetMaxTrackedEndpoints(5)
	fill(3)
	_ = g.SetMaxTrackedEndpoints(0)
	fill(100)
	_ = g.SetMaxTrackedEndpoints(90)
	fill(0)
	if st := g.Stats(); st.MaxTrackedEndpoints != 90 || st.TrackedEndpoints != 105 {
		t.Errorf("%+v", st)
	}
}

// TestGuardCleansUpByItself waits for the timer, on the clock of the process and on another one.
func TestGuardCleansUpByItself(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		o := guard.DefaultOptions()
		o.Clock = clock
		g, err := guard.New(o)
		if err != nil {
			t.Fatal(err)
		}
		drain(t, g, "192.0.2.1", 12)
		for i := range 5 {
			time.Sleep(120*time.Second - 1)
			synctest.Wait()
			if n := g.Stats().Cleanups; n != int64(i) {
				t.Errorf("%d cleanups just before the time of the next", n)
			}
			time.Sleep(1)
			synctest.Wait()
			if st := g.Stats(); st.Cleanups != int64(i+1) || st.TrackedEndpoints != int64(1-i/2) && i < 2 {
				t.Errorf("%+v", st)
			}
		}
		if st := g.Stats(); st.TrackedEndpoints != 0 || st.Stale != 1 {
			t.Errorf("%+v", st)
		}
		_ = g.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := g.Stats().Cleanups; n != 5 {
			t.Errorf("%d cleanups after Close", n)
		}
	})
}

// TestGuardLeavesNoGoroutine closes guards at all times. A bubble does not end while a goroutine in it is blocked.
func TestGuardLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 20 {
			o := guard.DefaultOptions()
			o.CleanupInterval = time.Second
			g, err := guard.New(o)
			if err != nil {
				t.Fatal(err)
			}
			check(t, g, "192.0.2.1")
			time.Sleep(time.Duration(i) * 250 * ms)
			_ = g.Close()
			_ = g.Close()
		}
	})
}

// TestGuardCleanupIsNotReentrant calls Cleanup from within one, where the clock is read.
func TestGuardCleanupIsNotReentrant(t *testing.T) {
	clock := &callbackClock{Clock: manualclock.New(0)}
	o := guard.DefaultOptions()
	longInterval(&o)
	o.Clock = clock
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	check(t, g, "192.0.2.1")
	started, skipped := make(chan struct{}), make(chan guard.Cleanup, 1)
	reads := 0
	clock.read = func() {
		if reads++; reads == 2 { // while the first one is walking
			close(started)
			skipped <- <-afterCleanup(g)
		}
	}
	first := g.Cleanup()
	<-started
	clock.read = nil
	if c := <-skipped; !c.Skipped || c.Complete || c.Tracked != 1 {
		t.Errorf("%+v", c)
	}
	if first.Skipped || !first.Complete || g.Stats().Cleanups != 1 {
		t.Errorf("%+v", first)
	}
}

func afterCleanup(g *guard.Guard) <-chan guard.Cleanup {
	done := make(chan guard.Cleanup)
	go func() { done <- g.Cleanup() }()
	return done
}

type callbackClock struct {
	*manualclock.Clock

	read func()
}

func (c *callbackClock) Now() int64 {
	if c.read != nil {
		c.read()
	}
	return c.Clock.Now()
}

// TestGuardClosedLogsNothing closes a guard while a cleanup logs: Close waits for it, and there is none afterwards.
func TestGuardClosedLogsNothing(t *testing.T) {
	var g *guard.Guard
	var logged atomic.Bool
	closed := make(chan struct{})
	o := guard.DefaultOptions()
	longInterval(&o)
	o.Logger = slog.New(logFunc{slog.DiscardHandler, func() {
		go func() {
			defer close(closed)
			_ = g.Close()
			if !logged.Load() {
				t.Error("closed while a cleanup was logging")
			}
		}()
		for range 1000 {
			runtime.Gosched() // so that Close has the time to return
		}
		logged.Store(true)
	}})
	var err error
	if g, err = guard.New(o); err != nil {
		t.Fatal(err)
	}
	g.Cleanup()
	<-closed
	if c := g.Cleanup(); !c.Skipped || g.Stats().Cleanups != 1 {
		t.Errorf("%+v after Close, %d cleanups", c, g.Stats().Cleanups)
	}
}

type logFunc struct {
	slog.Handler

	log func()
}

func (logFunc) Enabled(context.Context, slog.Level) bool { return true }

func (l logFunc) Handle(context.Context, slog.Record) error {
	l.log()
	return nil
}

// TestGuardLogsCleanups is silent about requests.
func TestGuardLogsCleanups(t *testing.T) {
	var log bytes.Buffer
	g, clock := on(t, func(o *guard.Options) {
		o.Name, o.MaxTrackedEndpoints = "door", 1
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	drain(t, g, "192.0.2.1", 12)
	check(t, g, "192.0.2.1")
	check(t, g, "192.0.2.2")
	check(t, g, "192.0.2.2")
	if log.Len() > 0 {
		t.Errorf("logged: %s", log.String())
	}
	clock.Advance(120 * time.Second)
	for _, want := range []string{"level=WARN", "guard=door", "tracked=1", "stale=0", "evicted=0", "complete=true", "refused=2"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in %s", want, log.String())
		}
	}
	log.Reset()
	clock.Advance(240 * time.Second)
	if text := log.String(); !strings.Contains(text, "level=DEBUG") || !strings.Contains(text, "stale=1") || !strings.Contains(text, "refused=0") {
		t.Errorf("%s", text)
	}
}

// TestGuardLockoutSurvivesTenMillionEndpoints has ten million others pass through a small guard, and cleanups between them.
func TestGuardLockoutSurvivesTenMillionEndpoints(t *testing.T) {
	for _, most := range []int{200, 0} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			others := 10_000_000
			switch {
			case race.Enabled || testing.Short():
				others = 100_000
			case most == 0:
				others = 1_000_000
			}
			g, clock := on(t, func(o *guard.Options) {
				longInterval(o)
				o.MaxTrackedEndpoints, o.MaxSoftViolations, o.HardLockout = most, 1, 900_000*time.Second
				o.CapacityTokens, o.StaleEntry = 1, time.Second
			})
			var locked []string
			for i := range 20 {
				locked = append(locked, fmt.Sprintf("192.0.2.%d:80", i))
				drain(t, g, locked[i], 1)
				says(t, g, locked[i], weir.ReasonHardLockout, 900_000*time.Second)
			}
			refused, last := 0, time.Duration(0)
			for i := range others {
				if d, _ := g.CheckAddr(address6(i)); !d.Allowed {
					refused++
				}
				if i%100 == 0 {
					clock.Advance(ms)
					last += ms
				}
				if i%50_000 == 0 {
					g.Cleanup()
				}
			}
			clock.Advance(2 * time.Second)
			last += 2 * time.Second
			g.Cleanup()
			for _, endpoint := range locked {
				says(t, g, endpoint, weir.ReasonHardLockout, 900_000*time.Second-last)
			}
			st := g.Stats()
			if int(st.Allowed)+refused != others+20 || most > 0 && (st.TrackedEndpoints > int64(most) || refused == 0) {
				t.Errorf("%+v, %d refused", st, refused)
			}
			if most == 0 && st.TrackedEndpoints > 500_000 {
				t.Errorf("%d endpoints are tracked", st.TrackedEndpoints)
			}
		})
	}
}
