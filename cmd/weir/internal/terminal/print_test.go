package terminal_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// TestJSONMovesNoCursor: what does not print is escaped, and the value is the same.
func TestJSONMovesNoCursor(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 1}`:                           `{"a": 1}`,
		"[\r\n\t\"ä ж \U0001f600\ufffd\"]\n": "[\r\n\t\"ä ж \U0001f600\ufffd\"]\n",
		"\"\u009b31m\"":                      `"\u009b31m"`,
		"\"a\u202eb\u2066\u200fc\u061c\"":    `"a\u202eb\u2066\u200fc\u061c"`,
		"\"\x7f\"":                           `"\u007f"`,
		"\"\u2028\u00a0\"":                   `"\u2028\u00a0"`,
		"\"\U000e0041\"":                     `"\udb40\udc41"`,
		"\"a\x9bb\"":                         `"a\ufffdb"`,
	} {
		got := terminal.PrintableJSON([]byte(text))
		if string(got) != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
		var before, after any
		if err := errors.Join(json.Unmarshal([]byte(text), &before), json.Unmarshal(got, &after)); err != nil ||
			!reflect.DeepEqual(before, after) {
			t.Errorf("%q: %v is %v, %v", text, before, after, err)
		}
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234567: "-1,234,567", -100: "-100",
	} {
		if got := terminal.Number(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	if got := terminal.Number(uint64(math.MaxUint64)); got != "18,446,744,073,709,551,615" {
		t.Error(got)
	}
}
