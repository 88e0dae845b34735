//go:build !race

package keyset_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/reference"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

// debtor is a key of a limiter, and what it should be.
type debtor struct {
	k      *weir.Keyed[string]
	key    string
	model  reference.Limiter
	limit  weir.Limit
	most   int64 // debt
	leases []weir.Lease
	marks  []reference.Mark
	costs  []int64
}

// lockstepOf are limiters of an algorithm, with their references.
func lockstepOf(t *testing.T, random *rand.Rand, algorithm weir.Algorithm, clock weir.Clock) (all []*debtor) {
	t.Helper()
	for i := range 2 {
		burst := 1 + random.Int64N(6)
		period := time.Duration(6 + random.Int64N(40))
		most := []int64{1, 4, 20}[random.IntN(3)]
		rate := weir.Rate{Permits: burst, Period: period}
		var l weir.Limit
		switch algorithm {
		case weir.AlgorithmTokenBucket:
			l = weir.TokenBucket(weir.Rate{Permits: 1 + random.Int64N(int64(period)), Period: period}, burst)
		case weir.AlgorithmFixedWindow:
			l = weir.FixedWindow(rate)
		case weir.AlgorithmSlidingWindow:
			l = weir.SlidingWindow(rate, 1+random.IntN(5))
		default:
			l = weir.SlidingCounter(rate)
		}
		k := keyedOf(t, l, weir.KeyedOptions{Name: strconv.Itoa(i), MaxDebt: most, Clock: clock})
		for key := range 2 {
			d := &debtor{k: k, key: strconv.Itoa(key), limit: l, most: most}
			origin := clock.Now()
			switch algorithm {
			case weir.AlgorithmTokenBucket:
				d.model = reference.NewTokenBucket(l.Rate().Permits, period, burst)
			case weir.AlgorithmFixedWindow:
				d.model = reference.NewFixedWindow(burst, period, origin)
			case weir.AlgorithmSlidingWindow:
				d.model = reference.NewSlidingWindow(burst, period, l.Segments(), origin)
			default:
				d.model = reference.NewSlidingCounter(burst, period, origin)
			}
			all = append(all, d)
		}
	}
	return all
}

// TestDebitsFollowTheReference compares random histories of takes, reservations that are settled, debits and refunds, in the
// table and in gates, with the references.
func TestDebitsFollowTheReference(t *testing.T) {
	const histories = 300
	for algorithm := weir.AlgorithmTokenBucket; algorithm <= weir.AlgorithmSlidingCounter; algorithm++ {
		t.Run(algorithm.String(), func(t *testing.T) {
			for seed := range histories {
				followHistory(t, rand.New(rand.NewPCG(uint64(seed), uint64(algorithm))), algorithm)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

func followHistory(t *testing.T, random *rand.Rand, algorithm weir.Algorithm) {
	t.Helper()
	clock := manualclock.New(1 + random.Int64N(50))
	all := lockstepOf(t, random, algorithm, clock)
	gates := random.IntN(2) == 0 // then what moves between limits is given back with care, and nothing is given back here
	forgiven := map[*weir.Keyed[string]]int64{}
	for step := range 60 {
		now := clock.Now()
		d := all[random.IntN(len(all))]
		n := random.Int64N(8)
		switch random.IntN(7) {
		case 0:
			clock.Advance(time.Duration(random.Int64N(30)))
		case 1:
			got := d.k.Take(d.key, n)
			want, _ := d.model.Take(now, n)
			if got.Allowed != want.Allowed || got.Remaining != want.Remaining || got.RetryAfter != want.RetryAfter {
				t.Errorf("step %d: take %d: %+v, want %+v", step, n, got, want)
			}
		case 2:
			if l := d.k.TryReserve(d.key, n+1); l.Allowed() {
				_, mark := d.model.Take(now, n+1)
				d.leases, d.marks, d.costs = append(d.leases, l), append(d.marks, mark), append(d.costs, n+1)
			}
		case 3:
			if last := len(d.leases) - 1; last >= 0 {
				actual := random.Int64N(12)
				if gates {
					actual = max(actual, d.costs[last])
				}
				d.leases[last].Commit(actual)
				if over := actual - d.costs[last]; over > 0 {
					forgiven[d.k] += over - d.model.Charge(now, over, d.most)
				} else if over < 0 {
					d.model.Cancel(now, -over, d.marks[last])
				}
				d.leases, d.marks, d.costs = d.leases[:last], d.marks[:last], d.costs[:last]
			}
		case 4:
			d.k.Refund(d.key, n)
			d.model.Refund(now, n)
		case 5:
			if !gates {
				break
			}
			if err := keyset.Of(d.k).Override(d.key, d.limit, time.Hour); err != nil {
				t.Fatal(err)
			}
			if random.IntN(2) == 0 {
				keyset.Of(d.k).Restore(d.key)
			}
		default:
			debitBoth(t, random, all, now, forgiven)
		}
	}
	for _, d := range all {
		if s := d.k.Stats(); s.Forgiven != forgiven[d.k] {
			t.Errorf("%d forgiven, want %d", s.Forgiven, forgiven[d.k])
		}
	}
}

// debitBoth debits some of all limits, and their references.
func debitBoth(t *testing.T, random *rand.Rand, all []*debtor, now int64, forgiven map[*weir.Keyed[string]]int64) {
	t.Helper()
	var of []*debtor
	var charges []keyset.Charge
	for range 1 + random.IntN(4) {
		d := all[random.IntN(len(all))]
		n := random.Int64N(12)
		forgiven[d.k] += n - d.model.Charge(now, n, d.most)
		of, charges = append(of, d), append(charges, keyset.Charge{Limiter: d.k, Key: d.key, N: n})
	}
	for i, got := range debit(t, charges...) {
		want := of[i].model.Peek(now, 0)
		if got.Allowed != want.Allowed || got.Remaining != want.Remaining || got.RetryAfter != want.RetryAfter ||
			got.ResetAfter != want.ResetAfter {
			t.Errorf("charge %d of %d: %+v, want %+v", i, len(charges), got, want)
		}
	}
}
