package bench

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Report is all that was measured in one run.
type Report struct {
	Machine   Machine           `json:"machine"`
	Settings  Settings          `json:"-"`
	Time      string            `json:"time_per_measurement"`
	Count     int               `json:"rounds"`
	Rows      []RowResult       `json:"rows"`
	Admission []AdmissionResult `json:"admission"`
	Crowds    []CrowdResult     `json:"waiters"`
	Streams   []StreamTable     `json:"streams"`
	Keyed     KeyedReport       `json:"keyed"`
	Rules     RulesReport       `json:"rules"`
	Redis     RedisReport       `json:"redis"`
	Durable   DurableReport     `json:"durable"`
	Wire      WireReport        `json:"wire"`
	// Whole tells that nothing was left out.
	Whole bool `json:"whole"`
}

// CrowdResult is what was measured of a crowd of waiters.
type CrowdResult struct {
	Name  string          `json:"name"`
	Burst int64           `json:"burst"`
	All   []WaitersResult `json:"limiters"`
}

// StreamTable is what was measured of goroutines that wait again and again.
type StreamTable struct {
	Name string         `json:"name"`
	All  []StreamResult `json:"limiters"`
}

// section is a part of the report that can be chosen by its name.
type section struct {
	name    string
	measure func(ctx context.Context, set Settings, r *Report) error
}

func sections() []section {
	var all []section
	for _, row := range Rows() {
		all = append(all, section{row.ID(), func(ctx context.Context, set Settings, r *Report) error {
			result, err := row.Measure(ctx, set)
			if err == nil {
				r.Rows = append(r.Rows, result)
			}
			return err
		}})
	}
	for _, asked := range AskedLimiters() {
		name := fmt.Sprintf("64 goroutines: %s %s", asked.By, asked.Call)
		all = append(all, section{name, func(ctx context.Context, set Settings, r *Report) error {
			result, err := asked.MeasureAll(ctx, set)
			if err == nil {
				r.Admission = append(r.Admission, result)
			}
			return err
		}})
	}
	for _, c := range crowds {
		name := fmt.Sprintf("%d waiters: %d/s, burst %d, half cancel at %v",
			c.callers, int64(c.budget.perSecond()), c.budget.burst, c.patience)
		all = append(all, section{name, func(ctx context.Context, set Settings, r *Report) error {
			results, err := c.measure(ctx, cancelable(QueuedLimiters()), set.WallCount)
			if err == nil {
				r.Crowds = append(r.Crowds, CrowdResult{name, c.budget.burst, results})
			}
			return err
		}})
	}
	for _, b := range streams {
		name := fmt.Sprintf("%d waiters: %d/s, burst %d, again and again", streamCallers, int64(b.perSecond()), b.burst)
		all = append(all, section{name, func(ctx context.Context, set Settings, r *Report) error {
			results, err := measureStreams(ctx, streamsOf(b), set.Wall, set.WallCount)
			if err == nil {
				share(results, b, set.Wall)
				r.Streams = append(r.Streams, StreamTable{name, results})
			}
			return err
		}})
	}
	relay := fmt.Sprintf("%d waiters: one permit, taken and released", streamCallers)
	all = append(all, section{relay, func(ctx context.Context, set Settings, r *Report) error {
		results, err := measureStreams(ctx, streamsOfRelays(), set.Wall/relayPart, set.WallCount)
		if err == nil {
			r.Streams = append(r.Streams, StreamTable{relay, results})
		}
		return err
	}})
	return slices.Concat(all, keyedSections(), ruleSections(), redisSections(), durableSections(), wireSections())
}

// cancelable are those limiters that a caller can stop waiting for.
func cancelable(all []Queued) (some []Queued) {
	for _, q := range all {
		if !q.Deaf {
			some = append(some, q)
		}
	}
	return some
}

// Names are the names of all that Run can measure.
func Names() (names []string) {
	for _, s := range sections() {
		names = append(names, s.name)
	}
	return names
}

