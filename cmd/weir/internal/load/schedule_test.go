package load

import (
	"math"
	"slices"
	"testing"
	"time"
)

// takeAll takes all times of a schedule, as they come.
func takeAll(s *schedule) []time.Duration {
	var all []time.Duration
	for {
		got := s.take(0, 1, nil)
		if len(got) == 0 {
			return all
		}
		all = append(all, got...)
	}
}

func TestScheduleAtFixedIntervals(t *testing.T) {
	got := takeAll(newSchedule(3, fixed, 1, 0, 2*time.Second, 0))
	want := []time.Duration{0, 333333333, 666666666, time.Second, 1333333333, 1666666666}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	// The hundredth second has as many as the first.
	if n := len(takeAll(newSchedule(7001, fixed, 1, 0, 100*time.Second, 0))); n != 7001*100 {
		t.Errorf("%d requests in 100 s at 7001/s", n)
	}
}

// TestScheduleAtRandom: the intervals of a Poisson process are distributed exponentially, so that their standard deviation is
// their mean, and 1/e of them are longer than that.
func TestScheduleAtRandom(t *testing.T) {
	const rate, requests = 1000, 100_000
	times := takeAll(newSchedule(rate, poisson, 7, 0, math.MaxInt64, requests))
	if len(times) != requests {
		t.Fatalf("%d requests", len(times))
	}
	var sum, squares, longer, before float64
	for _, at := range times {
		interval := at.Seconds() - before
		before = at.Seconds()
		sum += interval
		squares += interval * interval
		if interval > 1.0/rate {
			longer++
		}
	}
	mean := sum / requests
	deviation := math.Sqrt(squares/requests - mean*mean)
	for what, c := range map[string]struct{ got, want float64 }{
		"mean": {mean, 1.0 / rate}, "deviation": {deviation, 1.0 / rate}, "longer": {longer / requests, 1 / math.E},
	} {
		if math.Abs(c.got/c.want-1) > 0.015 {
			t.Errorf("%s: %g, want %g", what, c.got, c.want)
		}
	}
	if again := takeAll(newSchedule(rate, poisson, 7, 0, math.MaxInt64, requests)); !slices.Equal(again, times) {
		t.Error("the same seed gives other times")
	}
	if other := takeAll(newSchedule(rate, poisson, 8, 0, math.MaxInt64, requests)); slices.Equal(other, times) {
		t.Error("another seed gives the same times")
	}
}

func TestScheduleTakesWhatIsDue(t *testing.T) {
	ms := func(numbers ...int) (times []time.Duration) {
		for _, n := range numbers {
			times = append(times, time.Duration(n)*time.Millisecond)
		}
		return times
	}
	s := newSchedule(1000, fixed, 1, 5*time.Millisecond, 20*time.Millisecond, 0)
	for _, c := range []struct {
		now  time.Duration
		n    int
		have []time.Duration
		want []time.Duration
	}{
		{0, 10, nil, ms(0)},
		{0, 10, nil, ms(1)}, // is yet to come
		{3500 * time.Microsecond, 10, ms(1), ms(1, 2, 3)},
		{10 * time.Millisecond, 2, nil, ms(4, 5)},
		{10 * time.Millisecond, 2, ms(4, 5), ms(4, 5)},
	} {
		if got := s.take(c.now, c.n, slices.Clone(c.have)); !slices.Equal(got, c.want) {
			t.Errorf("%d at %s: %v, want %v", c.n, c.now, got, c.want)
		}
	}
	if missed := s.stop(10500 * time.Microsecond); missed != 5 { // 6, 7, 8, 9 and 10
		t.Errorf("%d were missed", missed)
	}
	if got := s.take(time.Second, 10, nil); len(got) != 0 {
		t.Errorf("%v after the end", got)
	}
	// What is not counted is not missed, nor is what comes after the last.
	s = newSchedule(1000, fixed, 1, 5*time.Millisecond, time.Hour, 3)
	if got := s.take(6*time.Millisecond, 100, nil); len(got) != 7 {
		t.Errorf("%v", got)
	}
	if missed := s.stop(time.Second); missed != 1 {
		t.Errorf("%d of 3 were missed", missed)
	}
	s = newSchedule(1000, fixed, 1, 5*time.Millisecond, 10*time.Millisecond, 0)
	if missed := s.stop(time.Second); missed != 5 {
		t.Errorf("%d were missed after the warm-up", missed)
	}
}
