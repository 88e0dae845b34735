package adminapi_test

import (
	"log/slog"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// TestReplicasOfAChange: an answer says in which servers the change holds.
func TestReplicasOfAChange(t *testing.T) {
	memory, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	limit := []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(9), 0)}}
	limits, err := live.Fixed(&policy.Set{Policies: []policy.Policy{
		{Name: "local", Key: policy.ClientIP(), Limits: limit},
		{Name: "shared", Key: policy.ClientIP(), Limits: limit, Consistency: policy.ConsistencyCoherent},
	}}, policy.EngineOptions{Store: memory}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t}
	if s.refusals, err = adminapi.NewRefusals(nil); err != nil {
		t.Fatal(err)
	}
	s.serve(limits)
	for _, c := range []struct{ path, policy, more, want string }{
		{operator.OverridePath, "local", `,"unlimited":true,"for":60`, operator.ThisReplica},
		{operator.OverridePath, "shared", `,"unlimited":true,"for":60`, operator.ThisReplica},
		{operator.RestorePath, "shared", "", operator.ThisReplica},
		{operator.UnlockPath, "shared", "", operator.ThisReplica},
		{operator.ResetPath, "local", "", operator.ThisReplica},
		{operator.ResetPath, "shared", "", operator.AllReplicas},
	} {
		var changed operator.Changed
		s.ask("POST", c.path, `{"policy":"`+c.policy+`","key":"a","reason":"a test"`+c.more+`}`, 200, &changed)
		if changed.Replicas != c.want {
			t.Errorf("%s of %s: %q, want %q", c.path, c.policy, changed.Replicas, c.want)
		}
	}
}