// Run measures everything whose name matches, and calls progress with the name before each. A section that fails costs itself
// only: the report has all others, and the error names it.
func Run(ctx context.Context, set Settings, match *regexp.Regexp, progress func(name string)) (Report, error) {
	return run(ctx, sections(), set, match, progress) //nolint:contextcheck // the limiters of the rows outlive a measurement
}

func run(ctx context.Context, all []section, set Settings, match *regexp.Regexp, progress func(name string)) (Report, error) {
	r := Report{
		Machine: ThisMachine(), Settings: set, Time: set.Time.Round(time.Microsecond).String(), Count: set.Count, Whole: true,
	}
	defer r.Redis.end()
	defer r.Wire.end()
	defer r.Durable.end() //nolint:contextcheck // what ends has contexts of its own
	var failed []error
	for _, s := range all {
		if !match.MatchString(s.name) {
			r.Whole = false
			continue
		}
		progress(s.name)
		err := s.measure(ctx, set, &r)
		switch {
		case ctx.Err() != nil:
			r.Whole = false
			return r, errors.Join(append(failed, ctx.Err())...)
		case err != nil:
			failed = append(failed, fmt.Errorf("bench: %s: %w", s.name, err))
			r.Whole = false
			// The servers may be in any state: what comes next has new ones.
			r.Redis.end()
			r.Wire.end()
			r.Durable.end() //nolint:contextcheck // as above
		}
	}
	return r, errors.Join(failed...)
}

// Goal is a number that weir is to hold.
type Goal struct {
	Name string
	Met  bool
	// Found is what was measured.
	Found string
}

// Goals are all numbers that weir is to hold, of what was measured.
func (r Report) Goals() (all []Goal) {
	all = append(all, rowGoals(r.Rows)...)
	for _, a := range r.Admission {
		if a.By != byWeir {
			continue
		}
		for _, m := range a.Rates {
			name := fmt.Sprintf("64 goroutines, %s at %d/s, granted within 1 %% of allowed", a.Call, m.PerSecond)
			all = append(all, Goal{name, m.Met, fmt.Sprintf("%.4f", m.Ratio)})
		}
	}
	for _, c := range r.Crowds {
		all = append(all, c.goals()...)
	}
	return slices.Concat(all, r.Keyed.goals(), r.Rules.goals(), r.Redis.goals(), r.Durable.goals(), r.Wire.goals())
}

func rowGoals(rows []RowResult) (all []Goal) {
	for _, row := range rows {
		if row.Most > 0 {
			name := fmt.Sprintf("%s, goroutines: %d, <= %g ns", row.Name, row.Goroutines, row.Most)
			all = append(all, Goal{name, row.Ours.Nanos <= row.Most, nanos(row.Ours.Nanos)})
		}
		for _, f := range row.Floors {
			if f.Target > 0 {
				name := fmt.Sprintf("%s, goroutines: %d, <= %.2f x %s", row.Name, row.Goroutines, f.Target, f.By)
				all = append(all, Goal{name, f.Met, fmt.Sprintf("%.3f", f.Ratio)})
			}
		}
	}
	return all
}

func (c CrowdResult) goals() (all []Goal) {
	var ours, theirs WaitersResult
	for _, w := range c.All {
		switch w.By {
		case byWeir:
			ours = w
		case byXTime:
			theirs = w
		}
	}
	if ours.CPU == 0 || theirs.CPU == 0 {
		return nil
	}
	ratio := ours.CPU / theirs.CPU
	return []Goal{
		{
			fmt.Sprintf("%s, last served <= %.2f s", c.Name, WaitersTarget), ours.Last <= WaitersTarget,
			fmt.Sprintf("%.3f s", ours.Last),
		},
		{
			fmt.Sprintf("%s, CPU a wait <= %.2f x %s", c.Name, WaitersCPUTarget, byXTime), ratio <= WaitersCPUTarget,
			fmt.Sprintf("%.2f", ratio),
		},
	}
}
