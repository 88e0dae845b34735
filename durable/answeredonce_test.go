package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// TestAnsweredOnceContention: whatever happens to an owner, and to those who wait, each of them is answered once, and no later than at
// its own deadline.
func TestAnsweredOnceContention(t *testing.T) {
	for seed := range seeds(40, 15) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { answeredOnce(t, rand.New(rand.NewPCG(seed, 7))) })
		}) {
			return
		}
	}
}

func answeredOnce(t *testing.T, r *rand.Rand) {
	t.Helper()
	m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Duration(r.IntN(3)) * time.Millisecond}))
	e := m.Engine()
	term := must(e.Campaign(t.Context(), "x"))
	o := must(durable.NewOwner(term, durable.OwnerOptions{WriteTimeout: 50 * time.Millisecond, MaxKeys: 3, Reserve: r.Int64N(5)}))
	var work sync.WaitGroup
	var asked, answered atomic.Int64
	for range 8 {
		own := rand.New(rand.NewPCG(r.Uint64(), 1))
		work.Go(func() {
			for range 60 {
				q := spectest.Request{
					Policy: "p", Key: fmt.Sprint(own.IntN(4)), N: own.Int64N(4), Queue: own.Int64N(40),
					Limit: weir.TokenBucket(weir.PerSecond(100), 1+own.Int64N(5)),
					Wait:  time.Duration(own.IntN(4)) * 25 * time.Millisecond, Hold: time.Duration(own.IntN(2)) * 30 * time.Millisecond,
				}
				latest := time.Now().Add(max(q.Wait, 50*time.Millisecond))
				if q.Wait > 0 && q.Queue > 0 {
					latest = time.Now().Add(q.Wait)
				}
				var once atomic.Int64
				asked.Add(1)
				ticket := enqueue(o, q, func(a spectest.Answer) {
					if answered.Add(1); once.Add(1) > 1 {
						t.Errorf("%+v is the second answer to %+v", a, q)
					}
					if late := time.Since(latest); late > 0 {
						t.Errorf("%v came %v too late, to %+v", a.Reason, late, q)
					}
				})
				pause := time.Duration(own.IntN(30)) * time.Millisecond
				if own.IntN(3) == 0 {
					work.Go(func() {
						time.Sleep(pause)
						ticket()
						ticket()
					})
				}
				time.Sleep(time.Duration(own.IntN(3)) * 5 * time.Millisecond)
			}
		})
	}
	for range 4 {
		time.Sleep(time.Duration(r.IntN(80)) * time.Millisecond)
		switch r.IntN(3) {
		case 0:
			e.Fail(errors.New("the disk is full"))
		case 1:
			e.Cut(true)
		}
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		e.Fail(nil)
		e.Cut(false)
	}
	switch r.IntN(3) {
	case 0:
		work.Go(func() { _ = o.Stop(context.Background()) })
	case 1:
		_ = term.Resign(t.Context()) // which it hears of by itself
	}
	work.Wait()
	time.Sleep(100 * time.Millisecond)
	_ = o.Stop(t.Context())
	_ = e.Close()
	if asked.Load() != answered.Load() {
		t.Errorf("%d of %d requests were answered", answered.Load(), asked.Load())
	}
}
