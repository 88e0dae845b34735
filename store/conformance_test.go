package store_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/storetest"
)

// virtual is a clock that stands still until it is moved.
type virtual struct{ now atomic.Int64 }

func newVirtual() *virtual {
	c := new(virtual)
	c.now.Store(time.Date(2026, 8, 15, 10, 20, 30, 123_456_789, time.UTC).UnixNano())
	return c
}

func (c *virtual) Now() int64              { return c.now.Load() }
func (c *virtual) Advance(d time.Duration) { c.now.Add(int64(d)) }

func (c *virtual) AfterFunc(time.Duration, func()) func() bool { panic("a store waits for nothing") }

// ahead is a clock that is ahead of another.
type ahead struct {
	*virtual

	by time.Duration
}

func (c ahead) Now() int64 { return c.virtual.Now() + int64(c.by) }

func newMemory(t *testing.T, o store.MemoryOptions) *store.Memory {
	t.Helper()
	m, err := store.NewMemory(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newLocked(t *testing.T, locks store.Locks, o store.LockedOptions) *store.Locked {
	t.Helper()
	s, err := store.NewLocked(locks, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMemoryConforms: [TestMemoryConformsForLong] has histories ten times as long.
func TestMemoryConforms(t *testing.T) { memoryConforms(t, 2000) }

func memoryConforms(t *testing.T, steps int) {
	t.Helper()
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		clock := newVirtual()
		m := newMemory(t, store.MemoryOptions{Clock: clock})
		return storetest.Subject{Store: m, Now: clock.Now, Advance: clock.Advance, Steps: steps}
	})
}

// TestMemoryConformsInRealTime has no clock but that of the machine.
func TestMemoryConformsInRealTime(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		return storetest.Subject{Store: newMemory(t, store.MemoryOptions{})}
	})
}

// breakable are locks that fail while they are broken.
type breakable struct {
	store.Locks

	broken atomic.Bool
}

var errBroken = errors.New("the place is on fire")

func (b *breakable) LockAndGet(ctx context.Context, key, owner string, lease time.Duration) ([]byte, error) {
	if b.broken.Load() {
		return nil, errBroken
	}
	return b.Locks.LockAndGet(ctx, key, owner, lease)
}

func (b *breakable) breaks() (repair func()) {
	b.broken.Store(true)
	return func() { b.broken.Store(false) }
}

// patient is how a store waits where 64 callers want the same key on a busy machine.
func patient(clock weir.Clock) store.LockedOptions {
	return store.LockedOptions{Clock: clock, Lease: time.Minute, Wait: time.Minute, Skew: 3 * time.Hour}
}

// TestLockedConforms: [TestLockedConformsForLong] has histories ten times as long.
func TestLockedConforms(t *testing.T) { lockedConforms(t, 2000) }

func lockedConforms(t *testing.T, steps int) {
	t.Helper()
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		clock := newVirtual()
		locks := store.NewMemoryLocks(clock)
		broken := &breakable{Locks: locks}
		return storetest.Subject{
			Store: newLocked(t, broken, patient(clock)), Other: newLocked(t, locks, patient(clock)),
			Now: clock.Now, Advance: clock.Advance, Steps: steps, Break: broken.breaks,
			Skewed: func(d time.Duration) store.Home {
				return newLocked(t, locks, patient(ahead{clock, d}))
			},
		}
	})
}

func TestLockedConformsInRealTime(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		locks := store.NewMemoryLocks(nil)
		return storetest.Subject{Store: newLocked(t, locks, patient(nil)), Other: newLocked(t, locks, patient(nil))}
	})
}

func TestMemoryLocksConform(t *testing.T) {
	storetest.RunLocks(t, func(*testing.T) storetest.LocksSubject {
		clock := newVirtual()
		locks := &breakable{Locks: store.NewMemoryLocks(clock)}
		return storetest.LocksSubject{Locks: locks, Advance: clock.Advance, Break: locks.breaks}
	})
	storetest.RunLocks(t, func(*testing.T) storetest.LocksSubject {
		return storetest.LocksSubject{Locks: store.NewMemoryLocks(nil)}
	})
}
