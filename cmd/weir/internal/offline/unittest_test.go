package offline_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/offline"
)

const configText = `
version: 1
policies:
  per-client: {limit: 1/s, burst: 3, key: client.ip}
  plan:
    limit: 10/s
    burst: 2
    key: 'request.headers["x-plan"]'
    cost: 'int(request.headers["x-cost"])'
  slots: {limits: [{algorithm: concurrency, permits: 2}]}
  month: {limits: [{algorithm: calendar-window, permits: 2, every: month, zone: Europe/Vienna}]}
  team: {limit: "${TEAM_LIMIT:-1/h}", burst: 1, key: 'attributes["team"]'}
  tokens: {limit: 100/min, burst: 100}
  night: {limit: 1/h, burst: 1}
  included: {limit: 1/h, burst: 2, mode: tag}
  trial: {limit: 1/h, burst: 3, mode: tag}
rules:
  - {name: all, match: {path: /a}, limits: per-client}
  - {name: gold, match: {header: {X-Plan: "*"}}, limits: plan}
  - {name: slots, match: {path: /slow}, limits: slots}
  - {name: month, match: {path: /month}, limits: month}
  - {name: team, match: {path: /team}, limits: team}
  - {name: tokens, match: {path: /tokens}, limits: tokens}
  - {name: host, match: {host: api.example.com, path: /hosted}, limits: per-client}
  - {name: night, match: {path: /night}, when: 'now.getHours("UTC") >= 22', limits: night}
  - {name: soft, match: {path: /soft}, limits: [included, trial]}
  - {name: health, match: {path: /healthz}, exempt: true}
`

// write writes files into a directory of their own, and returns where the tests are.
func write(t *testing.T, tests string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"weir.yaml": configText, "weir_test.yaml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "weir_test.yaml")
}

