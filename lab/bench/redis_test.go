package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// testRedis is a server that is stopped when the test ends.
func testRedis(t *testing.T) *redisServer {
	t.Helper()
	s, err := startRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// TestRedisSubjectsLimit takes from two keys with every subject: one that allowed everything, or mixed the keys up, would be
// fast for nothing.
func TestRedisSubjectsLimit(t *testing.T) {
	server := testRedis(t)
	l := redisLoad{name: "test", keys: 2, callers: 1, budget: budget{64, 24 * time.Hour, 64}}
	for _, s := range redisSubjects() {
		t.Run(s.By, func(t *testing.T) {
			if err := server.forget(t.Context()); err != nil {
				t.Fatal(err)
			}
			r, err := s.open(t.Context(), server.address, l)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := r.close(); err != nil {
					t.Error(err)
				}
			}()
			granted, decide := map[string]int64{}, r.caller()
			for range 2 * l.budget.burst {
				for _, key := range l.names("hot") {
					ok, err := decide(key)
					if err != nil {
						t.Fatal(err)
					}
					if ok {
						granted[key]++
					}
				}
			}
			least := l.budget.burst
			if s.By == byLeased { // of which a quarter can be on loan for longer than the limit is asked
				least = l.budget.burst / 2
			}
			for key, n := range granted {
				if n < least || n > l.budget.burst {
					t.Errorf("%d permits of %s were granted, want %d to %d", n, key, least, l.budget.burst)
				}
			}
			if len(granted) != 2 {
				t.Errorf("granted %v", granted)
			}
		})
	}
}

// TestRedisSample measures every subject with several callers, for too short a time to learn anything.
func TestRedisSample(t *testing.T) {
	server := testRedis(t)
	l := redisLoad{name: "test", keys: 4, callers: 8, budget: budget{plenty, time.Second, plenty}}
	h := newHistogram()
	for _, s := range redisSubjects() {
		m, err := l.sample(t.Context(), server, s, 30*time.Millisecond, h)
		if err != nil {
			t.Errorf("%s: %v", s.By, err)
			continue
		}
		if m.wall <= 0 || m.latency.Median <= 0 || m.latency.P99 < m.latency.Median || m.granted > m.decided || m.cpu <= 0 {
			t.Errorf("%s: %+v", s.By, m)
		}
		if !s.local && (m.use.commands < s.commands(m.decided) || m.use.cpu <= 0) {
			t.Errorf("%s: the server ran %v commands in %v for %d decisions", s.By, m.use.commands, m.use.cpu, m.decided)
		}
		if a := m.admitted(l); a <= 0 || a > 1 {
			t.Errorf("%s: granted %d of %.0f", s.By, m.granted, m.allowed(l))
		}
	}
}

