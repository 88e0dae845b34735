package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// TestLeasedCloseKeepsNothing: what a request has taken of one limit while it waits for another one goes back.
func TestLeasedCloseKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		g := &gated{Home: m, gate: make(chan struct{}, 100)}
		for range cap(g.gate) {
			g.gate <- struct{}{}
		}
		l := newLeased(t, g, LeasedOptions{})
		used := int64(0)
		for ; l.Stats().Held < 40; used++ {
			leasedTake(t, l, minutely, 1)
			letPass(time.Millisecond)
		}
		for len(g.gate) > 0 {
			<-g.gate
		}
		waits := make(chan error)
		go func() {
			waits <- Take(t.Context(), l, []Charge{
				{Policy: "p", Key: "k", Limit: minutely, N: 30}, {Policy: "p", Key: "other", Limit: minutely, N: 5},
			}, make([]weir.Decision, 2))
		}()
		synctest.Wait()
		done := make(chan error)
		go func() { done <- l.Close() }()
		if err := <-waits; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		close(g.gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := storeHas(t, m, minutely); n != 1600-used {
			t.Errorf("%d are there, %d were used of 1600", n, used)
		}
	})
}

// TestLeasedCloseAnswersAllKeys: a key that is asked for does not make room for another one of the same request, so that Close
// finds it, and the calls that wait for it.
func TestLeasedCloseAnswersAllKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		g := &gated{Home: m, gate: make(chan struct{})}
		l := newLeased(t, g, LeasedOptions{MaxKeys: 1})
		waits, done := make(chan error, 1), make(chan error, 1)
		go func() {
			waits <- Take(t.Context(), l, []Charge{
				{Policy: "p", Key: "k", Limit: minutely, N: 30}, {Policy: "p", Key: "other", Limit: minutely, N: 5},
			}, make([]weir.Decision, 2))
		}()
		synctest.Wait()
		go func() { done <- l.Close() }()
		synctest.Wait()
		select {
		case err := <-waits:
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		default:
			t.Fatal("who waits for a key is not answered")
		}
		close(g.gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := storeHas(t, m, minutely); n != 1600 {
			t.Errorf("%d are there of 1600", n)
		}
	})
}

// TestLeasedCloseCountsWhatIsUndoneAfterwards: what is given back once all is closed has gone nowhere, and is said to be lost.
func TestLeasedCloseCountsWhatIsUndoneAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		l := newLeased(t, m, LeasedOptions{})
		for range 20 {
			leasedTake(t, l, minutely, 7)
		}
		since := l.now()
		leasedTake(t, l, minutely, 7)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l.giveBackSince([]Charge{{Policy: "p", Key: "k", Limit: minutely, N: 7}}, since)
		if there, lost := storeHas(t, m, minutely), l.Stats().Lost; there != 1600-21*7 || lost != 7 {
			t.Errorf("%d are there of %d, and %d lost of 7", there, 1600-21*7, lost)
		}
	})
}

// asking is a store that answers a Take when it may.
type asking struct {
	Home

	may chan struct{}
}

func (a *asking) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	if ask.Mode == ModeTake {
		select {
		case <-a.may:
		case <-ctx.Done():
			return Hold{}, ErrUnavailable
		}
	}
	return a.Home.Do(ctx, ask, charges, decisions)
}

// TestLeasedCloseWhileTheStoreIsAsked: what a request has taken from memory goes back, if the store refuses the rest of it after
// Close has begun, or does not answer at all.
func TestLeasedCloseWhileTheStoreIsAsked(t *testing.T) {
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemoryStore(t)
			a := &asking{m, make(chan struct{})}
			l := newLeased(t, a, LeasedOptions{})
			used := int64(0)
			for ; l.Stats().Held < 40; used++ {
				leasedTake(t, l, minutely, 1)
				letPass(time.Millisecond)
			}
			few := weir.FixedWindow(weir.PerMinute(5))
			decisions, asked, done := make([]weir.Decision, 2), make(chan error, 1), make(chan error, 1)
			go func() {
				asked <- Take(context.Background(), l, []Charge{
					{Policy: "p", Key: "k", Limit: minutely, N: 30}, {Policy: "few", Key: "k", Limit: few, N: 6},
				}, decisions)
			}()
			synctest.Wait()
			go func() { done <- l.Close() }()
			synctest.Wait()
			if answers {
				close(a.may)
			}
			if err := <-asked; answers != (err == nil) || answers && decisions[1].Allowed {
				t.Errorf("%v, %+v", err, decisions)
			}
			if err := <-done; answers != (err == nil) {
				t.Error(err)
			}
			if n := storeHas(t, m, minutely); answers && n != 1600-used {
				t.Errorf("%d are there, %d were used of 1600", n, used)
			}
		})
	}
}

