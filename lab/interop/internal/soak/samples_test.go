//go:build linux

package soak

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestGrowth: what grows is found, and what only goes up and down, or has a peak, is not.
func TestGrowth(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		name   string
		memory func(i int) float64
		leaks  bool
	}{
		{"flat", func(int) float64 { return 100e6 + 20e6*random.Float64() }, false},
		{"a peak", func(i int) float64 {
			if i > 150 && i < 180 {
				return 900e6
			}
			return 100e6
		}, false},
		{"a leak", func(i int) float64 { return 100e6 + 20e6*random.Float64() + 0.5e6*float64(i) }, true},
	} {
		var m meter
		s := &samples{who: "n1, start 1", node: "n1"}
		for i := range 600 {
			s.all = append(s.all, sample{At: time.Duration(i) * time.Second, Memory: c.memory(i - 300), Goroutines: 300, Files: 50})
		}
		m.all = append(m.all, s)
		got := m.usage(5*time.Minute, 10*time.Minute)
		if len(got) != 1 || !got[0].Judged || got[0].Growth[0].Leaks != c.leaks || got[0].Growth[1].Leaks || got[0].Growth[2].Leaks {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
