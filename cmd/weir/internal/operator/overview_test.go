package operator_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// TestConfigurationTellsHowRulesCharge: of a rule there is what it applies, and whether its requests are charged afterwards.
func TestConfigurationTellsHowRulesCharge(t *testing.T) {
	var text strings.Builder
	operator.WriteConfiguration(&text, terminal.Output{}, &operator.Configuration{Rules: []operator.Rule{
		{Name: "ask", Limits: []string{"tokens"}, Match: "path /ask", Source: "weir.yaml:4:5"},
		{Name: "spent", Limits: []string{"tokens"}, Match: "path /spent", Source: "weir.yaml:5:5", Afterwards: true, Final: true},
	}})
	for _, want := range []string{"ask    tokens  ", "spent  tokens (charged afterwards) (final)  weir.yaml:5:5  path /spent\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s\nlacks\n%s", text.String(), want)
		}
	}
}

// TestReplicasAreWords: people read no JSON, and what a server sends does not reach their terminal as it is.
func TestReplicasAreWords(t *testing.T) {
	var r operator.Replicas
	if err := json.Unmarshal([]byte(`{"cluster": {
		"joined": true, "owns": false, "owner": "b\u001b[2J", "without_owner_ns": 1234567890,
		"owned": {"granted_permits": 1200, "refused": {"queue_full": 3}, "peers": ["a", "c"]}
	}}`), &r); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	operator.WriteReplicas(&text, terminal.Output{}, &r)
	const want = `cluster: the owner of the limits is b�[2J
  joined            yes
  owner             b�[2J
  owns              no
  without owner     1.235s
  owned:
    granted permits  1200
    peers            ["a","c"]
    refused:
      queue full  3
`
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
}

// TestOverviewTellsThatItIsNotReady: why durable limits cannot be decided has one line, while it is so.
func TestOverviewTellsThatItIsNotReady(t *testing.T) {
	const line = "\nnot ready      durable limits cannot be decided: the store is unavailable�; the fail of each policy decides\n"
	for why, want := range map[string]int{"": 0, "weir: the store is unavailable\x1b": 1} {
		var text strings.Builder
		operator.WriteOverview(&text, terminal.Output{}, &operator.Overview{NotReady: why})
		if got := text.String(); strings.Count(got, line) != want || strings.Count(got, "not ready") != want {
			t.Errorf("%q: %s", why, got)
		}
	}
}

// TestOneIsNoPlural in the report of a policy.
func TestOneIsNoPlural(t *testing.T) {
	p := operator.Policy{Limits: []operator.Limit{{Holds: "1/s"}}}
	p.Keys, p.MaxKeys, p.Queued, p.Locked, p.Forgiven = 1, 1, 1, 1, 1
	p.Difference = &policy.Difference{Requests: 1, NewlyRefused: 1, RefusedKeys: []policy.KeyCount{{Key: "k", Count: 1}}}
	var b strings.Builder
	operator.WritePolicy(&b, terminal.Output{}, &p)
	for _, want := range []string{
		"1 of 1 key, 1 permit waited for, 1 key locked out", "1 permit forgiven", "of 1 request the other", "refused more: k, once",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