func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := offline.UnitTestCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(append([]string{}, args...)) // not nil, which stands for those of this process
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// TestSteps: all that a step can do, with what is true of it.
func TestSteps(t *testing.T) {
	file := write(t, `
config: weir.yaml
client: 192.0.2.1
env: {TEAM_LIMIT: 1/min}
tests:
  - name: a burst, and then one a second
    steps:
      - {request: GET /a, times: 4, expect: {allowed: 3, refused: 1, policy: per-client, key: 192.0.2.1, reason: limited, retry_after: 1s, remaining: 0, limit: 3, rule: all}}
      - {request: GET /a, expect: {policy: per-client/1s}}
      - {wait: 999ms, request: GET /a, expect: {allowed: false, retry_after: 1ms}}
      - {wait: 1ms, request: GET /a, expect: {allowed: true, reason: none, retry_after: 0s}}
      - {request: GET /a, client: 192.0.2.2, expect: {allowed: true, remaining: 2}}
      - {wait: 1h, request: GET /a, times: 10, every: 1s, expect: {allowed: true, remaining: 2}}
  - name: state is fresh
    steps:
      - {request: GET /a, times: 3, expect: {allowed: true}}
  - name: headers and cost
    headers: {X-Plan: gold, X-Cost: 2}
    steps:
      - {request: GET /b, expect: {allowed: true, policy: plan, key: gold, remaining: 0, rules: [gold]}}
      - {request: GET /b, headers: {X-Plan: silver, X-Cost: 3}, expect: {allowed: false, reason: never, retry_after: never}}
      - {request: GET /b, headers: {X-Plan: null}, expect: {allowed: true, policy: none, rules: []}}
  - name: what is held
    steps:
      - {request: GET /slow, times: 3, hold: true, expect: {allowed: 2, policy: slots}}
      - {request: GET /slow, expect: {allowed: false}}
      - {release: true, request: GET /slow, times: 5, expect: {allowed: true}}
  - name: a month is a month
    at: 2026-02-28T22:59:00Z
    steps:
      - {request: GET /month, times: 3, expect: {allowed: 2, policy: month, retry_after: 1m}}
      - {wait: 1m, request: GET /month, expect: {allowed: true}}
  - name: attributes and the environment
    attributes: {team: blue}
    steps:
      - {request: GET /team, expect: {allowed: true}}
      - {request: GET /team, expect: {allowed: false, retry_after: 60s, key: blue}}
      - {request: GET /team, attributes: {team: red}, expect: {allowed: true}}
  - name: a cost of its own
    steps:
      - {request: POST /tokens, cost: 90, expect: {allowed: true, remaining: 10}}
      - {request: POST /tokens, cost: 11, expect: {allowed: false, retry_after: 600ms}}
  - name: hosts
    steps:
      - {request: GET https://api.example.com/hosted, expect: {policy: per-client}}
      - {request: GET /hosted, host: api.example.com, expect: {policy: per-client}}
      - {request: GET /hosted, headers: {Host: api.example.com}, expect: {policy: per-client}}
      - {request: GET /hosted, expect: {policy: none, rules: []}}
  - name: expressions have the time of the test
    at: 2026-11-21T21:59:59Z
    steps:
      - {request: GET /night, times: 2, expect: {allowed: 2}}
      - {wait: 1s, request: GET /night, times: 2, expect: {allowed: 1, policy: night}}
  - name: soft limits
    steps:
      - {request: GET /soft, times: 2, expect: {allowed: true, over: []}}
      - {request: GET /soft, expect: {allowed: true, over: included, policy: none}}
      - {request: GET /soft, expect: {allowed: true, over: [included, trial]}}
      - {wait: 1h, request: GET /soft, expect: {over: []}}
  - name: exempt
    steps:
      - {request: GET /healthz, times: 1000, expect: {allowed: true, exempt: true}}
      - {request: GET /a, expect: {exempt: false}}
`)
	stdout, stderr, err := run(t, file, "-v")
	if err != nil || stderr != "" {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	if n := strings.Count(stdout, "\nok    "); n != 11 || !strings.HasSuffix(stdout, "weir_test.yaml: 11 tests\n") {
		t.Errorf("%d\n%s", n, stdout)
	}
	if stdout, _, err := run(t, file); err != nil || strings.Count(stdout, "\n") != 1 {
		t.Errorf("%v\n%s", err, stdout)
	}
}

// TestEveryExpectationCanFail: what is expected and not so is told, with what was got instead.
func TestEveryExpectationCanFail(t *testing.T) {
	for expect, want := range map[string]string{
		"allowed: 2":            "allowed: expected 2 of 4, got 3 of 4",
		"allowed: true":         "allowed: expected 4 of 4, got 3 of 4",
		"allowed: false":        "allowed: expected 0 of 4, got 3 of 4",
		"refused: 2":            "refused: expected 2 of 4, got 1 of 4",
		"refused: true":         "refused: expected 4 of 4, got 1 of 4",
		"exempt: true":          "exempt: expected true, got false",
		"policy: plan":          "policy: expected plan, got per-client",
		"policy: none":          "policy: expected none, got per-client",
		"key: 192.0.2.2":        `key: expected "192.0.2.2", got "192.0.2.1"`,
		"reason: none":          "reason: expected none, got limited",
		"retry_after: 2s":       "retry_after: expected 2s, got 1s",
		"retry_after: never":    "retry_after: expected never, got 1s",
		"remaining: 1":          "remaining: expected 1, got 0",
		"limit: 4":              "limit: expected 4, got 3",
		"over: included":        "over: expected included, got none",
		"rule: gold":            "rules: expected gold, got all",
		"rules: [all, gold]":    "rules: expected all, gold, got all",
		"rules: []":             "rules: expected none, got all",
		"policy: per-client/2s": "policy: expected per-client/2s, got per-client",
	} {
		file := write(t, "config: weir.yaml\ntests:\n- name: one\n  steps:\n"+
			"  - {request: GET /a, client: 192.0.2.1, times: 4, expect: {"+expect+"}}\n")
		stdout, _, err := run(t, file)
		var wrong *flags.InputError
		if err == nil || errors.As(err, &wrong) || err.Error() != "weir: 1 of 1 test failed" {
			t.Errorf("%s: %v", expect, err)
		}
		if !strings.Contains(stdout, ": step 1: "+want+"\n") && !strings.Contains(stdout, " step 1: "+want+"\n") {
			t.Errorf("%s: no %q in\n%s", expect, want, stdout)
		}
		for _, explanation := range []string{"request 4 of 4, at 2026-01-01T00:00:00Z:", "rule all", "limit per-client/1s", `key "192.0.2.1"`} {
			if !strings.Contains(stdout, explanation) {
				t.Errorf("%s: no %q in\n%s", expect, explanation, stdout)
			}
		}
	}
}

// TestExplanationIsOfTheRequestThatTells: the first that was refused, with the state at its time.
func TestExplanationIsOfTheRequestThatTells(t *testing.T) {
	file := write(t, `config: weir.yaml
tests:
- name: one
  steps:
  - {request: GET /a}
  - {wait: 10s, request: GET /a, client: 192.0.2.1, times: 9, every: 100ms, expect: {allowed: true}}
`)
	stdout, _, err := run(t, file)
	if err == nil || !strings.Contains(stdout, "request 4 of 9, at 2026-01-01T00:00:10.3Z:\n      refused, bound by per-client/1s: limited, retry after 0.7 s\n") {
		t.Errorf("%v\n%s", err, stdout)
	}
	place := regexp.MustCompile(`weir_test\.yaml:6:\d+: step 2: allowed: `)
	if !place.MatchString(stdout) {
		t.Errorf("no place in\n%s", stdout)
	}
}

// TestMistakes: each mistake has its place, and all are told in one run.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "1:1: the file is empty",
		"- a\n":               "1:1: is a list: must be a mapping",
		"config: [\n":         "is not YAML",
		"config: weir.yaml\n": "1:1: tests: is missing",
		"tests: [{name: a, steps: [{wait: 1s}]}]\n":                                    "1:1: config: is missing",
		"config: weir.yaml\ntests: []\n":                                               "2:8: tests: is an empty list",
		"config: weir.yaml\ntests: 3\n":                                                "2:8: tests: \"3\": is a single value: must be a list",
		"config: weir.yaml\ntest: []\n":                                                "2:1: \"test\": unknown key: the file has no such key",
		"config: weir.yaml\nconfig: b.yaml\ntests: [{name: a, steps: [{wait: 1s}]}]\n": "2:1: config: \"config\": stands here twice",
		"config: other.yaml\ntests: [{name: a, steps: [{wait: 1s}]}]\n":                "1:9: config: the configuration cannot be read",
		"config: weir.yaml\n---\na: b\n":                                               "begins a second document",
	} {
		stdout, stderr, err := run(t, write(t, text))
		var wrong *flags.InputError
		if !errors.As(err, &wrong) || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: %v\n%s\nwant %s", text, err, stderr, want)
		}
	}
	for step, want := range map[string]string{
		"{}":                                             "steps[0]: does nothing",
		"{wait: soon}":                                   "must be a duration such as",
		"{wait: -1s}":                                    "must be a duration such as",
		"{wait: 4000d}":                                  "up to 3660d",
		"{request: login}":                               "is not the target of a request",
		"{request: GET /, times: many}":                  "must be a whole number from 1 to 1000000",
		"{request: GET /, every: 1s}":                    "has every, but sends one request only",
		"{request: GET /, client: me}":                   "must be the address of the client",
		"{request: GET /, cost: 0}":                      "must be a whole number from 1",
		"{request: GET /, hold: maybe}":                  "must be true or false",
		"{request: GET /, headers: {a b: c}}":            "is not the name of a header field",
		"{request: GET /, headers: {a: [b]}}":            "is a list: must be text",
		"{request: GET /, attributes: [a]}":              "is a list: must be a mapping",
		"{times: 3}":                                     "has no request, for which this could hold",
		"{request: GET /, expect: {}}":                   "expects nothing",
		"{request: GET /, expect: {alllowed: 1}}":        `did you mean "allowed"?`,
		"{request: GET /, expect: {allowed: yes}}":       "must be true or false\n    write true, without quotes",
		"{request: GET /, expect: {allowed: 2}}":         "must be a whole number from 0 to 1",
		"{request: GET /, expect: {reason: limted}}":     `did you mean "limited"?`,
		"{request: GET /, expect: {retry_after: later}}": "must be a duration such as",
		"{request: GET /, expect: {policy: per-cilent}}": `the configuration has no such policy`,
		"{request: GET /, expect: {rules: [al]}}":        `did you mean "all"?`,
		"{request: GET /, expect: {over: includet}}":     `did you mean "included"?`,
		"{request: GET /, expect: {over: {a: 1}}}":       "must be the name of a policy",
		"{request: GET /, times: 30, every: 3000d}":      "steps[0]: goes on after 2262",
	} {
		_, stderr, err := run(t, write(t, "config: weir.yaml\ntests:\n- name: one\n  steps:\n  - "+step+"\n"))
		var wrong *flags.InputError
		if !errors.As(err, &wrong) || !strings.Contains(stderr, want) || !strings.Contains(stderr, "weir_test.yaml:5:") {
			t.Errorf("%s: %v\n%s\nwant %s", step, err, stderr, want)
		}
	}
}

