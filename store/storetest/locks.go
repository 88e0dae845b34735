package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/store"
)

// LocksSubject is a [store.Locks] to be tested.
type LocksSubject struct {
	// Locks are the locks. Required.
	Locks store.Locks
	// Other is another handle to the same place, as another process has it. Default: Locks.
	Other store.Locks
	// Advance moves the clock by which leases and times to live pass. Default: nil, time passes by itself.
	Advance func(d time.Duration)
	// Break makes the place unreachable for Locks until repair is called. Default: nil.
	Break func() (repair func())
}

// RunLocks runs the suite for [store.Locks]. Each of its tests has a subject of its own, made by open. Locks that pass it should
// pass [Run] as well, by [store.NewLocked].
func RunLocks(t *testing.T, open func(t *testing.T) LocksSubject) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(s *locksSuite)
	}{
		{"FourAnswers", testFourAnswers},
		{"OnlyTheOwnerWrites", testOwner},
		{"LeaseEnds", testLease},
		{"LeaseIsRenewed", testRenewed},
		{"BytesAreDropped", testDropped},
		{"AnyBytes", testAnyBytes},
		{"ContentionOneOwner", testContentionOneOwner},
		{"ContextEnds", testLocksContext},
	} {
		t.Run(c.name, func(t *testing.T) {
			subject := open(t)
			if subject.Other == nil {
				subject.Other = subject.Locks
			}
			c.test(&locksSuite{suite{T: t, Subject: Subject{Advance: subject.Advance}}, subject, "storetest-" + rand.Text()})
		})
	}
}

type locksSuite struct {
	suite

	LocksSubject

	key string
}

const (
	longLease = time.Hour
	longTTL   = time.Hour
)

func (s *locksSuite) get(from store.Locks, owner string, want []byte) {
	s.Helper()
	value, err := from.LockAndGet(s.ctx(), s.key, owner, longLease)
	if err != nil || !bytes.Equal(value, want) || (value == nil) != (want == nil) {
		s.Fatalf("LockAndGet: %q, %v, want %q", value, err, want)
	}
}

func (s *locksSuite) put(from store.Locks, owner string, value []byte) {
	s.Helper()
	s.get(from, owner, nil)
	s.noError("SetAndUnlock", from.SetAndUnlock(s.ctx(), s.key, owner, value, longTTL))
}

// testFourAnswers wants absent, present, locked by another, and failed to be four different answers.
func testFourAnswers(s *locksSuite) {
	s.get(s.Locks, "a", nil) // absent
	if value, err := s.Other.LockAndGet(s.ctx(), s.key, "b", longLease); value != nil || !errors.Is(err, store.ErrLocked) {
		s.Errorf("locked and absent: %q, %v", value, err)
	}
	s.noError("Unlock", s.Locks.Unlock(s.ctx(), s.key, "a"))
	s.put(s.Other, "b", []byte("value"))
	s.get(s.Locks, "a", []byte("value")) // present
	if value, err := s.Other.LockAndGet(s.ctx(), s.key, "b", longLease); value != nil || !errors.Is(err, store.ErrLocked) {
		s.Errorf("locked and present: %q, %v", value, err)
	}
	s.noError("Unlock", s.Locks.Unlock(s.ctx(), s.key, "a"))
	s.get(s.Other, "b", []byte("value"))
	s.noError("SetAndUnlock", s.Other.SetAndUnlock(s.ctx(), s.key, "b", nil, 0))
	s.get(s.Locks, "a", nil)
	s.noError("Unlock", s.Locks.Unlock(s.ctx(), s.key, "a"))
	if s.Break == nil {
		return
	}
	repair := s.Break()
	value, err := s.Locks.LockAndGet(s.ctx(), s.key, "a", longLease)
	if value != nil || err == nil || errors.Is(err, store.ErrLocked) {
		s.Errorf("failed: %q, %v", value, err)
	}
	repair()
}

func testOwner(s *locksSuite) {
	s.wantError("Unlock of what nobody locked", s.Locks.Unlock(s.ctx(), s.key, "a"), store.ErrNotOwner)
	write := func(by store.Locks, owner string) error {
		return by.SetAndUnlock(s.ctx(), s.key, owner, []byte("x"), longTTL)
	}
	s.wantError("SetAndUnlock of what nobody locked", write(s.Locks, "a"), store.ErrNotOwner)
	s.put(s.Locks, "a", []byte("value"))
	s.wantError("Unlock again", s.Locks.Unlock(s.ctx(), s.key, "a"), store.ErrNotOwner)
	s.wantError("SetAndUnlock again", write(s.Locks, "a"), store.ErrNotOwner)
	s.get(s.Locks, "a", []byte("value"))
	s.wantError("Unlock by another", s.Other.Unlock(s.ctx(), s.key, "b"), store.ErrNotOwner)
	s.wantError("SetAndUnlock by another", write(s.Other, "b"), store.ErrNotOwner)
	s.wantError("SetAndUnlock by nobody", write(s.Other, ""), store.ErrNotOwner)
	s.noError("SetAndUnlock", s.Other.SetAndUnlock(s.ctx(), s.key, "a", []byte("new"), longTTL))
	s.get(s.Locks, "c", []byte("new"))
}

