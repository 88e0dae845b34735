package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// stepKeys is how many keys those calls have to choose from.
const stepKeys = 4

// TestStepsAreAllOrNothing: calls of several keys take, reserve, wait, settle and go away, while writes fail with an unknown
// outcome and owners die. The permits do not come back, so that they can be counted at each key. Never more are allowed than
// there are. No more are lost than crashes burn, and than calls without a result may have taken. Where nothing fails, a refused
// call has taken from none of its keys.
func TestStepsAreAllOrNothing(t *testing.T) {
	for seed := range seeds(100, 30) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { steps(t, rand.New(rand.NewPCG(seed, 6))) })
		}) {
			return
		}
	}
}

// yearly is a limit whose permits do not come back, counted in whole permits.
func yearly(burst int64) weir.Limit {
	return weir.CalendarWindow(burst, algo.Calendar{Unit: algo.CalendarYear})
}

func stepPolicy(i int) string { return fmt.Sprintf("p%d", i) }

func steps(t *testing.T, r *rand.Rand) {
	t.Helper()
	burst := []int64{40, 100, 300}[r.IntN(3)]
	k := []int64{1, 2, 10, 0}[r.IntN(4)]
	percent := []int{0, 0, 10, 40}[r.IntN(4)]
	die := r.IntN(3) > 0
	m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Duration(r.IntN(3)) * time.Millisecond, TTL: 300 * time.Millisecond}))
	book := new([stepKeys]ledger)
	var late sync.WaitGroup
	crashed := int64(0)
	for range 1 + r.IntN(4) {
		u := &unreliable{m.Engine(), sync.Mutex{}, rand.New(rand.NewPCG(r.Uint64(), 1)), percent, 0, &late}
		term := must(u.Campaign(t.Context(), "node"))
		o := must(durable.NewOwner(term, durable.OwnerOptions{Reserve: k, WriteTimeout: 100 * time.Millisecond}))
		var work sync.WaitGroup
		for range 1 + r.IntN(6) {
			own := rand.New(rand.NewPCG(r.Uint64(), 2))
			work.Go(func() {
				for range own.IntN(40) {
					stepCall(t.Context(), o, own, burst, book)
					time.Sleep(time.Duration(own.IntN(20)) * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Duration(r.IntN(800)) * time.Millisecond)
		if die && r.IntN(3) > 0 {
			u.Cut(true)
			time.Sleep(400 * time.Millisecond)
			crashed++
		}
		stop, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		if err := o.Stop(stop); err != nil {
			crashed++
		}
		cancel()
		work.Wait()
		_ = u.Close()
		time.Sleep(time.Second) // until its term is over
	}
	late.Wait()
	last, _ := owned(t, m, durable.OwnerOptions{Reserve: 1})
	if k == 0 {
		k = max(1, burst/10)
	}
	for i := range book {
		d, err := spectest.Peek(t.Context(), last, stepPolicy(i), "", yearly(burst))
		if err != nil {
			t.Fatal(err)
		}
		least := burst - book[i].gifts - book[i].possible - crashed*(k-1)
		if percent == 0 && crashed == 0 {
			least = burst - book[i].gifts
		}
		if sum := book[i].certain + d.Remaining; sum > burst || sum < least {
			t.Errorf("K %d, %d%% fail, %d crashes, key %d: %d permits were granted and %d are left, of %d, at least %d",
				k, percent, crashed, i, book[i].certain, d.Remaining, burst, least)
		}
	}
}

// stepCall makes a call of some keys, and notes what it took of each.
func stepCall(ctx context.Context, o *durable.Owner, r *rand.Rand, burst int64, book *[stepKeys]ledger) {
	keys := r.Perm(stepKeys)[:2+r.IntN(stepKeys-1)]
	var charges []store.Charge
	var ask store.Ask
	for _, i := range keys {
		charges = append(charges, store.Charge{Policy: stepPolicy(i), Limit: yearly(burst), N: 1 + r.Int64N(3), Queue: 100})
	}
	if r.IntN(2) == 0 {
		ask.Wait = time.Duration(1+r.IntN(50)) * time.Millisecond
	}
	if r.IntN(2) == 0 {
		ask.Hold = 24 * time.Hour
	}
	asked := ctx
	if r.IntN(6) == 0 {
		var leave context.CancelFunc
		asked, leave = context.WithTimeout(ctx, time.Duration(r.IntN(4))*time.Millisecond)
		defer leave()
	}
	note := func(taken, perhaps, reserved func(n int64, i int) int64) {
		for i, key := range keys {
			n := charges[i].N
			book[key].note(taken(n, i), perhaps(n, i), 0, reserved(n, i))
		}
	}
	none := func(int64, int) int64 { return 0 }
	whole := func(n int64, _ int) int64 { return n }
	result := all(asked, o, ask, charges...)
	switch {
	case result.Reason == weir.ReasonLimited && ask.Wait == 0, result.Reason == weir.ReasonNever: // it has taken nothing
		return
	case result.Reason != weir.ReasonNone:
		note(none, whole, none)
		return
	case ask.Hold == 0:
		note(whole, none, none)
		return
	}
	time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
	cost := make([]int64, len(keys))
	var actual []int64
	switch r.IntN(3) {
	case 0: // left to itself
		note(whole, none, none)
		return
	case 1:
		actual = cost
		for i := range cost {
			cost[i] = r.Int64N(charges[i].N + 1)
		}
	}
	paid := func(_ int64, i int) int64 { return cost[i] }
	rest := func(n int64, i int) int64 { return n - cost[i] }
	if o.Settle(ctx, result.Hold, actual) == nil {
		note(paid, none, none)
	} else { // it may have ended
		note(paid, none, rest)
	}
}
