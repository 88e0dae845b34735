package flags_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

func TestNearest(t *testing.T) {
	words := []string{"serve", "proxy", "replay", "client.ip", "path", "Shutdown-Timeout"}
	for mistyped, want := range map[string]string{
		"srve": "serve", "SERVE": "serve", "prxoy": "proxy", "rep": "replay", "clientip": "client.ip", "pth": "path",
		"shutdown": "Shutdown-Timeout", "x": "", "s": "", "frobnicate": "", "": "", strings.Repeat("serve", 1000): "",
	} {
		got, ok := flags.Nearest(mistyped, words)
		if got != want || ok != (want != "") {
			t.Errorf("%.20s: %q, %t, want %q", mistyped, got, ok, want)
		}
	}
}

func TestErrors(t *testing.T) {
	err := fmt.Errorf("wrapped: %w", flags.BadValue("limit", "a\x1b"+strings.Repeat("x", 1000), "must be a rate"))
	var wrong *flags.Error
	if !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Error(), `--limit "a\x1bxxx`) ||
		!strings.HasSuffix(wrong.Error(), `x...": must be a rate`) || len(wrong.Error()) > 120 {
		t.Errorf("%v", err)
	}
	if err := flags.NoArguments(nil, []string{"now", "then"}); err == nil || err.Error() != `unexpected argument "now"` {
		t.Errorf("%v", err)
	}
	if err := flags.NoArguments(nil, nil); err != nil {
		t.Errorf("%v", err)
	}
}

// TestQuotedURLsHaveNoPassword: a password in a URL is not repeated in an error, which is in the log of whatever has started the
// program.
func TestQuotedURLsHaveNoPassword(t *testing.T) {
	for value, want := range map[string]string{
		"http://u:p4ss@h:x":  "http://u:xxxxx@h:x",
		"https://p4ss@h":     "https://xxxxx@h",
		"http://:p4@ss/@h/a": "http://:xxxxx@h/a",
		"http://u:" + strings.Repeat("p4ss", 20) + "@h": "http://u:xxxxx@h",
		"http://u:xxxxx@h": "http://u:xxxxx@h",
		"http://h/a":       "http://h/a",
		"a@b":              "a@b",
	} {
		if got := flags.BadValue("server", value, "must be another").Error(); got != `--server "`+want+`": must be another` {
			t.Errorf("%s: %s", value, got)
		}
	}
}
