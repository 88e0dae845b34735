package bench

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// The targets of servers that are not those of one load.
const (
	// WireBytesTarget is how many bytes of memory a key may cost weir, and WireIdleTarget a connection that is not used.
	WireBytesTarget = 64
	WireIdleTarget  = 4200
	// WireManyTarget is how much of its rate weir is to keep with very many keys, from a pipeline of wireDeep.
	WireManyTarget = 0.85
)

// wireTargets is what weir is to hold under one load.
type wireTargets struct {
	// least is how many times as many requests per second as other servers it is to answer.
	least map[string]float64
	// p99 and p999 are what a request may take, 0 if that is not promised.
	p99, p999 time.Duration
}

// WireFigure is what was measured of one server: medians of the rounds.
type WireFigure struct {
	By   string `json:"by"`
	Call string `json:"call"`
	// Kind is weir, peer or floor.
	Kind      string  `json:"kind"`
	PerSecond float64 `json:"requests_per_second"`
	// Spread is half of the distance between the quartiles relative to PerSecond.
	Spread float64 `json:"spread"`
	P50    float64 `json:"p50_ns"`
	P99    float64 `json:"p99_ns"`
	P999   float64 `json:"p999_ns"`
	// Server is the CPU time of the server for a request, and ServerBusy and ClientBusy that of the server and of the load
	// generator over the wall time.
	Server     float64 `json:"server_cpu_us"`
	ServerBusy float64 `json:"server_cpu_per_wall"`
	ClientBusy float64 `json:"client_cpu_per_wall"`
	// Ratio is how many times as many requests weir answered in the same round: the median of the rounds. It is 1 for weir.
	// Where the load generator was the limit of the server, and not the server itself, it is not more than the ratio of their CPU
	// times.
	Ratio float64 `json:"weir_ratio"`
}

// WireResult is what was measured of all servers under one load.
type WireResult struct {
	Name  string `json:"name"`
	Front string `json:"front"`
	Keys  int    `json:"keys"`
	// AtOnce is how many commands a pipeline of RESP has, or how many requests are in flight.
	AtOnce      int          `json:"at_once"`
	Connections int          `json:"connections"`
	How         string       `json:"how"`
	Servers     []WireFigure `json:"servers"`

	targets wireTargets
}

// WireMemory is what keys cost a server that holds them.
type WireMemory struct {
	By   string `json:"by"`
	Keys int    `json:"keys"`
	// Filled is how many bytes of memory the server had more for each key when it held all of them, Used how many more it said
	// that it used, and After the same as Filled at the end of the measurements.
	Filled float64 `json:"bytes_filled"`
	Used   float64 `json:"bytes_used"`
	After  float64 `json:"bytes_after"`
}

// WireReport is what was measured of servers.
type WireReport struct {
	// Why tells why nothing was measured, if that cannot be here.
	Why string `json:"not_measured,omitempty"`
	// Server and Client are the processors of the servers and of the load generator, Siblings whether they are of one core.
	Server   int             `json:"server_processor"`
	Client   int             `json:"client_processor"`
	Siblings bool            `json:"processors_of_one_core,omitempty"`
	Redis    string          `json:"redis,omitempty"`
	Versions []ModuleVersion `json:"versions,omitempty"`
	Rows     []WireResult    `json:"rows,omitempty"`
	Memory   []WireMemory    `json:"memory,omitempty"`
	Idle     []WireIdle      `json:"idle,omitempty"`

	fleet *wireFleet
}

// wirePrefix begins the names of all sections and targets of servers.
const wirePrefix = "wire, "

func wireSections() (all []section) {
	for _, l := range wireLoads() {
		all = append(all, section{wirePrefix + l.id(), func(ctx context.Context, set Settings, r *Report) error {
			if ok, err := r.Wire.start(ctx, l.group()); !ok {
				return err
			}
			return r.Wire.measure(ctx, l, set)
		}})
	}
	return append(all, section{wirePrefix + "idle connections", func(ctx context.Context, set Settings, r *Report) error {
		if ok, err := r.Wire.start(ctx, "idle"); !ok {
			return err
		}
		for _, s := range idleSubjects() {
			idle, err := r.Wire.fleet.idle(ctx, s, set.WireIdle)
			if err != nil {
				return err
			}
			r.Wire.Idle = append(r.Wire.Idle, idle)
		}
		return nil
	}})
}

// start gets the fleet ready for a group of loads. It is not ok if servers cannot be measured here, which is no error.
func (r *WireReport) start(ctx context.Context, group string) (ok bool, err error) {
	if r.fleet == nil {
		place, why := wirePlaces()
		if r.Why = why; why != "" {
			return false, nil
		}
		r.Server, r.Client, r.Siblings = place.server, place.client, place.shared
		if info, ok := debug.ReadBuildInfo(); ok {
			r.Versions = versions(info, []Peer{
				{Name: "grpc-go", Module: "google.golang.org/grpc"}, {Name: "rueidis", Module: "github.com/redis/rueidis"},
			})
		}
		if r.fleet, err = newWireFleet(ctx, place); err != nil {
			return false, err
		}
	}
	if r.fleet.of != group {
		r.fleet.empty()
		r.fleet.of = group
	}
	return true, nil
}

// end stops all servers.
func (r *WireReport) end() {
	r.fleet.close()
	r.fleet = nil
}

