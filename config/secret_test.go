package config_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/policy"
)

// secrets are an environment whose values must never be seen.
var secrets = map[string]string{
	"SECRET": "xyzzy", "NUMBER": "90817", "UNIT": "quarter", "ZONE": "Asia/Kathmandu", "SMALL": "17", "ORG": "org", "METHOD": "XYZZY",
	"ADDRESS": "203.0.113.99", "FOLDED": "a\nxyzzy", "BAD": "xyzzy \" [",
}

func secretEnv(name string) (string, bool) {
	v, ok := secrets[name]
	return v, ok
}

// leaks tells which secrets a text shows.
func leaks(t *testing.T, what, text string) {
	t.Helper()
	for _, name := range []string{"SECRET", "NUMBER", "ZONE", "METHOD", "ADDRESS"} {
		if strings.Contains(strings.ToLower(text), strings.ToLower(secrets[name])) {
			t.Errorf("%s shows %s: %s", what, name, text)
		}
	}
}

func TestTheEnvironmentIsNeverShown(t *testing.T) {
	f, err := config.Load("testdata/secret.yaml", config.Options{Env: secretEnv})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	f.Explain(&b)
	leaks(t, "Explain", b.String())
	if strings.Contains(b.String(), "quarter") || strings.Contains(b.String(), "17") {
		t.Errorf("Explain shows UNIT or SMALL:\n%s", b.String())
	}
	golden(t, "testdata/secret.txt", b.String())
	if len(f.Warnings) == 0 {
		t.Error("no warnings")
	}
	for _, w := range f.Warnings {
		leaks(t, "a warning", w.String())
	}
	r := &policy.Request{Method: "GET", Path: "/a", Query: "q", Header: http.Header{}}
	spoken := func(what string, text fmt.Stringer, err error) {
		leaks(t, what, text.String())
		if err != nil {
			leaks(t, "the error of "+what, err.Error())
		}
	}
	for _, p := range f.Set.Policies {
		for _, text := range []policy.Text{p.Key, p.TierBy} {
			if text != nil {
				_, failed := text.AppendTo(nil, r)
				spoken("a text", text, failed)
			}
		}
		if p.Cost != nil {
			_, failed := p.Cost.Int(r)
			spoken("a cost", p.Cost, failed)
		}
	}
	rule := f.Set.Rules[0]
	_, err = rule.When.Holds(r)
	spoken("a condition", rule.When, err)
	r.Cost = 1 << 62
	n, err := rule.Limits[0].Cost.Int(r)
	if n != algo.MaxPermits+1 {
		t.Errorf("a cost beyond all permits: %d", n)
	}
	spoken("a cost", rule.Limits[0].Cost, err)
	spoken("a key", rule.Limits[0].Key, nil)

	// And the values are there.
	if got, _ := rule.Limits[0].Key.AppendTo(nil, r); string(got) != "xyzzy" {
		t.Errorf("%s", got)
	}
	if got := f.Set.Policies[2]; got.Limits[0].Permits() != 90817 || got.Parent != "org" || got.Limits[1].Calendar().Hour != 17 {
		t.Errorf("%+v", got)
	}
}

// TestSecretHeader holds a condition whose value came from the environment to what the engine does with others.
func TestSecretHeader(t *testing.T) {
	const text = `version: 1
policies: {p: {limit: 1/s}}
rules:
  - {name: exact, match: {header: {X-Key: "%s"}}, limits: p}
  - {name: prefix, match: {header: {x-key: "%s*"}}, limits: p}
`
	load := func(value string) *policy.Engine {
		f, err := config.Parse("f", fmt.Appendf(nil, text, value, value), config.Options{Env: secretEnv})
		if err != nil {
			t.Fatal(err)
		}
		e, err := policy.NewEngine(f.Set, policy.EngineOptions{Alone: true})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	hidden, open := load("${SECRET}"), load("xyzzy")
	defer hidden.Close()
	defer open.Close()
	for _, h := range []http.Header{nil, {}, {"X-Key": nil}, {"X-Key": {"xyzzy"}}, {"X-Key": {"xyzzy2"}}, {"X-Key": {"a", "xyzzy"}}, {"X-Key": {"xyzz"}}} {
		r := &policy.Request{Header: h, Client: netip.MustParseAddr("192.0.2.1")}
		a, b := hidden.Explain(r), open.Explain(r)
		for i := range a.Rules {
			if a.Rules[i].Matched != b.Rules[i].Matched {
				t.Errorf("%v: %+v, and in the open %+v", h, a.Rules[i], b.Rules[i])
			}
			leaks(t, "an explanation", a.Rules[i].Condition)
		}
	}
}

// TestMistakesDoNotShowTheEnvironment puts a value of the environment wherever a value can be, one at a time.
func TestMistakesDoNotShowTheEnvironment(t *testing.T) {
	whole, err := os.ReadFile("testdata/whole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(whole), "\n")
	tried := 0
	for i, line := range lines {
		for _, name := range []string{"SECRET", "BAD"} {
			for _, value := range replaced(line, "${"+name+"}") {
				text := strings.Join(append(append(append([]string{}, lines[:i]...), value), lines[i+1:]...), "\n")
				tried++
				f, err := config.Parse("f", []byte(text), config.Options{Env: secretEnv})
				if err != nil {
					leaks(t, "the mistakes of "+value, err.Error())
					continue
				}
				var b strings.Builder
				f.Explain(&b)
				leaks(t, "the explanation of "+value, b.String())
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d places", tried)
	}
}

// replaced returns a line with each of its values replaced in turn.
func replaced(line, by string) []string {
	var all []string
	for i := range len(line) {
		if line[i] != ':' && line[i] != '[' && line[i] != ',' || i+1 >= len(line) || line[i] != '[' && line[i+1] != ' ' {
			continue
		}
		from := i + 1
		for from < len(line) && line[from] == ' ' {
			from++
		}
		to := from
		for to < len(line) && !strings.ContainsRune(",]}", rune(line[to])) {
			to++
		}
		if to > from && !strings.ContainsAny(line[from:to], "{[") {
			all = append(all, line[:from]+`"`+by+`"`+line[to:])
		}
	}
	return all
}
