package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestChangeOnSeveralServers: a change is made in each of the servers that are given, what became of it is told of each, and one
// that is away does not keep it from the others.
func TestChangeOnSeveralServers(t *testing.T) {
	a, _ := administeredServer(t)
	b, _ := administeredServer(t)
	const away = "http://127.0.0.1:1"
	first, second := "http://"+a.address, "http://"+b.address
	change := func(command string, servers ...string) outcome {
		t.Helper()
		args := append(strings.Fields("admin "+command), "--reason", "a reason")
		for _, s := range servers {
			args = append(args, "--server", s)
		}
		return weir(t, nil, args...)
	}
	const override = "override --policy tenant --key acme --unlimited"
	got := change(override, first, second)
	if want := fmt.Sprintf("%s: acme of tenant: unlimited for 1h\n%s: acme of tenant: unlimited for 1h\n", first, second); got.status != 0 ||
		got.stdout != want || got.stderr != "" {
		t.Errorf("%d %q %q, want %q", got.status, got.stdout, got.stderr, want)
	}
	for _, s := range []*server{a, b} {
		hasAll(t, "overrides", s.ask(t, "admin", "overrides"), "acme", "a reason")
	}
	got = change("restore --policy tenant --key acme", first, away, second)
	if got.status != 1 || !strings.Contains(got.stderr, "1 of 3 servers have not confirmed the change: "+away) ||
		strings.Count(got.stdout, ": acme of tenant has the limits of the policy again\n") != 2 ||
		!strings.Contains(got.stdout, away+": FAILED: ") {
		t.Errorf("%d %q %q", got.status, got.stdout, got.stderr)
	}
	for _, s := range []*server{a, b} {
		hasAll(t, "overrides", s.ask(t, "admin", "overrides"), "no key is overridden")
	}
	got = change(override+" --json", first, away)
	answers := json.NewDecoder(strings.NewReader(got.stdout))
	for _, want := range []string{first, away} {
		var line struct {
			Server string `json:"server"`
			Answer struct {
				Changed  bool   `json:"changed"`
				Replicas string `json:"replicas"`
			} `json:"answer"`
			Error string `json:"error"`
		}
		if err := answers.Decode(&line); err != nil || line.Server != want || line.Answer.Changed != (want == first) ||
			(line.Answer.Replicas == "this one only") != (want == first) ||
			(line.Error != "") != (want == away) {
			t.Errorf("%v %+v in %q", err, line, got.stdout)
		}
	}
	got = weir(t, nil, "admin", "key", "acme", "--server", first, "--server", away, "--server", second)
	if got.status != 1 || !strings.Contains(got.stderr, "1 of 3 servers have not replied: "+away) ||
		strings.Count(got.stdout, `: key "acme" of policy tenant`) != 2 {
		t.Errorf("%d %q %q", got.status, got.stdout, got.stderr)
	}
	for _, c := range []struct {
		command string
		servers []string
		status  int
		says    string
	}{
		{"unlock --policy gone --key a", []string{first, second}, 2, "gone"},
		{"unlock --policy login", []string{first, second}, 2, "needs --key"},
		{"unlock --policy login --key a", []string{first, first}, 2, "is given twice"},
		{"unlock --policy login --key a", []string{first, "ftp://x"}, 2, "must be a URL"},
		{"reload", []string{first, second}, 0, ""},
	} {
		if got := change(c.command, c.servers...); got.status != c.status || !strings.Contains(got.stderr, c.says) {
			t.Errorf("%s: %d %q %q", c.command, got.status, got.stdout, got.stderr)
		}
	}
}