// measure measures all servers in rounds, each of which begins with another one.
func (r *WireReport) measure(ctx context.Context, l wireLoad, set Settings) error {
	f, subjects := r.fleet, l.subjects()
	if l.all {
		l.keys = set.WireKeys
		for _, s := range subjects {
			if err := l.fill(ctx, f, s); err != nil {
				return err
			}
		}
	}
	all := make([][]wireSample, len(subjects))
	for round := range set.WireCount {
		for turn := range subjects {
			i := (round + turn) % len(subjects)
			m, err := l.sample(ctx, f, subjects[i], round, set.Wire)
			if err != nil {
				return err
			}
			all[i] = append(all[i], m)
		}
	}
	if f.redis != "" {
		r.Redis = f.redis
	}
	r.Rows = append(r.Rows, l.result(subjects, all))
	if l.all {
		return r.weigh(ctx, l, subjects)
	}
	return nil
}

// weigh notes what the keys cost, in place of what was noted before.
func (r *WireReport) weigh(ctx context.Context, l wireLoad, subjects []wireSubject) error {
	r.Memory = nil
	for _, s := range subjects {
		if s.fill == nil {
			continue
		}
		server := r.fleet.servers[s.By]
		now, err := server.memory(ctx)
		if err != nil {
			return err
		}
		each := func(bytes int64) float64 { return float64(bytes) / float64(l.keys) }
		r.Memory = append(r.Memory, WireMemory{
			By: s.By, Keys: l.keys, Filled: each(server.full.resident - server.ready.resident),
			Used: each(server.full.used - server.ready.used), After: each(now.resident - server.ready.resident),
		})
	}
	return nil
}

func (l *wireLoad) result(subjects []wireSubject, all [][]wireSample) WireResult {
	res := WireResult{
		Name: l.name, Front: l.front, Keys: l.keys, AtOnce: l.atOnce(), Connections: l.connections, How: l.how,
		targets: l.targets,
	}
	for i, s := range subjects {
		of := func(value func(m wireSample) float64) (values []float64) {
			for _, m := range all[i] {
				values = append(values, value(m))
			}
			return values
		}
		rates := of(func(m wireSample) float64 { return m.rate })
		ratios := make([]float64, len(rates))
		for round := range rates {
			ratios[round] = besideWire(&all[0][round], &all[i][round])
		}
		res.Servers = append(res.Servers, WireFigure{
			By: s.By, Call: s.Call, Kind: string(s.kind), PerSecond: median(rates), Spread: spread(rates),
			P50:        median(of(func(m wireSample) float64 { return m.p50 })),
			P99:        median(of(func(m wireSample) float64 { return m.p99 })),
			P999:       median(of(func(m wireSample) float64 { return m.p999 })),
			Server:     median(of(func(m wireSample) float64 { return m.each() })),
			ServerBusy: median(of(func(m wireSample) float64 { return m.server.Seconds() / m.wall.Seconds() })),
			ClientBusy: median(of(func(m wireSample) float64 { return m.client.Seconds() / m.wall.Seconds() })),
			Ratio:      median(ratios),
		})
	}
	return res
}

// wireLimit is from which share of its processor on the load generator is the limit.
const wireLimit = 0.95

// besideWire is how many times as many requests as another server weir answered. One that could have answered more than it was
// sent is judged by its CPU time.
func besideWire(ours, theirs *wireSample) float64 {
	ratio := ours.rate / theirs.rate
	if busy := theirs.client.Seconds() / theirs.wall.Seconds(); busy >= wireLimit && ours != theirs {
		ratio = min(ratio, theirs.each()/ours.each())
	}
	return ratio
}

// atOnce is what stands in names before the number of requests at once.
func (r *WireResult) atOnce() string {
	if r.Front == wireRESP {
		return "pipeline"
	}
	return "in flight"
}

// goals are all numbers that servers are to hold.
func (r WireReport) goals() (all []Goal) {
	goal := func(met bool, found, format string, args ...any) {
		all = append(all, Goal{wirePrefix + fmt.Sprintf(format, args...), met, found})
	}
	few := 0.0
	for _, row := range r.Rows {
		name := fmt.Sprintf("%s, %s: %d", row.Name, row.atOnce(), row.AtOnce)
		for _, f := range row.Servers {
			if least := row.targets.least[f.By]; least > 0 {
				goal(f.Ratio >= least, fmt.Sprintf("%.2f", f.Ratio), "%s, weir >= %g x %s", name, least, f.By)
			}
		}
		ours := row.Servers[0]
		if most := row.targets.p99; most > 0 {
			goal(ours.P99 <= float64(most), micros(ours.P99)+" µs", "%s, p99 <= %v", name, most)
		}
		if most := row.targets.p999; most > 0 {
			goal(ours.P999 <= float64(most), micros(ours.P999)+" µs", "%s, p99.9 <= %v", name, most)
		}
		switch {
		case row.AtOnce != wireDeep:
		case row.Name == wireFew:
			few = ours.PerSecond
		case row.Name == wireMany && few > 0:
			goal(ours.PerSecond >= WireManyTarget*few, fmt.Sprintf("%.2f", ours.PerSecond/few), "%s, >= %g x %s keys", name,
				WireManyTarget, count(wireFewKeys))
		}
	}
	for _, m := range r.Memory {
		if m.By == byWeir {
			goal(m.Filled <= WireBytesTarget, wholeBytes(m.Filled), "%s keys, <= %d bytes a key", count(m.Keys), WireBytesTarget)
		}
	}
	for _, i := range r.Idle {
		if most := max(i.Opened, i.Asked); i.By == byWeir {
			goal(most <= WireIdleTarget, wholeBytes(most), "idle connections, <= %d bytes each", WireIdleTarget)
		}
	}
	return all
}
