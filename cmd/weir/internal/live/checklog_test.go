package live_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/live"
)

// TestWithoutChecks: a line about a check has no rule, and one about a request has its own.
func TestWithoutChecks(t *testing.T) {
	var log strings.Builder
	l := live.WithoutChecks(slog.New(slog.NewTextHandler(&log, nil))).With("a", 1)
	l.Info("refused", "rule", "weir-check 0", "cost", 1)
	l.WithGroup("g").Info("refused", "rule", "logins", "cost", 2)
	if got := log.String(); strings.Contains(got, "weir-check") || !strings.Contains(got, "msg=refused a=1 cost=1\n") ||
		!strings.Contains(got, "msg=refused a=1 g.rule=logins g.cost=2\n") {
		t.Error(got)
	}
}
