package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"time"
)

// wireLoad is what is asked of all servers of a row.
type wireLoad struct {
	name  string
	front string
	how   string
	// keys is how many there are; all tells that the servers know each of them before they are measured.
	keys        int
	all         bool
	connections int
	each        int // requests that each connection sends at a time, or with a rate at most
	rate        int // how many are sent in a second whether or not they are answered, 0 for as many as are answered
	subjects    func() []wireSubject
	targets     wireTargets
}

// atOnce is how many requests are in flight, or for RESP in one pipeline.
func (l *wireLoad) atOnce() int {
	if l.front == wireRESP {
		return l.each
	}
	return l.connections * l.each
}

func (l *wireLoad) id() string {
	if l.front == wireRESP {
		return fmt.Sprintf("%s, pipeline: %d", l.name, l.each)
	}
	return fmt.Sprintf("%s, in flight: %d", l.name, l.atOnce())
}

const (
	// respConnections is between the few of programs and the 50 of redis-benchmark.
	respConnections = 16
	// rlsConnections are those of an Envoy with four threads; one call in flight takes one.
	rlsConnections = 4
	// wireDeep is the longest pipeline.
	wireDeep = 64
	// wireRate is that of an open loop, wireWaiting how many calls each connection may wait for there.
	wireRate     = 100_000
	wireWaiting  = 256
	wireFewKeys  = 10_000
	wireManyKeys = 1_000_000
)

// The names of the loads.
const (
	wireFew  = "RESP"
	wireMany = "RESP, all keys resident"
	wireRLS  = "RLS"
	wireOpen = "RLS, open loop"
	wireOne  = "HTTP"
)

func wireLoads() []wireLoad {
	type least = map[string]float64
	resp := func(pipeline int, of least) wireLoad {
		return wireLoad{
			name: wireFew, front: wireRESP, keys: wireFewKeys, connections: respConnections, each: pipeline,
			subjects: respSubjects, targets: wireTargets{least: of},
			how: fmt.Sprintf("%s keys, each as likely as any other, over %d connections. Every connection sends a pipeline of "+
				"commands at once, and the next when all of it was answered.", count(wireFewKeys), respConnections),
		}
	}
	many := func(pipeline int, of least) wireLoad {
		l := resp(pipeline, of)
		l.name, l.keys, l.all = wireMany, wireManyKeys, true
		l.how = fmt.Sprintf("The same with %s keys, which each server holds before it is measured, so that nearly every command "+
			"waits for memory.", count(wireManyKeys))
		return l
	}
	rls := func(calls int, targets wireTargets) wireLoad {
		connections := min(calls, rlsConnections)
		return wireLoad{
			name: wireRLS, front: wireGRPC, keys: wireFewKeys, connections: connections, each: calls / connections,
			subjects: rlsSubjects, targets: targets,
			how: fmt.Sprintf("Calls of ShouldRateLimit with one descriptor of one entry, whose value is one of %s keys, over %d "+
				"connections, and one if there is one call at a time. The next call is sent when one was answered.",
				count(wireFewKeys), rlsConnections),
		}
	}
	open := rls(rlsConnections*wireWaiting, wireTargets{p999: time.Millisecond})
	open.name, open.rate, open.subjects = wireOpen, wireRate, openSubjects
	open.how = fmt.Sprintf("The same calls, %d a second at fixed times, whether or not others were answered. The time of a call "+
		"counts from when it was to be sent. bare grpc-go does not answer as many. What the bare loop takes is what the "+
		"processors and the load generator take.", wireRate)
	return []wireLoad{
		resp(1, nil), resp(16, least{byIncr: 1, byGCRA: 10}), resp(wireDeep, least{byIncr: 1, byGCRA: 10, byBareRESP: 0.75}),
		many(1, nil), many(wireDeep, least{byBareRESP: 0.6}),
		rls(1, wireTargets{least: least{byBareGRPC: 1}}), rls(32, wireTargets{least: least{byBareGRPC: 1}}),
		rls(256, wireTargets{least: least{byBareGRPC: 10}, p99: time.Millisecond}), open,
		{
			name: wireOne, front: wireHTTP, keys: wireFewKeys, connections: respConnections, each: 1, subjects: httpSubjects,
			targets: wireTargets{least: least{byBareHTTP: 0.9}},
			how: fmt.Sprintf("POST /v1/check about one of %s keys, one request at a time on each of %d connections.",
				count(wireFewKeys), respConnections),
		},
	}
}

// group tells which servers a load needs: those of one group are used again.
func (l *wireLoad) group() string { return fmt.Sprint(l.front, l.all) }

// wireSample is one measurement of one server.
type wireSample struct {
	rate           float64
	p50, p99, p999 float64 // ns
	requests       int64
	wall           time.Duration
	server         time.Duration // CPU time
	client         time.Duration
}

// each is the CPU time of the server for a request in microseconds.
func (m *wireSample) each() float64 { return m.server.Seconds() * 1e6 / float64(m.requests) }

// benchReport is what is read of the report of the load generator.
type benchReport struct {
	Complete       bool    `json:"complete"`
	Error          string  `json:"error"`
	ElapsedSeconds float64 `json:"elapsed_seconds"`
	Requests       int64   `json:"requests"`
	RatePerSecond  float64 `json:"rate_per_second"`
	Allowed        *int64  `json:"allowed"`
	Errors         int64   `json:"errors"`
	ErrorKinds     []struct {
		First string `json:"first"`
	} `json:"error_kinds"`
	Response struct {
		P50  float64 `json:"p50"`
		P99  float64 `json:"p99"`
		P999 float64 `json:"p999"`
	} `json:"response"`
	Generator struct {
		CPUSeconds *float64 `json:"cpu_seconds"`
	} `json:"generator"`
}

