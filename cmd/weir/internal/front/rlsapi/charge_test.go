package rlsapi_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/kuadrantv1"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// tenSeconds gives a user a permit every ten seconds, up to three.
func tenSeconds() *policy.Set {
	set := usersAndTenants()
	set.Policies[0].Limits = []policy.Limit{{Limit: weir.TokenBucket(weir.Rate{Permits: 1, Period: 10 * time.Second}, 3)}}
	return set
}

// TestReportsAreOwed: what is reported beyond a limit, an empty one included, is a debt up to as many permits as the limit has, and the
// next permit comes when it is regained, to the nanosecond.
func TestReportsAreOwed(t *testing.T) {
	for _, shared := range []bool{false, true} {
		clock := manualclock.New(1)
		set, o := tenSeconds(), policy.EngineOptions{Clock: clock}
		if shared {
			memory, err := store.NewMemory(store.MemoryOptions{Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = memory.Close() })
			set.Policies[0].Consistency, o.Store = policy.ConsistencyCoherent, memory
		}
		_, conn := serve(t, rlsapi.Options{Limits: limitsWith(t, set, o)})
		client := kuadrantv1.NewRateLimitServiceClient(conn)
		r := request("edge", []string{"user", "u"})
		report := func(hits uint32) {
			t.Helper()
			r.HitsAddend = hits
			if got, err := client.Report(t.Context(), r); err != nil || brief(got) != "ok: ok/0" {
				t.Errorf("shared %v: report of %d: %v, %v", shared, hits, got, err)
			}
			r.HitsAddend = 1
		}
		next := func(after time.Duration) {
			t.Helper()
			clock.Advance(after - 1)
			if got, err := client.CheckRateLimit(t.Context(), r); err != nil || brief(got) != "over: over/0" {
				t.Errorf("shared %v: before %v: %v, %v", shared, after, got, err)
			}
			clock.Advance(1)
			if got := ask(t, conn, r); brief(got) != "ok: ok/0" {
				t.Errorf("shared %v: after %v: %v", shared, after, got)
			}
		}
		report(4)              // one more than there is
		report(1)              // nothing is left
		next(30 * time.Second) // 2 are owed
		report(2)              // nothing is left again
		next(30 * time.Second)
		report(100) // the largest debt is 3
		next(40 * time.Second)
	}
}

// TestReportsOfSeveralHits: descriptors of no hits charge nothing. Others are charged as one, also under policies that do not
// enforce.
func TestReportsOfSeveralHits(t *testing.T) {
	_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, usersAndTenants())})
	client := kuadrantv1.NewRateLimitServiceClient(conn)
	r := request("edge", []string{"user", "u"}, []string{"user", "u"}, []string{"tenant", "t"}, []string{"other", "o"})
	r.Descriptors[2].HitsAddend = wrapperspb.UInt64(0)
	for i, want := range []string{"ok: ok/1 ok/1 ok/5 ok/-", "ok: ok/0 ok/0 ok/5 ok/-"} {
		if got, err := client.Report(t.Context(), r); err != nil || brief(got) != want {
			t.Errorf("report %d: %v, %v, want %s", i, got, err, want)
		}
	}
}

// TestReportToAnUnavailableStore: a report gets the answer that nothing was charged, whatever the policy says of its store.
func TestReportToAnUnavailableStore(t *testing.T) {
	memory, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = memory.Close() }()
	set := usersAndTenants()
	set.Policies[0].Consistency, set.Policies[0].Fail = policy.ConsistencyCoherent, policy.FailOpen
	_, conn := serve(t, rlsapi.Options{Limits: limitsWith(t, set, policy.EngineOptions{Store: away{memory}})})
	_, err = kuadrantv1.NewRateLimitServiceClient(conn).Report(t.Context(), request("edge", []string{"user", "u"}))
	if s := status.Convert(err); s.Code() != codes.Unavailable || s.Message() != "weir: the limits cannot be charged at the moment" {
		t.Error(err)
	}
}

// TestRefusedHitsMakeNoDebt: a client that asks for more than there is takes what remains, and owes nothing, however often that
// happens.
func TestRefusedHitsMakeNoDebt(t *testing.T) {
	config, err := ratelimitconfig.Parse([]ratelimitconfig.File{{Name: "edge.yaml", Data: []byte(`
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5}
`)}}, ratelimitconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	clock := manualclock.New(time.Date(2030, 1, 1, 0, 0, 30, 0, time.UTC).UnixNano())
	_, conn := serve(t, rlsapi.Options{
		Limits: limitsWith(t, &policy.Set{Policies: config.Policies}, policy.EngineOptions{Clock: clock}),
		Tree:   func() *ratelimitconfig.Config { return config },
	})
	hits := func(n ...uint64) string {
		t.Helper()
		r := request("edge")
		for _, n := range n {
			d := request("edge", []string{"user", "u"}).GetDescriptors()[0]
			d.HitsAddend = wrapperspb.UInt64(n)
			r.Descriptors = append(r.Descriptors, d)
		}
		return brief(ask(t, conn, r))
	}
	if got := hits(3, 3); got != "over: over/0 over/0" {
		t.Error(got)
	}
	for range 3 {
		if got := hits(4); got != "over: over/0" {
			t.Error(got)
		}
	}
	clock.Advance(30 * time.Second)
	if got := hits(5); got != "ok: ok/0" {
		t.Errorf("in the next window: %s, want all of it", got)
	}
}
