package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// TestMoreKeysThanRoom: a call of more keys than there is room for is refused at once, and nothing of it is taken.
func TestMoreKeysThanRoom(t *testing.T) {
	bubble(t, durable.OwnerOptions{MaxKeys: 1}, func(t *testing.T, _ *durable.Memory, o *durable.Owner, _ *durable.MemoryEngine) {
		a, b := tokens("a", 1, 5, 1), tokens("b", 1, 5, 1)
		for _, mode := range []store.Mode{store.ModeTake, store.ModePeek, store.ModeRefund} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			begin := time.Now()
			r := all(ctx, o, store.Ask{Mode: mode}, a, b)
			cancel()
			full := 0
			for i := range r.Decisions {
				if r.Decisions[i].Reason == weir.ReasonTableFull {
					full++
				}
			}
			if mode != store.ModeRefund && full == 0 || mode == store.ModeRefund && !errors.Is(r.Err, store.ErrUnavailable) || time.Since(begin) > time.Second {
				t.Errorf("%d: %+v after %v", mode, r, time.Since(begin))
			}
		}
	})
}

// TestKeepingKeysContention: calls of several keys that crowd each other out of memory are all answered, and leave nothing behind that
// cannot make room.
func TestKeepingKeysContention(t *testing.T) {
	bubble(t, durable.OwnerOptions{MaxKeys: 4}, func(t *testing.T, _ *durable.Memory, o *durable.Owner, _ *durable.MemoryEngine) {
		var work sync.WaitGroup
		for i := range 16 {
			work.Go(func() {
				for j := range 50 {
					a, b := tokens(fmt.Sprint((i+j)%9), 1, 1000, 1), tokens(fmt.Sprint("x", (i*j)%7), 1, 1000, 1)
					a.Queue, b.Queue = 1000, 1000
					r := all(t.Context(), o, store.Ask{Wait: time.Duration(j%2) * time.Second}, a, b)
					if r.Err != nil {
						t.Error(r.Err)
					}
				}
			})
		}
		work.Wait()
		time.Sleep(time.Second)
		for i := range 20 {
			r := ask(1, 0)
			r.Key = fmt.Sprint("after", i)
			a := spectest.Acquire(t.Context(), o, r)
			for tries := 0; a.Reason == weir.ReasonTableFull && tries < 10; tries++ { // those that are ahead are being written
				time.Sleep(10 * time.Millisecond)
				a = spectest.Acquire(t.Context(), o, r)
			}
			want(t, a, weir.ReasonNone)
		}
	})
}

// TestWaitAndReserveWithClockBehind: what was reserved bit by bit lasts for as long as it was asked for although the clock of the owner
// is behind that of the one before.
func TestWaitAndReserveWithClockBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
		o, _ := owned(t, m, durable.OwnerOptions{})
		one := store.Charge{Policy: "one", Limit: weir.AtOnce(1), N: 1, Queue: 10}
		other := one
		other.Policy = "other"
		take := func(o *durable.Owner, wait time.Duration, charges ...store.Charge) outcome {
			return all(t.Context(), o, store.Ask{Wait: wait, Hold: time.Minute}, charges...)
		}
		held, brief := take(o, 0, other), take(o, 0, one)
		if held.Reason != weir.ReasonNone || brief.Reason != weir.ReasonNone {
			t.Fatalf("%+v %+v", held, brief)
		}
		if err := o.Settle(t.Context(), brief.Hold, nil); err != nil {
			t.Fatal(err)
		}
		if err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, _ := owned(t, m, durable.OwnerOptions{})
		durable.SetClock(next, -time.Hour)
		got := make(chan outcome, 1)
		go func() { got <- take(next, time.Hour, one, other) }()
		time.Sleep(time.Second)
		if err := next.Settle(t.Context(), held.Hold, nil); err != nil {
			t.Fatal(err)
		}
		both := <-got
		if both.Reason != weir.ReasonNone {
			t.Fatalf("%+v", both)
		}
		time.Sleep(10 * time.Second)
		if r := take(next, 0, one); r.Reason != weir.ReasonLimited {
			t.Errorf("%v while it was reserved", r.Reason)
		}
		if err := next.Settle(t.Context(), both.Hold, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestStopWithManyReservations: an owner that ends writes what it has to say, however much that is.
func TestStopWithManyReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Second}))
		o, e := owned(t, m, durable.OwnerOptions{Reserve: 1})
		limit := weir.TokenBucket(weir.Per(1, time.Hour), 10_000)
		var mu sync.Mutex
		last := make(map[string]store.Hold)
		for _, key := range []string{"a", "b"} {
			var work sync.WaitGroup
			for range 9500 {
				work.Add(1)
				r := spectest.Request{Policy: "p", Key: key, Limit: limit, N: 1, Hold: time.Hour}
				enqueue(o, r, func(a spectest.Answer) {
					want(t, a, weir.ReasonNone)
					mu.Lock()
					last[key] = a.Hold
					mu.Unlock()
					work.Done()
				})
			}
			work.Wait()
		}
		e.Fail(errors.New("the disk is full"))
		for _, r := range last {
			if err := o.Settle(t.Context(), r, nil); err == nil {
				t.Error("it was canceled without a write")
			}
		}
		e.Fail(nil)
		if err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, _ := owned(t, m, durable.OwnerOptions{})
		for key := range last {
			var kept [1]store.State
			r := all(t.Context(), next, store.Ask{Mode: store.ModePeek, States: kept[:]}, store.Charge{Policy: "p", Key: key, Limit: limit})
			if r.Err != nil || kept[0].Reservations != 9499 {
				t.Errorf("%q has %d reservations, %v", key, kept[0].Reservations, r.Err)
			}
		}
	})
}

// TestAdjustmentsInTime: Adjustments fails within seconds when the adjustments of a key cannot be read.
func TestAdjustmentsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{TTL: time.Hour}))
		o, e := owned(t, m, durable.OwnerOptions{})
		e.Cut(true)
		begin := time.Now()
		if _, err := o.Adjustments(t.Context(), "p", "", 10); !errors.Is(err, store.ErrUnavailable) || time.Since(begin) > 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		e.Cut(false)
	})
}