// TestLeasedCloseWhileALimitChanges: a request that finds one of its keys with another limit, and the other one closed already,
// gives back what the first one had.
func TestLeasedCloseWhileALimitChanges(t *testing.T) {
	lasting := weir.FixedWindow(weir.Per(1600, 1000*time.Hour))
	m := newMemoryStore(t)
	l := newLeased(t, m, LeasedOptions{MaxKeys: nearShards * keysPerShard})
	last := l.shardAt(l.hashOf(chargeOf("k", lasting)))
	other := ""
	for i := 0; other == ""; i++ { // one that is closed before k, with a third between them
		if key := fmt.Sprint(i); l.shardAt(l.hashOf(chargeOf(key, lasting))) < last-1 {
			other = key
		}
		if last < 2 { // the hash is by chance
			l = newLeased(t, m, LeasedOptions{MaxKeys: nearShards * keysPerShard})
			last = l.shardAt(l.hashOf(chargeOf("k", lasting)))
		}
	}
	used := int64(0)
	for ; l.Stats().Held == 0; used++ {
		leasedTake(t, l, lasting, 1)
	}
	between := &l.shards[last-1]
	between.lock.Lock()
	done := make(chan error)
	go func() { done <- l.Close() }()
	first := &l.shards[l.shardAt(l.hashOf(chargeOf(other, lasting)))]
	for closed := false; !closed; {
		first.lock.Lock()
		closed = first.closed
		first.lock.Unlock()
	}
	raised := weir.FixedWindow(weir.Per(3200, 1000*time.Hour))
	c := &leasedCall{l: l}
	for i, charge := range []Charge{
		{Policy: "p", Key: "k", Limit: raised, N: 1}, {Policy: "p", Key: other, Limit: lasting, N: 1},
	} {
		c.parts = append(c.parts, leasedPart{
			charge: &charge, decision: new(weir.Decision), plan: l.mustPlan(t, charge.Limit), hash: l.hashOf(&charge),
		})
		c.shards |= 1 << l.shardAt(c.parts[i].hash)
	}
	if _, err := c.begin(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	between.lock.Unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := storeHas(t, m, lasting); n != 1600-used {
		t.Errorf("%d are there, %d were used of 1600", n, used)
	}
}

// TestLeasedCloseContention closes while requests for several keys come. Nothing is lent out in the end: what is not there was
// granted.
func TestLeasedCloseContention(t *testing.T) {
	const keys = 8
	for round := range 40 {
		m := newMemoryStore(t)
		l := newLeased(t, m, LeasedOptions{MaxKeys: nearShards * keysPerShard})
		limit := weir.FixedWindow(weir.Rate{Permits: 1e6, Period: 24 * time.Hour})
		var granted [keys]atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				decisions := make([]weir.Decision, 1)
				for {
					key := rand.N(keys)
					err := Take(t.Context(), l, []Charge{{Policy: "p", Key: fmt.Sprint(key), Limit: limit, N: 2}}, decisions)
					switch {
					case errors.Is(err, ErrClosed):
						return
					case err != nil:
						t.Error(err)
						return
					case decisions[0].Allowed:
						granted[key].Add(2)
					}
				}
			})
		}
		for l.Stats().Held < int64(round) {
			runtime.Gosched()
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		for i := range granted {
			state, err := Inspect(t.Context(), m, Charge{Policy: "p", Key: fmt.Sprint(i), Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			if gone := 1e6 - state.Decision.Remaining; gone != granted[i].Load() {
				t.Fatalf("round %d: %d permits of %d are gone, %d were granted", round, gone, i, granted[i].Load())
			}
		}
	}
}
