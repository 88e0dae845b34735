package load

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

var update = flag.Bool("update", false, "write what is printed into testdata")

// sampled is a run of which everything is known.
func sampled(o *options, fill func(s *shard)) (*run, *result) {
	r := newRun(o, func() codec { return nil }, nil)
	fill(r.shards[0])
	return r, &result{
		total: totals(r.shards), elapsed: 10 * time.Second, cpu: 9800 * time.Millisecond, cpuKnown: true, processors: 2,
	}
}

// spread counts n requests whose latencies are spread evenly from 0 to most.
func spread(s *shard, o outcome, n int, most time.Duration) {
	for i := range n {
		now := most * time.Duration(i+1) / time.Duration(n)
		s.record([]sample{{slot: slot{sent: now / 2, late: now / 1000}, outcome: o}}, now, 0)
	}
}

// TestReport compares reports with those in testdata, all lines of which fit in 80 columns.
func TestReport(t *testing.T) {
	common := options{
		address: "127.0.0.1:6380", connections: 50, inFlight: 16, keys: 10_000, keyPrefix: "key:", distribution: uniform, seed: 1,
		duration: 10 * time.Second, warmup: time.Second, timeout: 10 * time.Second,
	}
	for name, c := range map[string]struct {
		what  string
		set   func(o *options)
		fill  func(s *shard)
		after func(r *result)
	}{
		"closed": {"CL.THROTTLE {key} 100 1000 1", func(o *options) { o.front = frontRESP }, func(s *shard) {
			spread(s, allowed, 20_000, 3*time.Millisecond)
			spread(s, refused, 1_234, 900*time.Microsecond)
		}, nil},
		"command": {"INCR {key}", func(o *options) { o.front, o.connections, o.keys, o.command.text = frontRESP, 1, 1, "INCR {key}" }, func(s *shard) {
			spread(s, answered, 300_000, 20*time.Second)
		}, func(r *result) { r.cpu = 19 * time.Second }},
		"open": {`POST /v1/check, policy "` + strings.Repeat("long", 30) + `"`, func(o *options) {
			o.front, o.inFlight, o.rate, o.arrivals, o.distribution, o.zipfS = frontHTTP, 1, 2500.5, poisson, zipf, 0.99
			o.address, o.tls.on = "weir.a-rather-long-name-of-a-host.example.com:65535", true
		}, func(s *shard) {
			spread(s, allowed, 20_000, time.Second)
			spread(s, refused, 1_234, 2*time.Second)
		}, func(r *result) { r.missed = 3_000 }},
		"late": {"ShouldRateLimit, domain \"weir\", key={key}", func(o *options) {
			o.front, o.inFlight, o.rate, o.arrivals = frontRLS, 256, 20_000, fixed
		}, func(s *shard) { spread(s, allowed, 20_000, 100*time.Second) }, nil},
		"errors": {"ShouldRateLimit, domain \"weir\", key={key}", func(o *options) { o.front, o.inFlight = frontRLS, 32 }, func(s *shard) {
			spread(s, allowed, 1000, time.Millisecond)
			for i, f := range []fault{
				{"Unavailable", "Unavailable: " + strings.Repeat("the store is away; ", 10)},
				{"timeout", "no answer within --timeout"},
				{"evil", "\x1b[31m\nred"},
			} {
				for range 1000 / (i + 1) {
					s.record([]sample{{outcome: failed, fault: &f}}, time.Second, 0)
				}
			}
		}, func(r *result) {
			r.reconnects, r.interrupted, r.cpuKnown = 12, true, false
		}},
		"nothing": {"PING", func(o *options) { o.front, o.rate, o.arrivals = frontRESP, 1, fixed }, func(*shard) {}, func(r *result) { r.elapsed = 0 }},
	} {
		o := common
		c.set(&o)
		r, result := sampled(&o, c.fill)
		if c.after != nil {
			c.after(result)
		}
		p := newReport(&o, c.what, r, result)
		p.Versions = versionsJSON{"v1.2.3", "go1.26.0", "linux", "amd64"}
		var text, object bytes.Buffer
		p.Print(&text, terminal.Of(&text))
		for line := range strings.Lines(text.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 || strings.Contains(line, "\x1b") {
				t.Errorf("%s: %d columns: %q", name, n, line)
			}
		}
		golden(t, name+".txt", text.Bytes())
		if err := terminal.Print(&object, p, true); err != nil {
			t.Fatal(err)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, object.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		if name == "open" || name == "errors" {
			golden(t, name+".json", indented.Bytes())
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("it differs from %s (go test -update writes it):\n%s\nwant\n%s", path, got, want)
	}
}

func TestLatency(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ns", 999: "999 ns", 1000: "1.00 µs", 9994: "9.99 µs", 9996: "10.0 µs", 99_940: "99.9 µs", 99_960: "100 µs",
		time.Millisecond: "1.00 ms", 123_400 * time.Microsecond: "123 ms", time.Second: "1.00 s", time.Hour: "3600 s",
	} {
		if got := latency(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}

// TestKindsOfErrorsAreBounded: a server that makes them up does not fill the memory.
func TestKindsOfErrorsAreBounded(t *testing.T) {
	s := newShard(false)
	for i := range 1000 {
		s.record([]sample{{outcome: failed, fault: &fault{"E" + strconv.Itoa(i), "text"}}}, 0, 0)
	}
	if kinds := s.kinds(); len(kinds) != 21 || kinds[0] != "other" || s.failures["other"].count != 980 || s.counts[failed] != 1000 {
		t.Errorf("%d kinds: %q", len(kinds), kinds)
	}
}

// TestProgressFlag has a run that is long enough to tell something, as far as the machine lets it.
func TestProgressFlag(t *testing.T) {
	var seen tally
	s := checkServer(t, &seen, false)
	for duration := 1100 * time.Millisecond; ; duration *= 2 {
		stdout, stderr, err := bench(t, t.Context(), "http", "--address", s.Listener.Addr().String(), "--policy", `a "policy"`, "--cost", "3",
			"--warmup", "0s", "--duration", duration.String(), "--connections", "2", "--progress")
		if err != nil || !strings.Contains(stdout, "\nrequests ") {
			t.Errorf("%v: %s", err, stdout)
		}
		for line := range strings.Lines(stderr) {
			if !strings.Contains(line, "/s  refused ") || !strings.Contains(line, "  p99 ") {
				t.Errorf("%q", line)
			}
		}
		if stderr != "" {
			return
		}
		if duration > time.Minute {
			t.Fatalf("nothing is told within %v", duration)
		}
	}
}

// TestLine is what a terminal shows.
func TestLine(t *testing.T) {
	o := &options{front: frontRESP, connections: 1, inFlight: 1, warmup: time.Second, duration: time.Second}
	r, _ := sampled(o, func(s *shard) {
		spread(s, allowed, 300_000, 2*time.Second)
		spread(s, refused, 100_000, 2*time.Second)
	})
	r.from = 0
	l := &live{run: r, out: terminal.Output{Interactive: true, Width: 80}}
	total := totals(r.shards)
	if got, want := l.line(total, 2*time.Second), "2.0 s  200,000/s  refused 25.00 %  errors 0  p50 1.00 s  p99 1.98 s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	total.counts[refused] += 50_000
	if got := l.line(total, 2500*time.Millisecond); !strings.HasPrefix(got, "2.5 s  100,000/s  refused 33.33 %") {
		t.Errorf("%q", got)
	}
	var screen bytes.Buffer
	l.w = &screen
	r.base = time.Now().Add(-time.Minute)
	l.tell()
	l.clear()
	if got := screen.String(); strings.Count(got, "\r") != 3 || strings.Contains(got, "\n") || !strings.HasSuffix(got, " \r") {
		t.Errorf("%q", got)
	}
}
