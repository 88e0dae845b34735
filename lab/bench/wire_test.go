package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestWireSections measures all rows of servers, for too short a time to learn anything.
func TestWireSections(t *testing.T) {
	set := quick
	set.Wire, set.WireCount, set.WireKeys, set.WireIdle = time.Millisecond, 1, 1000, 50
	r, err := Run(t.Context(), set, regexp.MustCompile("^"+wirePrefix), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, why := wirePlaces(); why != "" {
		if r.Wire.Why != why || len(r.Wire.Rows) > 0 {
			t.Errorf("servers cannot be measured here, because %s, and the report says %+v", why, r.Wire)
		}
		return
	}
	if len(r.Wire.Rows) != len(wireLoads()) || len(r.Wire.Memory) != 3 || len(r.Wire.Idle) != 3 {
		t.Fatalf("%d rows, %d memory, %d idle", len(r.Wire.Rows), len(r.Wire.Memory), len(r.Wire.Idle))
	}
	for i, row := range r.Wire.Rows {
		if want := wireLoads()[i].subjects(); len(row.Servers) != len(want) {
			t.Errorf("%s: %d figures of %d servers", row.Name, len(row.Servers), len(want))
		}
		for _, f := range row.Servers {
			if f.PerSecond <= 0 || f.P50 <= 0 || f.P99 < f.P50 || f.Server <= 0 || f.ServerBusy <= 0 || f.Ratio <= 0 {
				t.Errorf("%s, %d at once: %+v", row.Name, row.AtOnce, f)
			}
		}
	}
	for _, m := range r.Wire.Memory {
		if m.Keys != 1000 {
			t.Errorf("%+v", m)
		}
	}
	for _, i := range r.Wire.Idle {
		if i.Connections != 50 || i.By == "" {
			t.Errorf("%+v", i)
		}
	}
	if r.Wire.Redis == "" || r.Wire.Why != "" || r.Wire.Server == r.Wire.Client {
		t.Errorf("%+v", r.Wire)
	}
}

// TestWireServersEnd stops a server, and cancels the measurement of another one: neither leaves anything behind.
func TestWireServersEnd(t *testing.T) {
	place, why := wirePlaces()
	if why != "" {
		return // there is nothing to end
	}
	s, err := (wireMember{Kind: wireRESP, Reply: []byte("+OK\r\n")}).start(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	if reply, err := askRESP(t.Context(), s.address, "PING"); err != nil || string(reply) != "+OK\r\n" {
		t.Errorf("the server replies %q, %v", reply, err)
	}
	process := s.process.cmd.Process
	if used, err := cpuTimeOf(process.Pid); err != nil || used <= 0 {
		t.Errorf("its CPU time: %v, %v", used, err)
	}
	if n, err := residentOf(process.Pid); err != nil || n < 1<<20 {
		t.Errorf("its memory: %d, %v", n, err)
	}
	s.stop()
	if err := process.Signal(syscall.Signal(0)); err == nil {
		t.Error("the server still runs")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (wireMember{Kind: wireRESP}).start(canceled, place); !errors.Is(err, context.Canceled) {
		t.Errorf("a server was started although its context is canceled: %v", err)
	}
	if _, err := (wireMember{Kind: "none"}).start(t.Context(), place); err != nil {
		t.Errorf("it ends after it has said that it listens: %v", err)
	}
	if _, err := startWire(exec.CommandContext(t.Context(), "/no such program"), place.onServer); err == nil {
		t.Error("a program that does not exist was started")
	}
}

// TestWireGuard kills what would have stopped a server, as it happens if the benchmark is killed.
func TestWireGuard(t *testing.T) {
	p, err := startWire(exec.CommandContext(t.Context(), "sleep", "600"), (*exec.Cmd).Start)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	_ = p.leash.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := p.cmd.Process.Wait()
		ended <- err
	}()
	select {
	case <-ended:
	case <-time.After(serverPatience):
		t.Error("the server outlives who has started it")
	}
}

// TestWireWrongReportsAreNoFigures looks at measurements that measured something else.
func TestWireWrongReportsAreNoFigures(t *testing.T) {
	n := func(n int64) *int64 { return &n }
	good := func() *benchReport {
		r := &benchReport{Complete: true, ElapsedSeconds: 1, Requests: 10, RatePerSecond: 10, Allowed: n(10)}
		r.Response.P50, r.Response.P99 = 1, 2
		return r
	}
	for what, change := range map[string]func(r *benchReport){
		"incomplete":       func(r *benchReport) { r.Complete = false },
		"ended by a fault": func(r *benchReport) { r.Error = "gone" },
		"an error":         func(r *benchReport) { r.Errors = 1 },
		"a refusal":        func(r *benchReport) { r.Allowed = n(9) },
		"nothing":          func(r *benchReport) { r.Requests, r.Allowed = 0, n(0) },
		"no time":          func(r *benchReport) { r.ElapsedSeconds = 0 },
		"no latency":       func(r *benchReport) { r.Response.P50 = 0 },
	} {
		r := good()
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		if change(r); r.check() == nil {
			t.Errorf("%s counts as a figure", what)
		}
	}
}

// TestWireEcho has the bare server answer commands that come in pieces of all sizes, and end connections that send something else.
func TestWireEcho(t *testing.T) {
	const reply = "*1\r\n:0\r\n"
	commands := appendCommand(appendCommand(appendCommand(nil, "PING"), throttleCommand("key:1")...), "SET", "", "\r\n*1")
	for name, read := range map[string]*struct{ in, out bytes.Buffer }{"at once": {}, "byte by byte": {}} {
		read.in.Write(commands)
		c := readWriter{&read.in, &read.out, name == "byte by byte"}
		_ = echoRESP(c, []byte(reply))
		if got := read.out.String(); got != strings.Repeat(reply, 3) {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, wrong := range []string{"PING\r\n", "*1\r\n:1\r\n", "*\r\n", "*1\rx", "*99999999\r\n", "*1\r\n$16000\r\n" + strings.Repeat("x", 20_000)} {
		var out bytes.Buffer
		if err := echoRESP(readWriter{bytes.NewBufferString(wrong), &out, false}, []byte(reply)); !errors.Is(err, errNoCommand) || out.Len() > 0 {
			t.Errorf("%.20q: %v, %q", wrong, err, out.String())
		}
	}
}

type readWriter struct {
	in, out *bytes.Buffer
	slow    bool
}

func (c readWriter) Write(b []byte) (int, error) { return c.out.Write(b) }

func (c readWriter) Read(b []byte) (int, error) {
	if c.slow {
		return iotest.OneByteReader(c.in).Read(b)
	}
	return c.in.Read(b)
}

// TestWireReplies finds the ends of replies, of which no part is one.
func TestWireReplies(t *testing.T) {
	for _, whole := range []string{"+OK\r\n", ":-1\r\n", "$2\r\nab\r\n", "$-1\r\n", "*2\r\n:1\r\n*1\r\n$0\r\n\r\n", "*0\r\n"} {
		if n, err := replyEnd([]byte(whole + "+more")); n != len(whole) || err != nil {
			t.Errorf("%q ends at %d, %v", whole, n, err)
		}
		for i := range len(whole) {
			if n, err := replyEnd([]byte(whole[:i])); n != 0 || err != nil {
				t.Errorf("%q ends at %d, %v", whole[:i], n, err)
			}
		}
	}
	for _, wrong := range []string{"-ERR no\r\n", "\r\n", "$x\r\n", "*x\r\n", "?\r\n"} {
		if _, err := replyEnd([]byte(wrong)); err == nil {
			t.Errorf("%q is a reply", wrong)
		}
	}
}

// TestWireCounterKey reads what a counter in Redis is about: all texts, in order.
func TestWireCounterKey(t *testing.T) {
	text := func(b []byte, n protowire.Number, s []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), s)
	}
	entry := func(k, v string) []byte { return text(nil, 1, text(text(nil, 1, []byte(k)), 2, []byte(v))) }
	request := text(text(text(nil, 1, []byte("edge")), 2, append(entry("user", "u"), entry("path", "/")...)), 2, entry("a", "b"))
	request = binary.AppendUvarint(protowire.AppendTag(request, 3, protowire.VarintType), 7)
	if key, err := counterKey(nil, request); err != nil || string(key) != "edge_user_u_path_/_a_b_" {
		t.Errorf("%q, %v", key, err)
	}
	for cut := 1; cut < len(request); cut++ {
		_, _ = counterKey(nil, request[:cut]) // it must not panic
	}
	if _, err := counterKey(nil, []byte{0xff}); err == nil {
		t.Error("what is no message has a key")
	}
}

// TestWireGoals compares series whose ratios are known.
func TestWireGoals(t *testing.T) {
	series := func(client time.Duration, rates ...int64) (all []wireSample) {
		for _, rate := range rates {
			all = append(all, wireSample{
				rate: float64(rate), requests: rate, wall: time.Second, server: time.Second, client: client, p50: 1, p99: 2, p999: 2,
			})
		}
		return all
	}
	const idle = time.Second / 2
	load := func(name, front string, each int, subjects func() []wireSubject) wireLoad {
		return wireLoad{name: name, front: front, connections: 1, each: each, subjects: subjects}
	}
	resp, rls := load(wireFew, wireRESP, wireDeep, respSubjects), load(wireRLS, wireGRPC, 32, rlsSubjects)
	resp.targets.least = map[string]float64{byIncr: 1, byGCRA: 10, byBareRESP: 0.75}
	rls.targets = wireTargets{map[string]float64{byBareGRPC: 1}, time.Nanosecond, 2 * time.Nanosecond}
	many := load(wireMany, wireRESP, wireDeep, respSubjects)
	// The machine halves its speed in the second round, for all alike. The bare server was held up by the load generator: it could have
	// answered twice as much.
	held := series(time.Second, 2000, 1000, 2000)
	for i := range held {
		held[i].server /= 4
	}
	r := WireReport{Rows: []WireResult{
		resp.result(respSubjects(), [][]wireSample{
			series(idle, 2000, 1000, 2000), series(idle, 1000, 500, 1000), series(idle, 250, 125, 250), held,
		}),
		rls.result(rlsSubjects(), [][]wireSample{
			series(idle, 800, 400, 800), series(idle, 1000, 500, 1000), series(idle, 1600, 800, 1600), series(idle, 10, 10, 10),
		}),
		many.result(respSubjects()[:1], [][]wireSample{series(idle, 1800, 900, 1800)}),
	}, Memory: []WireMemory{{By: byWeir, Keys: 1000, Filled: 65}, {By: byIncr}}, Idle: []WireIdle{{byWeir, 10, 4000, 4200}, {By: byIncr}}}
	var got []string
	for _, g := range r.goals() {
		got = append(got, strings.TrimPrefix(g.Name, wirePrefix)+": "+g.Found+" "+yes(g.Met))
	}
	want := []string{
		"RESP, pipeline: 64, weir >= 1 x Redis INCR: 2.00 yes",
		"RESP, pipeline: 64, weir >= 10 x GCRA script: 8.00 NO",
		"RESP, pipeline: 64, weir >= 0.75 x bare Go RESP: 0.25 NO",
		"RLS, in flight: 32, weir >= 1 x bare grpc-go: 0.80 NO",
		"RLS, in flight: 32, p99 <= 1ns: 0.00 µs NO",
		"RLS, in flight: 32, p99.9 <= 2ns: 0.00 µs yes",
		"RESP, all keys resident, pipeline: 64, >= 0.85 x 10k keys: 0.90 yes",
		"1k keys, <= 64 bytes a key: 65 NO",
		"idle connections, <= 4200 bytes each: 4200 yes",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if f := r.Rows[0].Servers[0]; f.Ratio != 1 || f.PerSecond != 2000 || f.Server != 500 {
		t.Errorf("weir beside itself: %+v", f)
	}
}

// wideWire is a report of all rows whose numbers take as much room as they may.
func wideWire() Report {
	r := Report{Settings: DefaultSettings(), Wire: WireReport{Redis: "7.0.15", Versions: []ModuleVersion{{"a", "b", "v1"}}, Client: 1}}
	for _, l := range wireLoads() {
		all := make([][]wireSample, len(l.subjects()))
		for i := range all {
			all[i] = []wireSample{{
				rate: 12_345_678, p50: 1.2e9, p99: 2.3e9, p999: 3.4e9, requests: 1_234_567, wall: time.Second, server: time.Minute, client: time.Second,
			}}
		}
		r.Wire.Rows = append(r.Wire.Rows, l.result(l.subjects(), all))
	}
	r.Wire.Memory = []WireMemory{{byGCRA, wireManyKeys, 1234, 1234, 1234}}
	r.Wire.Idle = []WireIdle{{byIncr, 10_000, 12345, 12345}, {byBareRESP, 10_000, 12345, 12345}}
	return r
}

func TestWireTablesFitTheTerminal(t *testing.T) {
	var b strings.Builder
	for _, tab := range wideWire().Wire.tables() {
		tab.Table.writeText(&b)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 115 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
