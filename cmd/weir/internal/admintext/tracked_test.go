package admintext_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/admintext"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// TestTrackedElsewhere: of a policy that the server does not keep alone it is not known how many keys there are, or wait.
func TestTrackedElsewhere(t *testing.T) {
	p := admin.Policy{}
	if p.Consistency = policy.ConsistencyCoherent; admintext.Tracked(&p) != "-" || admintext.Queued(&p) != "-" {
		t.Errorf("%s keys, %s wait", admintext.Tracked(&p), admintext.Queued(&p))
	}
	p.Consistency, p.Durability = policy.ConsistencyLocal, policy.DurabilityCluster
	if admintext.Tracked(&p) != "-" || admintext.Queued(&p) != "-" {
		t.Errorf("%s keys, %s wait", admintext.Tracked(&p), admintext.Queued(&p))
	}
}

// TestTracked: a table of keys with little room left is seen in a list of policies.
func TestTracked(t *testing.T) {
	for _, c := range []struct {
		keys, most int64
		want       string
	}{
		{0, 0, "0"},
		{0, 1, "0"},
		{1, 1, "1 (100% full)"},
		{89, 100, "89"},
		{90, 100, "90 (90% full)"},
		{1999, 2000, "1,999 (99% full)"},
		{1 << 31, 1 << 31, "2,147,483,648 (100% full)"},
	} {
		p := admin.Policy{}
		p.Keys, p.MaxKeys = c.keys, c.most
		var b strings.Builder
		admintext.Policies(&b, terminal.Output{}, []admin.Policy{p})
		if got := admintext.Tracked(&p); got != c.want || !strings.Contains(b.String(), c.want) {
			t.Errorf("%d of %d: %q, want %q, in\n%s", c.keys, c.most, got, c.want, b.String())
		}
	}
}
