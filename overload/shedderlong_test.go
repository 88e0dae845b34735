//go:build !race

package overload_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/overload"
)

// TestShedderSettles has a machine whose use is what is allowed, with three times the load that it can bear. The
// pressure must settle instead of swinging, and critical requests, a tenth of all, must go through.
func TestShedderSettles(t *testing.T) {
	clock := manualclock.New(0)
	random := rand.New(rand.NewPCG(3, 4))
	admitted := 0
	const perInterval, capacity = 3000, 1000 // in 250 ms
	machine := overload.NewPressure("machine", func(int64) (float64, error) {
		use := float64(admitted) / capacity
		admitted = 0
		return min(use, 1), nil // as a processor, it cannot tell by how much it is overloaded
	})
	s, err := overload.NewShedder(overload.ShedderOptions{Sources: []overload.Pressure{machine}, Random: random.Float64, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	critical, criticalShed := 0, 0
	low, high := math.Inf(1), 0.0
	for step := range 400 { // 100 s
		for range perInterval {
			p := allPriorities[random.IntN(3)]
			if random.IntN(10) == 0 {
				p = overload.PriorityCritical
			}
			ok := s.Allow(p)
			if ok {
				admitted++
			}
			if p == overload.PriorityCritical && step > 100 {
				critical++
				if !ok {
					criticalShed++
				}
			}
		}
		if step > 100 {
			low, high = min(low, float64(admitted)), max(high, float64(admitted))
		}
		clock.Advance(250 * time.Millisecond)
	}
	if low < 0.6*capacity || high > 1.15*capacity {
		t.Errorf("from %v to %v of %v are admitted", low, high, float64(capacity))
	}
	if share := float64(criticalShed) / float64(critical); share > 0.02 {
		t.Errorf("%.3f of the critical requests are shed", share)
	}
	t.Logf("admitted from %v to %v", low, high)
}
