package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// eventful are locks to which something happens at one call.
type eventful struct {
	store.Locks

	calls int
	// before and after are called with the number of each call, the first of which is 1. An error of before is the answer in
	// the place of the call, one of after the answer though the call took effect.
	before, after func(call int) error
}

func (e *eventful) do(f func() error) error {
	e.calls++
	call := e.calls
	if err := e.before(call); err != nil {
		return err
	}
	err := f()
	if lost := e.after(call); lost != nil {
		return lost
	}
	return err
}

func (e *eventful) LockAndGet(ctx context.Context, key, owner string, lease time.Duration) (value []byte, err error) {
	err = e.do(func() (err error) {
		value, err = e.Locks.LockAndGet(ctx, key, owner, lease)
		return err
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

func (e *eventful) SetAndUnlock(ctx context.Context, key, owner string, value []byte, ttl time.Duration) error {
	return e.do(func() error { return e.Locks.SetAndUnlock(ctx, key, owner, value, ttl) })
}

func (e *eventful) Unlock(ctx context.Context, key, owner string) error {
	return e.do(func() error { return e.Locks.Unlock(ctx, key, owner) })
}

func nothing(int) error { return nil }

var errDied = errors.New("the caller has died")

// diesAt fails from call k on: that call takes effect or not.
func diesAt(k int, effect bool) (before, after func(call int) error) {
	before = func(call int) error {
		if call > k || call == k && !effect {
			return errDied
		}
		return nil
	}
	after = func(call int) error {
		if call == k {
			return errDied
		}
		return nil
	}
	return before, after
}

const killLease = time.Second

var killLimit = weir.FixedWindow(weir.PerDay(10))

// killCharges are for keys the order of which in the charges is not that of their names.
func killCharges(keys int) []store.Charge {
	charges := []store.Charge{
		{Policy: "p", Key: "b", Limit: killLimit, N: 3},
		{Policy: "p", Key: "a", Limit: killLimit, N: 3},
		{Policy: "p", Key: "c", Limit: killLimit, N: 3},
		{Policy: "p", Key: "d", Limit: killLimit, N: 0},
	}
	return charges[:keys]
}

// killed is a place of states, a caller that dies and one that lives.
type killed struct {
	clock *virtual
	locks *eventful
	dying *store.Locked
	alive *store.Locked
}

func newKilled(t *testing.T) *killed {
	t.Helper()
	k := &killed{clock: newVirtual()}
	locks := store.NewMemoryLocks(k.clock)
	k.locks = &eventful{Locks: locks, before: nothing, after: nothing}
	o := store.LockedOptions{Clock: k.clock, Lease: killLease, Wait: time.Minute}
	k.dying, k.alive = newLocked(t, k.locks, o), newLocked(t, locks, o)
	return k
}

// left is what the living caller finds of each charge.
func (k *killed) left(t *testing.T, charges []store.Charge) (left []int64) {
	t.Helper()
	for _, c := range charges {
		c.N = 0
		var ds [1]weir.Decision
		if err := store.Peek(t.Context(), k.alive, []store.Charge{c}, ds[:]); err != nil {
			t.Fatal(err)
		}
		left = append(left, ds[0].Remaining)
	}
	return left
}

// everyDeath calls f for every call at which a caller can die, with and without an effect, until it is done without dying.
func everyDeath(t *testing.T, f func(t *testing.T, k *killed, die func()) error) {
	t.Helper()
	deaths := 0
	for _, effect := range []bool{false, true} {
		for at := 1; ; at++ {
			k := newKilled(t)
			died := false
			t.Run(fmt.Sprintf("call %d, effect %v", at, effect), func(t *testing.T) {
				err := f(t, k, func() {
					k.locks.calls = 0
					k.locks.before, k.locks.after = diesAt(at, effect)
				})
				died = k.locks.calls >= at
				if err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%v, want ErrUnavailable", err)
				}
				if err == nil && !died && at == 1 {
					t.Error("it made no call")
				}
			})
			if !died {
				break
			}
			deaths++
		}
	}
	t.Logf("%d deaths", deaths)
}

// TestTakeIsWholeWhereverTheCallerDies wants all permits of a request taken or none, once a lease has passed; all if the
// caller was told so.
func TestTakeIsWholeWhereverTheCallerDies(t *testing.T) {
	for keys := 1; keys <= 4; keys++ {
		t.Run(fmt.Sprintf("%d keys", keys), func(t *testing.T) {
			charges := killCharges(keys)
			everyDeath(t, func(t *testing.T, k *killed, die func()) error {
				die()
				ds := make([]weir.Decision, keys)
				err := store.Take(t.Context(), k.dying, charges, ds)
				k.clock.Advance(killLease)
				left := k.left(t, charges)
				for i, n := range left {
					whole := left[0] == 7 && n == 10-charges[i].N || left[0] == 10 && n == 10
					if !whole || err == nil && left[0] != 7 {
						t.Errorf("%v, left %v", err, left)
					}
				}
				// What is found once stays so.
				k.clock.Advance(time.Minute)
				if again := k.left(t, charges); fmt.Sprint(again) != fmt.Sprint(left) {
					t.Errorf("left %v, and later %v", left, again)
				}
				// And everything works: another request is granted whole.
				if next := store.Take(t.Context(), k.alive, charges, ds); next != nil || !ds[0].Allowed {
					t.Errorf("the next: %+v, %v", ds, next)
				}
				return err
			})
		})
	}
}

// TestTakeIsNeverGivenBackOnceGranted has the request granted and its caller die, and looks at the keys in every order, also
// late.
func TestTakeIsNeverGivenBackOnceGranted(t *testing.T) {
	charges := killCharges(3)
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}, {0, 2, 1}} {
		everyDeath(t, func(t *testing.T, k *killed, die func()) error {
			die()
			err := store.Take(t.Context(), k.dying, charges, make([]weir.Decision, 3))
			took := int64(-1)
			for i, at := range order {
				if i == 1 { // the key that decides is reset, which must not undo the others
					_ = store.Reset(t.Context(), k.alive, "p", "a")
				}
				k.clock.Advance(time.Hour)
				n := 10 - k.left(t, charges[at:at+1])[0]
				if charges[at].Key == "a" && i > 0 {
					continue
				}
				if took >= 0 && took != n || err == nil && n != 3 {
					t.Errorf("order %v, %d: %v; took %d, and then %d", order, i, err, took, n)
				}
				took = n
			}
			return err
		})
	}
}

