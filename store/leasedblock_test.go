package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// TestLeasedPutBackIsNeverNewer gives permits back to the oldest blocks that they can have come from, so that none is spent later
// than it may be.
func TestLeasedPutBackIsNeverNewer(t *testing.T) {
	p := newLeased(t, newMemoryStore(t), LeasedOptions{}).mustPlan(t, minutely)
	for _, c := range []struct {
		what      string
		n, since  int64
		lefts     []int64 // of the blocks that are due at 50, 100 and 200, which have 10 permits each
		forgotten int64
		lost      int64
	}{
		{"all may come from the block that was emptied", 4, 30, []int64{4, 3, 6}, 0, 0},
		{"more than were spent from it", 14, 30, []int64{10, 7, 6}, 0, 0},
		{"it was emptied before", 4, 41, []int64{0, 7, 6}, 0, 0},
		{"more than were spent from the next one", 9, 41, []int64{0, 10, 8}, 0, 0},
		{"one before it is not known any more", 4, 20, []int64{0, 3, 6}, 20, 4},
		{"more than were spent at all", 25, 30, []int64{10, 10, 10}, 0, 4},
	} {
		e := &leasedKey{
			plan: p, forgotten: c.forgotten, since: 0,
			past:   []leasedBlock{{deadline: 50, n: 10, end: 40}},
			blocks: []leasedBlock{{deadline: 100, n: 10, left: 3}, {deadline: 200, n: 10, left: 6}},
		}
		if lost := e.putBack(c.n, c.since, 60); lost != c.lost {
			t.Errorf("%s: %d are lost, want %d", c.what, lost, c.lost)
		}
		lefts := map[int64]int64{}
		for _, b := range append(e.past, e.blocks...) {
			lefts[b.deadline] = b.left
		}
		if lefts[50] != c.lefts[0] || lefts[100] != c.lefts[1] || lefts[200] != c.lefts[2] {
			t.Errorf("%s: %v, want %v", c.what, lefts, c.lefts)
		}
	}
}

// TestLeasedPutBackWhereOthersWerePutBack has a block filled by what came from another one: what did come from it is put into none
// that is newer, where it would be spent on top of all that was taken there.
func TestLeasedPutBackWhereOthersWerePutBack(t *testing.T) {
	e := &leasedKey{
		plan:   newLeased(t, newMemoryStore(t), LeasedOptions{}).mustPlan(t, minutely),
		past:   []leasedBlock{{deadline: 50, n: 1, end: 40}, {deadline: 55, n: 1, end: 20}},
		blocks: []leasedBlock{{deadline: 200, n: 10, left: 6}},
	}
	e.putBack(1, 10, 60)         // came from the second
	lost := e.putBack(1, 30, 60) // came from the first
	if lost != 1 || len(e.blocks) != 2 || e.blocks[0].left != 1 || e.blocks[1].left != 6 {
		t.Errorf("%+v", e.blocks)
	}
	e.putBack(2, 30, 60) // one of which came from the newest for sure
	if e.blocks[1].left != 7 {
		t.Errorf("%+v", e.blocks)
	}
}

// TestLeasedPutBackAfterRefund has permits of an older block refunded into another one, which is full then: what was spent from that
// is not put into a newer one when it is undone.
func TestLeasedPutBackAfterRefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t, newMemoryStore(t), LeasedOptions{})
		defer l.Close()
		charges, decisions := []Charge{{Policy: "p", Key: "k", Limit: minutely, N: 3}}, make([]weir.Decision, 1)
		since := l.now()
		if err := Take(t.Context(), l, charges, decisions); err != nil || !decisions[0].Allowed {
			t.Fatalf("%v, %+v", err, decisions)
		}
		hash := l.hashOf(chargeOf("k", minutely))
		s := &l.shards[l.shardAt(hash)]
		s.lock.Lock()
		e := l.find(hash, chargeOf("k", minutely))
		now := l.now()
		e.past = nil
		e.blocks = []leasedBlock{{deadline: now + 50, n: 5, left: 2}, {deadline: now + 200, n: 10, left: 6}}
		s.lock.Unlock()
		if err := Refund(t.Context(), l, charges); err != nil { // of permits from a block that is forgotten
			t.Fatal(err)
		}
		l.giveBackSince(charges, since)
		s.lock.Lock()
		defer s.lock.Unlock()
		if len(e.blocks) != 2 || e.blocks[0].left != 5 || e.blocks[1].left != 6 {
			t.Errorf("%+v", e.blocks)
		}
	})
}

