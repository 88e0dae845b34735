package choosing_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/lab/bench/choosing"
)

// TestBurstsShowWhatIsSaid holds what docs/choosing.md says of each algorithm against what it does in the simulation.
func TestBurstsShowWhatIsSaid(t *testing.T) {
	courses, err := choosing.Bursts()
	if err != nil {
		t.Fatal(err)
	}
	// At most so many within a second, and within a length of which more was never allowed than so many.
	for i, c := range []struct {
		most   int
		within time.Duration
		exact  int
	}{
		{20, 0, 0},                       // burst + rate
		{13, 0, 0},                       // likewise
		{20, 900 * time.Millisecond, 10}, // in nine of ten segments never more than the limit
		{19, 0, 0},                       // 2 x limit - 1
		{20, 0, 0},                       // 2 x limit
	} {
		if most := courses[i].Most(time.Second); most > c.most || most < 10 {
			t.Errorf("%s: %d within a second, must be from 10 to %d", courses[i].Name, most, c.most)
		}
		if c.within > 0 && courses[i].Most(c.within) > c.exact {
			t.Errorf("%s: %d within %v, must be at most %d", courses[i].Name, courses[i].Most(c.within), c.within, c.exact)
		}
	}
	if last := courses[4]; last.Most(300*time.Millisecond) < 16 {
		t.Errorf("%s: only %d around the end of a window: the picture does not show it", last.Name, last.Most(300*time.Millisecond))
	}
}

// TestQueuesShowWhatIsSaid: no request is served out of turn or waits longer than its max wait, and the rate is kept.
func TestQueuesShowWhatIsSaid(t *testing.T) {
	lines, err := choosing.Queues()
	if err != nil {
		t.Fatal(err)
	}
	served := make([]int, len(lines))
	for i, l := range lines {
		var last time.Duration
		for _, f := range l.Fates {
			if f.Until-f.At > 1500*time.Millisecond {
				t.Errorf("%s: a request of %v has waited until %v", l.Name, f.At, f.Until)
			}
			if !f.Allowed {
				continue
			}
			served[i]++
			if f.Until < last && i < 2 {
				t.Errorf("%s: a request of %v was served at %v, before one that came earlier", l.Name, f.At, f.Until)
			}
			last = max(last, f.Until)
		}
		if most := 5 + int(10*last.Seconds()); served[i] > most {
			t.Errorf("%s: %d were served in %v", l.Name, served[i], last)
		}
	}
	if served[0] >= served[1] {
		t.Errorf("served: %v; a queue serves more", served)
	}
}

// TestSlowShowsWhatIsSaid: concurrency bounds what is with a service, and a rate does not.
func TestSlowShowsWhatIsSaid(t *testing.T) {
	loads, err := choosing.Slow()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{50, 8} {
		most := 0
		for _, n := range loads[i].InFlight {
			most = max(most, n)
		}
		if most != want {
			t.Errorf("%s: at most %d with the service, want %d", loads[i].Name, most, want)
		}
	}
}
