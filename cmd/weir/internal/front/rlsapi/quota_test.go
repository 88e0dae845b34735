package rlsapi_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/kuadrantv1"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// services have quotas of one and of two requests a minute, as the example of envoyproxy/ratelimit has them.
const services = `
domain: edge
descriptors:
  - key: service
    value: service_1
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
    metadata: {service_with_quota: {name: service_1, one: 1}}
  - key: service
    value: service_2
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 2}
    metadata: {service_with_quota: {name: service_2, two: 2}}
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: free
    rate_limit: {unlimited: true}
  - key: both
    shadow_mode: true
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 2}
`

// clocked is a front with services, whose minute has just begun.
func clocked(t *testing.T, o ratelimitconfig.Options) (*manualclock.Clock, rlsapi.Options) {
	t.Helper()
	config, err := ratelimitconfig.Parse([]ratelimitconfig.File{{Name: "edge.yaml", Data: []byte(services)}}, o)
	if err != nil {
		t.Fatal(err)
	}
	clock := manualclock.New(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return clock, rlsapi.Options{
		Limits: limitsWith(t, &policy.Set{Policies: config.Policies}, policy.EngineOptions{Clock: clock}),
		Tree:   func() *ratelimitconfig.Config { return config },
	}
}

// ofServices asks for services, each with hits of its own.
func ofServices(hits uint64, names ...string) *ratelimitv3.RateLimitRequest {
	r := request("edge")
	for _, name := range names {
		d := request("edge", []string{"service", "service_" + name}).GetDescriptors()[0]
		d.HitsAddend = wrapperspb.UInt64(hits)
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// TestQuotaScripts are what the three scripts of envoyproxy/ratelimit about quotas ask, and what they expect. They do it twice, as
// quotas are there again in the next minute.
func TestQuotaScripts(t *testing.T) {
	type reply = *ratelimitv3.RateLimitResponse
	codes := func(r reply) string {
		code, _, _ := strings.Cut(brief(r), ":")
		return code
	}
	chosen := func(r reply) string {
		service, _ := r.GetDynamicMetadata().AsMap()["metadata"].(map[string]any)
		with, _ := service["service_with_quota"].(map[string]any)
		name, _ := with["name"].(string)
		return name
	}
	for name, script := range map[string]struct {
		ask  func(ask func(*ratelimitv3.RateLimitRequest) reply) string
		want []string
	}{
		"quota.sh": {func(ask func(*ratelimitv3.RateLimitRequest) reply) string {
			return codes(ask(ofServices(1, "1", "2")))
		}, []string{"ok", "ok", "over", "over"}},
		"token-quota.sh": {func(ask func(*ratelimitv3.RateLimitRequest) reply) string {
			got := codes(ask(ofServices(0, "2")))
			if got == "ok" {
				ask(ofServices(1, "2"))
			}
			return got
		}, []string{"ok", "ok", "ok", "over"}},
		"multiservice-tokenquota.sh": {func(ask func(*ratelimitv3.RateLimitRequest) reply) string {
			got := ask(ofServices(0, "1", "2"))
			if got.GetOverallCode() != ok {
				return "over"
			}
			service := chosen(got)
			ask(ofServices(1, strings.TrimPrefix(service, "service_")))
			return service
		}, []string{"service_1", "service_1", "service_2", "service_2", "service_2", "over", "over"}},
	} {
		clock, o := clocked(t, ratelimitconfig.Options{})
		_, conn := serve(t, o)
		for minute := range 2 {
			var got []string
			for range script.want {
				got = append(got, script.ask(func(r *ratelimitv3.RateLimitRequest) reply { return ask(t, conn, r) }))
			}
			if !slices.Equal(got, script.want) {
				t.Errorf("%s, minute %d: %v, want %v", name, minute, got, script.want)
			}
			clock.Advance(time.Minute)
		}
	}
}

// TestQuotasAreCountedApart: a quota that is reached leaves the others counted, whatever their order; a request is refused if it is over
// all of its quotas, of which one in shadow mode is never reached, or over another limit, and then charges its other limits nothing but
// several hits.
func TestQuotasAreCountedApart(t *testing.T) {
	one, two, user := []string{"service", "service_1"}, []string{"service", "service_2"}, []string{"user", "u"}
	_, o := clocked(t, ratelimitconfig.Options{})
	_, conn := serve(t, o)
	for i, step := range []struct {
		descriptors [][]string
		want        string
	}{
		{[][]string{one, two, user}, "ok: ok/0 ok/1 ok/2"},
		{[][]string{one, user, two}, "ok: over/0 ok/1 ok/0"},
		{[][]string{user, two, one}, "over: ok/1 over/0 over/0"}, // the user is not charged
		{[][]string{user, {"none", "n"}}, "ok: ok/0 ok/-"},
		{[][]string{one}, "over: over/0"},
		{[][]string{one, {"none", "n"}, {"free", "f"}}, "over: over/0 ok/- ok/-"},
		{[][]string{one, {"watched", "w"}}, "over: over/0 ok/1"},
		{[][]string{one, {"both", "b"}}, "ok: over/0 ok/1"}, // which is never reached
		{[][]string{one, {"both", "b"}}, "ok: over/0 ok/0"},
		{[][]string{one, {"both", "b"}}, "ok: over/0 ok/0"},
	} {
		got := ask(t, conn, request("edge", step.descriptors...))
		if brief(got) != step.want {
			t.Errorf("step %d: %s, want %s", i, brief(got), step.want)
		}
		if m := metadataOf(got); m["policy"] == "edge.service_service_1" && (m["limit"] != 1.0 || m["remaining"] != 0.0) {
			t.Errorf("step %d: the metadata of a quota are %v", i, m)
		}
	}
	// Another limit refuses: the quota is not charged, unless by several hits, which tell what was spent.
	_, o = clocked(t, ratelimitconfig.Options{})
	_, conn = serve(t, o)
	for i, step := range []struct {
		hits        uint32
		descriptors [][]string
		want        string
	}{
		{3, [][]string{user}, "ok: ok/0"},
		{1, [][]string{user, two}, "over: over/0 ok/2"},
		{1, [][]string{two}, "ok: ok/1"},
		{4, [][]string{user, two}, "over: over/0 over/0"},
		{1, [][]string{two}, "over: over/0"},
	} {
		r := request("edge", step.descriptors...)
		r.HitsAddend = step.hits
		if got := brief(ask(t, conn, r)); got != step.want {
			t.Errorf("hits, step %d: %s, want %s", i, got, step.want)
		}
	}
}

// TestQuotaMetadata: the metadata of the limits that a request has not reached are told under "metadata", the first of them wins, and what
// only others have is put beside it. No limit is changed by it.
func TestQuotaMetadata(t *testing.T) {
	_, o := clocked(t, ratelimitconfig.Options{})
	_, conn := serve(t, o)
	for i, want := range []map[string]any{
		{"name": "service_1", "one": 1.0, "two": 2.0}, {"name": "service_2", "two": 2.0}, nil, nil,
	} {
		got := ask(t, conn, ofServices(1, "1", "2"))
		told, _ := got.GetDynamicMetadata().AsMap()["metadata"].(map[string]any)
		with, _ := told["service_with_quota"].(map[string]any)
		if len(with) != len(want) || with["name"] != want["name"] || with["one"] != want["one"] || with["two"] != want["two"] {
			t.Errorf("call %d: %v, want %v", i, got.GetDynamicMetadata(), want)
		}
	}
}

// TestAllQuotas: by --ratelimit-quota every limit is a quota, and so is a descriptor without one, which nothing reaches.
func TestAllQuotas(t *testing.T) {
	_, o := clocked(t, ratelimitconfig.Options{Quota: true})
	_, conn := serve(t, o)
	user, none, free, watched := []string{"user", "u"}, []string{"none", "n"}, []string{"free", "f"}, []string{"watched", "w"}
	for i, step := range []struct {
		descriptors [][]string
		want        string
	}{
		{[][]string{user}, "ok: ok/2"},
		{[][]string{user, free}, "ok: ok/1 ok/-"},
		{[][]string{user, none}, "ok: ok/0 ok/-"},
		{[][]string{user, none}, "ok: over/0 ok/-"},
		{[][]string{user, free}, "over: over/0 ok/-"},
		{[][]string{user, watched}, "ok: over/0 ok/0"},
		{[][]string{user, {"user", "v"}}, "ok: over/0 ok/2"},
		{[][]string{user}, "over: over/0"},
		{[][]string{none}, "ok: ok/-"},
	} {
		if got := brief(ask(t, conn, request("edge", step.descriptors...))); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// TestQuotasOfKuadrant: a check charges no quota, and a report charges each.
func TestQuotasOfKuadrant(t *testing.T) {
	_, o := clocked(t, ratelimitconfig.Options{})
	_, conn := serve(t, o)
	client := kuadrantv1.NewRateLimitServiceClient(conn)
	for i, want := range []string{"ok: ok/1 ok/2", "ok: over/0 ok/1", "over: over/0 over/0"} {
		for range 2 {
			if got, err := client.CheckRateLimit(t.Context(), ofServices(1, "1", "2")); err != nil || brief(got) != want {
				t.Errorf("check %d: %v, %v, want %s", i, brief(got), err, want)
			}
		}
		if got, err := client.Report(t.Context(), ofServices(1, "1", "2")); err != nil || got.GetOverallCode() != ok {
			t.Errorf("report %d: %v, %v", i, got, err)
		}
	}
}

// TestLimitFields: as envoyproxy/ratelimit tells a limit, without the name of a policy.
func TestLimitFields(t *testing.T) {
	_, o := clocked(t, ratelimitconfig.Options{})
	o.Fields, o.LimitFields = ratelimitfields.NoFields, []string{"x-limit", "x-left", "x-reset"}
	_, conn := serve(t, o)
	for i, want := range []string{"2 1 60", "2 0 60", "2 0 60"} {
		h := headersOf(ask(t, conn, request("edge", []string{"user", "u"}, []string{"service", "service_2"}, []string{"none", "n"})))
		if got := h["x-limit"] + " " + h["x-left"] + " " + h["x-reset"]; got != want || len(h) != 3 {
			t.Errorf("call %d: %v, want %s", i, h, want)
		}
	}
	if h := headersOf(ask(t, conn, request("edge", []string{"none", "n"}))); len(h) != 0 {
		t.Errorf("without a limit: %v", h)
	}
	if _, err := rlsapi.New(rlsapi.Options{Limits: o.Limits, LimitFields: []string{"a"}}); err == nil {
		t.Error("one name is accepted")
	}
}
