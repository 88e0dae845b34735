package overload

import "testing"

// TestDroppedShareIsAtMostAll has a request dropped after a step has counted those that have ended.
func TestDroppedShareIsAtMostAll(t *testing.T) {
	a, err := NewAdaptive(AdaptiveOptions{WindowSamples: 5})
	if err != nil {
		t.Fatal(err)
	}
	a.learned.ended.Store(5)
	a.learned.dropped.Store(6)
	a.step(a.learned.end.Load())
	if e := a.Estimate(); e.Windows != 1 || e.Dropped != 1 {
		t.Errorf("%+v", e)
	}
}
