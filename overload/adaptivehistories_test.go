//go:build !race

package overload

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/manualclock"
)

// TestAdaptiveEqualsASlowModel plays random histories of a service on an Adaptive and on the model.
func TestAdaptiveEqualsASlowModel(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			o := AdaptiveOptions{
				MinLimit: 1 + random.Int64N(5), MaxLimit: 50 + random.Int64N(200), Tolerance: 1.05 + 0.8*random.Float64(),
				Smoothing: 0.05 + 0.95*random.Float64(), Window: time.Duration(1+random.IntN(100)) * time.Millisecond,
				WindowSamples: 1 + random.IntN(40), ProbeInterval: time.Duration(100+random.IntN(2000)) * time.Millisecond,
			}
			o.defaults()
			clock := manualclock.New(0)
			o.Clock = clock
			a, err := NewAdaptive(o)
			if err != nil {
				t.Fatal(err)
			}
			m := &slowAdaptive{o: o, limit: float64(o.InitialLimit), effective: o.InitialLimit}
			playAdaptive(t, random, clock, a, m)
			if m.windows < 10 {
				t.Errorf("only %d windows", m.windows)
			}
			e := a.Estimate()
			if e.Windows != m.windows || e.Probes != m.probes || e.Probing != m.probing {
				t.Errorf("%+v, want %d windows, %d probes, probing %v", e, m.windows, m.probes, m.probing)
			}
		})
	}
}
