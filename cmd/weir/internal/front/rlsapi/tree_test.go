package rlsapi_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/kuadrantv1"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/typev3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

const tree = `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 3, name: users}
  - key: tenant
    rate_limit: {unit: year, requests_per_unit: 100}
  - key: free
    rate_limit: {unlimited: true}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: closed
    rate_limit: {unit: year, requests_per_unit: 0}
  - key: path
    value: /export/*
    share_threshold: true
    rate_limit: {unit: year, requests_per_unit: 3}
`

// treeOf are options with a configuration of envoyproxy/ratelimit.
func treeOf(t *testing.T, text string) rlsapi.Options {
	t.Helper()
	config, err := ratelimitconfig.Parse([]ratelimitconfig.File{{Name: "edge.yaml", Data: []byte(text)}}, ratelimitconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return rlsapi.Options{
		Limits: limitsOf(t, &policy.Set{Policies: config.Policies}), Tree: func() *ratelimitconfig.Config { return config },
	}
}

func TestTree(t *testing.T) {
	_, conn := serve(t, treeOf(t, tree))
	user := []string{"user", "u"}
	for i, step := range []struct {
		request *ratelimitv3.RateLimitRequest
		want    string
	}{
		{request("edge", user, []string{"none", "n"}, []string{"free", "f"}), "ok: ok/2 ok/- ok/-"},
		{request("edge", []string{"watched", "w"}, user), "ok: ok/0 ok/1"},
		{request("edge", []string{"watched", "w"}), "ok: ok/0"},
		{request("edge", []string{"closed", "c"}), "over: over/0"},
		{request("elsewhere", user), "ok: ok/-"},
		{request("edge", user), "ok: ok/0"},
		{request("edge", user, []string{"tenant", "t"}), "over: over/0 ok/100"},
		{request("edge", []string{"path", "/export/1"}, []string{"path", "/export/2"}), "ok: ok/1 ok/1"},
		{request("edge", []string{"path", "/export/1"}, []string{"path", "/export/2"}), "over: over/0 over/0"},
		{request("edge", []string{"path", "/export/1"}), "ok: ok/0"},
	} {
		if got := brief(ask(t, conn, step.request)); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	if m := metadataOf(ask(t, conn, request("edge", []string{"closed", "c"}))); m["limit"] != 0.0 || m["remaining"] != 0.0 {
		t.Errorf("the metadata of a limit of 0 are %v", m)
	}
	got := ask(t, conn, request("edge", user, []string{"free", "f"}))
	if l := got.GetStatuses()[0].GetCurrentLimit(); l.GetName() != "users" || l.GetRequestsPerUnit() != 3 ||
		l.GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_YEAR {
		t.Errorf("the limit is told as %v", l)
	}
	if s := got.GetStatuses()[1]; s.GetLimitRemaining() != 1<<32-1 || s.GetCurrentLimit() != nil {
		t.Errorf("without a limit: %v", s)
	}
}

func TestTreeOverride(t *testing.T) {
	_, conn := serve(t, treeOf(t, tree))
	r := request("edge", []string{"user", "u"})
	r.Descriptors[0].Limit = &commonratelimitv3.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_MONTH,
	}
	for i, want := range []string{"ok: ok/0", "over: over/0"} {
		got := ask(t, conn, r)
		if brief(got) != want {
			t.Errorf("step %d: %s, want %s", i, brief(got), want)
		}
		if l := got.GetStatuses()[0].GetCurrentLimit(); l.GetRequestsPerUnit() != 1 ||
			l.GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_MONTH {
			t.Errorf("step %d: %v", i, l)
		}
	}
}

// TestTreeMultiplied: limits for several units, of files and of descriptors, are counted and told as such.
func TestTreeMultiplied(t *testing.T) {
	_, conn := serve(t, treeOf(t, `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: day, unit_multiplier: 30, requests_per_unit: 3}
`))
	file, own := request("edge", []string{"user", "u"}), request("edge", []string{"user", "u"})
	own.Descriptors[0].Limit = &commonratelimitv3.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(5000),
	}
	other := proto.CloneOf(own)
	other.Descriptors[0].Limit.UnitMultiplier = nil
	day, hour := ratelimitv3.RateLimitResponse_RateLimit_DAY, ratelimitv3.RateLimitResponse_RateLimit_HOUR
	for i, step := range []struct {
		request    *ratelimitv3.RateLimitRequest
		want       string
		unit       ratelimitv3.RateLimitResponse_RateLimit_Unit
		multiplier uint32 // 0: unset
	}{
		{file, "ok: ok/2", day, 30},
		{own, "ok: ok/0", hour, 5000},
		{own, "over: over/0", hour, 5000},
		{other, "ok: ok/0", hour, 0}, // another limit
		{file, "ok: ok/1", day, 30},
	} {
		got := ask(t, conn, step.request)
		l := got.GetStatuses()[0].GetCurrentLimit()
		if brief(got) != step.want || l.GetUnit() != step.unit || l.GetUnitMultiplier().GetValue() != step.multiplier {
			t.Errorf("step %d: %s, %v, want %s", i, brief(got), l, step.want)
		}
	}
}

// TestTreeCostsAfterwards: a proxy asks with no hits before it forwards, and tells what the request has cost when it is
// over.
func TestTreeCostsAfterwards(t *testing.T) {
	_, conn := serve(t, treeOf(t, tree))
	hits := func(n uint64) *ratelimitv3.RateLimitRequest {
		r := request("edge", []string{"tenant", "t"})
		r.Descriptors[0].HitsAddend = wrapperspb.UInt64(n)
		return r
	}
	for i, step := range []struct {
		hits uint64
		want string
	}{
		{0, "ok: ok/100"},
		{60, "ok: ok/40"},
		{0, "ok: ok/40"},
		{60, "over: over/0"}, // refused, but it counts
		{0, "over: over/0"},
	} {
		if got := brief(ask(t, conn, hits(step.hits))); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	client := kuadrantv1.NewRateLimitServiceClient(conn)
	for i, want := range []string{"ok: ok/40", "ok: ok/0"} {
		r := hits(60)
		r.Descriptors[0].Entries[0].Value = "of Kuadrant"
		got, err := client.Report(t.Context(), r)
		if err != nil || brief(got) != want {
			t.Errorf("report %d: %s, %v, want %s", i, brief(got), err, want)
		}
	}
}

var errAway = errors.New("away")

// away is a store that cannot be reached.
type away struct{ store.Home }

// Do implements [store.Home].
func (a away) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []decision) (store.Hold, error) {
	if ask.Mode == store.ModeTake || ask.Mode == store.ModeDebit {
		return store.Hold{}, errAway
	}
	return a.Home.Do(ctx, ask, charges, decisions)
}

// TestUnavailableStore: what a policy says of it is what the proxy is told, which would let all pass after an error.
func TestUnavailableStore(t *testing.T) {
	memory, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = memory.Close() }()
	set := usersAndTenants()
	for i, fail := range []policy.Fail{policy.FailOpen, policy.FailClosed} {
		set.Policies[i].Consistency, set.Policies[i].Fail = policy.ConsistencyCoherent, fail
	}
	_, conn := serve(t, rlsapi.Options{Limits: limitsWith(t, set, policy.EngineOptions{Store: away{memory}})})
	if got := ask(t, conn, request("edge", []string{"user", "u"})); got.GetOverallCode() != ok {
		t.Errorf("open: %v", got)
	}
	got := ask(t, conn, request("edge", []string{"tenant", "t"}))
	if m := metadataOf(got); got.GetOverallCode() != over || m["reason"] != "unavailable" {
		t.Errorf("closed: %v", got)
	}
}
