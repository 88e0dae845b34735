package operator_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// TestTrackedElsewhere: of a policy that the server does not keep alone it is not known how many keys there are, or wait.
func TestTrackedElsewhere(t *testing.T) {
	p := operator.Policy{}
	if p.Consistency = policy.ConsistencyCoherent; operator.Tracked(&p) != "-" || operator.Queued(&p) != "-" {
		t.Errorf("%s keys, %s wait", operator.Tracked(&p), operator.Queued(&p))
	}
	p.Consistency, p.Durability = policy.ConsistencyLocal, policy.DurabilityCluster
	if operator.Tracked(&p) != "-" || operator.Queued(&p) != "-" {
		t.Errorf("%s keys, %s wait", operator.Tracked(&p), operator.Queued(&p))
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
		p := operator.Policy{}
		p.Keys, p.MaxKeys = c.keys, c.most
		var b strings.Builder
		operator.WritePolicies(&b, terminal.Output{}, &[]operator.Policy{p})
		if got := operator.Tracked(&p); got != c.want || !strings.Contains(b.String(), c.want) {
			t.Errorf("%d of %d: %q, want %q, in\n%s", c.keys, c.most, got, c.want, b.String())
		}
	}
}
