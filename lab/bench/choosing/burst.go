package choosing

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

// window is the time that all limits speak of, and permits is how many each has for it.
const (
	window  = time.Second
	permits = 10
)

// lasts is how long the simulation of bursts is.
const lasts = 6 * time.Second

// arrivals are the times at which requests come: a few, two bursts around the end of the first second, more than is allowed
// for a while, and a burst after a pause.
func arrivals() []time.Duration {
	var times []time.Duration
	several := func(begin, every time.Duration, n int) {
		for i := range n {
			times = append(times, begin+time.Duration(i)*every)
		}
	}
	several(150*time.Millisecond, 350*time.Millisecond, 2)
	several(820*time.Millisecond, 12*time.Millisecond, 14)
	several(1030*time.Millisecond, 12*time.Millisecond, 14)
	several(2300*time.Millisecond, 50*time.Millisecond, 30)
	several(5320*time.Millisecond, 12*time.Millisecond, 14)
	return times
}

// subject is an algorithm with its parameters.
type subject struct {
	name, note string
	limiter    func(weir.Clock) (weir.Acquirer, error)
}

// made turns the constructor of a kind of limiter into that of any.
func made[L weir.Acquirer](l L, err error) (weir.Acquirer, error) { return l, err } //nolint:ireturn // that is what it is for

func subjects() []subject {
	return []subject{
		{"token bucket, 10/s, burst 10", "a burst after a pause, then evenly", func(c weir.Clock) (weir.Acquirer, error) {
			return made(weir.New(weir.TokenBucket(weir.PerSecond(permits), permits), weir.Options{Clock: c}))
		}},
		{"token bucket, 10/s, burst 3", "evenly, always", func(c weir.Clock) (weir.Acquirer, error) {
			return made(weir.New(weir.TokenBucket(weir.PerSecond(permits), 3), weir.Options{Clock: c}))
		}},
		{"sliding window, 10 in 1 s", "10 in nearly any second, then a pause", func(c weir.Clock) (weir.Acquirer, error) {
			return made(weir.New(weir.SlidingWindow(weir.Per(permits, window), 0), weir.Options{Clock: c}))
		}},
		{"sliding counter, 10 in 1 s", "nearly that, from two numbers", func(c weir.Clock) (weir.Acquirer, error) {
			return made(weir.New(weir.SlidingCounter(weir.Per(permits, window)), weir.Options{
				Clock: c,
			}))
		}},
		{"fixed window, 10 in 1 s", "10 between two full seconds, 20 around one", func(c weir.Clock) (weir.Acquirer, error) {
			return made(weir.New(weir.FixedWindow(weir.Per(permits, window)), weir.Options{Clock: c}))
		}},
	}
}

// Request is one that has come, and what became of it.
type Request struct {
	At      time.Duration
	Allowed bool
}

// Course is what an algorithm has done with all requests.
type Course struct {
	Name, Note string
	Requests   []Request
}

// Bursts lets every algorithm decide on the same requests.
func Bursts() ([]Course, error) {
	all := subjects()
	courses := make([]Course, 0, len(all))
	for _, s := range all {
		clock := manualclock.New(0)
		limiter, err := s.limiter(clock)
		if err != nil {
			return nil, err
		}
		c := Course{Name: s.name, Note: s.note}
		for _, at := range arrivals() {
			clock.Set(int64(at))
			c.Requests = append(c.Requests, Request{at, limiter.TryAcquire(1).Allowed()})
		}
		courses = append(courses, c)
	}
	return courses, nil
}

// Admitted is how many requests were allowed between two times, the second one not included.
func (c *Course) Admitted(from, to time.Duration) (n int) {
	for _, r := range c.Requests {
		if r.Allowed && r.At >= from && r.At < to {
			n++
		}
	}
	return n
}

// Most is the largest number of requests that were allowed within any window of that length.
func (c *Course) Most(length time.Duration) (most int) {
	for _, r := range c.Requests {
		most = max(most, c.Admitted(r.At, r.At+length))
	}
	return most
}

