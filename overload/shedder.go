package overload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/nils"
	"github.com/weirhq/weir/internal/tally"
)

// Priority is how long requests are still served while pressure grows. The zero value is that of normal requests.
type Priority int8

const (
	// PriorityBackground is for work whose result no client waits for, and that can be done later. It is shed first.
	PriorityBackground Priority = iota - 2
	// PrioritySheddable is for what is missed, but not much: suggestions, previews, what is retried anyway.
	PrioritySheddable
	// PriorityNormal is for requests whose client waits.
	PriorityNormal
	// PriorityCritical is for what must still work when nothing else does: sign-in, payment, health checks. It is shed
	// last.
	PriorityCritical

	priorities = int(PriorityCritical-PriorityBackground) + 1
)

var priorityNames = [priorities]string{"background", "sheddable", "normal", "critical"}

// String is the name of the priority in lower case, such as "critical".
func (p Priority) String() string {
	if i := int(p - PriorityBackground); i >= 0 && i < priorities {
		return priorityNames[i]
	}
	return fmt.Sprintf("Priority(%d)", int8(p))
}

// MarshalText is String.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (p *Priority) UnmarshalText(text []byte) error {
	for i, name := range priorityNames {
		if name == string(text) {
			*p = PriorityBackground + Priority(i)
			return nil
		}
	}
	return fmt.Errorf("weir: unknown priority %.40q: must be background, sheddable, normal or critical", text)
}

// index is the place of p in an array; priorities beyond the ends count as those at the ends.
func (p Priority) index() int {
	return int(min(max(p, PriorityBackground), PriorityCritical) - PriorityBackground)
}

// ShedBand is between which pressures the share of requests that is shed grows, linearly, from none to all.
type ShedBand struct {
	From, To float64
}

// ShedderOptions configure a [Shedder].
type ShedderOptions struct {
	// Name is the Policy of the decisions. Default: "".
	Name string
	// Sources are what the pressure is read from; the highest counts. Default: SystemPressure().
	Sources []Pressure
	// Interval is how old a reading may be before the next call takes a new one: from 1 ms to 1 min. Default: 250 ms.
	Interval time.Duration
	// Rise and Fall are how slowly the pressure follows the readings, up and down: the time in which it makes 63 % of the way,
	// from 0 to 10 min. Negative: at once. Shedding changes what is read, so with a short Rise the pressure swings. As a rule,
	// let Rise be at least Interval times the load, in multiples of what the server can do, by the width of the narrowest band.
	// Defaults: 1 s and 5 s.
	Rise, Fall time.Duration
	// Hysteresis is by how much the pressure must fall below its last peak before less is shed: from 0 to 0.5. Negative:
	// none. Default: 0.03.
	Hysteresis float64
	// Bands are those of the priorities, from 0 to 10: From is below To, and no band is below that of a lower priority. The
	// defaults are 0.70 to 0.85 for background, 0.80 to 0.95 for sheddable, 0.90 to 1.00 for normal, and 0.97 to 1.10 for
	// critical requests. Where pressure cannot exceed 1, the last keeps up to 77 % of the critical requests.
	Bands map[Priority]ShedBand
	// RetryAfter is the RetryAfter of a refusal when few are shed, MaxRetryAfter when all are, and in between in proportion: from
	// 1 ms to 1 h, MaxRetryAfter not below RetryAfter. Defaults: 1 s and 10 s, or RetryAfter if it is more.
	RetryAfter, MaxRetryAfter time.Duration
	// Random returns a number from 0 to less than 1 for each request that may be shed. It is called by several goroutines at
	// once. Default: rand.Float64 of math/rand/v2.
	Random func() float64
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock weir.Clock
}