// TestRedisErrorsEndTheMeasurement has a limiter fail after some decisions.
func TestRedisErrorsEndTheMeasurement(t *testing.T) {
	server, broken := testRedis(t), errors.New("broken")
	s := redisSubject{By: "broken", open: func(context.Context, string, redisLoad) (redisLimiter, error) {
		n := 0
		return redisLimiter{
			caller: func() redisDecide {
				return func(string) (bool, error) {
					if n++; n > 10 {
						return false, broken
					}
					return true, nil
				}
			},
			close: func() error { return nil },
		}, nil
	}}
	l := redisLoad{name: "test", keys: 1, callers: 1, budget: drainedSlowly}
	if _, err := l.sample(t.Context(), server, s, time.Second, newHistogram()); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// TestRedisWrongAnswersAreNoFigures looks at measurements that measured something else.
func TestRedisWrongAnswersAreNoFigures(t *testing.T) {
	all, some := redisLoad{callers: 2, all: true}, redisLoad{callers: 2, some: true}
	asked := redisUse{commands: 10}
	for _, c := range []struct {
		what  string
		load  redisLoad
		kind  redisKind
		local bool
		m     redisSample
		ok    bool
	}{
		{"all granted", all, redisPeer, false, redisSample{decided: 10, granted: 10, use: asked}, true},
		{"one refused", all, redisPeer, false, redisSample{decided: 10, granted: 9, use: asked}, false},
		{"some refused", some, redisOurs, false, redisSample{decided: 10, granted: 9, use: asked}, true},
		{"none refused", some, redisOurs, false, redisSample{decided: 10, granted: 10, use: asked}, false},
		{"none refused by a peer", some, redisPeer, false, redisSample{decided: 10, granted: 10, use: asked}, true},
		{"none granted", some, redisPeer, false, redisSample{decided: 10, use: asked}, false},
		{"a caller that was never answered", some, redisPeer, false, redisSample{decided: 1, granted: 1, use: asked}, false},
		{"decisions without the server", some, redisPeer, false, redisSample{decided: 11, granted: 1, use: asked}, false},
		{"decisions in memory", some, redisOurs, true, redisSample{decided: 11, granted: 1}, true},
	} {
		if err := c.load.verify(redisSubject{kind: c.kind, local: c.local}, c.m); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// TestRedisServerStops looks at what is left of a server.
func TestRedisServerStops(t *testing.T) {
	s := testRedis(t)
	process, dir := s.cmd.Process, s.dir
	s.stop()
	if err := process.Signal(syscall.Signal(0)); err == nil {
		t.Error("the server still runs")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its directory: %v", err)
	}
	s.stop() // once more
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := startRedis(canceled); err == nil {
		t.Error("a server was started although its context is canceled")
	}
}

func TestMissingRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := startRedis(t.Context()); err == nil || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("got %v", err)
	}
}

// redisSeries are measurements with so many decisions in a second each, of which some were granted.
func redisSeries(granted int64, rates ...int64) (all []redisSample) {
	for _, rate := range rates {
		all = append(all, redisSample{wall: time.Second, decided: rate, granted: granted})
	}
	return all
}

// TestRedisGoals compares series whose ratios are known.
func TestRedisGoals(t *testing.T) {
	subjects := []redisSubject{
		{By: byCoherent, kind: redisOurs},
		{By: byLeased, kind: redisOurs},
		{By: "floor", kind: redisFloor},
		{By: "slow", kind: redisPeer},
		{By: "fast", kind: redisPeer},
		{By: "both", kind: redisPeer, together: true},
	}
	l := redisLoad{name: "hot key", keys: 1, callers: 32, budget: budget{100, time.Second, 100}}
	// The machine halves its speed in the second round, for all alike.
	res := l.result(subjects, [][]redisSample{
		redisSeries(200, 2000, 1000, 2000), redisSeries(201, 100_000, 50_000, 90_000), redisSeries(1, 9e6, 9e6, 9e6),
		redisSeries(1, 500, 100, 600), redisSeries(1, 1000, 500, 1000), redisSeries(1, 4000, 2000, 4000),
	})
	if f := res.Limiters[0]; f.PerSecond != 2000 || f.Plain.Ratio != 2 || f.Plain.Peer != "fast" || f.Pipelined.Ratio != 0.5 || f.Admitted != 1 {
		t.Errorf("coherent: %+v, %v, %v", f, f.Plain, f.Pipelined)
	}
	if f := res.Limiters[1]; f.Plain.Ratio != 100 || f.Pipelined.Ratio != 25 || math.Abs(f.Admitted-1.005) > 1e-12 || f.Granted != 201 {
		t.Errorf("leased: %+v, %v, %v", f, f.Plain, f.Pipelined)
	}
	if f := res.Limiters[4]; f.Plain != nil || f.Pipelined != nil {
		t.Errorf("a peer is compared with peers: %+v", f)
	}
	met := map[string]bool{}
	for _, g := range (RedisReport{Rows: []RedisResult{res}}).goals() {
		met[strings.TrimPrefix(g.Name, "redis, hot key, callers: 32, ")] = g.Met
	}
	for name, want := range map[string]bool{
		"weir coherent >= 1.2 x best peer": true, "weir coherent >= 1.2 x best peer, pipelined": false, "weir coherent, granted <= allowed": true,
		"weir leased >= 50 x best peer": true, "weir leased >= 50 x best peer, pipelined": false, "weir leased, granted <= allowed": false,
	} {
		if got, ok := met[name]; !ok || got != want {
			t.Errorf("%s: met is %v, want %v (known: %v)", name, got, want, ok)
		}
	}
	if len(met) != 6 {
		t.Errorf("%d goals: %v", len(met), met)
	}
}

// wideRedis is a report of all rows whose numbers take as much room as they may.
func wideRedis() Report {
	r := Report{Settings: DefaultSettings(), Redis: RedisReport{Server: "7.0.15", Versions: []ModuleVersion{{"a", "b", "v1"}}}}
	for _, l := range redisLoads() {
		all := make([][]redisSample, len(redisSubjects()))
		for i := range all {
			all[i] = []redisSample{{
				wall: time.Second, decided: 12_345_678, granted: 2_345_678, latency: Latency{Median: 1.2e9, P99: 2.3e9},
				use: redisUse{commands: 12_345_678 * 123, cpu: time.Hour}, cpu: time.Hour,
			}}
		}
		r.Redis.Rows = append(r.Redis.Rows, l.result(redisSubjects(), all))
	}
	return r
}

func TestRedisTablesFitTheTerminal(t *testing.T) {
	var b strings.Builder
	for _, tab := range wideRedis().Redis.tables() {
		tab.Table.writeText(&b)
	}
	lines := 0
	for line := range strings.Lines(b.String()) {
		lines++
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if want := len(redisLoads())*len(redisSubjects()) + 3; lines != want {
		t.Errorf("%d lines, want %d", lines, want)
	}
}
