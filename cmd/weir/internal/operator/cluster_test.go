package operator_test

import (
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// TestSharedInWords: what is wrong with a store or a cluster is said in front of its numbers.
func TestSharedInWords(t *testing.T) {
	type fields = map[string]any
	breaker := fields{"state": "open", "since": "2026-11-22T08:59:48.96Z"}
	for _, c := range []struct {
		of   func(any) (string, bool)
		v    any
		want string
		bad  bool
	}{
		{operator.StoreState, fields{"answers": true, "breaker": breaker}, "available, since 2026-11-22 08:59:48 UTC", false},
		{
			operator.StoreState,
			fields{"answers": false, "reached": true, "breaker": breaker, "error": "weir: the store is unavailable: refused"},
			"UNAVAILABLE, since 2026-11-22 08:59:48 UTC: the store is unavailable: refused; the fail of each policy decides", true,
		},
		{operator.StoreState, "redis", "UNAVAILABLE; the fail of each policy decides", true},
		{operator.ClusterState, fields{"joined": false, "error": "no route"}, "IT IS NOT JOINED: no route; the fail of each policy decides", true},
		{operator.ClusterState, fields{"joined": true, "owns": true, "owner": "10.0.0.1:7080"}, "this node owns the limits", false},
		{operator.ClusterState, fields{"joined": true, "owner": "10.0.0.2:7080"}, "the owner of the limits is 10.0.0.2:7080", false},
		{
			operator.ClusterState,
			fields{"joined": true, "owner": "10.0.0.2:7080", "owner_unreached_ns": 27.2e9},
			"NO OWNER CAN BE REACHED for 28s: the last one was 10.0.0.2:7080; the fail of each policy decides", true,
		},
		{operator.ClusterState, fields{"joined": true, "owner": "", "owner_unreached_ns": 27.2e9}, "NO OWNER IS KNOWN; the fail of each policy decides", true},
	} {
		if text, bad := c.of(c.v); text != c.want || bad != c.bad {
			t.Errorf("%v: %q %t, want %q", c.v, text, bad, c.want)
		}
	}
}