// TestReserveExpiresWhereverTheCallerDies wants every permit back after the expiry, and none twice.
func TestReserveExpiresWhereverTheCallerDies(t *testing.T) {
	charges := killCharges(3)
	everyDeath(t, func(t *testing.T, k *killed, die func()) error {
		if err := store.Take(t.Context(), k.alive, charges, make([]weir.Decision, 3)); err != nil {
			t.Fatal(err)
		}
		die()
		_, err := store.Reserve(t.Context(), k.dying, charges, make([]weir.Decision, 3), time.Minute)
		k.clock.Advance(time.Minute - 1)
		for _, n := range k.left(t, charges) {
			if n != 4 && (n != 7 || err == nil) {
				t.Errorf("%v: %d are left before the expiry", err, n)
			}
		}
		k.clock.Advance(1)
		for _, n := range k.left(t, charges) {
			if n != 7 {
				t.Errorf("%v: %d are left after the expiry", err, n)
			}
		}
		return err
	})
}

// TestSettlingSurvivesTheDeathOfTheCaller wants a Cancel or Commit to have every key at one of two counts, and a second
// attempt by another to do the rest.
func TestSettlingSurvivesTheDeathOfTheCaller(t *testing.T) {
	charges := killCharges(3)
	for name, settle := range map[string]func(s *store.Locked, t *testing.T, r store.Hold) error{
		"Commit": func(s *store.Locked, t *testing.T, r store.Hold) error {
			return store.Commit(t.Context(), s, r, []int64{1, 1, 1})
		},
		"Cancel": func(s *store.Locked, t *testing.T, r store.Hold) error { return store.Cancel(t.Context(), s, r) },
	} {
		settled := map[string]int64{"Commit": 9, "Cancel": 10}[name]
		t.Run(name, func(t *testing.T) {
			everyDeath(t, func(t *testing.T, k *killed, die func()) error {
				r, err := store.Reserve(t.Context(), k.dying, charges, make([]weir.Decision, 3), time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				die()
				err = settle(k.dying, t, r)
				k.clock.Advance(killLease)
				for _, n := range k.left(t, charges) {
					if n != settled && (n != 7 || err == nil) {
						t.Errorf("%v: %d are left", err, n)
					}
				}
				if again := settle(k.alive, t, r); again != nil && !errors.Is(again, store.ErrNotReserved) {
					t.Errorf("again: %v", again)
				}
				for _, n := range k.left(t, charges) {
					if n != settled {
						t.Errorf("%v: %d are left in the end", err, n)
					}
				}
				return err
			})
		})
	}
}

// TestLostLeaseGrantsNothingTwice has the lease of a caller pass at every call, while another does the same.
func TestLostLeaseGrantsNothingTwice(t *testing.T) {
	for keys := 1; keys <= 4; keys++ {
		charges := killCharges(keys)
		for i := range min(keys, 3) {
			charges[i].N = 5 // nothing of an attempt that failed may be in the way of the next
		}
		lost := true
		for at := 1; lost; at++ {
			t.Run(fmt.Sprintf("%d keys, call %d", keys, at), func(t *testing.T) {
				k := newKilled(t)
				ours, theirs := make([]weir.Decision, keys), make([]weir.Decision, keys)
				k.locks.before = func(call int) error {
					if call != at {
						return nil
					}
					k.clock.Advance(killLease)
					if err := store.Take(t.Context(), k.alive, charges, theirs); err != nil {
						t.Errorf("the other: %v", err)
					}
					return nil
				}
				if err := store.Take(t.Context(), k.dying, charges, ours); err != nil {
					t.Errorf("the one: %v", err)
				}
				granted := int64(1)
				if lost = k.locks.calls >= at; lost {
					granted = 2
					if !theirs[0].Allowed {
						t.Errorf("the other: %+v", theirs)
					}
				}
				if !ours[0].Allowed {
					t.Errorf("the one: %+v", ours)
				}
				k.clock.Advance(killLease)
				for i, n := range k.left(t, charges) {
					if n != 10-granted*charges[i].N && charges[i].N > 0 {
						t.Errorf("%d were granted, and of %s %d are left", granted, charges[i].Key, n)
					}
				}
			})
		}
	}
}

// TestRefundIsNotRepeated loses the lease between the keys of a Refund.
func TestRefundIsNotRepeated(t *testing.T) {
	charges := killCharges(3)
	for at := 1; at <= 6; at++ {
		k := newKilled(t)
		for range 3 {
			if err := store.Take(t.Context(), k.alive, charges, make([]weir.Decision, 3)); err != nil {
				t.Fatal(err)
			}
		}
		k.locks.before = func(call int) error {
			if call == at {
				k.clock.Advance(killLease)
				k.left(t, charges[2:]) // takes the lock, which has passed
			}
			return nil
		}
		if err := store.Refund(t.Context(), k.dying, charges); err != nil {
			t.Fatal(err)
		}
		if left := k.left(t, charges); fmt.Sprint(left) != "[4 4 4]" {
			t.Errorf("at call %d: left %v", at, left)
		}
	}
}

// TestLockedByAnotherIsNotAbsent has another hold the lock: the answer is that the store is unavailable, not that there is
// no state.
func TestLockedByAnotherIsNotAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newVirtual()
		locks := store.NewMemoryLocks(clock)
		s := newLocked(t, locks, store.LockedOptions{Clock: clock, Wait: 20 * time.Millisecond})
		c := []store.Charge{{Policy: "p", Key: "k", Limit: killLimit, N: 1}}
		if _, err := locks.LockAndGet(t.Context(), "F1:p:k", "another", time.Hour); err != nil {
			t.Fatal(err)
		}
		ds := make([]weir.Decision, 1)
		for range 2 {
			err := store.Take(t.Context(), s, c, ds)
			if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrLocked) || ds[0] != (weir.Decision{}) {
				t.Errorf("%+v, %v", ds, err)
			}
		}
		if err := locks.Unlock(t.Context(), "F1:p:k", "another"); err != nil {
			t.Fatal(err)
		}
		if err := store.Take(t.Context(), s, c, ds); err != nil || ds[0].Remaining != 9 {
			t.Errorf("%+v, %v", ds, err)
		}
	})
}

