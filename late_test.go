package weir_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// lateClock calls what is due only when it is told to.
type lateClock struct {
	mu   sync.Mutex
	now  int64
	wake func()
}

func (c *lateClock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.now
}

func (c *lateClock) AfterFunc(_ time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake = f

	return func() bool { return true }
}

func (c *lateClock) advance(d time.Duration) {
	c.mu.Lock()
	c.now += int64(d)
	wake := c.wake
	c.mu.Unlock()
	wake()
}

// TestLateTimer has 100 callers wait on 1000/s with a burst of 1. A timer that is late by up to 10 ms costs them nothing, one
// that is later costs what exceeds it.
func TestLateTimer(t *testing.T) {
	for _, c := range []struct {
		late   time.Duration
		served int64
	}{
		{0, 1},
		{100 * time.Microsecond, 1},
		{time.Millisecond, 2},
		{5500 * time.Microsecond, 6},
		{10 * time.Millisecond, 11},
		{50 * time.Millisecond, 11},
	} {
		t.Run(c.late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := &lateClock{}
				b, err := weir.New(weir.TokenBucket(weir.PerSecond(1000), 1), weir.Options{
					QueueLimit: 100, Clock: clock,
				})
				if err != nil {
					t.Fatal(err)
				}
				b.Allow()
				for range 100 {
					go func() { _, _ = b.Acquire(t.Context(), 1) }()
				}
				synctest.Wait()
				clock.advance(time.Millisecond + c.late)
				if s := b.Stats(); s.Allowed != 1+c.served {
					t.Errorf("%v late: %d served, want %d", c.late, s.Allowed-1, c.served)
				}
				// What was served counts: the next is due a millisecond after the last.
				before := b.Stats().Allowed
				clock.advance(time.Millisecond)
				if s := b.Stats(); s.Allowed != before+1 {
					t.Errorf("%v late: then %d served, want 1", c.late, s.Allowed-before)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
