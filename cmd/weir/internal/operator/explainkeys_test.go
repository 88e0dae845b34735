package operator_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// TestKeysOfAnyBytesAreExplained: a key that is no text is told by the spelling that the admin API has for it, also where the
// explanation came from a server.
func TestKeysOfAnyBytesAreExplained(t *testing.T) {
	for key, want := range map[string]string{
		"caf\xe9": `"caf\xe9"`, `caf\xe9`: `"caf\\xe9"`, `DOMAIN\ann`: `"DOMAIN\ann"`, "a\nb": `"a\x0ab"`, `a"b`: `"a\"b"`,
	} {
		e := &policy.Explanation{Binding: -1, Limits: []policy.ExplainedLimit{{Policy: "p", Key: key, KeyFrom: "header"}}}
		text, err := json.Marshal(operator.ExplanationOf(e))
		if err != nil {
			t.Fatal(err)
		}
		j := new(operator.ExplanationJSON)
		if err := json.Unmarshal(text, j); err != nil || operator.KeyOf(j.Limits[0].Key) != key {
			t.Errorf("%q: %v, %s", key, err, text)
		}
		for _, e := range []*operator.ExplanationJSON{operator.ExplanationOf(e), j} {
			var b bytes.Buffer
			if operator.WriteExplanation(&b, terminal.Output{}, e, "", true, time.Time{}); !strings.Contains(b.String(), "key "+want+" from") {
				t.Errorf("%q: want %s in %s", key, want, b.String())
			}
		}
	}
}
