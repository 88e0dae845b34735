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
)

// grants are all that was granted, by whomever.
type grants struct {
	mu  sync.Mutex
	at  []time.Time
	n   []int64
	sum int64
}

func (g *grants) note(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at, g.n = append(g.at, time.Now()), append(g.n, n)
	g.sum += n
}

// check fails if more was granted in some interval than the bucket allows in it, and in what a write may take.
func (g *grants) check(t *testing.T, burst int64, perSecond float64, late time.Duration) {
	t.Helper()
	for i := range g.at {
		sum := int64(0)
		for j := i; j < len(g.at); j++ {
			sum += g.n[j]
			if d := g.at[j].Sub(g.at[i]) + late; float64(sum) > float64(burst)+perSecond*d.Seconds()+1e-6 {
				t.Fatalf("%d permits within %v", sum, d)
			}
		}
	}
}

// TestCrashesMintNothing: owners crash, are cut off and stop, writes fail, at random. In no interval is more granted than the limit
// allows. What crashes burn is counted by TestCrashBurnsAtMostK.
func TestCrashesMintNothing(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { crashes(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func crashes(t *testing.T, r *rand.Rand) {
	const burst, perSecond, latency = 20, 10, time.Millisecond
	limit := weir.TokenBucket(weir.PerSecond(perSecond), burst)
	k := []int64{1, 2, 5, 0}[r.IntN(4)]
	m := must(durable.NewMemory(durable.MemoryOptions{Latency: latency, TTL: 300 * time.Millisecond}))
	all := new(grants)
	crashed := int64(0)
	begin := time.Now()
	for range 12 {
		e := m.Engine()
		term := must(e.Campaign(t.Context(), "node"))
		o := must(durable.NewOwner(term, durable.OwnerOptions{Reserve: k, WriteTimeout: 50 * time.Millisecond}))
		var work sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for range 8 {
			own := rand.New(rand.NewPCG(r.Uint64(), 1))
			work.Go(func() {
				for ctx.Err() == nil {
					n := 1 + own.Int64N(3)
					wait := time.Duration(own.IntN(400)) * time.Millisecond
					a := spectest.Acquire(ctx, o, spectest.Request{Policy: "p", Limit: limit, N: n, Wait: wait, Queue: 100})
					if a.Reason == weir.ReasonNone {
						all.note(n)
					}
					time.Sleep(time.Duration(own.IntN(100)) * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
		how := r.IntN(4)
		switch how {
		case 0: // it is cut off, and goes on as long as it believes to be the owner
			e.Cut(true)
			time.Sleep(400 * time.Millisecond)
			crashed++
		case 1: // writes fail for a while
			e.Fail(errors.New("the disk is full"))
			time.Sleep(300 * time.Millisecond)
			e.Fail(nil)
			time.Sleep(300 * time.Millisecond)
		case 2: // it dies
			e.Cut(true)
			crashed++
		}
		stop()
		work.Wait()
		short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		_ = o.Stop(short)
		cancel()
		_ = e.Close()
	}
	all.check(t, burst, perSecond, 2*latency)
	t.Logf("K %d: %d granted in %v, with %d crashes", k, all.sum, time.Since(begin), crashed)
}
