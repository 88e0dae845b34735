package adaptive

import (
	"math/rand/v2"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/overload"
)

// FixedLimit is the fixed limit of the simulation: as many requests as the whole service answers in four fifths of
// the deadline.
func (s Scenario) FixedLimit() int64 {
	perSecond := float64(s.Workers) / s.Service.Seconds()
	return int64(perSecond * s.Deadline.Seconds() * 4 / 5)
}

// Guards are what the simulation compares.
func (s Scenario) Guards() []func(weir.Clock) (Guard, error) {
	return []func(weir.Clock) (Guard, error){s.noLimit, s.fixed, s.adaptive, s.adaptiveAndShedder}
}

func (s Scenario) noLimit(weir.Clock) (Guard, error) { return Guard{Name: "no limit"}, nil }

func (s Scenario) fixed(clock weir.Clock) (Guard, error) {
	l, err := weir.NewConcurrency(s.FixedLimit(), weir.Options{Clock: clock})
	return Guard{Name: "fixed limit", Limiter: l}, err
}

// adaptive has the defaults.
func (s Scenario) adaptive(clock weir.Clock) (Guard, error) {
	l, err := overload.NewAdaptive(overload.AdaptiveOptions{Clock: clock})
	return Guard{Name: "Adaptive", Limiter: l}, err
}

// adaptiveAndShedder keeps permits of the Adaptive free for critical requests.
func (s Scenario) adaptiveAndShedder(clock weir.Clock) (Guard, error) {
	l, err := overload.NewAdaptive(overload.AdaptiveOptions{Clock: clock})
	if err != nil {
		return Guard{}, err
	}
	shedder, err := overload.NewShedder(overload.ShedderOptions{
		Sources:  []overload.Pressure{overload.LimiterPressure("adaptive", l)},
		Interval: 10 * time.Millisecond,
		// Lower than the defaults, which are made for processors: what is out trembles, and critical requests need room.
		Bands: map[overload.Priority]overload.ShedBand{
			overload.PriorityBackground: {From: 0.60, To: 0.80}, overload.PrioritySheddable: {From: 0.65, To: 0.85},
			overload.PriorityNormal: {From: 0.70, To: 0.90}, overload.PriorityCritical: {From: 0.95, To: 1.10},
		},
		Random: rand.New(rand.NewPCG(s.Seed, 2)).Float64, //nolint:gosec // to be repeated
		Clock:  clock,
	})
	return Guard{Name: "Adaptive + Shedder", Limiter: l, Shedder: shedder}, err
}
