package replay

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// benchLog is the log that BenchmarkComparison runs: go test -bench Comparison -args -log FILE.
var benchLog = flag.String("log", "../../../../../examples/access.log", "the access log of BenchmarkComparison, in the combined format")

// repeated writes a log again and again, each time later by its own length in whole days, until it has that many lines.
func repeated(t testing.TB, name string, lines int) []byte {
	t.Helper()
	log, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const layout = "02/Jan/2006:15:04:05 -0700"
	var first, last time.Time
	times := map[string]time.Time{}
	split := bytes.SplitAfter(log, []byte("\n"))
	for _, line := range split {
		at, ok := stamp(line)
		if !ok {
			continue
		}
		parsed, err := time.Parse(layout, string(at))
		if err != nil {
			t.Fatal(err)
		}
		times[string(at)] = parsed
		if first.IsZero() || parsed.Before(first) {
			first = parsed
		}
		if parsed.After(last) {
			last = parsed
		}
	}
	days := int(last.Sub(first).Hours()/24) + 1
	var b bytes.Buffer
	for round := 0; lines > 0; round++ {
		for _, line := range split {
			at, ok := stamp(line)
			if !ok {
				continue
			}
			if lines--; lines < 0 {
				break
			}
			start := bytes.IndexByte(line, '[') + 1
			b.Write(line[:start])
			b.WriteString(times[string(at)].AddDate(0, 0, round*days).Format(layout))
			b.Write(line[start+len(at):])
		}
	}
	return b.Bytes()
}

// stamp is what stands between the first brackets of a line.
func stamp(line []byte) ([]byte, bool) {
	start, end := bytes.IndexByte(line, '['), bytes.IndexByte(line, ']')
	if start < 0 || end < start {
		return nil, false
	}
	return line[start+1 : end], true
}

const (
	oneLive = `
version: 1
policies: {per-client: {limit: 60/min, burst: 30, key: client.ip}}
rules: [{name: all, limits: per-client}]
`
	oneStrict = `
version: 1
policies: {per-client: {limit: 20/min, burst: 8, key: client.ip}}
rules: [{name: all, limits: per-client}]
`
	liveConfig = `
version: 1
policies:
  per-client: {limit: 60/min, burst: 30, key: client.ip}
  per-network: {limits: [{rate: 120/min, burst: 60}, {algorithm: sliding-window, rate: 2000/h}], key: client.net}
  files: {limit: 30/min, burst: 10, key: [client.ip, request.path]}
rules:
  - {name: all, limits: [per-client, per-network]}
  - {name: files, match: {method: GET, path: [/images/, /assets/, /presentations/]}, limits: files}
  - {name: health, match: {path: /healthz}, exempt: true}
`
	strictConfig = `
version: 1
policies:
  per-client: {limit: 20/min, burst: 8, key: client.ip}
  per-network: {limits: [{rate: 120/min, burst: 60}, {algorithm: sliding-window, rate: 1000/h}], key: client.net}
  files: {limit: 10/min, burst: 5, key: [client.ip, request.path]}
rules:
  - {name: all, limits: [per-client, per-network]}
  - {name: files, match: {method: GET, path: [/images/, /assets/, /presentations/]}, limits: files}
  - {name: health, match: {path: /healthz}, exempt: true}
`
)

// loadText loads a configuration from a text.
func loadText(t testing.TB, name, text string) configuration {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	c, err := load(path, &told)
	if err != nil {
		t.Fatalf("%v\n%s", err, told.String())
	}
	c.name = name
	return c
}

// BenchmarkComparison compares two configurations over a log of 200,000 lines, from reading its text to the report: of one policy
// each, and of three policies with four limits and three rules each.
func BenchmarkComparison(b *testing.B) {
	const lines = 200_000
	log := repeated(b, *benchLog, lines)
	for _, c := range []struct{ name, live, strict string }{{"one_policy", oneLive, oneStrict}, {"three_policies", liveConfig, strictConfig}} {
		b.Run(c.name, func(b *testing.B) {
			requests := 0
			b.SetBytes(int64(len(log)))
			b.ReportAllocs()
			for b.Loop() {
				run := newComparison(loadText(b, "live.yaml", c.live), loadText(b, "strict.yaml", c.strict))
				reader := accesslog.NewReader(readAhead(b.Context(), bytes.NewReader(log)))
				if err := readRecords(b.Context(), reader, run.read, func() {}); err != nil {
					b.Fatal(err)
				}
				r := reportOf[*comparisonReport](b, run, 10)
				requests += int(r.Requests)
				if r.Requests != lines || r.All.Config.Refused == 0 || r.All.Change.NewlyRefused == 0 {
					b.Fatalf("%+v", r.All)
				}
				if err := terminal.Print(io.Discard, r, false); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(requests)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
