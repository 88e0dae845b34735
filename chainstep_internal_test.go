package weir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/internal/clock"
)

// chained is a chain, its members, and its leases that have not ended.
type chained struct {
	chain  *Chain
	bucket *Limiter
	window *Limiter
	pool   *Concurrency
	leases []Lease
}

func newChained(t *testing.T, rng *rand.Rand) *chained {
	t.Helper()
	bucket, err := New(TokenBucket(Per(1+rng.Int64N(5), 7*time.Second), 1+rng.Int64N(9)), Options{Name: "bucket"})
	if err != nil {
		t.Fatal(err)
	}
	window, err := New(FixedWindow(Per(1+rng.Int64N(9), 11*time.Second)), Options{Name: "window"})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := NewConcurrency(1+rng.Int64N(9), Options{Name: "pool"})
	if err != nil {
		t.Fatal(err)
	}
	members := []Acquirer{bucket, window, pool}
	rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	chain, err := NewChain(members[:1+rng.IntN(3)]...)
	if err != nil {
		t.Fatal(err)
	}
	return &chained{chain: chain, bucket: bucket, window: window, pool: pool}
}

// TestCallsWaitForAWordThatIsHeld stops a step over several words in its middle. No other call may see what it has taken.
func TestCallsWaitForAWordThatIsHeld(t *testing.T) {
	c := newChained(t, rand.New(rand.NewPCG(1, 1)))
	chain, err := NewChain(c.bucket, c.window, c.pool)
	if err != nil {
		t.Fatal(err)
	}
	lease := c.pool.TryAcquire(1)
	calls := [][]func(){
		{
			func() { c.bucket.Allow() }, func() { c.bucket.Take(1) }, func() { c.bucket.Peek(1) },
			func() { _, _ = c.bucket.Reserve(context.Background(), 1) }, func() { c.bucket.Stats() },
		},
		{func() { c.window.Allow() }, func() { c.window.Take(1) }, func() { c.window.Refund(1) }},
		{lease.Release, func() { c.pool.TryAcquire(1) }, func() { _ = c.pool.SetLimit(9) }},
	}
	for i, share := range chain.shares {
		old := share.word.Load()
		if !share.word.CompareAndSwap(old, held) {
			t.Fatal("the word has changed")
		}
		var began, ended atomic.Int64
		var all sync.WaitGroup
		asked := slices.Concat(calls[i], []func(){func() { chain.TryAcquire(1) }, func() { chain.Peek(1) }})
		for _, call := range asked {
			all.Go(func() {
				began.Add(1)
				call()
				ended.Add(1)
			})
		}
		for began.Load() < int64(len(asked)) {
			runtime.Gosched()
		}
		for range 1000 {
			runtime.Gosched()
		}
		if n := ended.Load(); n > 0 {
			t.Errorf("%d of the calls that ask word %d have ended", n, i)
		}
		share.word.Store(old)
		all.Wait()
	}
}

// TestStepTakesNothingIfAWordHasChanged also where it had taken from other words before.
func TestStepTakesNothingIfAWordHasChanged(t *testing.T) {
	for changed := range 3 {
		synctest.Test(t, func(t *testing.T) {
			c := newChained(t, rand.New(rand.NewPCG(1, 1)))
			members := []Acquirer{c.bucket, c.window, c.pool}
			chain, err := NewChain(members...)
			if err != nil {
				t.Fatal(err)
			}
			offers := make([]swap, len(members))
			for i := range offers {
				var v verdict
				if offers[i].old, offers[i].next, v = chain.shares[i].ask(&offers[i].decision, clock.Now(), 1); v != taken {
					t.Fatalf("word %d: verdict %d", i, v)
				}
			}
			members[changed].TryAcquire(1)
			before := fmt.Sprint(c.bucket.Stats(), c.window.Stats(), c.pool.Stats())
			if chain.exchange(&Lease{permits: 1}, offers, clock.Now(), false) {
				t.Error("a word was exchanged that had changed")
			}
			if after := fmt.Sprint(c.bucket.Stats(), c.window.Stats(), c.pool.Stats()); after != before {
				t.Errorf("%s, want %s", after, before)
			}
		})
	}
}
