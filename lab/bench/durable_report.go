package bench

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// DurableTarget is how many times as many grants per second one caller is to get with an adaptive K as with a K of 1, which
// writes for each.
const DurableTarget = 100

// DurableFigure is what was measured of a durable limit with one K: medians of the rounds.
type DurableFigure struct {
	By        string  `json:"by"`
	PerSecond float64 `json:"grants_per_second"`
	// Spread is half of the distance between the quartiles relative to PerSecond.
	Spread float64 `json:"spread"`
	P50    float64 `json:"p50_ns"`
	P99    float64 `json:"p99_ns"`
	// Granted and Writes are the grants of all rounds and the transactions that were written for them.
	Granted int64 `json:"granted"`
	Writes  int64 `json:"writes"`
	// CPU is the CPU time of this process for a grant.
	CPU float64 `json:"cpu_us"`
	// Admitted is what was granted over what may have been, in the round in which it was most: see durableSample.admitted.
	Admitted float64 `json:"granted_of_allowed"`
	// Ratio is how many times as many grants per second as with a K of 1 in the same round: the median of the rounds.
	Ratio float64 `json:"times_k_1"`
}

// DurableResult is what was measured of one load.
type DurableResult struct {
	Name    string `json:"name"`
	Kind    string `json:"cluster"`
	Callers int    `json:"callers"`
	// Far tells that another process owned the limit, Binds that the limit held the callers up.
	Far     bool            `json:"far"`
	Binds   bool            `json:"limit_binds"`
	How     string          `json:"how"`
	Figures []DurableFigure `json:"figures"`
}

// DurableFloor is what one durable write costs.
type DurableFloor struct {
	By        string  `json:"by"`
	Kind      string  `json:"cluster"`
	Writers   int     `json:"writers"`
	PerSecond float64 `json:"writes_per_second"`
	Spread    float64 `json:"spread"`
	P50       float64 `json:"p50_ns"`
	P99       float64 `json:"p99_ns"`
}

// DurableIdle is what was written for a limit while it was busy, and while it was idle afterwards: in all rounds.
type DurableIdle struct {
	Kind    string  `json:"cluster"`
	Callers int     `json:"callers"`
	Granted int64   `json:"granted"`
	Writes  int64   `json:"writes_while_busy"`
	Quiet   float64 `json:"idle_s"`
	Idle    int64   `json:"writes_while_idle"`
}

// DurableReport is what was measured of durable limits.
type DurableReport struct {
	// Filesystem is where the data was kept.
	Filesystem string          `json:"filesystem,omitempty"`
	Versions   []ModuleVersion `json:"versions,omitempty"`
	Floors     []DurableFloor  `json:"floors,omitempty"`
	Rows       []DurableResult `json:"rows,omitempty"`
	Idle       []DurableIdle   `json:"idle,omitempty"`

	cluster *durableCluster
}

// start starts a cluster, if it is not the one that runs.
func (r *DurableReport) start(ctx context.Context, kind string) (err error) {
	if r.cluster != nil && r.cluster.kind == kind {
		return nil
	}
	r.end() //nolint:contextcheck // what ends has contexts of its own
	place, err := onDisk()
	if err != nil {
		return err
	}
	r.Filesystem = filesystem(place)
	if info, ok := debug.ReadBuildInfo(); ok && r.Versions == nil {
		r.Versions = versions(info, []Peer{{Name: "etcd", Module: "go.etcd.io/etcd/server/v3"}})
	}
	r.cluster, err = startCluster(ctx, kind)
	return err
}

// end stops the cluster.
func (r *DurableReport) end() {
	r.cluster.close()
	r.cluster = nil
}

// durablePrefix begins the names of all sections and targets of durable limits.
const durablePrefix = "durable, "

// The names of the floors.
const (
	byPut  = "etcd put"
	bySync = "write, fdatasync"
)

// idleCallers are the callers before the limit is left alone.
const idleCallers = 32

// durableSections are grouped by cluster, so that each is started once.
func durableSections() (all []section) {
	loads := durableLoads()
	for _, kind := range []string{oneNode, threeNodes} {
		all = append(all, section{durablePrefix + "floor, " + kind, func(ctx context.Context, set Settings, r *Report) error {
			return r.Durable.measureFloors(ctx, kind, set)
		}})
		for _, l := range loads {
			if l.kind != kind {
				continue
			}
			all = append(all, section{durablePrefix + l.id(), func(ctx context.Context, set Settings, r *Report) error {
				return r.Durable.measure(ctx, l, set)
			}})
		}
		all = append(all, section{durablePrefix + "idle, " + kind, func(ctx context.Context, set Settings, r *Report) error {
			return r.Durable.measureIdle(ctx, kind, set)
		}})
	}
	return all
}

