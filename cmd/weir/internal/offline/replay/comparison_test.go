package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// compareText runs a log through configurations.
func compareText(t *testing.T, log string, configurations ...configuration) *comparisonReport {
	t.Helper()
	c := newComparison(configurations...)
	if err := readRecords(t.Context(), accesslog.NewReader(strings.NewReader(log)), c.read, func() {}); err != nil {
		t.Fatal(err)
	}
	return reportOf[*comparisonReport](t, c, 10_000)
}

// randomRequests is a log of clients that ask for some paths, some lines out of order, and what it says in order.
func randomRequests(rng *rand.Rand, lines int) string {
	var b strings.Builder
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	for range lines {
		if rng.IntN(3) == 0 {
			at = at.Add(time.Duration(rng.IntN(4)) * time.Second)
		}
		shown := at.Add(-time.Duration(rng.IntN(3)) * time.Second)
		fmt.Fprintf(&b, "192.0.2.%d - - [%s] \"%s /%s HTTP/1.1\" 200 5 \"-\" \"%s\"\n", rng.IntN(6), shown.Format("02/Jan/2006:15:04:05 -0700"),
			[]string{"GET", "POST"}[rng.IntN(2)], []string{"", "images/a.png", "login", "a%20b"}[rng.IntN(4)], []string{"bot/1", "browser"}[rng.IntN(2)])
	}
	return b.String()
}

const looseText = `
version: 1
policies:
  per-client: {limit: 60/min, burst: 8, key: client.ip}
  images: {limits: [{rate: 2/s, burst: 3}, {algorithm: fixed-window, rate: 20/min}], key: client.ip}
  bots: {limit: 1/s, burst: 4, key: 'request.headers["user-agent"]'}
rules:
  - {name: all, limits: per-client}
  - {name: images, match: {path: /images/}, limits: images}
  - {name: bots, match: {header: {User-Agent: "bot*"}, method: GET}, limits: bots}
  - {name: encoded, match: {path: /a%20b}, exempt: true}
`

const tightText = `
version: 1
policies:
  per-client: {limit: 30/min, burst: 4, key: client.ip}
  images: {limits: [{rate: 5/s, burst: 9}, {algorithm: fixed-window, rate: 50/min}], key: client.ip}
  logins: {limit: 6/min, burst: 2}
rules:
  - {name: all, limits: per-client}
  - {name: images, match: {path: /images/}, limits: images}
  - {name: logins, match: {path: /login, method: POST}, limits: logins}
`

// slow runs a log through two configurations one request after the other, with engines of its own, and counts in maps.
type slow struct {
	requests, refused [2]map[string]int64
	newly             [2]map[string]int64 // 0: refused, 1: admitted
	keys              [2]map[string]int64 // policy and key
}

func compareSlowly(t *testing.T, log string, configurations [2]configuration) slow {
	t.Helper()
	type one struct {
		at   int64
		line string
	}
	var all []one
	r := accesslog.NewReader(strings.NewReader(log))
	lines := strings.Split(log, "\n")
	var rec accesslog.Record
	for r.Next(&rec) == nil {
		all = append(all, one{rec.Time, lines[rec.Line-1]})
	}
	for i := 1; i < len(all); i++ { // stable, by insertion
		for j := i; j > 0 && all[j].at < all[j-1].at; j-- {
			all[j], all[j-1] = all[j-1], all[j]
		}
	}
	var s slow
	for i := range 2 {
		s.requests[i], s.refused[i], s.newly[i], s.keys[i] = map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}
	}
	var engines [2]*policy.Engine
	for i, c := range configurations {
		c.clock.Set(all[0].at)
		engine, err := policy.NewEngine(c.set, policy.EngineOptions{Clock: c.clock})
		if err != nil {
			t.Fatal(err)
		}
		engines[i] = engine
	}
	for _, each := range all {
		fields := strings.Split(each.line, " ")
		path := strings.ReplaceAll(fields[6], "%20", " ")
		agent := strings.Trim(fields[len(fields)-1], `"`)
		var refusing [2]map[string]string
		var allowed [2]bool
		for i := range 2 {
			configurations[i].clock.Set(each.at)
			request := &policy.Request{Protocol: "http", Method: fields[5][1:], Path: path, Header: &logged{userAgent: [1]string{agent}}}
			if err := rec.Client.UnmarshalText([]byte(fields[0])); err != nil {
				t.Fatal(err)
			}
			request.Client = rec.Client
			var v policy.Verdict
			engines[i].Take(request, &v)
			allowed[i] = v.Allowed
			refusing[i] = map[string]string{}
			s.requests[i][""]++
			if !v.Allowed {
				s.refused[i][""]++
			}
			seen := map[string]bool{}
			for _, p := range v.Parts {
				seen[p.Policy.Name] = true
				if _, known := refusing[i][p.Policy.Name]; !p.Decision.Allowed && !known {
					refusing[i][p.Policy.Name] = string(p.Key)
				}
			}
			for name := range seen {
				s.requests[i][name]++
			}
			for name := range refusing[i] {
				s.refused[i][name]++
			}
			v.Release()
		}
		for i := range 2 {
			if !allowed[1-i] && allowed[i] {
				s.newly[i][""]++
			}
			for name, key := range refusing[1-i] {
				if _, both := refusing[i][name]; !both {
					s.newly[i][name]++
					s.keys[i][name+" "+key]++
				}
			}
		}
	}
	return s
}

func TestComparisonEqualsReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	logs := 5
	if race.Enabled {
		logs = 1
	}
	for range logs {
		log := randomRequests(rng, 3000)
		r := compareText(t, log, loadText(t, "loose.yaml", looseText), loadText(t, "tight.yaml", tightText))
		want := compareSlowly(t, log, [2]configuration{loadText(t, "loose.yaml", looseText), loadText(t, "tight.yaml", tightText)})
		if r.Requests != 3000 || want.refused[0][""] == 0 || want.newly[1][""] == 0 {
			t.Fatalf("%d requests, %+v", r.Requests, want)
		}
		for _, s := range append([]subject{r.All}, r.Policies...) {
			for i, v := range []*verdicts{s.Config, s.Against} {
				if v == nil {
					if want.requests[i][s.Name] != 0 {
						t.Errorf("%s: configuration %d has no such policy", s.Name, i)
					}
					continue
				}
				if v.Requests != want.requests[i][s.Name] || v.Refused != want.refused[i][s.Name] || v.Allowed != v.Requests-v.Refused {
					t.Errorf("%q, configuration %d: %+v, want %d requests, %d refused", s.Name, i, v, want.requests[i][s.Name], want.refused[i][s.Name])
				}
				var requests, refused int64
				for step := range v.Timeline.Allowed {
					requests += v.Timeline.Allowed[step] + v.Timeline.Refused[step]
					refused += v.Timeline.Refused[step]
				}
				if requests != v.Requests || refused != v.Refused {
					t.Errorf("%q: %d requests and %d refusals in the timeline", s.Name, requests, refused)
				}
			}
			if s.Change.NewlyRefused != want.newly[0][s.Name] || s.Change.NewlyAdmitted != want.newly[1][s.Name] {
				t.Errorf("%q: %+v, want %d and %d", s.Name, s.Change, want.newly[0][s.Name], want.newly[1][s.Name])
			}
			for i, keys := range [][]countedKey{s.Change.NewlyRefusedKeys, s.Change.NewlyAdmittedKeys} {
				for _, k := range keys {
					if want.keys[i][s.Name+" "+k.Key] != k.Count {
						t.Errorf("%q: %+v, want %d", s.Name, k, want.keys[i][s.Name+" "+k.Key])
					}
					delete(want.keys[i], s.Name+" "+k.Key)
				}
			}
		}
		if len(want.keys[0])+len(want.keys[1]) > 0 {
			t.Errorf("not listed: %v", want.keys)
		}
		if r.All.Config.Exempt == 0 || r.All.Against.Exempt != 0 {
			t.Errorf("%d and %d exempt", r.All.Config.Exempt, r.All.Against.Exempt)
		}
	}
}

