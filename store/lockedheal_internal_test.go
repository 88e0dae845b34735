package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir"
)

// mortal are locks that work for some calls.
type mortal struct {
	*MemoryLocks

	calls int
}

var errMortal = errors.New("no more calls")

func (m *mortal) LockAndGet(ctx context.Context, key, owner string, lease time.Duration) ([]byte, error) {
	if m.calls--; m.calls < 0 {
		return nil, errMortal
	}
	return m.MemoryLocks.LockAndGet(ctx, key, owner, lease)
}

func (m *mortal) SetAndUnlock(ctx context.Context, key, owner string, value []byte, ttl time.Duration) error {
	if m.calls--; m.calls < 0 {
		return errMortal
	}
	return m.MemoryLocks.SetAndUnlock(ctx, key, owner, value, ttl)
}

type standing struct{ now int64 }

func (c *standing) Now() int64                                      { return c.now }
func (c *standing) AfterFunc(time.Duration, func()) (_ func() bool) { panic("not used") }

// TestHealedRecordsHoldNothing has a caller die at every call, and others find it: once all keys have been looked at,
// nothing is left of it but the permits.
func TestHealedRecordsHoldNothing(t *testing.T) {
	granted := 0
	for calls := range 16 {
		clock := &standing{testNow}
		locks := NewMemoryLocks(clock)
		dying, err := NewLocked(&mortal{locks, calls}, LockedOptions{Clock: clock, Lease: time.Second, Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		alive, err := NewLocked(locks, LockedOptions{Clock: clock, Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		charges := make([]Charge, 3)
		for i := range charges {
			charges[i] = Charge{Policy: "p", Key: string(rune('a' + i)), Limit: weir.TokenBucket(weir.PerDay(10), 0), N: 2}
		}
		ds := make([]weir.Decision, 3)
		died := Take(t.Context(), dying, charges, ds)
		clock.now += int64(time.Minute)
		for range 2 {
			if err := Peek(t.Context(), alive, charges, ds); err != nil {
				t.Fatal(err)
			}
		}
		if ds[0].Remaining == 8 {
			granted++
		} else if died == nil {
			t.Errorf("%d calls: granted, and given back: %+v", calls, ds)
		}
		for _, c := range charges {
			value, err := locks.LockAndGet(t.Context(), recordName(c.recordKey()), "test", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if value == nil {
				continue
			}
			r, err := decodeRecord(value, nil)
			if err != nil || len(r.held) > 0 {
				t.Errorf("%d calls: of %q is left %+v, %v", calls, c.Key, r, err)
				continue
			}
			// A process that died after it had told others, and before it noted that, leaves a note for as long as the limit
			// remembers.
			if told := calls >= 8 && calls <= 11; len(r.done) > 0 && !told {
				t.Errorf("%d calls: of %q is left %+v", calls, c.Key, r.done)
			}
		}
	}
	if granted == 0 || granted == 16 {
		t.Errorf("%d of 16 were granted", granted)
	}
}
