package store

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// copyLimits are limits under which copies allow, refuse, and end.
func copyLimits() []weir.Limit {
	return []weir.Limit{
		weir.TokenBucket(weir.PerSecond(1000), 300),
		weir.TokenBucket(weir.PerSecond(100), 400),
		weir.TokenBucket(weir.PerMinute(100), 100),
		weir.FixedWindow(weir.PerSecond(200)),
		weir.SlidingWindow(weir.PerSecond(300), 4),
		weir.SlidingCounter(weir.PerSecond(500)),
	}
}

// copyHistory plays one history on two homes in virtual time, each over a store of its own: the first publishes a copy of a key
// after each decision, and the second never does. All decisions must be equal. It returns how many were allowed and refused.
func copyHistory(t *testing.T, rng *rand.Rand, limit weir.Limit, homes [2]Home) (allowed, refused int) {
	t.Helper()
	other := weir.TokenBucket(weir.PerSecond(500), 100)
	for step := range 3000 {
		charges := []Charge{{Policy: "p", Key: "k", Limit: limit, N: 1}}
		ask := Ask{}
		switch chance := rng.IntN(200); {
		case chance < 6:
			charges = append(charges, Charge{Policy: "q", Key: "k", Limit: other, N: 1 + rng.Int64N(20)})
		case chance < 16:
			charges[0].N = rng.Int64N(30)
		case chance == 16:
			charges[0].N = limit.Permits() + 1
		case chance < 20:
			ask.Mode = ModePeek
		case chance < 23:
			ask.Mode, charges[0].N = ModeRefund, 1+rng.Int64N(3)
		case chance == 23 && rng.IntN(4) == 0:
			ask.Mode = ModeReset
		default:
		}
		var decisions [2][]weir.Decision
		for i, h := range homes {
			if ask.Mode != ModeReset && ask.Mode != ModeRefund {
				decisions[i] = make([]weir.Decision, len(charges))
			}
			if _, err := h.Do(t.Context(), ask, charges, decisions[i]); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if !slices.Equal(decisions[0], decisions[1]) {
			t.Fatalf("%v, step %d, %+v of %+v:\n%+v with copies\n%+v without", limit, step, ask, charges, decisions[0], decisions[1])
		}
		if len(decisions[0]) > 0 && decisions[0][0].Allowed {
			allowed++
		} else {
			refused++
		}
		switch rng.IntN(300) {
		case 0:
			letPass(3 * time.Second)
		case 1, 2, 3, 4, 5, 6, 7, 8:
			letPass(time.Duration(rng.Int64N(int64(4 * time.Millisecond))))
		default:
			letPass(time.Duration(rng.Int64N(int64(100 * time.Microsecond))))
		}
		synctest.Wait()
	}
	return allowed, refused
}

// TestCopyIsWithdrawn finds that a hot key is decided about by a copy, and that none decides any more after whatever looks at the
// key under the lock.
func TestCopyIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t, newMemoryStore(t), LeasedOptions{})
		defer l.Close()
		limit := weir.FixedWindow(weir.PerDay(1e6))
		hash := l.hashOf(chargeOf("k", limit))
		copied := func() *leasedKey { return l.published(hash, chargeOf("k", limit)) }
		for range 2 * nearPatience {
			leasedTake(t, l, limit, 1)
			synctest.Wait()
		}
		for range 2 * nearPatience {
			leasedTake(t, l, limit, 1)
		}
		c := copied()
		if c == nil || c.hand == nil {
			t.Fatal("no copy of a hot key allows")
		}
		before := c.hand.left.Load()
		if leasedTake(t, l, limit, 1); c.hand.left.Load() != before-1 {
			t.Error("a permit was not taken by the copy")
		}
		held := l.Stats().Held
		if held != before-1 || c.hand.left.Load() != -1 || copied() != nil {
			t.Errorf("%d held, of which a copy has %d", held, c.hand.left.Load())
		}
		charges, decisions := []Charge{{Policy: "p", Key: "k", Limit: limit, N: 1}}, make([]weir.Decision, 1)
		if c.takeUnlocked(&charges[0], &decisions[0], l.now()) {
			t.Error("a copy that was withdrawn allows")
		}
	})
}

// TestForgottenKeysHaveNoCopy fills a table with keys each of which has a copy: all of the few places of copies are found again.
func TestForgottenKeysHaveNoCopy(t *testing.T) {
	made := 0
	o, err := NewOptimistic(newMemoryStore(t), OptimisticOptions{MaxKeys: 128})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	o.patience = 1
	limit := weir.FixedWindow(weir.PerDay(1))
	for i := range 2000 {
		charges, decisions := []Charge{{Policy: "p", Key: string(rune('a' + i)), Limit: limit, N: 1}}, make([]weir.Decision, 1)
		for range 4 {
			if err := Take(t.Context(), o, charges, decisions); err != nil {
				t.Fatal(err)
			}
			if decisions[0].Allowed {
				made++
			}
		}
	}
	copies := 0
	for i := range o.shards {
		for j := range o.shards[i].copies {
			if c := o.shards[i].copies[j].Load(); c != nil {
				if copies++; c.of.copied != c || o.shards[i].ring[c.of.slot] != c.of {
					t.Error("a copy of a key that is not kept")
				}
			}
		}
	}
	if copies == 0 || made != 2000 {
		t.Errorf("%d copies, %d allowed", copies, made)
	}
}
