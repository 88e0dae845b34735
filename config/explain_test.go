package config_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirhq/weir/config"
)

func explained(t *testing.T, name string) string {
	t.Helper()
	f, err := config.Load(name, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	f.Explain(&b)
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
			t.Errorf("space at the end: %q", line)
		}
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	golden(t, "testdata/whole.txt", explained(t, "testdata/whole.yaml"))
	golden(t, "testdata/example.txt", explained(t, "../examples/weir.yaml"))
}

// TestPriorityIsWarnedOf, at its place, unless the program has a shedder.
func TestPriorityIsWarnedOf(t *testing.T) {
	const text = "version: 1\npolicies:\n  p:\n    limit: 1/s\n    priority: critical\n  q: {limit: 1/s}\n"
	for _, hasShedder := range []bool{false, true} {
		f, err := config.Parse("f", []byte(text), config.Options{HasShedder: hasShedder})
		if err != nil {
			t.Fatal(err)
		}
		if hasShedder {
			if len(f.Warnings) != 0 {
				t.Error(f.Warnings)
			}
			continue
		}
		want := "f:5:15: policies.p.priority: \"critical\": changes nothing: this program sheds no load by priority; remove it"
		if len(f.Warnings) != 1 || f.Warnings[0].String() != want {
			t.Errorf("%v, want %s", f.Warnings, want)
		}
	}
}

// TestForgottenChargeIsWarnedOf where one rule looks and another charges.
func TestForgottenChargeIsWarnedOf(t *testing.T) {
	for charge, want := range map[string]int{"": 1, ", charge: before": 1, ", charge: afterwards": 0} {
		f, err := config.Parse("f", []byte("version: 1\npolicies: {p: {limit: 1000/h}}\nrules:\n"+
			"  - {name: ask, match: {path: /ask}, limits: {policy: p, cost: 0}}\n  - {name: spent, match: {path: /spent}, limits: p"+charge+"}\n"), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Warnings) != want || want == 1 && !strings.Contains(f.Warnings[0].String(), "f:4:") {
			t.Errorf("%q: %v", charge, f.Warnings)
		}
		if f.Set.Rules[1].Afterwards != (want == 0) {
			t.Errorf("%q: %+v", charge, f.Set.Rules[1])
		}
	}
}

