package replay_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/offline/replay"
	"github.com/weirhq/weir/internal/race"
)

// output is what --json prints, written down once more.
type output struct {
	Limit             string       `json:"limit"`
	Burst             int64        `json:"burst"`
	By                string       `json:"by"`
	Files             []string     `json:"files"`
	Complete          bool         `json:"complete"`
	Error             string       `json:"error"`
	Lines             int64        `json:"lines"`
	Requests          int64        `json:"requests"`
	Allowed           int64        `json:"allowed"`
	Refused           int64        `json:"refused"`
	TableFull         int64        `json:"table_full"`
	Malformed         int64        `json:"malformed"`
	Reordered         int64        `json:"reordered"`
	FurthestReordered float64      `json:"furthest_reordered"`
	Late              int64        `json:"late"`
	Keys              int64        `json:"keys"`
	KeysExact         bool         `json:"keys_exact"`
	RefusedKeys       int          `json:"refused_keys"`
	First             time.Time    `json:"first"`
	Last              time.Time    `json:"last"`
	Span              float64      `json:"span"`
	PeakWindow        float64      `json:"peak_window"`
	Top               []outputKey  `json:"top"`
	Timeline          *outputTimes `json:"timeline"`
	MalformedLines    []outputLine `json:"malformed_lines"`
}

type outputKey struct {
	Key             string    `json:"key"`
	Requests        int64     `json:"requests"`
	Refused         int64     `json:"refused"`
	FirstRefused    time.Time `json:"first_refused"`
	LastRefused     time.Time `json:"last_refused"`
	WorstRetryAfter float64   `json:"worst_retry_after"`
	Peak            int64     `json:"peak"`
}

type outputTimes struct {
	Start    time.Time `json:"start"`
	Step     float64   `json:"step"`
	Requests []int64   `json:"requests"`
	Refused  []int64   `json:"refused"`
}

type outputLine struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// run runs the command in this process.
func run(ctx context.Context, stdin io.Reader, args ...string) (stdout string, err error) {
	cmd := replay.Command() //nolint:contextcheck // ExecuteContext gives it its context
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out bytes.Buffer
	cmd.SetIn(stdin)
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	return out.String(), err
}

func runJSON(t *testing.T, stdin string, args ...string) output {
	t.Helper()
	text, err := run(t.Context(), strings.NewReader(stdin), append(args, "--json")...)
	if err != nil {
		t.Fatalf("replay %s: %v", strings.Join(args, " "), err)
	}
	return parse(t, text)
}

func parse(t *testing.T, text string) output {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	var o output
	if err := decoder.Decode(&o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("more than one object: %s", text)
	}
	return o
}

// compare compares all that the program counts with the reference.
func compare(t *testing.T, what string, got output, want referenceResult) {
	t.Helper()
	if got.Requests != want.requests || got.Refused != want.refused || got.Allowed != want.requests-want.refused ||
		got.Malformed != want.malformed || got.Reordered != want.reordered || got.Keys != int64(len(want.keys)) {
		t.Fatalf("%s: requests %d, admitted %d, refused %d, malformed %d, reordered %d, keys %d\nwant %d, %d, %d, %d, %d, %d", what,
			got.Requests, got.Allowed, got.Refused, got.Malformed, got.Reordered, got.Keys,
			want.requests, want.requests-want.refused, want.refused, want.malformed, want.reordered, len(want.keys))
	}
	if !got.Complete || !got.KeysExact || got.TableFull != 0 || !got.First.Equal(want.first) || !got.Last.Equal(want.last) {
		t.Errorf("%s: %+v", what, got)
	}
	refused := 0
	for _, k := range want.keys {
		if k.Refused > 0 {
			refused++
		}
	}
	if got.RefusedKeys != refused || len(got.Top) != refused {
		t.Errorf("%s: %d keys refused, %d listed, want %d", what, got.RefusedKeys, len(got.Top), refused)
	}
	for i, k := range got.Top {
		w := want.keys[k.Key]
		if w == nil || k.Requests != w.Requests || k.Refused != w.Refused || k.Peak != w.Peak ||
			!k.FirstRefused.Equal(w.FirstRefused) || !k.LastRefused.Equal(w.LastRefused) || k.WorstRetryAfter != w.WorstRetryAfter {
			t.Errorf("%s: %+v\nwant %+v", what, k, w)
		}
		if i > 0 && got.Top[i-1].Refused < k.Refused {
			t.Errorf("%s: %s with %d refusals stands below one with fewer", what, k.Key, k.Refused)
		}
	}
	if want.requests > 0 {
		var requests, refusals int64
		for i := range got.Timeline.Requests {
			requests += got.Timeline.Requests[i]
			refusals += got.Timeline.Refused[i]
		}
		if requests != want.requests || refusals != want.refused {
			t.Errorf("%s: %d requests and %d refusals in the timeline", what, requests, refusals)
		}
	}
}