// TestLeasedRefusalLosesNothing asks for twice as many permits as come back: nearly all are granted, for a few calls.
func TestLeasedRefusalLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, weir.TokenBucket(weir.PerSecond(10_000), 100_000), 1, LeasedOptions{}, time.Millisecond, 1)
		defer f.close()
		for f.request(t.Context(), 0, 50) {
		}
		before, calls, start := f.total(), f.nets[0].lends.Load(), time.Now()
		for time.Since(start) < time.Second {
			f.request(t.Context(), 0, 1)
			letPass(50 * time.Microsecond)
		}
		granted, calls := f.total()-before, f.nets[0].lends.Load()-calls
		if granted < 9500 || granted > 10_200 || calls > 200 {
			t.Errorf("%d were granted in 1 s of 10000/s, by %d calls", granted, calls)
		}
	})
}

// TestLeasedResetOnTheWay resets a key while a block is under way: the caller that waits for it gets its permits, and nothing
// else of it is kept.
func TestLeasedResetOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		l := newLeased(t, m, LeasedOptions{})
		for range 100 {
			leasedTake(t, l, minutely, 1)
		}
		synctest.Wait()
		leasedTake(t, l, minutely, l.Stats().Held)
		synctest.Wait()
		leasedTake(t, l, minutely, l.Stats().Held)
		synctest.Wait()
		g := &gated{Home: m, gate: make(chan struct{})}
		l.inner = g
		granted := make(chan bool)
		go func() { granted <- leasedTake(t, l, minutely, l.Stats().Held+1).Allowed }()
		synctest.Wait()
		if err := Reset(t.Context(), l, "p", "k"); err != nil {
			t.Fatal(err)
		}
		g.gate <- struct{}{}
		if !<-granted {
			t.Error("refused")
		}
		synctest.Wait()
		if s := l.Stats(); s.Held != 0 {
			t.Errorf("%+v", s)
		}
		close(g.gate)
	})
}

// TestLeasedFlightOfManyLargeRequests has so many wait for so much that it adds up to more than a number holds: a block is asked for
// nevertheless, as otherwise they would wait forever.
func TestLeasedFlightOfManyLargeRequests(t *testing.T) {
	limit, err := termsOf(weir.FixedWindow(weir.Per(algo.MaxPermits, 1000*time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	e := &leasedKey{plan: limit.leased(time.Second)}
	for range 10_000 {
		e.wait(&leasedPart{charge: &Charge{N: algo.MaxPermits}})
	}
	if n, least, _, ok := e.depart(0); !ok || n != algo.MaxPermits || least != algo.MaxPermits {
		t.Errorf("%d, at least %d, %v", n, least, ok)
	}
}

// TestLeasedPutBackAfterLateComers has a request that looked at the clock earlier than another empty the block of both, after it,
// and the sweeper, which looked even earlier, take out what is left: what the other gives back does not go to a newer block.
func TestLeasedPutBackAfterLateComers(t *testing.T) {
	p := newLeased(t, newMemoryStore(t), LeasedOptions{}).mustPlan(t, minutely)
	for _, how := range []string{"spent", "returned"} {
		e := &leasedKey{
			nearKey: nearKey[leasedKey]{recordKey: chargeOf("k", minutely).recordKey()}, plan: p,
			blocks: []leasedBlock{{deadline: 100, n: 10, left: 10}, {deadline: 200, n: 10, left: 10}},
		}
		if !e.spend(4, 50) {
			t.Fatal("there are not enough")
		}
		if how == "spent" {
			e.spend(6, 40)
		} else {
			e.release(&e.blocks[0], 6, 40)
			e.tidy(40)
		}
		e.spend(4, 60) // from the newer one
		e.putBack(4, 50, 60)
		if len(e.blocks) != 2 || e.blocks[0].left != 4 || e.blocks[1].left != 6 {
			t.Errorf("%s: %+v", how, e.blocks)
		}
	}
}
