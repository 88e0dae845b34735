package keyset_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

func TestStateOfAKey(t *testing.T) {
	clock := manualclock.New(0)
	k, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), 20), weir.KeyedOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	usual := weir.TokenBucket(weir.PerSecond(10), 20)
	s, tracked := keyset.Of(k).State("a")
	if tracked || s.Key != "a" || !s.Named || s.Limit != 20 || s.Remaining != 20 || s.RetryAfter != 0 || s.Held != usual {
		t.Errorf("of a new key: %+v, %v", s, tracked)
	}
	if n := k.Stats().Keys; n != 0 {
		t.Errorf("asking has made %d keys", n)
	}
	k.Take("a", 20)
	if s, tracked = keyset.Of(k).State("a"); !tracked || s.Remaining != 0 || s.RetryAfter != 100*time.Millisecond ||
		s.ResetAfter != 2*time.Second || s.Held != usual {
		t.Errorf("of an empty one: %+v, %v", s, tracked)
	}
	k.Take("a", 1)
	if s, _ = keyset.Of(k).State("a"); s.Refused != 1 {
		t.Errorf("after a refusal: %+v", s)
	}
	other := weir.TokenBucket(weir.PerSecond(100), 50)
	if err = keyset.Of(k).Override("a", other, time.Minute); err != nil {
		t.Fatal(err)
	}
	clock.Advance(100 * time.Millisecond)
	if s, tracked = keyset.Of(k).State("a"); !tracked || s.Held != other || s.Limit != 50 || s.Remaining != 10 ||
		s.Overridden != time.Minute-100*time.Millisecond {
		t.Errorf("of an overridden one: %+v, %v", s, tracked)
	}
	for all := range keyset.Of(k).All() {
		if id := s.ID; all.ID != id || all.Held != other || all.Remaining != 10 {
			t.Errorf("All has %+v, State %+v", all, s)
		}
	}
	clock.Advance(time.Minute)
	if s, _ = keyset.Of(k).State("a"); s.Held != usual || s.Overridden != 0 {
		t.Errorf("after the override: %+v", s)
	}
}

// TestStateLeavesTheLimit has a key under a plan: asking for its state must not hold it to the limit of the options.
func TestStateLeavesTheLimit(t *testing.T) {
	k, err := weir.NewKeyedFunc(weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{}, func(string) weir.Limit { return weir.Limit{} })
	if err != nil {
		t.Fatal(err)
	}
	large := weir.TokenBucket(weir.PerMinute(1000), 0)
	plan, err := keyset.Of(k).Plan(large)
	if err != nil {
		t.Fatal(err)
	}
	plan.TakeBytes([]byte("a"), 10)
	for range 2 {
		if s, tracked := keyset.Of(k).State("a"); !tracked || s.Held != large || s.Limit != 1000 || s.Remaining < 990 {
			t.Errorf("%+v, %v", s, tracked)
		}
	}
}

func TestStateOfAKeyThatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{QueueLimit: 10})
		if err != nil {
			t.Fatal(err)
		}
		k.Take("a", 1)
		go func() { _, _ = k.Acquire(context.Background(), "a", 1) }()
		synctest.Wait()
		if s, tracked := keyset.Of(k).State("a"); !tracked || s.Waiters != 1 || s.Queued != 1 || s.Remaining != 0 {
			t.Errorf("%+v, %v", s, tracked)
		}
		time.Sleep(time.Second)
	})
}

// TestChargesOfOverriddenKeysAllocateNothing goes where states are in gates.
func TestChargesOfOverriddenKeysAllocateNothing(t *testing.T) {
	if race.Enabled {
		return // which allocates itself
	}
	limits := make([]*weir.Keyed[string], 2)
	charges := make([]keyset.Charge, len(limits))
	for i := range limits {
		k, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(1e6), 1e9), weir.KeyedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err = keyset.Of(k).Override("a", weir.TokenBucket(weir.PerSecond(2e6), 1e9), time.Hour); err != nil {
			t.Fatal(err)
		}
		charges[i] = keyset.Charge{Limiter: k, Key: "a", N: 1}
	}
	leases := make([]weir.Lease, 0, len(limits))
	if n := testing.AllocsPerRun(1000, func() {
		if all, b := keyset.TryAcquireAll(leases, charges...); !all[b].Allowed() {
			t.Fatal("refused")
		}
	}); n > 0 {
		t.Errorf("%v allocations for a request", n)
	}
}
