//go:build !race

package weir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

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