// TestForeignWildcards: wildcards as other programs write them are told apart from texts with a colon.
func TestForeignWildcards(t *testing.T) {
	for pattern, want := range map[string]string{
		"/users/:id": "write {id}", "/:user/files": "write {user}", "/users/<id>/x": "write {id}", "/a/<int:id>": "write {id}",
		"/users/{id}": "", "/v1/projects/a:search": "", "/a:b/c": "", "/:": "", "/a/<b": "",
	} {
		f, err := config.Parse("f", fmt.Appendf(nil, "version: 1\npolicies: {p: {limit: 1/s}}\n"+
			"rules:\n  - {name: r, match: {path: %q}, limits: p}\n", pattern), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var warnings strings.Builder
		for _, w := range f.Warnings {
			warnings.WriteString(w.String())
		}
		got := warnings.String()
		if (got == "") != (want == "") || !strings.HasSuffix(got, want) || want != "" && !strings.HasPrefix(got, "f:4:29: ") {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	const text = `version: 1
policies:
  big: {limit: 10/s, key: client.ip}
  small: {limit: 5/s, parent: big}
  wide: {limits: [{rate: 11/s}, {algorithm: concurrency, permits: 9}], parent: big}
  year: {limits: [{algorithm: calendar-window, permits: 10, every: year}]}
  month: {limits: [{algorithm: calendar-window, permits: 11, every: year}, {algorithm: concurrency, permits: 99}], parent: year}
  unused: {limit: 1/s}
  dear: {limit: 10/s, burst: 20, cost: 21}
  account: {limit: 1/s, key: [path.user, request.method], parent: owner}
  owner: {limit: 9/s, key: '"x" + path["owner"]'}
rules:
  - {name: x, match: {path: ["/{user}/{owner}", "/o/{owner...}"]}, limits: account}
  - {name: y, limits: [{policy: account, key: 'request.path + request.host'}]}
  - {name: z, match: {path: "/{user}/{owner}"}, limits: account}
  - {name: a, limits: [small, wide, month, dear, {policy: big, cost: 11}, {policy: dear, cost: 20}]}
  - {name: b, match: {path: /x}}
  - {name: c, match: {path: /x}, final: true, limits: big}
  - {name: d, exempt: true}
  - {name: e, final: true}
  - {name: f, limits: big}
  - {name: g, exempt: true, match: {path: /y}}
  - {name: h, limits: big, final: true}
  - {name: i, deny: true, match: {path: /z}}
  - {name: j, deny: true}
  - {name: k, deny: true, mode: shadow}
  - {name: l, match: {protocol: htp}, deny: true}
  - {name: m, match: {protocol: [amqp, grpc, grpc-message, rls, rlqs, http]}, deny: true}
`
	f, err := config.Parse("f", []byte(text), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range f.Warnings {
		got = append(got, w.String())
	}
	want := []string{
		`f:5:19: policies.wide.limits[0]: grants more than the same period of its parent big: 11/s and 10/s; lower it, or raise that of the parent`,
		`f:7:20: policies.month.limits[0]: grants more than the same period of its parent year: 11 permits and 10 permits; lower it, or raise that of the parent`,
		`f:8:3: policies.unused: "unused": no rule uses this policy: it limits only checks that name it; use it in a rule, or remove it if no client names it`,
		`f:9:3: policies.dear: costs 21, more than the 20 that it can ever grant at a time: every request is refused; lower the cost, or raise the burst`,
		`f:13:76: rules[0].limits: "account": the key of account has path.user, which not all patterns of this rule have: it is "" there; add {user} to match.path, or another key here`,
		`f:14:33: rules[1].limits[0].policy: "account": the key of owner has path.owner, which not all patterns of this rule have: it is "" there; add {owner} to match.path, or another key here`,
		`f:16:59: rules[3].limits[4].policy: "big": costs 11, more than the 10 that it can ever grant at a time: every request is refused; lower the cost, or raise the burst`,
		`f:17:5: rules[4]: does nothing: it has no limits, and is neither exempt nor final; add limits, or remove it`,
		`f:19:5: rules[6]: frees all requests of all limits: it has no match and no when; add match: {path: /healthz}, for instance`,
		`f:21:5: rules[8]: is never reached: the rule in line 20 is final and matches all requests; move it in front of that rule`,
		`f:23:5: rules[10]: is never reached: the rule in line 20 is final and matches all requests; move it in front of that rule`,
		`f:25:5: rules[12]: denies all requests: it has no match and no when; add match: {path: /internal/}, for instance`,
		`f:27:33: rules[14].match.protocol: "htp": no request has this protocol: those to weir have http, grpc, grpc-message, rls or rlqs; did you mean "http"?`,
		`f:28:34: rules[15].match.protocol[0]: "amqp": no request has this protocol: those to weir have http, grpc, grpc-message, rls or rlqs; write one of these`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNothingIsLimited: a file without policies and rules is warned of, unless it is there for its store or cluster.
func TestNothingIsLimited(t *testing.T) {
	for text, want := range map[string]string{
		"version: 1\n":                   "f:1:1: limits nothing: it has no policies and no rules; add policies: {name: {limit: 100/s}}, for instance",
		"version: 1\npolicies: {}\n":     "f:1:1: limits nothing: it has no policies and no rules; add policies: {name: {limit: 100/s}}, for instance",
		"version: 1\nstore: redis://h\n": "", "version: 1\nrules: [{name: r, match: {path: /a}, deny: true}]\n": "",
	} {
		f, err := config.Parse("f", []byte(text), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(f.Warnings); got != "["+want+"]" {
			t.Errorf("%q: %s", text, got)
		}
	}
}
