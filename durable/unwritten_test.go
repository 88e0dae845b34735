package durable_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// never is a limit whose permits do not come back.
func never(burst int64) weir.Limit { return weir.TokenBucket(weir.Per(1, 400*time.Hour), burst) }

// drain takes single permits until there is no grant any more, and returns how many there were.
func drain(t *testing.T, o *durable.Owner, l weir.Limit, most int64) (granted int64) {
	t.Helper()
	for granted < most && spectest.Acquire(t.Context(), o, spectest.Request{Policy: "p", Limit: l, N: 1}).Reason == weir.ReasonNone {
		granted++
	}
	return granted
}

// dying runs f with an owner whose records are ahead by up to 32, and that can be made fail before it dies; then f's result goes
// to the next owner.
func dying(t *testing.T, burst int64, f func(t *testing.T, o *durable.Owner, u *unreliable) (granted int64), most int64, l weir.Limit) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var late sync.WaitGroup
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: 100 * time.Microsecond, TTL: 10 * time.Second}))
		u := &unreliable{MemoryEngine: m.Engine(), rand: rand.New(rand.NewPCG(1, 1)), late: &late, only: 1}
		o := must(durable.NewOwner(must(u.Campaign(t.Context(), "a")), durable.OwnerOptions{Reserve: 33, WriteTimeout: 50 * time.Millisecond}))
		if n := drain(t, o, never(burst), 100); n != 100 {
			t.Fatalf("%d", n)
		}
		granted := f(t, o, u)
		u.Cut(true)
		time.Sleep(20 * time.Second)
		_ = o.Stop(t.Context())
		next, _ := owned(t, m, durable.OwnerOptions{})
		rest := drain(t, next, l, 10_000)
		if granted+rest > most {
			t.Errorf("%d were granted, and %d by the next owner, of %d", granted, rest, most)
		}
		if s := next.Stats(); s.GrantedPermits != rest {
			t.Errorf("%d permits are counted as granted, of %d", s.GrantedPermits, rest)
		}
		t.Logf("%d granted, and %d", granted, rest)
		late.Wait()
	})
}

// TestSmallerLimitIsWrittenFirst: nothing is granted under a smaller limit before it is written, or the next owner would grant it
// again.
func TestSmallerLimitIsWrittenFirst(t *testing.T) {
	dying(t, 1000, func(t *testing.T, o *durable.Owner, u *unreliable) int64 {
		u.Cut(true)
		granted := drain(t, o, never(5), 100)
		time.Sleep(time.Second)
		return granted + drain(t, o, never(5), 100)
	}, 5, never(5))
}

// TestLostWrite: after a write that may have been carried out, no more is granted than either record allows.
func TestLostWrite(t *testing.T) {
	dying(t, 1000, func(t *testing.T, o *durable.Owner, u *unreliable) int64 {
		time.Sleep(2 * time.Second) // so that the next record is ahead by less
		u.mu.Lock()
		u.percent = 100
		u.mu.Unlock()
		_, _ = o.Adjust(t.Context(), never(1000), durable.Adjustment{Policy: "p", Permits: -1, By: "x", Reason: "y"})
		time.Sleep(time.Second)
		return 100 + drain(t, o, never(1000), 100)
	}, 1000, never(1000))
}

// TestCanceledReservationIsWrittenFirst: what a reservation gives back is not granted before that is written, or the next owner
// would give it back once more.
func TestCanceledReservationIsWrittenFirst(t *testing.T) {
	dying(t, 110, func(t *testing.T, o *durable.Owner, u *unreliable) int64 {
		a := spectest.Acquire(t.Context(), o, spectest.Request{Policy: "p", Limit: never(110), N: 10, Hold: time.Hour})
		want(t, a, weir.ReasonNone)
		u.Cut(true)
		if err := o.Settle(t.Context(), a.Hold, nil); err == nil {
			t.Error("it was canceled without a write")
		}
		time.Sleep(time.Second)
		granted := 100 + drain(t, o, never(110), 100)
		u.Cut(false)
		time.Sleep(20 * time.Second) // it is written again by itself
		if err := o.Settle(t.Context(), a.Hold, nil); err == nil {
			t.Error("it was canceled twice")
		}
		return granted
	}, 110, never(110))
}

// TestConcurrencySurvivesCrashes: nothing of a concurrency limit is lost for good when its owner dies.
func TestConcurrencySurvivesCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
		limit := weir.AtOnce(100)
		for range 4 {
			e := m.Engine()
			o := must(durable.NewOwner(must(e.Campaign(t.Context(), "x")), durable.OwnerOptions{}))
			for range 25 {
				r := spectest.Request{Policy: "p", Limit: limit, N: 1, Hold: time.Hour}
				want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonNone)
			}
			e.Cut(true)
			time.Sleep(2 * time.Second)
			_ = o.Stop(t.Context())
		}
		o, _ := owned(t, m, durable.OwnerOptions{})
		r := spectest.Request{Policy: "p", Limit: limit, N: 100, Hold: time.Minute}
		want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonLimited)
		time.Sleep(2 * time.Hour)
		want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonNone)
	})
}

// TestClockOfNextOwner: an owner whose clock is behind, or ahead, of that of the one before lets permits come back later, or
// earlier, by as much, once.
func TestClockOfNextOwner(t *testing.T) {
	for _, ahead := range []time.Duration{-10 * time.Second, 10 * time.Second} {
		t.Run(ahead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := must(durable.NewMemory(durable.MemoryOptions{}))
				o, e := owned(t, m, durable.OwnerOptions{})
				limit := weir.TokenBucket(weir.PerSecond(1), 100)
				want(t, spectest.Acquire(t.Context(), o, spectest.Request{Policy: "p", Limit: limit, N: 100}), weir.ReasonNone)
				_ = o.Stop(t.Context())
				_ = e
				next, _ := owned(t, m, durable.OwnerOptions{})
				durable.SetClock(next, ahead)
				time.Sleep(30 * time.Second)
				if n := drain(t, next, limit, 100); n != 30+int64(ahead/time.Second) {
					t.Errorf("%d permits came back", n)
				}
			})
		})
	}
}

// TestStopTwice: an owner that cannot write stops as soon as it must, and can be stopped again.
func TestStopTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{}))
		o, e := owned(t, m, durable.OwnerOptions{WriteTimeout: time.Minute})
		want(t, spectest.Acquire(t.Context(), o, ask(1, 0)), weir.ReasonNone)
		e.Cut(true)
		go spectest.Acquire(t.Context(), o, ask(1, time.Minute))
		synctest.Wait()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_ = o.Stop(ctx)
		if d := time.Since(begin); d > 200*time.Millisecond {
			t.Errorf("it took %v, longer than it may", d)
		}
		e.Cut(false)
	})
}
