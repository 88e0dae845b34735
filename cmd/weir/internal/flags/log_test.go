package flags_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// TestLogsEscapeWhatDoesNotPrint: a key that a client has chosen cannot move the cursor or turn the direction of a line, in either
// form of the log, and JSON has it as it was.
func TestLogsEscapeWhatDoesNotPrint(t *testing.T) {
	const key = "a\u202eb\u2066c\u200bd\x7fe\u0085f\U000e0001g\x1b[31mh\u00a0i"
	for _, format := range []string{"text", "json"} {
		var b strings.Builder
		l := flags.Log{Level: "info", Format: format}
		l.New(&b).Info("request refused", "key", key)
		line := strings.TrimSuffix(b.String(), "\n")
		if at := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("%s has %q at %d: %q", format, line[at:], at, line)
		}
		if format == "text" {
			continue
		}
		var read map[string]string
		if err := json.Unmarshal([]byte(line), &read); err != nil || read["key"] != key {
			t.Errorf("%q is read as %q, %v", line, read["key"], err)
		}
	}
}
