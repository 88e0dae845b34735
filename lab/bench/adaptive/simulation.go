package adaptive

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/heap"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/overload"
)

// Scenario is what happens to the service.
type Scenario struct {
	// Workers is how many requests the service works on at a time, and Degraded how many from Halved to Recovered.
	Workers, Degraded int
	// Slower is how many times as long each request takes from Halved to Recovered.
	Slower float64
	// Service is the mean time that a worker takes, and Spread the standard deviation of its logarithm.
	Service time.Duration
	Spread  float64
	// Arrivals is how many requests arrive in a second.
	Arrivals float64
	// Deadline is how long a client waits.
	Deadline time.Duration
	// Halved and Recovered are when the capacity changes, and End when the simulation ends.
	Halved, Recovered, End time.Duration
	// Critical and Background are which shares of the requests have these priorities. The others are normal.
	Critical, Background float64
	// Seed makes the same history of arrivals and service times again.
	Seed uint64
}

// Standard is the scenario of the documentation: 1000 requests a second can be answered, 900 arrive, and for 40 seconds
// only 500 can be answered.
func Standard() Scenario {
	return Scenario{
		Workers: 50, Degraded: 25, Slower: 1, Service: 50 * time.Millisecond, Spread: 0.5, Arrivals: 900,
		Deadline: 250 * time.Millisecond, Halved: 30 * time.Second, Recovered: 70 * time.Second, End: 110 * time.Second,
		Critical: 0.2, Background: 0.3, Seed: 1,
	}
}

// Guard is what stands before the service.
type Guard struct {
	Name    string
	Limiter weir.Acquirer     // nil: no limit
	Shedder *overload.Shedder // nil: all priorities are the same
}

// request is one of a client.
type request struct {
	arrived  time.Duration
	work     float64 // relative to the mean
	priority overload.Priority
	lease    weir.Lease
	finished time.Duration // if a worker has it
}

// Before implements [heap.Item]: what will be finished first comes first.
func (r *request) Before(other *request) bool { return r.finished < other.finished }

// Placed implements [heap.Item].
func (*request) Placed(int) {}

// simulation is one run.
type simulation struct {
	scenario Scenario
	guard    Guard
	clock    *manualclock.Clock
	random   *rand.Rand
	now      time.Duration
	working  heap.Heap[*request] // by when they will be finished
	waiting  []*request          // from first on
	first    int
	course   *Course
}

// Run plays the scenario. The guard is made with the clock of the simulation.
func (s Scenario) Run(guard func(weir.Clock) (Guard, error)) (*Course, error) {
	clock := manualclock.New(0)
	g, err := guard(clock)
	if err != nil {
		return nil, err
	}
	sim := &simulation{
		scenario: s, guard: g, clock: clock, random: rand.New(rand.NewPCG(s.Seed, 1)), //nolint:gosec // to be repeated
		course: newCourse(s, g.Name),
	}
	sim.run()
	return sim.course, nil
}

func (s *simulation) run() {
	arrival, tick := s.nextArrival(), step
	for {
		next := min(arrival, tick, s.scenario.End)
		if len(s.working) > 0 {
			next = min(next, s.working[0].finished)
		}
		for _, change := range []time.Duration{s.scenario.Halved, s.scenario.Recovered} {
			if s.now < change {
				next = min(next, change)
			}
		}
		s.now = next
		s.clock.Set(int64(next))
		switch {
		case len(s.working) > 0 && s.working[0].finished == next:
			s.finish(s.working.Pop())
		case arrival == next && next < s.scenario.End:
			s.arrive()
			arrival = s.nextArrival()
		case tick == next:
			s.course.tick(s.limit())
			tick += step
		case next == s.scenario.End:
			return
		}
		s.employ()
	}
}

func (s *simulation) nextArrival() time.Duration {
	return s.now + time.Duration(s.random.ExpFloat64()/s.scenario.Arrivals*float64(time.Second))
}

func (s *simulation) limit() float64 {
	if s.guard.Limiter == nil {
		return math.NaN()
	}
	return float64(s.guard.Limiter.Peek(0).Limit)
}

// arrive asks the guard. All requests draw the same numbers whatever it answers, so that all guards see the same.
func (s *simulation) arrive() {
	spread := s.scenario.Spread
	r := &request{arrived: s.now, work: math.Exp(spread*s.random.NormFloat64() - spread*spread/2)}
	switch x := s.random.Float64(); {
	case x < s.scenario.Critical:
		r.priority = overload.PriorityCritical
	case x < s.scenario.Critical+s.scenario.Background:
		r.priority = overload.PriorityBackground
	}
	s.course.arrived(r)
	if s.guard.Shedder != nil && !s.guard.Shedder.Allow(r.priority) {
		return
	}
	if s.guard.Limiter != nil {
		if r.lease = s.guard.Limiter.TryAcquire(1); !r.lease.Allowed() {
			return
		}
	}
	s.waiting = append(s.waiting, r)
}

// degraded reports whether the service has only a part of its capacity.
func (s *simulation) degraded() bool {
	return s.scenario.Halved <= s.now && s.now < s.scenario.Recovered
}

// employ gives waiting requests to free workers. A worker that is taken away finishes its request.
func (s *simulation) employ() {
	count, slower := s.scenario.Workers, 1.0
	if s.degraded() {
		count, slower = s.scenario.Degraded, s.scenario.Slower
	}
	for len(s.working) < count && s.first < len(s.waiting) {
		r := s.waiting[s.first]
		s.waiting[s.first] = nil
		s.first++
		r.finished = s.now + max(time.Duration(r.work*slower*float64(s.scenario.Service)), 1)
		s.working.Push(r)
	}
	if s.first > 1<<16 {
		s.waiting = append([]*request(nil), s.waiting[s.first:]...)
		s.first = 0
	}
}

func (s *simulation) finish(r *request) {
	latency := s.now - r.arrived
	if latency > s.scenario.Deadline {
		r.lease.Drop()
	} else {
		r.lease.Release()
	}
	s.course.finished(r, latency)
}