func (o *ShedderOptions) defaults() {
	duration := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	duration(&o.Interval, 250*time.Millisecond)
	duration(&o.Rise, time.Second)
	duration(&o.Fall, 5*time.Second)
	duration(&o.RetryAfter, time.Second)
	duration(&o.MaxRetryAfter, max(10*time.Second, o.RetryAfter))
	o.Rise, o.Fall = max(o.Rise, 0), max(o.Fall, 0)
	switch {
	case o.Hysteresis == 0:
		o.Hysteresis = 0.03
	case o.Hysteresis < 0:
		o.Hysteresis = 0
	}
	if o.Sources == nil {
		o.Sources = SystemPressure()
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
}

func (o *ShedderOptions) check() error {
	switch {
	case len(o.Sources) == 0:
		return optionError("Sources", "empty", "one or more")
	case o.Interval < time.Millisecond || o.Interval > time.Minute:
		return optionError("Interval", o.Interval.String(), "from 1ms to 1m")
	case o.Rise > 10*time.Minute:
		return optionError("Rise", o.Rise.String(), "from 0 to 10m")
	case o.Fall > 10*time.Minute:
		return optionError("Fall", o.Fall.String(), "from 0 to 10m")
	case !(o.Hysteresis <= 0.5): // nor NaN
		return optionError("Hysteresis", fmt.Sprint(o.Hysteresis), "from 0 to 0.5")
	case o.RetryAfter < time.Millisecond || o.RetryAfter > time.Hour:
		return optionError("RetryAfter", o.RetryAfter.String(), "from 1ms to 1h")
	case o.MaxRetryAfter < o.RetryAfter || o.MaxRetryAfter > time.Hour:
		return optionError(
			"MaxRetryAfter", o.MaxRetryAfter.String(), "from RetryAfter, "+o.RetryAfter.String()+", to 1h",
		)
	}
	for i, s := range o.Sources {
		if nils.Is(s) {
			return optionError(fmt.Sprintf("Sources[%d]", i), "nil", "a source of pressure")
		}
	}
	return nil
}

// bands returns the bands of all priorities, from background to critical.
func (o *ShedderOptions) bands() (bands [priorities]ShedBand, err error) {
	bands = [priorities]ShedBand{{0.70, 0.85}, {0.80, 0.95}, {0.90, 1.00}, {0.97, 1.10}}
	for p, b := range o.Bands {
		if p != PriorityBackground+Priority(p.index()) {
			return bands, optionError("Bands", p.String(), "of a priority from background to critical")
		}
		if !(b.From >= 0 && b.From < b.To && b.To <= 10) {
			return bands, optionError(
				fmt.Sprintf("Bands[%v]", p), fmt.Sprintf("%v to %v", b.From, b.To), "from 0 to 10, From below To",
			)
		}
		bands[p.index()] = b
	}
	for i := 1; i < priorities; i++ {
		low, high := bands[i-1], bands[i]
		if high.From < low.From || high.To < low.To {
			p := PriorityBackground + Priority(i)
			return bands, optionError(
				fmt.Sprintf("Bands[%v]", p), fmt.Sprintf("%v to %v", high.From, high.To),
				fmt.Sprintf("not below that of %v, %v to %v", p-1, low.From, low.To),
			)
		}
	}
	return bands, nil
}

// Shedder refuses requests under pressure: the least important first, and of each priority only as many as it takes. Put it in
// front of other limiters; it counts nothing that must be given back. All methods are safe for concurrent use; Allow and Decide
// allocate nothing unless they read. It has no goroutine, and nothing to close.
//
// The pressure is 0 at rest, or up to Hysteresis after a peak, and 1 where nothing more can be done. It is the highest of all
// sources. At most every Interval one call reads them, while others go on with the last pressure.
//
// Each priority has a band of pressure. Below it none of its requests are shed, above it all of them, and within it a share that
// grows linearly, at random. So the pressure settles where the server can serve what is allowed (TestShedderSettles).
//
// Two filters steady the pressure. An exponential average, with one time constant for up and another for down, keeps the loop
// from swinging. After that, rising pressure counts at once, but falling pressure only as far as it is more than Hysteresis below
// the last peak: small changes have no effect (TestHysteresisIgnoresWhatTrembles).
//
// A source that fails, or returns something other than a pressure, is counted and left out until it recovers. Stats has its last
// error. If all sources fail, the pressure falls as if they were at rest. The zero Shedder is not usable: call [NewShedder].
type Shedder struct {
	policy  string
	clock   *clock.Steady
	random  func() float64
	sources []Pressure
	bands   [priorities]ShedBand

	interval     int64
	rise, fall   float64 // nanoseconds
	hysteresis   float64
	retry, spare time.Duration // spare: by how much it may grow

	next     atomic.Int64  // when to read again
	pressure atomic.Uint64 // the bits of the float

	allowed, shed [priorities]tally.Tally

	mu       sync.Mutex // of a reading; calls that find it locked go on
	last     int64
	average  float64
	readings []PressureReading
	failed   bool // all sources
}

// NewShedder returns a shedder that has read its sources once, and whose pressure rises from 0 at the pace of Rise. The error
// names the option that cannot be used.
func NewShedder(o ShedderOptions) (*Shedder, error) {
	o.defaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	bands, err := o.bands()
	if err != nil {
		return nil, err
	}
	s := &Shedder{
		policy: o.Name, clock: clock.New(o.Clock), random: o.Random, sources: append([]Pressure(nil), o.Sources...), bands: bands,
		interval: int64(o.Interval), rise: float64(o.Rise), fall: float64(o.Fall), hysteresis: o.Hysteresis,
		retry: o.RetryAfter, spare: o.MaxRetryAfter - o.RetryAfter,
		readings: make([]PressureReading, len(o.Sources)),
	}
	for i, source := range s.sources {
		s.readings[i].Source = source.String()
	}
	s.last = s.now()
	s.next.Store(s.last)
	s.refresh(s.last)
	return s, nil
}

func (s *Shedder) now() int64 { return s.clock.Now() }

// Allow reports whether a request of priority p may go on. It is Decide where the decision does not matter.
func (s *Shedder) Allow(p Priority) bool {
	_, shed := s.decide(p)
	return !shed
}

// Decide decides on a request of priority p. A refusal has ReasonOverloaded and a RetryAfter from RetryAfter to MaxRetryAfter of
// the options, longer the more is shed. Limit and Remaining are 0, as there are no permits. Priorities beyond the known ones
// count as the nearest.
func (s *Shedder) Decide(p Priority) weir.Decision {
	share, shed := s.decide(p)
	if !shed {
		return weir.Decision{Allowed: true, Policy: s.policy}
	}
	return weir.Decision{
		Reason: weir.ReasonOverloaded, Policy: s.policy,
		RetryAfter: s.retry + time.Duration(math.Ceil(share*float64(s.spare))),
	}
}

func (s *Shedder) decide(p Priority) (share float64, shed bool) {
	if now := s.now(); now >= s.next.Load() {
		s.refresh(now)
	}
	i := p.index()
	share = s.share(i, math.Float64frombits(s.pressure.Load()))
	if shed = share > 0 && s.random() < share; shed {
		s.shed[i].Add()
	} else {
		s.allowed[i].Add()
	}
	return share, shed
}

// share is how many of the requests of a priority are shed under this pressure.
func (s *Shedder) share(priority int, pressure float64) float64 {
	b := s.bands[priority]
	return min(max((pressure-b.From)/(b.To-b.From), 0), 1)
}

// refresh reads all sources, unless another caller is just doing it.
func (s *Shedder) refresh(now int64) {
	if s.sources == nil { // it would allow everything
		panic("weir: zero Shedder: make it by NewShedder")
	}
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if now < s.next.Load() {
		return
	}
	s.next.Store(clock.After(now, time.Duration(s.interval)))
	read := 0.0
	s.failed = true
	for i, source := range s.sources {
		p, err := source.Pressure(now)
		if r := &s.readings[i]; r.note(p, err) {
			read = max(read, r.Pressure)
			s.failed = false
		}
	}
	slow := s.rise
	if read < s.average {
		slow = s.fall
	}
	if slow > 0 {
		read = s.average + (read-s.average)*-math.Expm1(-float64(now-s.last)/slow)
	}
	s.average, s.last = read, now
	old := math.Float64frombits(s.pressure.Load())
	s.pressure.Store(math.Float64bits(min(max(old, read), read+s.hysteresis)))
}

// PressureReading is what a source returned last.
type PressureReading struct {
	// Source is the name of the source.
	Source string
	// Pressure is what it read, 0 if it could not.
	Pressure float64
	// Absent is true if there is nothing to read here: see ErrNoPressure. That is no failure.
	Absent bool
	// Failures counts the times that it could not be read, or not be right, and Err is the reason of the last one. It
	// is nil while reading succeeds.
	Failures int64
	Err      error
}

// note takes down what a source returned, and reports whether it counts.
func (r *PressureReading) note(p float64, err error) bool {
	r.Pressure, r.Err = 0, nil
	r.Absent = errors.Is(err, ErrNoPressure)
	switch {
	case r.Absent:
		return false
	case err == nil && !(p >= 0 && p <= maxPressure):
		err = fmt.Errorf("weir: pressure of %s is %v: must be from 0 to %d", r.Source, p, maxPressure)
	}
	if err != nil {
		r.Failures++
		r.Err = err
		return false
	}
	r.Pressure = p
	return true
}

// ShedderStats are the counts of a [Shedder].
type ShedderStats struct {
	// Pressure is what decisions rest on: the readings after both filters.
	Pressure float64
	// Blind is true if no source could be read last time. The pressure then falls, as at rest.
	Blind bool
	// Readings are those of the sources, in order.
	Readings []PressureReading
	// Priorities are the counts of each priority, from background to critical.
	Priorities []PriorityStats
}

// PriorityStats are the counts of a priority.
type PriorityStats struct {
	Priority Priority
	// Allowed and Shed count the requests that were allowed and refused so far.
	Allowed, Shed int64
	// Share is how many are shed now, from 0 to 1.
	Share float64
}

// Stats returns counts, and what was read last. It reads nothing.
func (s *Shedder) Stats() ShedderStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := ShedderStats{
		Pressure: math.Float64frombits(s.pressure.Load()), Blind: s.failed,
		Readings: append([]PressureReading(nil), s.readings...), Priorities: make([]PriorityStats, priorities),
	}
	for i := range st.Priorities {
		st.Priorities[i] = PriorityStats{
			Priority: PriorityBackground + Priority(i), Allowed: s.allowed[i].Sum(), Shed: s.shed[i].Sum(),
			Share: s.share(i, st.Pressure),
		}
	}
	return st
}

func optionError(option, value, accepted string) error {
	return &weir.OptionError{Option: "overload.ShedderOptions." + option, Value: value, Accepted: accepted}
}
