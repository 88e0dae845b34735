package offline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/offline"
)

const good = `
version: 1
policies:
  per-client: {limit: 1/s, burst: 3, key: client.ip}
  plan: {limit: 10/s, burst: 20, key: 'request.headers["x-plan"]', cost: 2}
  team: {limit: 10/s, burst: 50, key: 'attributes["team"]'}
rules:
  - {name: login, match: {method: POST, host: api.example.com, path: /login}, limits: per-client}
  - {name: gold, match: {header: {X-Plan: "*"}}, limits: plan}
  - {name: chat, match: {path: /chat}, limits: team}
  - {name: evening, match: {path: /night}, when: 'now.getHours("UTC") >= 22', exempt: true}
`

const bad = `
version: 1
policies:
  a: {limit: fast}
  b: {limit: 1/s, key: client.port}
rules:
  - {name: r, limits: c}
`

func files(t *testing.T) (goodFile, badFile string) {
	t.Helper()
	dir := t.TempDir()
	goodFile, badFile = filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for name, text := range map[string]string{goodFile: good, badFile: bad} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return goodFile, badFile
}

func runConfig(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := offline.ConfigCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func isInput(err error) bool {
	var invalid *flags.InputError
	return errors.As(err, &invalid)
}

func TestCheck(t *testing.T) {
	goodFile, badFile := files(t)
	if stdout, _, err := runConfig(t, "check", goodFile); err != nil || stdout != goodFile+": ok: 3 policies, 4 rules\n" {
		t.Errorf("%v\n%s", err, stdout)
	}
	stdout, _, err := runConfig(t, "check", badFile)
	if !isInput(err) || !strings.HasSuffix(err.Error(), "bad.yaml cannot be used: 3 mistakes") {
		t.Error(err)
	}
	for _, want := range []string{badFile + ":4:", badFile + ":5:", badFile + ":7:"} {
		if strings.Count(stdout, want) != 1 {
			t.Errorf("%q does not stand once in\n%s", want, stdout)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	stdout, _, err = runConfig(t, "check", goodFile, badFile, missing)
	if !isInput(err) || err.Error() != "2 of 3 configurations cannot be used: 3 mistakes" ||
		!strings.Contains(stdout, "good.yaml: ok") || !strings.Contains(stdout, "missing.yaml: ") {
		t.Errorf("%v\n%s", err, stdout)
	}
	if _, _, err := runConfig(t, "check", missing); !isInput(err) || !strings.Contains(err.Error(), missing) {
		t.Error(err)
	}
}

// TestQuotasAreKeptInTheFile: check and explain say which limits the server keeps in its file where the configuration says
// nothing.
func TestQuotasAreKeptInTheFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(name, []byte(`version: 1
policies:
  month: {limits: [{algorithm: calendar-window, permits: 1000, every: month}]}
  hour: {limits: [{algorithm: calendar-window, permits: 10, every: hour}]}
rules: [{name: all, limits: [month, hour]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, _, err := runConfig(t, "check", name)
	if err != nil || strings.Count(stdout, "durable in a file") != 1 || !strings.Contains(stdout, "limit month/") {
		t.Errorf("%v\n%s", err, stdout)
	}
	stdout, _, err = runConfig(t, "check", name, "--json")
	if err != nil || strings.Count(stdout, `"durability":"file"`) != 1 {
		t.Errorf("%v\n%s", err, stdout)
	}
	stdout, _, err = runConfig(t, "explain", name)
	stdout = strings.Join(strings.Fields(stdout), " ")
	for _, want := range []string{
		"file limits in the directory of weir serve --state, which", "durability file: in a file of this process",
	} {
		if err != nil || strings.Count(stdout, want) != 1 {
			t.Errorf("%q: %v\n%s", want, err, stdout)
		}
	}
}

// TestCheckTellsTheRateOfLockouts: 10 a second and 20 refusals within a minute are 620 requests, from the first to the last.
func TestCheckTellsTheRateOfLockouts(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(name, []byte(`version: 1
policies:
  flood: {limit: 10/s, burst: 50, key: client.ip, lockout: {refusals: 20, within: 1m, for: 15m}}
rules: [{name: all, limits: flood}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, _, err := runConfig(t, "check", name)
	if want := "  lockout flood: locked out for 15m from about 10.32/s on (20 refusals within\n    1m)\n"; err != nil || !strings.HasSuffix(stdout, want) {
		t.Errorf("%v\n%s", err, stdout)
	}
	stdout, _, err = runConfig(t, "check", name, "--json")
	if err != nil || !strings.Contains(stdout, `"lockouts":[{"policy":"flood","requests_per_second":10.31`) {
		t.Errorf("%v\n%s", err, stdout)
	}
}

func TestCheckAsJSON(t *testing.T) {
	goodFile, badFile := files(t)
	stdout, _, err := runConfig(t, "check", goodFile, badFile, "--json")
	if !isInput(err) {
		t.Error(err)
	}
	var got struct {
		OK    bool
		Files []struct {
			File     string
			OK       bool
			Policies int
			Mistakes []struct {
				Line, Column       int
				Path, Message, Fix string
			}
			Warnings []any
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil { //nolint:musttag // case of names does not matter
		t.Fatalf("%v in %s", err, stdout)
	}
	if got.OK || len(got.Files) != 2 || !got.Files[0].OK || got.Files[0].Policies != 3 || got.Files[1].OK || len(got.Files[1].Mistakes) != 3 {
		t.Fatalf("%+v", got)
	}
	for _, m := range got.Files[1].Mistakes {
		if m.Line == 0 || m.Column == 0 || m.Path == "" || m.Message == "" || m.Fix == "" {
			t.Errorf("%+v", m)
		}
	}
}

func TestExplainConfiguration(t *testing.T) {
	goodFile, badFile := files(t)
	stdout, _, err := runConfig(t, "explain", goodFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"per-client", "1/s", "client.ip", "login", "evening"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if _, stderr, err := runConfig(t, "explain", badFile); !isInput(err) || strings.Count(stderr, badFile+":") != 3 {
		t.Errorf("%v\n%s", err, stderr)
	}
}

func TestExplainRequest(t *testing.T) {
	goodFile, _ := files(t)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{
			[]string{"--request", "POST https://api.example.com/login", "--client", "192.0.2.1", "--repeat", "4"},
			[]string{
				"POST api.example.com/login from 192.0.2.1, request 4 of 4 at the same moment (3 of those before were allowed):\n",
				"  refused, bound by per-client/1s: limited, retry after 1 second\n", "rule login (", ": matches\n",
				": no match: header X-Plan", `key "192.0.2.1" from client.ip, by rule login`, "0 remaining before, 0 after; costs 1: refuses it",
			},
		},
		{
			[]string{"--request", "POST /login", "-H", "Host: api.example.com", "-H", "X-Plan: gold"},
			[]string{"allowed, bound by", `key "gold"`, "20 remaining before, 18 after; costs 2: allows it"},
		},
		{[]string{"--request", "/chat", "--attribute", "team=blue", "--cost", "7"}, []string{`key "blue"`, "50 remaining before, 43 after; costs 7"}},
		{[]string{"--request", "/night", "--at", "2026-11-21T22:00:00Z"}, []string{"exempt: a rule exempts it from all limits"}},
		{[]string{"--request", "/night", "--at", "2026-11-21T21:59:59Z"}, []string{"allowed: no limit applies to it"}},
	} {
		stdout, stderr, err := runConfig(t, append([]string{"explain", goodFile}, c.args...)...)
		if err != nil || stderr != "" {
			t.Fatalf("%q: %v\n%s", c.args, err, stderr)
		}
		for _, want := range c.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("%q: no %q in\n%s", c.args, want, stdout)
			}
		}
	}
}

// TestExplainLeased: one process alone grants more at once than servers that share the limit.
func TestExplainLeased(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shared.yaml")
	const text = "version: 1\nstore: redis://h\npolicies:\n  p: {limit: 1000/s, burst: 10000, consistency: leased}\n" +
		"  q: {limit: 1000/s, consistency: coherent}\nrules: [{name: r, limits: [p, q]}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := runConfig(t, "explain", file, "--request", "GET /")
	const note = "note: p/1s is leased: servers that share it grant at most 8999 permits at once\n"
	if err != nil || strings.Count(out, "note: ") != 1 || !strings.Contains(out, note) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestExplainAsJSON(t *testing.T) {
	goodFile, _ := files(t)
	stdout, _, err := runConfig(t, "explain", goodFile, "--request", "/chat", "--attribute", "team=blue", "--repeat", "51", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Request       string
		Repeat        int
		AllowedBefore int `json:"allowed_before"`
		Explanation   struct {
			Allowed bool
			Reason  string
			Binding *int
			Rules   []struct{ Matched bool }
			Limits  []struct {
				Policy, Key string
				Before      int
				RetryAfter  float64 `json:"retry_after"`
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil { //nolint:musttag // case of names does not matter
		t.Fatalf("%v in %s", err, stdout)
	}
	e := got.Explanation
	if got.AllowedBefore != 50 || e.Allowed || e.Reason != "limited" || e.Binding == nil || len(e.Rules) != 4 || len(e.Limits) != 1 ||
		e.Limits[0].Key != "blue" || e.Limits[0].RetryAfter != 0.1 {
		t.Errorf("%+v", got)
	}
}

func TestSchema(t *testing.T) {
	stdout, _, err := runConfig(t, "schema")
	if err != nil || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, `"policies"`) {
		t.Errorf("%v\n%.200s", err, stdout)
	}
}

func TestMisuse(t *testing.T) {
	goodFile, _ := files(t)
	for args, want := range map[string]string{
		"check":                               "check needs a FILE",
		"explain":                             "explain needs one FILE, not 0",
		"explain a.yaml b.yaml":               "explain needs one FILE, not 2",
		"schema x":                            `unexpected argument "x"`,
		"chek":                                `did you mean "check"?`,
		"explain " + goodFile + " --repeat 3": "--repeat needs --request",
		"explain " + goodFile + " --json":     "--json needs --request",
		"explain " + goodFile + " --request login":       "must be a path that begins with a slash",
		"explain " + goodFile + " --request /a -H x":     "must be 'Name: value'",
		"explain " + goodFile + " --client me":           "is not an address",
		"explain " + goodFile + " --at noon":             "must be a time with its zone",
		"explain " + goodFile + " --request /a --cost 0": "from 1 to",
	} {
		_, _, err := runConfig(t, strings.Fields(args)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// TestExplainInterrupted: it ends with its context while it repeats the request.
func TestExplainInterrupted(t *testing.T) {
	goodFile, _ := files(t)
	cmd := offline.ConfigCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"explain", goodFile, "--request", "GET /a", "--repeat", "100000"})
	if err := cmd.ExecuteContext(&soon{t.Context(), 3}); !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("%v, %s", err, &out)
	}
}
