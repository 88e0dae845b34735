package policy_test

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/policy"
)

// TestReportOfTheFullestTable: of several limits of a policy the one whose table is nearest to being full is reported, so that one
// full table is not hidden by others with room.
func TestReportOfTheFullestTable(t *testing.T) {
	e := engine(t, login(func(p *policy.Policy) {
		p.MaxKeys = 10
		p.Limits = []policy.Limit{{Limit: perHour(5), Name: "a"}, {Limit: perHour(5), Name: "b"}, {Limit: perHour(5), Name: "c"}}
	}))
	want := func(keys int64) {
		t.Helper()
		if p := e.Report().Policies[0]; p.Keys != keys || p.MaxKeys != 10 {
			t.Errorf("%d of %d keys, want %d of 10", p.Keys, p.MaxKeys, keys)
		}
	}
	want(0)
	wantTakes(t, e, ann, 1, 1)
	want(1)
	for i := range 9 {
		if !e.Limiter("login", "b").Allow(fmt.Sprint(i)) {
			t.Fatal("refused")
		}
	}
	want(10)
}