// WriteTable writes what became of the requests as a table of Markdown.
func WriteTable(w io.Writer, courses []Course) error {
	var b strings.Builder
	b.WriteString("| algorithm | allowed | most in any second | most in any 300 ms | of the burst after a pause |\n" +
		"|---|---|---|---|---|\n")
	for i := range courses {
		c := &courses[i]
		fmt.Fprintf(&b, "| %s | %d of %d | %d | %d | %d of 14 |\n", c.Name, c.Admitted(0, lasts), len(c.Requests), c.Most(window),
			c.Most(300*time.Millisecond), c.Admitted(5*time.Second, lasts))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// DrawBursts draws each request, and how many were allowed in the second before each moment.
func DrawBursts(w io.Writer, courses []Course) error {
	const (
		left, top, right = 64.0, 96.0, 880.0
		rowHeight        = 124.0
		high             = 62.0 // of the diagram of a row
		most             = 24.0 // at its upper edge
	)
	p := newPicture(900, top+rowHeight*float64(len(courses))+26,
		"Five algorithms under the same requests, all with a limit of 10 a second. A fixed window allows 20 within a second, a "+
			"token bucket up to burst and rate together, a sliding window hardly more than 10.")
	p.text(20, 34, "title", "start", "The same requests, five algorithms, each with a limit of 10 a second")
	p.text(20, 57, "dim", "start",
		"The line is how many were allowed in the second before, dashed is the limit. Each stroke is a request:")
	p.stroke("ok", 706, 46, 706, 54)
	p.text(714, 57, "dim", "start", "allowed")
	p.stroke("no", 790, 52, 790, 60)
	p.text(798, 57, "dim", "start", "refused")
	x := func(at time.Duration) float64 { return left + (right-left)*at.Seconds()/lasts.Seconds() }
	for i := range courses {
		c := &courses[i]
		y := top + rowHeight*float64(i)
		p.text(left, y+2, "name", "start", c.Name)
		p.text(right, y+2, "dim", "end", c.Note)
		floor := y + 12 + high
		scale := func(n float64) float64 { return floor - high*n/most }
		p.rect("plot", left, y+12, right-left, high)
		for second := range 7 {
			p.stroke("grid", x(time.Duration(second)*time.Second), y+12, x(time.Duration(second)*time.Second), floor)
		}
		for _, n := range []float64{0, permits, 2 * permits} {
			p.text(left-8, scale(n)+4, "tick", "end", fmt.Sprint(n))
		}
		p.dashed("limit", left, scale(permits), right, scale(permits))
		p.area(steps(c, x, scale), left, right, floor)
		for _, r := range c.Requests {
			if r.Allowed {
				p.stroke("ok thin", x(r.At), floor+3, x(r.At), floor+11)
			} else {
				p.stroke("no thin", x(r.At), floor+12, x(r.At), floor+20)
			}
		}
	}
	below := top + rowHeight*float64(len(courses)) - 8
	for second := range 7 {
		p.text(x(time.Duration(second)*time.Second), below, "tick", "middle", fmt.Sprintf("%d s", second))
	}
	return p.write(w)
}

// steps are the corners of the line of what was allowed in the second before each moment.
func steps(c *Course, x func(time.Duration) float64, y func(float64) float64) []point {
	type change struct {
		at time.Duration
		by float64
	}
	var changes []change
	for _, r := range c.Requests {
		if r.Allowed {
			changes = append(changes, change{r.At, 1}, change{r.At + window, -1})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return int(a.at - b.at) })
	line, n := []point{{x(0), y(0)}}, 0.0
	for i := 0; i < len(changes) && changes[i].at <= lasts; {
		at, before := changes[i].at, n
		for ; i < len(changes) && changes[i].at == at; i++ { // what leaves and comes at one moment is no change
			n += changes[i].by
		}
		if n != before {
			line = append(line, point{x(at), y(before)}, point{x(at), y(n)})
		}
	}
	return append(line, point{x(lasts), y(n)})
}
