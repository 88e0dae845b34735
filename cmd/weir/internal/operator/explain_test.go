package operator_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

func refused() *policy.Explanation {
	return &policy.Explanation{
		Reason: weir.ReasonLimited, RetryAfter: 1500*time.Millisecond + 1, Binding: 0,
		Rules: []policy.ExplainedRule{
			{Name: "login", Source: "weir.yaml:9:5", Matched: true},
			{Name: "api", Condition: "method is GET, rule wants POST"},
		},
		Limits: []policy.ExplainedLimit{{
			Policy: "login", Limit: "1m", Rule: "login", Role: "enforce", Holds: "5/min, burst 5", Key: "192.0.2.1\n", KeyFrom: "client.ip",
			Cost: 1, Decision: weir.Decision{Reason: weir.ReasonLimited, RetryAfter: 1500 * time.Millisecond}, Would: "this one in 1.5 seconds",
		}},
	}
}

func TestWriteTellsTheWaysToReadAPath(t *testing.T) {
	e := refused()
	e.Paths = []string{"/healthz", "/search/..%2Fhealthz", "/a\nb"}
	data, err := json.Marshal(operator.ExplanationOf(e))
	if err != nil {
		t.Fatal(err)
	}
	var read operator.ExplanationJSON
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	operator.WriteExplanation(&b, terminal.Output{}, &read, "", true, time.Time{})
	const want = "servers read the path in 3 ways, all of which count: /healthz, /search/..%2Fhealthz, /a\\nb\n"
	if !strings.Contains(b.String(), want) {
		t.Errorf("%s\nlacks\n%s", b.String(), want)
	}
}

func TestWriteExplanation(t *testing.T) {
	var b strings.Builder
	operator.WriteExplanation(&b, terminal.Output{}, operator.ExplanationOf(refused()), "  ", true, time.Time{})
	const want = `  refused, bound by login/1m: limited, retry after 1.6 seconds
  rule login (weir.yaml:9:5): matches
  rule api: no match: method is GET, rule wants POST
  limit login/1m: 5/min, burst 5 (decides)
    key "192.0.2.1\x0a" from client.ip, by rule login
    0 remaining before, 0 after; costs 1: refuses it: limited, retry after 1.5 seconds
    would allow: this one in 1.5 seconds
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	operator.WriteExplanation(&b, terminal.Output{}, operator.ExplanationOf(refused()), "", false, time.Time{})
	if !strings.Contains(b.String(), "1 other rule does not match\n") || strings.Contains(b.String(), "rule api") {
		t.Error(b.String())
	}
}

// TestWriteTellsWhatIsChargedAfterwards, also of what a server has sent.
func TestWriteTellsWhatIsChargedAfterwards(t *testing.T) {
	e := refused()
	e.Rules[0].Afterwards = true
	data, err := json.Marshal(operator.ExplanationOf(e))
	if err != nil {
		t.Fatal(err)
	}
	var read operator.ExplanationJSON
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	operator.WriteExplanation(&b, terminal.Output{}, &read, "", true, time.Time{})
	if want := "rule login (weir.yaml:9:5): matches, and is charged afterwards\n"; !strings.Contains(b.String(), want) {
		t.Errorf("%s\nlacks\n%s", b.String(), want)
	}
}

func TestWriteWithoutLimits(t *testing.T) {
	for want, e := range map[string]*policy.Explanation{
		"exempt: a rule exempts it from all limits\n": {Allowed: true, Exempt: true, Binding: -1},
		"allowed: no limit applies to it\n":           {Allowed: true, Binding: -1},
	} {
		var b strings.Builder
		operator.WriteExplanation(&b, terminal.Output{}, operator.ExplanationOf(e), "", true, time.Time{})
		if b.String() != want {
			t.Errorf("%q, want %q", b.String(), want)
		}
	}
}

func TestJSON(t *testing.T) {
	text, err := json.Marshal(operator.ExplanationOf(refused()))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"binding":0`, `"retry_after":1.5`, `"reason":"limited"`, `"rule":"login"`, `"matched":true`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	never := operator.ExplanationOf(&policy.Explanation{RetryAfter: weir.Never, Binding: -1})
	if never.RetryAfter != -1 || never.Binding != nil {
		t.Errorf("%+v", never)
	}
}

// TestExplanationIsTheInverse: what a server has sent as JSON reads for people as the server would have written it.
func TestExplanationIsTheInverse(t *testing.T) {
	never := refused()
	never.RetryAfter, never.Limits[0].Decision.RetryAfter = weir.Never, weir.Never
	for _, e := range []*policy.Explanation{
		refused(), never, {Allowed: true, Exempt: true, Binding: -1}, {Allowed: true, Binding: -1},
	} {
		text, err := json.Marshal(operator.ExplanationOf(e))
		if err != nil {
			t.Fatal(err)
		}
		var back operator.ExplanationJSON
		if err = json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		var want, got strings.Builder
		operator.WriteExplanation(&want, terminal.Output{}, operator.ExplanationOf(e), "", true, time.Time{})
		operator.WriteExplanation(&got, terminal.Output{}, &back, "", true, time.Time{})
		if want.String() != got.String() {
			t.Errorf("%s\nwant\n%s", got.String(), want.String())
		}
	}
}
