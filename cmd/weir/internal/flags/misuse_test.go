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