// check tells why a report is no figure.
func (r *benchReport) check() error {
	switch {
	case !r.Complete || r.Error != "":
		return fmt.Errorf("bench: weir bench did not come to its end: %s", r.Error)
	case r.Errors > 0:
		first := ""
		if len(r.ErrorKinds) > 0 {
			first = r.ErrorKinds[0].First
		}
		return fmt.Errorf("bench: %d of %d requests were answered with errors: %s", r.Errors, r.Requests, first)
	case r.Allowed != nil && *r.Allowed != r.Requests:
		return fmt.Errorf("bench: only %d of %d requests were granted: the row does not measure what it says", *r.Allowed,
			r.Requests)
	case r.Requests == 0 || r.ElapsedSeconds <= 0 || r.Response.P50 <= 0 || r.Response.P99 < r.Response.P50:
		return errors.New("bench: weir bench has measured nothing")
	}
	return nil
}

// leastWire is the shortest measurement by time. Shorter ones, of which no figure is learned, are a few requests, as a busy
// machine may let none through in so short a time.
const leastWire = 50 * time.Millisecond

// howLong tells the load generator when to end.
func (l *wireLoad) howLong(d time.Duration) []string {
	if d < leastWire {
		return []string{"--requests", strconv.Itoa(4 * l.connections * l.each)} //nolint:mnd // a few
	}
	return []string{"--duration", d.String()}
}

// wireWarm is how much shorter the warm-up is than a measurement.
const wireWarm = 5

// sample measures a server, after it has been asked for a while. The warm-up is a run of its own, so that the CPU time of the
// server is that of what is counted.
func (l *wireLoad) sample(
	ctx context.Context, f *wireFleet, s wireSubject, round int, d time.Duration,
) (m wireSample, err error) {
	server, err := f.server(ctx, s)
	if err != nil {
		return m, err
	}
	flags, err := s.flags(ctx, server)
	if err != nil {
		return m, err
	}
	if _, err = l.run(ctx, f, s, server, flags, round, d/wireWarm); err != nil {
		return m, err
	}
	before, err := server.cpu()
	if err != nil {
		return m, err
	}
	r, err := l.run(ctx, f, s, server, flags, round, d)
	if err != nil {
		return m, err
	}
	after, err := server.cpu()
	if err != nil {
		return m, err
	}
	m = wireSample{
		rate: r.RatePerSecond, p50: r.Response.P50 * 1e9, p99: r.Response.P99 * 1e9, p999: r.Response.P999 * 1e9,
		requests: r.Requests, wall: time.Duration(r.ElapsedSeconds * float64(time.Second)), server: after - before,
	}
	if c := r.Generator.CPUSeconds; c != nil {
		m.client = time.Duration(*c * float64(time.Second))
	}
	return m, nil
}

// run runs the load generator.
func (l *wireLoad) run(
	ctx context.Context, f *wireFleet, s wireSubject, server *wireServer, flags []string, round int, d time.Duration,
) (*benchReport, error) {
	command := map[string][]string{
		wireRESP: {"resp", "--pipeline", strconv.Itoa(l.each)}, wireGRPC: {"rls", "--in-flight", strconv.Itoa(l.each)},
		wireHTTP: {"http"},
	}[l.front]
	args := slices.Concat([]string{"bench"}, command, []string{
		"--address", s.address(server), "--connections", strconv.Itoa(l.connections), "--keys", strconv.Itoa(l.keys),
		"--key-prefix", wireKey, "--seed", strconv.Itoa(round + 1), "--warmup", "0s", "--json",
	}, l.howLong(d), flags)
	if l.rate > 0 {
		args = append(args, "--rate", fmt.Sprintf("%d/s", l.rate))
	}
	cmd := exec.CommandContext(ctx, f.program, args...) //nolint:gosec // it was built for this
	ownGroup(cmd)                                       // the context ends it
	cmd.Env = wireEnvironment()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := f.place.onClient(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("bench: wire, %s, %s: weir bench: %w\n%s", l.id(), s.By, errors.Join(ctx.Err(), err), &errs)
	}
	var r benchReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return nil, fmt.Errorf("bench: wire, %s, %s: the report of weir bench: %w", l.id(), s.By, err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%w (wire, %s, %s)", err, l.id(), s.By)
	}
	return &r, nil
}

// fill has a server know all keys, and notes what it takes.
func (l *wireLoad) fill(ctx context.Context, f *wireFleet, s wireSubject) error {
	server, err := f.server(ctx, s)
	if err != nil || s.fill == nil || server.full != (wireMemory{}) {
		return err
	}
	if err = s.fill(ctx, server, 1); err != nil { // what the first request needs is not the price of a key
		return fmt.Errorf("bench: wire, %s, %s: %w", l.id(), s.By, err)
	}
	if server.ready, err = server.memory(ctx); err != nil {
		return err
	}
	if err = s.fill(ctx, server, l.keys); err != nil {
		return fmt.Errorf("bench: wire, %s, %s: %w", l.id(), s.By, err)
	}
	server.full, err = server.memory(ctx)
	return err
}