// TestTimeOfATestEnds: waits that the clock cannot make are a mistake, and not shortened.
func TestTimeOfATestEnds(t *testing.T) {
	waits := func(at string, n int) string {
		return write(t, "config: weir.yaml\nat: "+at+"\ntests:\n- name: one\n  steps:\n"+
			"  - {request: GET /a, client: 192.0.2.1, expect: {allowed: true}}\n"+strings.Repeat("  - {wait: 3660d}\n", n))
	}
	for at, n := range map[string]int{"2099-12-31T00:00:00Z": 16, "1970-01-01T00:00:00+14:00": 29} {
		if stdout, stderr, err := run(t, waits(at, n)); err != nil {
			t.Errorf("%s, %d waits: %v\n%s%s", at, n, err, stdout, stderr)
		}
		_, stderr, err := run(t, waits(at, n+1))
		var wrong *flags.InputError
		if want := fmt.Sprintf(":%d:5: tests[0].steps[%d]: goes on after 2262", n+7, n+1); !errors.As(err, &wrong) ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s, %d waits: %v\n%s\nwant %s", at, n+1, err, stderr, want)
		}
	}
}

// TestNothingIsExpected: a test that expects nothing passes whatever the configuration does, so it is a mistake.
func TestNothingIsExpected(t *testing.T) {
	for _, steps := range []string{"{wait: 1s}", "{release: true}", "{request: GET /a}, {wait: 1s}"} {
		file := write(t, "config: weir.yaml\ntests:\n- {name: one, steps: [{request: GET /a, expect: {allowed: true}}]}\n"+
			"- {name: two, steps: ["+steps+"]}\n")
		stdout, stderr, err := run(t, file)
		var wrong *flags.InputError
		if !errors.As(err, &wrong) || stdout != "" || !strings.Contains(stderr, "weir_test.yaml:4:3: tests[1]: expects nothing") {
			t.Errorf("%s: %v\n%s%s", steps, err, stdout, stderr)
		}
	}
}