// testLease has an owner that dies.
func testLease(s *locksSuite) {
	s.put(s.Locks, "a", []byte("value"))
	lease := 200 * time.Millisecond
	began := time.Now()
	if _, err := s.Locks.LockAndGet(s.ctx(), s.key, "dead", lease); err != nil {
		s.Fatal(err)
	}
	s.until("the lease has passed", lease/2, func() bool {
		value, err := s.Other.LockAndGet(s.ctx(), s.key, "b", longLease)
		if err != nil && !errors.Is(err, store.ErrLocked) {
			s.Fatal(err)
		}
		return err == nil && string(value) == "value"
	})
	if passed := time.Since(began); s.Advance == nil && passed < lease-time.Millisecond {
		s.Errorf("the lease of %v has passed after %v", lease, passed)
	}
	err := s.Locks.SetAndUnlock(s.ctx(), s.key, "dead", []byte("x"), longTTL)
	s.wantError("SetAndUnlock by the dead", err, store.ErrNotOwner)
	s.wantError("Unlock by the dead", s.Locks.Unlock(s.ctx(), s.key, "dead"), store.ErrNotOwner)
	s.noError("Unlock", s.Other.Unlock(s.ctx(), s.key, "b"))
	s.get(s.Locks, "c", []byte("value"))
}

// testRenewed has the owner of a lock ask for it again: the lease begins anew. It lasts for as long as was asked.
func testRenewed(s *locksSuite) {
	lasts := func() {
		s.Helper()
		if s.Advance == nil {
			return
		}
		s.Advance(longLease - time.Second)
		if _, err := s.Other.LockAndGet(s.ctx(), s.key, "b", longLease); !errors.Is(err, store.ErrLocked) {
			s.Errorf("a second before the end of the lease: %v", err)
		}
	}
	s.get(s.Locks, "a", nil)
	lasts()
	s.get(s.Locks, "a", nil)
	lasts()
	s.noError("Unlock", s.Locks.Unlock(s.ctx(), s.key, "a"))
	s.get(s.Other, "b", nil)
}

// testDropped wants bytes until their time has passed. They may be dropped then, and some places take a while to do it.
func testDropped(s *locksSuite) {
	s.get(s.Locks, "a", nil)
	last := []byte(nil)
	for _, ttl := range []time.Duration{2 * time.Second, longTTL} {
		value := []byte(ttl.String())
		s.noError("SetAndUnlock", s.Locks.SetAndUnlock(s.ctx(), s.key, "a", value, ttl))
		if s.Advance != nil {
			s.Advance(ttl - time.Second)
		}
		got, err := s.Other.LockAndGet(s.ctx(), s.key, "a", longLease)
		dropped := got == nil && s.Advance == nil && ttl < longTTL // by a place that is slow
		if err != nil || !bytes.Equal(got, value) && !dropped {
			s.Errorf("%q of %v, a second before they may be dropped: %q, %v", value, ttl, got, err)
		}
		last = value
	}
	s.noError("Unlock", s.Other.Unlock(s.ctx(), s.key, "a"))
	s.get(s.Locks, "b", last)
	s.noError("SetAndUnlock with a time of 0", s.Locks.SetAndUnlock(s.ctx(), s.key, "b", []byte("dropped"), 0))
	s.get(s.Locks, "a", nil)
}

func testAnyBytes(s *locksSuite) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	s.key += "\x00\xff\n%_'\"{}:*ä"
	for _, value := range [][]byte{every, bytes.Repeat(every, 400), {0}} {
		s.put(s.Locks, "b", value)
		s.get(s.Other, "c", value)
		s.noError("Unlock", s.Other.Unlock(s.ctx(), s.key, "c"))
		s.get(s.Locks, "a", value)
		s.noError("SetAndUnlock", s.Locks.SetAndUnlock(s.ctx(), s.key, "a", nil, 0))
	}
	s.put(s.Locks, "a", every)
	key := s.key
	for _, other := range []string{key + "2", key[:len(key)-1], key[:len(key)-len("ä")] + "ö"} {
		s.key = other
		s.get(s.Other, "c", nil)
	}
}

// testContentionOneOwner counts in the bytes of a key: no count is lost.
func testContentionOneOwner(s *locksSuite) {
	const rounds = 5
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			locks := s.Locks
			if i%2 == 1 {
				locks = s.Other
			}
			for range rounds {
				s.count(locks)
			}
		})
	}
	all.Wait()
	value, err := s.Locks.LockAndGet(s.ctx(), s.key, "last", longLease)
	if err != nil || len(value) != callers*rounds {
		s.Errorf("counted %d of %d, %v", len(value), callers*rounds, err)
	}
}

// count makes the bytes of the key one longer.
func (s *locksSuite) count(locks store.Locks) {
	owner := rand.Text()
	for deadline := time.Now().Add(patience); ; {
		value, err := locks.LockAndGet(s.Context(), s.key, owner, longLease)
		switch {
		case err == nil:
			longer := append(bytes.Clone(value), '.')
			if err = locks.SetAndUnlock(s.Context(), s.key, owner, longer, longTTL); err != nil {
				s.Errorf("SetAndUnlock: %v", err)
			}
			return
		case !errors.Is(err, store.ErrLocked) || time.Now().After(deadline):
			s.Errorf("LockAndGet: %v", err)
			return
		}
		pause := time.NewTimer(time.Millisecond)
		<-pause.C
	}
}

func testLocksContext(s *locksSuite) {
	ended, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.Locks.LockAndGet(ended, s.key, "a", longLease); err == nil || errors.Is(err, store.ErrLocked) {
		s.Errorf("LockAndGet: %v", err)
	}
	s.get(s.Other, "b", nil)
}
