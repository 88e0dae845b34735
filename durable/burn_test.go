package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/internal/reference"
)

// TestCrashBurnsAtMostK: owners die, or stop, while many callers take permits that come back with time, and writes fail. Beside a limit that only
// knows what was granted, each crash has burned at most K - 1 permits and minted none, however K is chosen, and an orderly end has
// burned nothing.
func TestCrashBurnsAtMostK(t *testing.T) {
	burned := int64(0)
	for seed := range seeds(60, 20) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { burned += burning(t, rand.New(rand.NewPCG(seed, 5))) })
		}) {
			return
		}
	}
	if burned == 0 && *seeded == 0 {
		t.Error("no crash has burned anything")
	}
}

// granting is a limit that knows what was granted.
type granting struct {
	mu  sync.Mutex
	law reference.Limiter
	bad int
}

func (g *granting) grant(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r, _ := g.law.Take(time.Now().UnixNano(), n); !r.Allowed {
		g.bad++
	}
}

func (g *granting) left() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.law.Peek(time.Now().UnixNano(), 0).Remaining
}

func burningLimit(r *rand.Rand) (weir.Limit, reference.Limiter) {
	burst, permits := 1+r.Int64N(400), 1+r.Int64N(200)
	switch r.IntN(3) {
	case 0:
		l := weir.FixedWindow(weir.Per(burst, 5*time.Second))
		return l, reference.NewFixedWindow(burst, 5*time.Second, 0)
	case 1:
		l := weir.SlidingWindow(weir.Per(burst, 3*time.Second), 6)
		return l, reference.NewSlidingWindow(burst, 3*time.Second, 6, 0)
	}
	return weir.TokenBucket(weir.PerSecond(permits), burst), reference.NewTokenBucket(permits, time.Second, burst)
}

func burning(t *testing.T, r *rand.Rand) (burned int64) {
	t.Helper()
	limit, law := burningLimit(r)
	granted := &granting{law: law}
	k := []int64{1, 2, 5, 40, 0}[r.IntN(5)]
	most := k - 1
	if k == 0 {
		most = max(1, granted.left()/10) - 1
	}
	m := must(durable.NewMemory(durable.MemoryOptions{TTL: 300 * time.Millisecond}))
	allowance := int64(0) // what crashes can have burned
	for range 6 {
		e := m.Engine()
		term := must(e.Campaign(t.Context(), "node"))
		o := must(durable.NewOwner(term, durable.OwnerOptions{Reserve: k, WriteTimeout: 50 * time.Millisecond}))
		now, left := inspected(t, o, limit), granted.left()
		if now > left || now < left-allowance {
			t.Errorf("K %d, %v: %d are left, of %d that crashes can have burned %d of", k, limit, now, left, allowance)
		}
		burned = max(burned, left-now)
		ctx, leave := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 1 + r.IntN(8) {
			own := rand.New(rand.NewPCG(r.Uint64(), 1))
			callers.Go(func() { takeAtRandom(ctx, o, own, limit, granted) })
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		if r.IntN(3) == 0 {
			e.Fail(errors.New("the disk is full"))
			time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
			e.Fail(nil)
			time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
		}
		synctest.Wait()
		switch r.IntN(3) {
		case 0: // it is cut off, and goes on as long as it believes to be the owner
			e.Cut(true)
			time.Sleep(400 * time.Millisecond)
			allowance += most
		case 1: // it dies at once
			before := inspected(t, o, limit)
			_ = term.Resign(t.Context())
			allowance += most
			if now := succeeded(t, e, limit, k); now > before || now < before-most {
				t.Errorf("K %d, %v: %d are left after a crash, and were %d before", k, limit, now, before)
			}
		default: // it stops
			before := inspected(t, o, limit)
			if err := o.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if now := succeeded(t, e, limit, k); now != before {
				t.Errorf("K %d, %v: %d are left after an orderly end, and were %d before", k, limit, now, before)
			}
		}
		leave()
		callers.Wait()
		_ = o.Stop(t.Context())
		_ = e.Close()
	}
	if granted.bad > 0 {
		t.Errorf("K %d, %v: %d grants were not allowed", k, limit, granted.bad)
	}
	return burned
}

// inspected is how many permits an owner says are left.
func inspected(t *testing.T, o *durable.Owner, limit weir.Limit) int64 {
	t.Helper()
	d, err := spectest.Peek(t.Context(), o, "p", "", limit)
	if err != nil {
		t.Error(err)
	}
	return d.Remaining
}

// succeeded is how many permits the next owner says are left.
func succeeded(t *testing.T, e durable.Engine, limit weir.Limit, k int64) int64 {
	t.Helper()
	next := must(durable.NewOwner(must(e.Campaign(t.Context(), "next")), durable.OwnerOptions{Reserve: k}))
	left := inspected(t, next, limit)
	if err := next.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	return left
}

// takeAtRandom takes permits, now and then or one after the other, until its time is over.
func takeAtRandom(ctx context.Context, o *durable.Owner, r *rand.Rand, limit weir.Limit, granted *granting) {
	pause := int64(1 + r.IntN(100))
	for ctx.Err() == nil {
		n := 1 + r.Int64N(min(4, max(1, limit.Permits())))
		a := spectest.Request{Policy: "p", Limit: limit, N: n, Queue: 100, Wait: time.Duration(r.IntN(300)) * time.Millisecond}
		if spectest.Acquire(ctx, o, a).Reason == weir.ReasonNone {
			granted.grant(n)
		}
		time.Sleep(time.Duration(1 + r.Int64N(pause*int64(time.Millisecond))))
	}
}