// TestWhatCannotBeReadIsAnError has bytes in the place of a record that are none.
func TestWhatCannotBeReadIsAnError(t *testing.T) {
	locks := store.NewMemoryLocks(nil)
	s := newLocked(t, locks, store.LockedOptions{})
	bucket := []store.Charge{{Policy: "p", Key: "bucket", Limit: weir.TokenBucket(weir.PerHour(10), 0), N: 1}}
	if err := store.Take(t.Context(), s, bucket, make([]weir.Decision, 1)); err != nil {
		t.Fatal(err)
	}
	other, err := locks.LockAndGet(t.Context(), "1:p:bucket", "bad", time.Hour)
	if err != nil || other == nil {
		t.Fatal(other, err)
	}
	for _, bad := range []string{"", "x", "\x01", "\x01\x00", "\x02\x05hello", string(other)} { // the last is of another algorithm
		if _, err := locks.LockAndGet(t.Context(), "F1:p:k", "bad", time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := locks.SetAndUnlock(t.Context(), "F1:p:k", "bad", []byte(bad), time.Hour); err != nil {
			t.Fatal(err)
		}
		c := []store.Charge{{Policy: "p", Key: "k", Limit: killLimit, N: 1}}
		ds := make([]weir.Decision, 1)
		if err := store.Take(t.Context(), s, c, ds); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%q: %+v, %v", bad, ds, err)
		}
		if err := store.Reset(t.Context(), s, "p", "k"); err != nil {
			t.Errorf("%q: Reset: %v", bad, err)
		}
		if err := store.Take(t.Context(), s, c, ds); err != nil || ds[0].Remaining != 9 {
			t.Errorf("%q, after Reset: %+v, %v", bad, ds, err)
		}
	}
}

// TestLongestNames takes permits of several keys whose names are as long as they can be.
func TestLongestNames(t *testing.T) {
	s := newLocked(t, store.NewMemoryLocks(nil), store.LockedOptions{})
	var charges []store.Charge
	for _, key := range []string{"a", "b"} {
		charges = append(charges, store.Charge{
			Policy: strings.Repeat("p", store.MostPolicyBytes), Key: strings.Repeat(key, store.MostKeyBytes), Limit: killLimit, N: 1,
		})
	}
	for i := range int64(3) {
		ds := make([]weir.Decision, 2)
		if err := store.Take(t.Context(), s, charges, ds); err != nil || ds[0].Remaining != 9-i || ds[1].Remaining != 9-i {
			t.Errorf("%+v, %v", ds, err)
		}
	}
}
