package tiers

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestTiersCloseWaitsForASweep closes while a sweep is held up in its clock.
func TestTiersCloseWaitsForASweep(t *testing.T) {
	clock := &panickyClock{now: func() {}}
	tiers, err := New(Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	var (
		entered, release = make(chan struct{}), make(chan struct{})
		swept            atomic.Bool
		others           sync.WaitGroup
	)
	clock.now = func() {
		close(entered)
		<-release
		swept.Store(true)
	}
	others.Go(func() { tiers.Sweep() })
	<-entered
	for range 2 {
		others.Go(func() {
			tiers.Close()
			if !swept.Load() {
				t.Error("Close returned while a sweep was under way")
			}
		})
	}
	for !tiers.closed.Load() {
		runtime.Gosched()
	}
	for range 1000 { // gives a Close that does not wait the time to return
		runtime.Gosched()
	}
	close(release)
	others.Wait()
}

// TestTiersSweepDoesNotStartAfterClose asks for a sweep after Close, when none may start.
func TestTiersSweepDoesNotStartAfterClose(t *testing.T) {
	tiers, _ := newTestTiers(t, Options{})
	tiers.sweep = func() {
		t.Error("a goroutine was started")
		tiers.sweeping.Unlock()
	}
	tiers.Close()
	tiers.startSweep()
	if !tiers.sweeping.TryLock() {
		t.Fatal("the lock is still held")
	}
	tiers.startSweep() // while one is under way
	tiers.sweeping.Unlock()
}