// TestComparisonWithItself: nothing changes.
func TestComparisonWithItself(t *testing.T) {
	log, err := os.ReadFile("../../../../../examples/access.log")
	if err != nil {
		t.Fatal(err)
	}
	r := compareText(t, string(log), loadText(t, "a.yaml", looseText), loadText(t, "b.yaml", looseText))
	for _, s := range append([]subject{r.All}, r.Policies...) {
		if s.Config.Requests != s.Against.Requests || s.Config.Refused != s.Against.Refused || s.Change.NewlyAdmitted+s.Change.NewlyRefused != 0 {
			t.Errorf("%q: %+v, %+v", s.Name, s.Config, s.Against)
		}
	}
	if r.All.Config.Refused == 0 {
		t.Error("nothing is refused")
	}
}

// TestReplayIsRepeatable: two runs give the same, byte for byte, whatever the goroutines do.
func TestReplayIsRepeatable(t *testing.T) {
	log := randomRequests(rand.New(rand.NewPCG(5, 6)), 10_000)
	var outputs [2]bytes.Buffer
	for i := range outputs {
		r := compareText(t, log, loadText(t, "loose.yaml", looseText), loadText(t, "tight.yaml", tightText))
		for _, asJSON := range []bool{true, false} {
			if err := terminal.Print(&outputs[i], r, asJSON); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !bytes.Equal(outputs[0].Bytes(), outputs[1].Bytes()) {
		t.Error("two runs differ")
	}
}

func TestNotes(t *testing.T) {
	c := loadText(t, "odd.yaml", `
version: 1
policies:
  per-key: {limit: 1/s, key: 'request.headers["x-api-key"]'}
  slots: {limits: [{algorithm: concurrency, permits: 3}], key: 'attributes["team"]'}
  waits: {limit: 1/s, queue: {limit: 10}}
  plan: {limit: 1/s, key: 'request.headers["X-API-Key"] + request.headers["X-plan"]'}
  more: {limits: [{algorithm: concurrency, permits: 3}]}
rules:
  - {name: gold, match: {header: {X-Plan: gold}}, limits: per-key}
  - {name: silver, match: {header: {x-plan: silver}}, limits: [plan, more]}
  - {name: when, when: 'request.headers["x-plan"] == ""', limits: plan}
  - {name: inside, match: {header: {X-Plan: null}, host: api.example.com}, limits: slots}
  - {name: agents, match: {header: {User-Agent: "*"}}, limits: waits}
  - {name: routed, match: {route: "POST /login"}, limits: waits}
  - {name: grpc, match: {protocol: grpc}, limits: waits}
`)
	r := compareText(t, "client.example.net "+`- - [03/Mar/2026:14:00:04 +0000] "GET / HTTP/1.1" 200 2 "-" "-"`+"\n", c)
	notes := strings.Join(r.Notes, "\n")
	for _, want := range []string{
		"access logs have no header X-Plan: rules gold, silver never match; rule inside takes it as absent; policy plan and rule when take it as empty",
		"access logs have no header X-Api-Key: policies per-key, plan take it as empty",
		"access logs have no attributes: policy slots takes them as empty",
		"access logs have no route: rule routed never matches",
		"requests of access logs have the protocol http, not grpc: rule grpc never matches",
		"access logs do not tell how long requests took: policies slots, more, which bound how many are served at a time, never refuse",
		"replay never waits: policy waits refuses those as well that would have waited",
		"hosts are looked at, which this log does not have",
		"1 request came from a client whose address the log does not tell",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note %q in\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "agents") {
		t.Errorf("a note about User-Agent:\n%s", notes)
	}
	if n := strings.Count(notes, "X-Plan"); n != 1 {
		t.Errorf("%d notes about one header:\n%s", n, notes)
	}
	var text bytes.Buffer
	r.Print(&text, terminal.Output{Width: 60})
	_, after, _ := strings.Cut(text.String(), "\nnote: ")
	for line := range strings.Lines("note: " + after) {
		if len(line) > 61 || !strings.HasPrefix(line, "note: ") && !strings.HasPrefix(line, "      ") {
			t.Errorf("%d columns: %q", len(line)-1, line)
		}
	}
}

// TestLogWithoutRequests: there is a report, and a picture.
func TestLogWithoutRequests(t *testing.T) {
	r := compareText(t, "this is no request\n", loadText(t, "loose.yaml", looseText), loadText(t, "tight.yaml", tightText))
	for _, asJSON := range []bool{true, false} {
		if err := terminal.Print(io.Discard, r, asJSON); err != nil {
			t.Error(err)
		}
	}
	if r.Requests != 0 || r.First != nil {
		t.Errorf("%+v", r)
	}
	if err := draw(filepath.Join(t.TempDir(), "empty.svg"), r.picture()); err != nil {
		t.Error(err)
	}
}

func TestShadowAndCandidate(t *testing.T) {
	c := loadText(t, "shadow.yaml", `
version: 1
policies:
  watched: {limit: 1/s, burst: 1, key: client.ip, mode: shadow}
  live: {limit: 10/s, burst: 100, key: client.ip, candidate: {limit: 1/s, burst: 1}}
  idle: {limit: 10/s}
rules:
  - {name: idle, match: {path: /nowhere}, limits: idle}
  - {name: all, limits: [watched, live]}
`)
	line := `192.0.2.1 - - [03/Mar/2026:14:00:04 +0000] "GET / HTTP/1.1" 200 2 "-" "-"` + "\n"
	r := compareText(t, strings.Repeat(line, 5), c)
	if r.All.Config.Refused != 0 {
		t.Errorf("%d refused", r.All.Config.Refused)
	}
	if r.All.Config.Unlimited != 0 {
		t.Errorf("%d without a limit", r.All.Config.Unlimited)
	}
	if watched := r.Policies[0].Config; watched.Requests != 5 || watched.Refused != 4 {
		t.Errorf("in shadow: %+v", watched)
	}
	if d := r.Policies[1].Config.Difference; d == nil || d.NewlyRefused != 4 {
		t.Errorf("candidate: %+v", d)
	}
	var text bytes.Buffer
	if err := terminal.Print(&text, r, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"watched (shadow)\n", "\n1 more policy applied to no request\n", "the candidate of live in shadow.yaml would newly refuse 4 requests and allow 0\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// TestWithoutALimitAsTheServerCounts: a request has a limit if a policy in shadow applies to it, or one that tags, or one whose key
// cannot be told.
func TestWithoutALimitAsTheServerCounts(t *testing.T) {
	c := loadText(t, "shadow.yaml", `
version: 1
policies:
  watched: {limit: 1/s, mode: shadow}
  soft: {limit: 1/s, mode: tag}
  fails: {limit: 1/s, key: 'string(int(request.path))'}
  off: {limit: 1/s, mode: "off"}
rules:
  - {name: watched, match: {path: /watched}, limits: watched}
  - {name: soft, match: {path: /soft}, limits: soft}
  - {name: fails, match: {path: /fails}, limits: fails}
  - {name: off, match: {path: /off}, limits: off}
`)
	var log strings.Builder
	for _, path := range []string{"watched", "soft", "fails", "off", "none"} {
		fmt.Fprintf(&log, "192.0.2.1 - - [03/Mar/2026:14:00:04 +0000] \"GET /%s HTTP/1.1\" 200 2 \"-\" \"-\"\n", path)
	}
	if v := compareText(t, log.String(), c).All.Config; v.Requests != 5 || v.Refused != 1 || v.Unlimited != 2 {
		t.Errorf("%+v", v)
	}
}

func runCommand(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	cmd := Command() //nolint:contextcheck // ExecuteContext gives it its context
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	return out.String(), errs.String(), err
}

func TestChartOfTheCommand(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"loose.yaml": looseText, "tight.yaml": tightText} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const log = "../../../../../examples/access.log"
	loose, tight := filepath.Join(dir, "loose.yaml"), filepath.Join(dir, "tight.yaml")
	for i, args := range [][]string{{"--config", loose, "--against", tight}, {"--config", loose}, {"--limit", "1/s"}, {"--limit", "1/s", "--against", tight}} {
		name := filepath.Join(dir, fmt.Sprintf("chart%d.svg", i))
		if _, stderr, err := runCommand(t.Context(), append(args, "--chart", name, log)...); err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(data, []byte("</svg>")) || i == 0 && !bytes.Contains(data, []byte("loose.yaml compared with tight.yaml")) {
			t.Errorf("%v: the picture is not whole, or does not say what is compared", args)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "directory.svg"), 0o700); err != nil {
		t.Fatal(err)
	}
	for chart, want := range map[string]string{
		"directory.svg": "weir: chart: ", filepath.Join("missing", "x.svg"): "must be in a directory that is there",
		filepath.Join("directory.svg", "x.svg", "y.svg"): "must be in a directory that is there",
		filepath.Join("chart0.svg", "x.svg"):             "must be in a directory that is there",
	} {
		if _, _, err := runCommand(t.Context(), "--chart", filepath.Join(dir, chart), log); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s cannot be written: %v", chart, err)
		}
	}
}

func TestConfigurationWithMistakes(t *testing.T) {
	name := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(name, []byte("version: 1\npolicies: {a: {limit: fast}}\nrules: [{name: r, limits: b}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := runCommand(t.Context(), "--config", name, "x.log")
	if err == nil || !strings.Contains(err.Error(), "2 mistakes") || !strings.Contains(stderr, name+":2:") || !strings.Contains(stderr, name+":3:") {
		t.Errorf("%v\n%s", err, stderr)
	}
}

func TestComparisonAsJSON(t *testing.T) {
	r := compareText(t, randomRequests(rand.New(rand.NewPCG(1, 2)), 500), loadText(t, "loose.yaml", looseText), loadText(t, "tight.yaml", tightText))
	var b bytes.Buffer
	if err := terminal.Print(&b, r, true); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"config", "against", "requests", "notes", "all", "policies", "timeline_start", "timeline_step"} {
		if _, ok := got[key]; !ok {
			t.Errorf("no %s", key)
		}
	}
}

// TestLimitAgainstConfiguration: the limit of the flags is compared as if it were a configuration.
func TestLimitAgainstConfiguration(t *testing.T) {
	name := filepath.Join(t.TempDir(), "same.yaml")
	text := "version: 1\npolicies: {limit: {limit: 1/s, burst: 5, key: client.ip}}\nrules: [{name: all, limits: limit}]\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const log = "../../../../../examples/access.log"
	stdout, stderr, err := runCommand(t.Context(), "--limit", "1/s", "--burst", "5", "--against", name, "--json", log)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var got comparisonReport
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if all := got.All; all.Config.Refused != 120 || all.Against.Refused != 120 || all.Change.NewlyRefused+all.Change.NewlyAdmitted != 0 {
		t.Errorf("%+v, %+v, %+v", all.Config, all.Against, all.Change)
	}
	for args, want := range map[string]string{
		"--limit 1/s --config " + name:               "--limit cannot be combined with --config",
		"--by header:Cookie --against " + name:       "an access log has no header but",
		"--chart x.png":                              "must be a file whose name ends in .svg",
		"--config " + name + ".missing":              "no such file",
		"--config " + name + " --against /nowhere.y": "no such file",
	} {
		if _, _, err := runCommand(t.Context(), append(strings.Fields(args), log)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// TestConfigurationThatTheEngineRefuses: what a file cannot say is told nevertheless, and there is a report.
func TestConfigurationThatTheEngineRefuses(t *testing.T) {
	good := loadText(t, "loose.yaml", looseText)
	bad := configuration{name: "bad", set: &policy.Set{Rules: []policy.Rule{{Name: "r", Limits: []policy.Use{{Policy: "nowhere"}}}}}, clock: &manualclock.Clock{}}
	for _, both := range [][]configuration{{good, bad}, {bad, good}, {bad}} {
		c := newComparison(both...)
		log := randomRequests(rand.New(rand.NewPCG(1, 2)), 3000)
		if err := readRecords(t.Context(), accesslog.NewReader(strings.NewReader(log)), c.read, func() {}); err != nil {
			t.Fatal(err)
		}
		if err := c.finish(); err == nil || !strings.HasPrefix(err.Error(), "bad: ") {
			t.Errorf("%v", err)
		}
		r := c.report(10)
		if err := terminal.Print(io.Discard, r, false); err != nil {
			t.Error(err)
		}
		if err := draw(filepath.Join(t.TempDir(), "none.svg"), r.picture()); err != nil {
			t.Error(err)
		}
	}
}
