//go:build !race

package store

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// TestLeasedNeverAbove runs processes over one store, with clocks an hour apart, delays of the network, and processes that die,
// and looks at every interval of time.
func TestLeasedNeverAbove(t *testing.T) {
	const rounds = 4
	granted, refused, lends := int64(0), int64(0), int64(0)
	for seed := range uint64(rounds) {
		chance := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, chance))
		for _, limit := range leasedLimits(rng) {
			term := []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second}[rng.IntN(3)]
			slowest := []time.Duration{0, time.Millisecond, 40 * time.Millisecond, 700 * time.Millisecond}[seed%4]
			synctest.Test(t, func(t *testing.T) {
				letPass(time.Duration(rng.Int64N(int64(time.Minute))))
				f := newFleet(t, limit, 2+rng.IntN(3), LeasedOptions{Term: term}, slowest, 1)
				length := 6 * time.Second
				if limit.Algorithm() == weir.AlgorithmCalendarWindow {
					length = 130 * time.Second
				}
				died := time.AfterFunc(length/2, func() { f.nets[0].dead.Store(true) })
				tide := []time.Duration{0, length / 50, length / 21}[rng.IntN(3)]
				f.traffic(t, rng, length, tide)
				span := LeasedOptions{Term: term}.Bound(limit).Term
				f.hoard(t, span, 1, span*22/100)
				f.hoard(t, span, 4, span*21/100)
				died.Stop()
				f.close()
				if flaw := f.flaw(); flaw != "" {
					t.Errorf("seed %d %d, %v, Term %v, delays up to %v, tide %v: %s", seed, chance, limit, term, slowest, tide, flaw)
				}
				granted, refused = granted+f.total(), refused+f.short
				for _, net := range f.nets {
					lends += net.lends.Load()
				}
			})
		}
	}
	if t.Logf("%d permits granted, %d refused, by %d calls for blocks", granted, refused, lends); granted < 10_000 || refused < 5_000 {
		t.Error("that shows nothing")
	}
}
