package adaptive

import (
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/overload"
)

// step is the time between two points of a Course.
const step = 500 * time.Millisecond

// Course is what happened, in steps of half a second.
type Course struct {
	Name     string
	Scenario Scenario
	Points   []Point
	// Answers are the requests that were answered, in order of time.
	Answers []Answer
	// arrivals counts the requests of each priority that arrived in each step.
	arrivals []map[overload.Priority]int

	answered int // how many Answers are in Points
}

// Point is a step of a Course.
type Point struct {
	End time.Duration
	// Goodput is how many requests were answered before their deadline, in a second.
	Goodput float64
	// P99 is that of the latencies of all that were answered, those answered too late included; NaN if none was.
	P99 time.Duration
	// Limit is that at the end of the step, NaN if there is none.
	Limit float64
}

// Answer is an answer of the service.
type Answer struct {
	Arrived, At, Latency time.Duration
	Priority             overload.Priority
	InTime               bool
}

func newCourse(s Scenario, name string) *Course {
	return &Course{Name: name, Scenario: s, arrivals: make([]map[overload.Priority]int, s.End/step+1)}
}

func (c *Course) arrived(r *request) {
	i := r.arrived / step
	if c.arrivals[i] == nil {
		c.arrivals[i] = map[overload.Priority]int{}
	}
	c.arrivals[i][r.priority]++
}

func (c *Course) finished(r *request, latency time.Duration) {
	c.Answers = append(c.Answers, Answer{r.arrived, r.finished, latency, r.priority, latency <= c.Scenario.Deadline})
}

func (c *Course) tick(limit float64) {
	p := Point{End: time.Duration(len(c.Points)+1) * step, Limit: limit}
	answers := c.Answers[c.answered:]
	c.answered = len(c.Answers)
	good := 0
	for _, a := range answers {
		if a.InTime {
			good++
		}
	}
	p.Goodput, p.P99 = float64(good)/step.Seconds(), percentile(answers, 0.99)
	c.Points = append(c.Points, p)
}

// percentile is 0 if there are no answers.
func percentile(answers []Answer, q float64) time.Duration {
	if len(answers) == 0 {
		return 0
	}
	all := make([]time.Duration, len(answers))
	for i, a := range answers {
		all[i] = a.Latency
	}
	slices.Sort(all)
	return all[int(math.Ceil(q*float64(len(all))))-1]
}

// Summary is what happened from From to To.
type Summary struct {
	From, To time.Duration
	// Offered is how many requests arrived in a second, and Goodput how many were answered in time.
	Offered, Goodput float64
	// P50 and P99 are of the latencies of all that were answered, those answered too late included.
	P50, P99 time.Duration
	// InTime is which share of the requests of each priority that arrived was answered in time.
	InTime map[overload.Priority]float64
}

// Summary sums up the time between from and to, which are multiples of half a second. Latency and goodput are those
// of the answers in this time, whenever their requests had arrived; InTime is of the requests that arrived in it.
func (c *Course) Summary(from, to time.Duration) Summary {
	s := Summary{From: from, To: to, InTime: map[overload.Priority]float64{}}
	offered := map[overload.Priority]int{}
	for _, step := range c.arrivals[from/step : to/step] {
		for p, n := range step {
			offered[p] += n
			s.Offered += float64(n)
		}
	}
	var answers []Answer
	good := 0
	for _, a := range c.Answers {
		if a.InTime && from <= a.Arrived && a.Arrived < to {
			s.InTime[a.Priority]++
		}
		if from <= a.At && a.At < to {
			answers = append(answers, a)
			if a.InTime {
				good++
			}
		}
	}
	for p, n := range offered {
		s.InTime[p] /= float64(n)
	}
	s.Offered /= (to - from).Seconds()
	s.Goodput = float64(good) / (to - from).Seconds()
	s.P50, s.P99 = percentile(answers, 0.5), percentile(answers, 0.99)
	return s
}

// Phase is a part of a scenario.
type Phase struct {
	Name     string
	From, To time.Duration
}

// Phases are the parts of a scenario: before the capacity is halved, while it is, and after it has come back.
func (s Scenario) Phases() []Phase {
	return []Phase{
		{"full capacity", 0, s.Halved},
		{"half capacity", s.Halved, s.Recovered},
		{"recovered", s.Recovered, s.End},
	}
}

// InTime is, for each step, which share of the requests of a priority that arrived in it was answered in time. It is NaN
// where the end of the simulation came before the deadline of some.
func (c *Course) InTime(p overload.Priority) []float64 {
	shares := make([]float64, len(c.Points))
	for _, a := range c.Answers {
		if i := int(a.Arrived / step); a.InTime && a.Priority == p && i < len(shares) {
			shares[i]++
		}
	}
	for i := range shares {
		shares[i] /= float64(max(c.arrivals[i][p], 1))
		if c.Points[i].End+c.Scenario.Deadline > c.Scenario.End {
			shares[i] = math.NaN()
		}
	}
	return shares
}