const exampleLog = "../../../../../examples/access.log"

func TestExampleEqualsReference(t *testing.T) {
	log, err := os.ReadFile(exampleLog)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		limit string
		rate  weir.Rate
		burst int64
	}{
		{"1/s", weir.PerSecond(1), 5}, {"8/min", weir.PerMinute(8), 3}, {"1000/h", weir.PerHour(1000), 20}, {"7/13s", weir.Per(7, 13*time.Second), 2},
	} {
		want := replaySlowly(string(log), c.rate.Permits, c.rate.Period, c.burst)
		if want.requests == 0 || want.refused == 0 {
			t.Fatalf("the reference finds %d requests and refuses %d", want.requests, want.refused)
		}
		got := runJSON(t, "", exampleLog, "--limit", c.limit, "--burst", fmt.Sprint(c.burst), "--by", "client.ip", "--top", "10000")
		compare(t, c.limit, got, want)
	}
}

// randomLog writes some requests of a few clients that come in waves, some lines out of order, and some that are damaged.
func randomLog(r *rand.Rand) string {
	var b strings.Builder
	at := time.Date(2026, 1, 1+r.IntN(300), r.IntN(24), r.IntN(60), r.IntN(60), 0, time.UTC)
	clients := 1 + r.IntN(12)
	zone := time.FixedZone("", (r.IntN(25)-12)*1800)
	for range 1 + r.IntN(400) {
		if r.IntN(4) == 0 {
			at = at.Add(time.Duration(r.IntN(30)) * time.Second)
		}
		logged := at
		if r.IntN(5) == 0 {
			logged = at.Add(-time.Duration(r.IntN(20)) * time.Second)
		}
		client := fmt.Sprintf("192.0.2.%d", r.IntN(clients))
		switch r.IntN(20) {
		case 0:
			client = fmt.Sprintf("2001:DB8::%x", r.IntN(clients))
		case 1:
			client = fmt.Sprintf("::ffff:192.0.2.%d", r.IntN(clients))
		case 2:
			client = "host.example"
		}
		line := fmt.Sprintf(`%s - - [%s] "GET /%d?q=\"x\" HTTP/1.1" %d %d "-" "agent/1.0 (x; y)"`,
			client, logged.In(zone).Format("02/Jan/2006:15:04:05 -0700"), r.IntN(9), 200+r.IntN(300), r.IntN(9999))
		switch r.IntN(30) {
		case 0:
			line = line[:r.IntN(30)]
		case 1:
			line = strings.Replace(line, "/2026", "/x", 1)
		case 2:
			line = "\t"
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func TestRandomLogsEqualReference(t *testing.T) {
	logs := 300
	if testing.Short() || race.Enabled {
		logs = 60
	}
	for seed := range uint64(logs) {
		r := rand.New(rand.NewPCG(seed, 1))
		log := randomLog(r)
		rate := weir.Per(1+r.Int64N(10), []time.Duration{
			time.Second, 700 * time.Millisecond, 7 * time.Second, time.Minute, 3*time.Second + 1,
		}[r.IntN(5)])
		burst := 1 + r.Int64N(8)
		got := runJSON(t, log, "-", "--by", "client.ip", "--limit", rate.String(), "--burst", fmt.Sprint(burst), "--top", "10000")
		compare(t, fmt.Sprintf("seed %d, %v burst %d", seed, rate, burst), got, replaySlowly(log, rate.Permits, rate.Period, burst))
	}
}

func write(t *testing.T, name, text string, compressed bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	var b bytes.Buffer
	if compressed {
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	} else {
		b.WriteString(text)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSeveralFilesAreOneLog(t *testing.T) {
	log := randomLog(rand.New(rand.NewPCG(7, 7)))
	third := len(log) / 3
	first := log[:third+strings.IndexByte(log[third:], '\n')+1]
	rest := log[len(first):]
	second := rest[:strings.IndexByte(rest[len(rest)/2:], '\n')+len(rest)/2+1]
	last := rest[len(second):]

	whole := runJSON(t, log, "-", "--limit", "1/s", "--burst", "3")
	parts := runJSON(t, second, write(t, "a.log", first, false), "-", write(t, "c.log", last, true), "--limit", "1/s", "--burst", "3")
	if len(parts.Files) != 3 || parts.Files[1] != "-" {
		t.Errorf("files %q", parts.Files)
	}
	whole.Files, parts.Files = nil, nil
	whole.MalformedLines, parts.MalformedLines = nil, nil // they name the file
	a, b := fmt.Sprintf("%+v", *whole.Timeline), fmt.Sprintf("%+v", *parts.Timeline)
	whole.Timeline, parts.Timeline = nil, nil
	if x, y := fmt.Sprintf("%+v", whole), fmt.Sprintf("%+v", parts); x != y || a != b {
		t.Errorf("whole\n%s\n%s\nin parts\n%s\n%s", x, a, y, b)
	}
	if parts.Requests == 0 || parts.Refused == 0 {
		t.Errorf("%d requests, %d refused", parts.Requests, parts.Refused)
	}
}

// TestFilesOfSeveralServers: files that cover the same time are put in order together.
func TestFilesOfSeveralServers(t *testing.T) {
	log := randomLog(rand.New(rand.NewPCG(10, 10)))
	var files [2]strings.Builder
	for i, line := range strings.SplitAfter(log, "\n") {
		files[i%2].WriteString(line)
	}
	a, b := write(t, "a.log", files[0].String(), false), write(t, "b.log.gz", files[1].String(), true)
	got := runJSON(t, "", a, b, "--by", "client.ip", "--limit", "1/min", "--burst", "2", "--top", "10000")
	compare(t, "two servers", got, replaySlowly(files[0].String()+files[1].String(), 1, time.Minute, 2))
	if got.Late != 0 || got.Reordered == 0 || got.Refused == 0 {
		t.Errorf("%d late, %d reordered, %d refused", got.Late, got.Reordered, got.Refused)
	}
}

func TestEmptyLog(t *testing.T) {
	got := runJSON(t, "\n\n", "-")
	if got.Requests != 0 || !got.Complete || got.Timeline != nil || got.Lines != 2 {
		t.Errorf("%+v", got)
	}
	text, err := run(t.Context(), strings.NewReader("hello\n"), "-")
	if err == nil || !strings.Contains(err.Error(), "the only line is no request: give a log in") ||
		!strings.Contains(text, "requests   0\n") || !strings.Contains(text, `-:1:`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestUnreadLogHasNoReport: an error after an empty table would be taken for a log without requests.
func TestUnreadLogHasNoReport(t *testing.T) {
	if text, err := run(t.Context(), strings.NewReader(""), write(t, "cut.log.gz", "\x1f\x8b", false)); err == nil || text != "" {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestKeysAreSafeToPrint(t *testing.T) {
	line := `192.0.2.1 - - [03/Mar/2026:14:00:04 +0000] "GET /a\x1b]0;x\x07 HTTP/1.1" 200 2 "-" "-"` + "\n"
	text, err := run(t.Context(), strings.NewReader(strings.Repeat(line, 3)), "-", "--limit", "1/s", "--by", "path")
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(text, "\x1b\x07") || !strings.Contains(text, `/a\x1b]0;x\a`) {
		t.Errorf("%q", text)
	}
	if got := runJSON(t, strings.Repeat(line, 3), "-", "--limit", "1/s", "--by", "path"); got.Top[0].Key != "/a\x1b]0;x\x07" {
		t.Errorf("%q in JSON", got.Top[0].Key)
	}
}

func TestUnreadableFiles(t *testing.T) {
	log := randomLog(rand.New(rand.NewPCG(8, 8)))
	good := write(t, "good.log", log, false)
	torn := write(t, "torn.log.gz", strings.Repeat(log, 50), true)
	data, err := os.ReadFile(torn)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(torn, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}

	text, err := run(t.Context(), nil, good, torn, "--json")
	if err == nil || !strings.Contains(err.Error(), "truncated") || !strings.Contains(err.Error(), torn) {
		t.Errorf("torn: %v", err)
	}
	if got := parse(t, text); got.Complete || got.Error != err.Error() || got.Requests <= runJSON(t, log, "-").Requests {
		t.Errorf("what was done: %+v", got)
	}
	text, err = run(t.Context(), nil, good, torn)
	if err == nil || !strings.Contains(text, "incomplete: ") {
		t.Errorf("%v\n%s", err, text)
	}

	for _, missing := range []string{filepath.Join(t.TempDir(), "missing.log"), t.TempDir()} {
		text, err = run(t.Context(), nil, good, missing)
		if _, misuse := errors.AsType[*flags.Error](err); !misuse || !strings.Contains(err.Error(), missing) || text != "" {
			t.Errorf("%s: %v\n%s", missing, err, text)
		}
	}
}

// TestInterrupt in the middle of a line: what was read before counts, and nothing is wrong with that line.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pipe, w := io.Pipe()
	log := randomLog(rand.New(rand.NewPCG(9, 9)))
	malformed := runJSON(t, log, "-").Malformed
	go func() {
		// Each write returns when the one before has been read, and then nothing more comes.
		for _, text := range []string{log, `192.0.2.1 - - [03/Mar/20`, "26:1"} {
			_, _ = io.WriteString(w, text)
		}
		cancel()
	}()
	text, err := run(ctx, pipe, "-", "--json")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if got := parse(t, text); got.Complete || got.Error != "interrupted" || got.Malformed != malformed || got.Lines == 0 {
		t.Errorf("%+v", got)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
