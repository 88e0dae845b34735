package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// wireFleet are the servers that take turns, each in a process of its own, and what measures them.
type wireFleet struct {
	place   wirePlace
	dir     string
	program string // weir
	// of is the front that the servers speak, and keys how many they were filled with.
	of      string
	servers map[string]*wireServer
	redis   string // its version, once there was one
}

// wireServer is a server with what it needs.
type wireServer struct {
	process *wireProcess // nil if it is Redis
	redis   *redisServer // that is asked, or that the process asks
	address string
	// fronts are the addresses of weir.
	http, grpc string
	// ready is what the server had used before it was filled, and full after.
	ready, full wireMemory
}

// wireMemory is how many bytes a server has, by the system and by what it says.
type wireMemory struct {
	resident, used int64
}

// newWireFleet builds weir.
func newWireFleet(ctx context.Context, place wirePlace) (f *wireFleet, err error) {
	root, err := Repository()
	if err != nil {
		return nil, err
	}
	f = &wireFleet{place: place, servers: map[string]*wireServer{}}
	if f.dir, err = os.MkdirTemp("", "weir-bench-wire-"); err != nil {
		return nil, fmt.Errorf("bench: a directory for weir: %w", err)
	}
	f.program = filepath.Join(f.dir, "weir")
	build := exec.CommandContext(ctx, "go", "build", "-o", f.program, ".") //nolint:gosec // into a directory of its own
	build.Dir = filepath.Join(root, "cmd", "weir")
	if out, err := build.CombinedOutput(); err != nil {
		f.close()
		return nil, fmt.Errorf("bench: build weir: %w\n%s", err, out)
	}
	return f, nil
}

// empty stops all servers.
func (f *wireFleet) empty() {
	for name, s := range f.servers {
		s.stop()
		delete(f.servers, name)
	}
	f.of = ""
}

// close stops all servers and removes what was built.
func (f *wireFleet) close() {
	if f == nil {
		return
	}
	f.empty()
	_ = os.RemoveAll(f.dir)
}

// stop ends the server, and what it needs.
func (s *wireServer) stop() {
	if s.process != nil {
		s.process.stop()
	}
	s.redis.stop()
}

// pid is the number of the process that is asked.
func (s *wireServer) pid() int {
	if s.process != nil {
		return s.process.cmd.Process.Pid
	}
	return s.redis.cmd.Process.Pid
}

// cpu is the CPU time of the server, with that of the Redis that it asks.
func (s *wireServer) cpu() (all time.Duration, err error) {
	if all, err = cpuTimeOf(s.pid()); err == nil && s.process != nil && s.redis != nil {
		var of time.Duration
		of, err = cpuTimeOf(s.redis.cmd.Process.Pid)
		all += of
	}
	return all, err
}

// memory is how much the server has.
func (s *wireServer) memory(ctx context.Context) (m wireMemory, err error) {
	if m.resident, err = residentOf(s.pid()); err != nil {
		return m, err
	}
	m.used, err = usedMemory(ctx, s.address)
	return m, err
}

// wireConfig has one policy, for all fronts. What is taken of it comes back so slowly that a key is not forgotten.
const wireConfig = `version: 1
policies:
  default: {limit: 1/s, burst: 1000000, key: attributes.key}
rules:
  - {name: calls, match: {protocol: rls}, limits: default}
`

// wireConnections is how many connections weir may have, all of them from here: more than are opened. With the default of 10,000,
// of which one address has nine in ten, the first of 10,000 that are idle make room for the last.
const wireConnections = "20000"

// startWeir starts weir with all its fronts.
func (f *wireFleet) startWeir(ctx context.Context) (s *wireServer, err error) {
	config := filepath.Join(f.dir, "weir.yaml")
	if err = os.WriteFile(config, []byte(wireConfig), 0o600); err != nil {
		return nil, fmt.Errorf("bench: the configuration of weir: %w", err)
	}
	const free = "127.0.0.1:0"
	//nolint:gosec,contextcheck // it was built for this; it outlives the context, as stop ends it
	cmd := exec.CommandContext(context.Background(), f.program, "serve", "--http", free, "--resp", free, "--grpc", free,
		"--config", config, "--resp-connections", wireConnections, "--resp-connections-per-address", wireConnections)
	cmd.Env = wireEnvironment()
	s = &wireServer{}
	if s.process, err = startWire(cmd, f.place.onServer); err != nil { //nolint:contextcheck // it outlives the context
		return nil, err
	}
	line, err := s.process.says(ctx, "msg=serving ")
	if err != nil {
		s.stop()
		return nil, err
	}
	of := func(name string) string { return between(line, " "+name+"=", " ") }
	s.http, s.address, s.grpc = of("address"), of("resp"), of("grpc")
	return s, nil
}

// startRedis starts a Redis where servers run, or where the load generator does.
func (f *wireFleet) startRedis(ctx context.Context, start func(*exec.Cmd) error) (s *wireServer, err error) {
	// As many connections as weir takes by default are to be left after that of the benchmark, and the ones that Redis needs.
	s = &wireServer{}
	if s.redis, err = startRedisBy(ctx, start, "--maxclients", "20000"); err != nil {
		return nil, err
	}
	s.address, f.redis = s.redis.address, s.redis.version
	return s, nil
}

// reply is what weir answers on a front, which the servers beside it answer as well.
func (f *wireFleet) reply(ctx context.Context, front string) (body []byte, header http.Header, err error) {
	ours, err := f.server(ctx, wireSubject{By: byWeir, open: startWeir})
	if err != nil {
		return nil, nil, err
	}
	key := wireKey + "0"
	switch front {
	case wireRESP:
		body, err = askRESP(ctx, ours.address, throttleCommand(key)...)
	case wireGRPC, wireLoop, wireRateLimit:
		body, err = askRateLimit(ctx, ours.grpc, key)
	case wireHTTP:
		body, header, err = askHTTP(ctx, "http://"+ours.http+"/v1/check", `{"policy":"default","key":"`+key+`","cost":1}`)
	}
	return body, header, err
}

// startMember starts this program as a server that answers what weir does.
func (f *wireFleet) startMember(ctx context.Context, m wireMember) (s *wireServer, err error) {
	if m.Reply, m.Header, err = f.reply(ctx, m.Kind); err != nil {
		return nil, err
	}
	return m.start(ctx, f.place)
}

// server is the one of a subject, which is started if it does not run.
func (f *wireFleet) server(ctx context.Context, s wireSubject) (*wireServer, error) {
	if w := f.servers[s.By]; w != nil {
		return w, nil
	}
	w, err := s.open(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("bench: wire, %s: %w", s.By, err)
	}
	f.servers[s.By] = w
	return w, nil
}