func (r *DurableReport) measureFloors(ctx context.Context, kind string, set Settings) error {
	if err := r.start(ctx, kind); err != nil {
		return err
	}
	l, h := durableLoad{time: set.Durable}, newHistogram()
	measure := func(by, kind string, writers int, write func() (durableSample, error)) error {
		var rates, p50, p99 []float64
		for range set.DurableCount {
			m, err := write()
			if err != nil {
				return err
			}
			rates, p50, p99 = append(rates, m.perSecond()), append(p50, m.latency.Median), append(p99, m.latency.P99)
		}
		r.Floors = append(r.Floors, DurableFloor{by, kind, writers, median(rates), spread(rates), median(p50), median(p99)})
		return nil
	}
	if kind == oneNode {
		if err := measure(bySync, "the disk", 1, func() (durableSample, error) { return l.diskFloor(ctx, h) }); err != nil {
			return err
		}
	}
	for _, writers := range floorWriters() {
		err := measure(byPut, kind, writers, func() (durableSample, error) { return l.etcdPut(ctx, r.cluster, writers, h) })
		if err != nil {
			return err
		}
	}
	return nil
}

// measure measures a load with each K in rounds, each of which begins with another one.
func (r *DurableReport) measure(ctx context.Context, l durableLoad, set Settings) error {
	if err := r.start(ctx, l.kind); err != nil {
		return err
	}
	l.time, l.callers = set.Durable, min(l.callers, set.DurableCallers)
	subjects, h := durableSubjects(), newHistogram()
	all := make([][]durableSample, len(subjects))
	for round := range set.DurableCount {
		for turn := range subjects {
			i := (round + turn) % len(subjects)
			m, err := l.sample(ctx, r.cluster, subjects[i], h)
			if err != nil {
				return err
			}
			all[i] = append(all[i], m)
		}
	}
	r.Rows = append(r.Rows, l.result(subjects, all))
	return nil
}

func (l durableLoad) result(subjects []durableSubject, all [][]durableSample) DurableResult {
	res := DurableResult{Name: l.name, Kind: l.kind, Callers: l.callers, Far: l.far, Binds: l.binds, How: l.how}
	for i, s := range subjects {
		of := func(value func(m durableSample) float64) (values []float64) {
			for _, m := range all[i] {
				values = append(values, value(m))
			}
			return values
		}
		rates := of(durableSample.perSecond)
		f := DurableFigure{
			By: s.by, PerSecond: median(rates), Spread: spread(rates),
			P50: median(of(func(m durableSample) float64 { return m.latency.Median })),
			P99: median(of(func(m durableSample) float64 { return m.latency.P99 })),
			CPU: median(of(func(m durableSample) float64 { return m.cpu.Seconds() * 1e6 / float64(m.granted) })),
		}
		ratios := make([]float64, len(rates))
		for round, m := range all[i] {
			f.Granted, f.Writes = f.Granted+m.granted, f.Writes+m.writes
			f.Admitted = max(f.Admitted, m.admitted(l))
			ratios[round] = rates[round] / all[0][round].perSecond()
		}
		f.Ratio = median(ratios)
		res.Figures = append(res.Figures, f)
	}
	return res
}

func (r *DurableReport) measureIdle(ctx context.Context, kind string, set Settings) error {
	if err := r.start(ctx, kind); err != nil {
		return err
	}
	l := durableLoad{name: "idle", kind: kind, budget: busyBudget, callers: idleCallers, time: set.Durable}
	h, d := newHistogram(), DurableIdle{Kind: kind, Callers: idleCallers}
	quiet := quietTime
	if set.Durable < time.Second/10 { //nolint:mnd // a trial
		quiet = set.Durable
	}
	for range set.DurableCount {
		h.reset()
		i, err := l.rest(ctx, r.cluster, quiet, h)
		if err != nil {
			return err
		}
		d.Granted, d.Writes, d.Quiet, d.Idle = d.Granted+i.granted, d.Writes+i.writes, d.Quiet+i.quiet.Seconds(), d.Idle+i.idle
	}
	r.Idle = append(r.Idle, d)
	return nil
}

// goals are all numbers that durable limits are to hold.
func (r DurableReport) goals() (all []Goal) {
	for _, row := range r.Rows {
		name := func(what string) string {
			return fmt.Sprintf("%s%s, %s, callers: %d, %s", durablePrefix, row.Name, row.Kind, row.Callers, what)
		}
		for _, f := range row.Figures {
			if row.Callers == 1 && !row.Far && f.By == byAdaptive {
				all = append(all, Goal{
					name(fmt.Sprintf("%s >= %d x %s", f.By, DurableTarget, byOne)),
					f.Ratio >= DurableTarget, fmt.Sprintf("%.0f", f.Ratio),
				})
			}
			all = append(all, Goal{name(f.By + ", granted <= allowed"), f.Admitted <= 1, ofAllowed(f.Admitted)})
		}
	}
	for _, i := range r.Idle {
		all = append(all, Goal{
			fmt.Sprintf("%sidle, %s, no writes in %.0f s", durablePrefix, i.Kind, i.Quiet), i.Idle == 0, fmt.Sprint(i.Idle),
		})
	}
	return all
}
