package httplimit

import (
	"encoding/json"
	"testing"
)

// TestProblemsAreWrittenAsPackageJSONWritesThem compares the two over texts with all that has to be escaped.
func TestProblemsAreWrittenAsPackageJSONWritesThem(t *testing.T) {
	texts := []string{"", "plain", `a "name" with \ in it`, "<b>&amp;", "caf\u00e9", "\n\t\x00\x7f", "\xff", "\u2028"}
	for _, text := range texts {
		for _, p := range []Problem{
			{Type: text, Title: text, Status: 429, Detail: text, Instance: text, ViolatedPolicies: []string{text, "b", text}, RetryAfter: 1 << 50},
			{Type: "about:blank", Title: text, Status: 500},
			{Type: QuotaExceeded, Status: 429, ViolatedPolicies: []string{text}, RetryAfter: -1},
		} {
			want, err := json.Marshal(&p)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.json(); string(got) != string(want)+"\n" {
				t.Errorf("%+v is %s, want %s", p, got, want)
			}
		}
	}
}