func TestMistakesOfTheConfiguration(t *testing.T) {
	file := write(t, "config: weir.yaml\ntests: [{name: a, steps: [{wait: 1s}]}]\n")
	name := filepath.Join(filepath.Dir(file), "weir.yaml")
	if err := os.WriteFile(name, []byte("version: 1\npolicies: {a: {limit: fast}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := run(t, file)
	var wrong *flags.InputError
	if !errors.As(err, &wrong) || !strings.Contains(stderr, name+":2:") {
		t.Errorf("%v\n%s", err, stderr)
	}
}

func TestRunSomeTests(t *testing.T) {
	file := write(t, `config: weir.yaml
tests:
- {name: passes, steps: [{request: GET /a, expect: {allowed: true}}]}
- {name: fails, steps: [{request: GET /a, expect: {allowed: false}}]}
`)
	if stdout, _, err := run(t, file, "--run", "^pass"); err != nil || !strings.HasSuffix(stdout, ": 1 test, 1 left out\n") {
		t.Errorf("%v\n%s", err, stdout)
	}
	if _, _, err := run(t, file); err == nil || err.Error() != "weir: 1 of 2 tests failed" {
		t.Error(err)
	}
	var wrong *flags.Error
	if _, _, err := run(t, file, "--run", "nothing"); !errors.As(err, &wrong) {
		t.Error(err)
	}
	if _, _, err := run(t, file, "--run", "("); err == nil {
		t.Error("an expression that is none is accepted")
	}
	if _, _, err := run(t); !errors.As(err, &wrong) {
		t.Error(err)
	}
}

func TestJSON(t *testing.T) {
	file := write(t, `config: weir.yaml
tests:
- {name: passes, steps: [{request: GET /a, expect: {allowed: true}}]}
- {name: fails, steps: [{request: GET /a, times: 4, expect: {allowed: true}}]}
`)
	stdout, _, err := run(t, file, "--json")
	if err == nil {
		t.Error("no error")
	}
	var got struct {
		Passed, Failed, Skipped int
		Files                   []struct {
			File, Config string
			Tests        []struct {
				Name     string
				Line     int
				Passed   bool
				Failures []struct {
					Line, Column, Step   int
					Field, Expected, Got string
					Number               int
					Explanation          struct {
						Reason string
						Rules  []any
						Limits []any
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil { //nolint:musttag // case of names does not matter
		t.Fatalf("%v in %s", err, stdout)
	}
	if got.Passed != 1 || got.Failed != 1 || len(got.Files) != 1 || len(got.Files[0].Tests) != 2 {
		t.Fatalf("%+v", got)
	}
	failed := got.Files[0].Tests[1]
	if failed.Passed || failed.Line != 4 || len(failed.Failures) != 1 {
		t.Fatalf("%+v", failed)
	}
	f := failed.Failures[0]
	text := fmt.Sprintf("%d, %d, %s, %s, %s, %d, %s", f.Line, f.Step, f.Field, f.Expected, f.Got, f.Number, f.Explanation.Reason)
	if text != "4, 1, allowed, 4 of 4, 3 of 4, 4, limited" {
		t.Error(text)
	}
	if len(f.Explanation.Rules) != 10 || len(f.Explanation.Limits) != 1 {
		t.Errorf("%+v", f.Explanation)
	}
}

// TestConfigurationInPlaceOfTests: a configuration is told as such, and not by its keys one after the other.
func TestConfigurationInPlaceOfTests(t *testing.T) {
	file := filepath.Join(filepath.Dir(write(t, "")), "weir.yaml")
	_, stderr, err := run(t, file)
	var invalid *flags.InputError
	if !errors.As(err, &invalid) || strings.Count(stderr, file+":2:1: ") != 1 ||
		!strings.Contains(stderr, "this is a configuration, and not a file of unit tests\n    run: weir config check "+file+", ") {
		t.Errorf("%v\n%s", err, stderr)
	}
	_, stderr, err = run(t, write(t, "config: weir.yaml\nrules: []\n"))
	if !errors.As(err, &invalid) || strings.Contains(stderr, "this is a configuration") {
		t.Errorf("%v\n%s", err, stderr)
	}
}
