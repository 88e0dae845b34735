package rlsapi_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/policy"
)

// TestHitsAreGivenBackToAFile: is_negative_hits is for policies whose limits are kept in a file, too, and never gives back more than
// there is.
func TestHitsAreGivenBackToAFile(t *testing.T) {
	file, err := durable.OpenFile(filepath.Join(t.TempDir(), "limits"), durable.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	node, err := durable.NewNode(durable.NodeOptions{Engine: file.Engine(), Address: "here"})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	set := usersAndTenants()
	for i := range set.Policies {
		set.Policies[i].Durability = policy.DurabilityFile
	}
	limits, err := live.Fixed(set, policy.EngineOptions{Durable: node}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, conn := serve(t, rlsapi.Options{Limits: limits})
	hits := func(n uint64, back bool) *ratelimitv3.RateLimitRequest {
		r := request("edge", []string{"user", "u"})
		r.Descriptors[0].HitsAddend, r.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(n), back
		return r
	}
	for i, step := range []struct {
		n    uint64
		back bool
		want string
	}{{3, false, "ok: ok/0"}, {1, false, "over: over/0"}, {2, true, "ok: ok/2"}, {2, true, "ok: ok/3"}, {1, false, "ok: ok/2"}} {
		if got := brief(ask(t, conn, hits(step.n, step.back))); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}
