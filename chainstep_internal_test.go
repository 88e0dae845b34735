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

// step does something to the chain or a member, and returns all that can be seen of it.
func (c *chained) step(rng *rand.Rand) string {
	n, seen := rng.Int64N(5), ""
	keep := func(l Lease) {
		seen = fmt.Sprint(l.decision, l.permits, l.Err())
		if l.Allowed() {
			c.leases = append(c.leases, l)
		}
	}
	switch rng.IntN(11) {
	case 0, 1:
		keep(c.chain.TryAcquire(n))
	case 2, 3:
		keep(c.chain.TryReserve(n))
	case 4:
		l, err := c.chain.Reserve(context.Background(), max(n, 1)) // a probe would wait
		keep(l)
		seen += fmt.Sprint(err)
	case 5:
		keep(c.bucket.TryReserve(n))
	case 6:
		keep(c.pool.TryAcquire(n))
	case 7:
		seen = fmt.Sprint(c.window.Take(n), c.chain.Peek(n))
	case 8:
		c.bucket.Refund(n)
		seen = fmt.Sprint(c.pool.SetLimit(1 + rng.Int64N(9)))
	default:
		c.settle(rng)
	}
	return fmt.Sprint(seen, c.chain.Stats(), c.bucket.Stats(), c.window.Stats(), c.pool.Stats())
}

// settle ends one of the leases.
func (c *chained) settle(rng *rand.Rand) {
	i, how, cost := rng.IntN(max(len(c.leases), 1)), rng.IntN(4), rng.Int64N(8)
	if len(c.leases) == 0 {
		return
	}
	switch l := c.leases[i]; how {
	case 0:
		l.Release()
	case 1:
		l.Cancel()
	case 2:
		l.Drop()
	default:
		l.Commit(cost)
	}
	c.leases = append(c.leases[:i], c.leases[i+1:]...)
}

// TestChainOverWordsEqualsChainUnderLocks plays random histories on two chains, one of which never takes by the words of its members.
func TestChainOverWordsEqualsChainUnderLocks(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			fast, slow := newChained(t, rand.New(rand.NewPCG(seed, 1))), newChained(t, rand.New(rand.NewPCG(seed, 1)))
			if len(fast.chain.shares) == 0 {
				t.Fatal("the chain does not take by words")
			}
			slow.chain.shares = nil
			rng := rand.New(rand.NewPCG(seed, 2))
			for i := range 200 {
				if rng.IntN(3) == 0 {
					time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
				}
				step := rng.Uint64()
				got, want := fast.step(rand.New(rand.NewPCG(step, 3))), slow.step(rand.New(rand.NewPCG(step, 3)))
				if got != want {
					t.Fatalf("seed %d, step %d:\n%s\nwant\n%s", seed, i, got, want)
				}
			}
		})
	}
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
