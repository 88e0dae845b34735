package rlsapi_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/kuadrantv1"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

const (
	ok   = ratelimitv3.RateLimitResponse_OK
	over = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// brief is an answer in short: the code, and for each descriptor its code and what is left, or "-" if no limit is known.
func brief(r *ratelimitv3.RateLimitResponse) string {
	short := map[ratelimitv3.RateLimitResponse_Code]string{ok: "ok", over: "over"}
	var text strings.Builder
	text.WriteString(short[r.GetOverallCode()] + ":")
	for _, s := range r.GetStatuses() {
		left := "-"
		if s.GetCurrentLimit() != nil {
			left = fmt.Sprint(s.GetLimitRemaining())
		}
		text.WriteString(" " + short[s.GetCode()] + "/" + left)
	}
	return text.String()
}

func TestDescriptorsAreDecidedOnAsOneStep(t *testing.T) {
	_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, usersAndTenants())})
	user, tenant, other := []string{"user", "u"}, []string{"tenant", "t"}, []string{"other", "o"}
	for i, step := range []struct {
		descriptors [][]string
		want        string
	}{
		{[][]string{user, tenant, other}, "ok: ok/2 ok/4 ok/-"},
		{[][]string{other}, "ok: ok/-"},
		{[][]string{tenant}, "ok: ok/3"},
		{[][]string{tenant, user}, "ok: ok/2 ok/1"},
		{[][]string{user}, "ok: ok/0"},
		{[][]string{tenant, user, other}, "over: ok/2 over/0 ok/-"}, // and the tenant is not charged
		{[][]string{tenant, {"user", "v"}}, "ok: ok/1 ok/2"},
		{[][]string{{"user", "w"}, {"user", "w"}}, "ok: ok/1 ok/1"},
		{[][]string{{"user", "w"}, {"user", "w"}}, "over: over/1 over/1"}, // together they ask for 2
	} {
		if got := brief(ask(t, conn, request("edge", step.descriptors...))); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	if got := brief(ask(t, conn, request("elsewhere", user))); got != "ok: ok/-" {
		t.Errorf("another domain: %s", got)
	}
}

func TestAnswer(t *testing.T) {
	_, conn := serve(t, rlsapi.Options{Limits: atFirst(t, usersAndTenants())})
	r := request("edge", []string{"user", "u"})
	r.HitsAddend = 3
	got := ask(t, conn, r)
	limit := got.GetStatuses()[0].GetCurrentLimit()
	if limit.GetName() != "user" || limit.GetRequestsPerUnit() != 3 || limit.GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_DAY ||
		limit.GetUnitMultiplier() != nil {
		t.Errorf("the limit is told as %v", limit)
	}
	if reset := got.GetStatuses()[0].GetDurationUntilReset(); reset.GetSeconds() != 86400 || reset.GetNanos() != 0 {
		t.Errorf("the reset is told as %v", reset)
	}
	if h := headersOf(got); h["ratelimit"] != `"user";r=0;t=86400` || h["ratelimit-policy"] != `"user";q=3;w=86400` || len(h) != 2 {
		t.Errorf("the fields are %v", h)
	}
	if m := metadataOf(got); m["policy"] != "user" || m["rule"] != "users" || m["limit"] != 3.0 || m["remaining"] != 0.0 || len(m) != 4 {
		t.Errorf("the metadata are %v", m)
	}
	r.HitsAddend = 1
	got = ask(t, conn, r)
	if h := headersOf(got); h["retry-after"] != "86400" || len(h) != 3 {
		t.Errorf("the fields of a refusal are %v", h)
	}
	if m := metadataOf(got); m["reason"] != "limited" || m["retry_after"] == nil || len(m) != 6 {
		t.Errorf("the metadata of a refusal are %v", m)
	}
	r.HitsAddend = 4
	got = ask(t, conn, r)
	if m := metadataOf(got); m["reason"] != "never" || m["retry_after"] != nil || got.GetStatuses()[0].GetDurationUntilReset().GetSeconds() != 86400 {
		t.Errorf("where no wait helps: %v, %v", m, got.GetStatuses()[0])
	}
}

func headersOf(r *ratelimitv3.RateLimitResponse) map[string]string {
	all := make(map[string]string)
	for _, h := range r.GetResponseHeadersToAdd() {
		all[h.GetKey()] = h.GetValue()
	}
	return all
}

func metadataOf(r *ratelimitv3.RateLimitResponse) map[string]any {
	own, _ := r.GetDynamicMetadata().AsMap()["weir"].(map[string]any)
	return own
}

func TestAnswerInBrief(t *testing.T) {
	limits := atFirst(t, usersAndTenants())
	_, conn := serve(t, rlsapi.Options{Limits: limits, Fields: ratelimitfields.NoFields, NoMetadata: true})
	for range 4 {
		got := ask(t, conn, request("edge", []string{"user", "u"}))
		if got.GetDynamicMetadata() != nil || got.GetResponseHeadersToAdd() != nil {
			t.Errorf("%v", got)
		}
	}
	_, conn = serve(t, rlsapi.Options{Limits: limits, Fields: ratelimitfields.XRateLimit})
	if h := headersOf(ask(t, conn, request("edge", []string{"user", "v"}))); h["x-ratelimit-limit"] != "3" ||
		h["x-ratelimit-remaining"] != "2" || h["x-ratelimit-reset"] != "86400" || len(h) != 3 {
		t.Errorf("the fields are %v", h)
	}
}

func TestHits(t *testing.T) {
	_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, usersAndTenants())})
	user, tenant := []string{"user", "u"}, []string{"tenant", "t"}
	own := func(user, tenant *uint64) *ratelimitv3.RateLimitRequest {
		r := request("edge", []string{"user", "u"}, []string{"tenant", "t"})
		for i, n := range []*uint64{user, tenant} {
			if n != nil {
				r.Descriptors[i].HitsAddend = wrapperspb.UInt64(*n)
			}
		}
		return r
	}
	n := func(n uint64) *uint64 { return &n }
	with := func(hits uint32, r *ratelimitv3.RateLimitRequest) *ratelimitv3.RateLimitRequest {
		r.HitsAddend = hits
		return r
	}
	back := func(hits uint64) *ratelimitv3.RateLimitRequest {
		r := own(n(hits), n(0))
		r.Descriptors[0].IsNegativeHits = true
		return r
	}
	for i, step := range []struct {
		request *ratelimitv3.RateLimitRequest
		want    string
	}{
		{with(2, request("edge", user, tenant)), "ok: ok/1 ok/3"},
		{with(7, own(n(1), n(2))), "ok: ok/0 ok/1"}, // that of a descriptor counts instead
		{own(n(0), nil), "over: over/0 ok/1"},       // a probe charges nothing, but something must be left
		{own(n(0), n(0)), "over: over/0 ok/1"},
		{request("edge", tenant), "ok: ok/0"},
		{back(2), "over: ok/0 over/0"}, // a refusal changes nothing
		{with(1, back(2)), "over: ok/0 over/0"},
	} {
		if got := brief(ask(t, conn, step.request)); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	giving := request("edge", user)
	giving.Descriptors[0].HitsAddend, giving.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(2), true
	for i, want := range []string{"ok: ok/2", "ok: ok/3"} { // never more than there are
		if got := brief(ask(t, conn, giving)); got != want {
			t.Errorf("given back %d times: %s, want %s", i+1, got, want)
		}
	}
}

// TestInvalidRequests: what the operator of a proxy has to mend is an error, with the field, what it is and what it must be.
func TestInvalidRequests(t *testing.T) {
	_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, usersAndTenants())})
	user := []string{"user", "u"}
	for want, r := range map[string]*ratelimitv3.RateLimitRequest{
		"domain is empty: must have from 1 to 255 bytes":     request("", user),
		"domain has 256 bytes: must have from 1 to 255":      request(strings.Repeat("d", 256), user),
		"descriptors is empty: there must be from 1 to 1024": request("edge"),
	} {
		_, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), r)
		if s := status.Convert(err); s.Code() != codes.InvalidArgument || s.Message() != "weir: "+want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// 64 descriptors are not refused for their number.
	if got := ask(t, conn, request("edge", repeated(64, user...)...)); got.GetOverallCode() != over || len(got.GetStatuses()) != 64 {
		t.Errorf("64 descriptors: %v", got)
	}
}

// TestRandomDescriptors compares answers with those of an engine that is asked directly.
func TestRandomDescriptors(t *testing.T) {
	set := usersAndTenants()
	set.Policies = append(set.Policies, windowed("client", 40, policy.ClientIP()), windowed("all", 300, nil))
	set.Rules = append(set.Rules, policy.Rule{
		Name: "clients", Match: policy.Match{Paths: []string{"/remote_address/", "/remote_address"}},
		Limits: []policy.Use{{Policy: "client"}, {Policy: "all"}},
	}, policy.Rule{Name: "free", Match: policy.Match{Paths: []string{"/free"}}, Exempt: true})
	direct := limitsOf(t, set).Engine()
	_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, set)})
	random := rand.New(rand.NewPCG(7, 7))
	for step := range 600 {
		r := request("edge")
		var requests []*policy.Request
		for range 1 + random.IntN(5) {
			pairs, attributes := []string{}, map[string]string{}
			path := ""
			key := []string{"user", "tenant", "remote_address", "free", "none"}[random.IntN(5)]
			value := []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"}[random.IntN(3)]
			pairs, path, attributes[key] = append(pairs, key, value), path+"/"+key, value
			if random.IntN(4) == 0 {
				pairs, path, attributes["more"] = append(pairs, "more", "m"), path+"/more", "m"
			}
			d := request("", pairs).GetDescriptors()[0]
			hits := int64(1)
			if random.IntN(3) == 0 {
				hits = 1 + random.Int64N(3)
				d.HitsAddend = wrapperspb.UInt64(uint64(hits))
			}
			r.Descriptors = append(r.Descriptors, d)
			q := &policy.Request{Protocol: "rls", Host: "edge", Path: path, Attributes: attributes, Cost: hits}
			if key == "remote_address" {
				q.Client = addressOf(t, value)
			}
			requests = append(requests, q)
		}
		var v policy.Verdict
		direct.TakeAll(t.Context(), requests, &v)
		v.Release()
		got := ask(t, conn, r)
		if (got.GetOverallCode() == ok) != v.Allowed || len(got.GetStatuses()) != len(requests) {
			t.Fatalf("step %d: %v, want %v", step, got, v.Allowed)
		}
		for i, s := range got.GetStatuses() {
			d, limited := v.Answer(i)
			if (s.GetCode() == ok) != d.Allowed || (s.GetCurrentLimit() != nil) != limited ||
				limited && (int64(s.GetLimitRemaining()) != d.Remaining || s.GetCurrentLimit().GetName() != d.Policy) {
				t.Fatalf("step %d: descriptor %d of %v: %v, want %+v", step, i, r, s, d)
			}
		}
	}
}

func TestKuadrant(t *testing.T) {
	_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, usersAndTenants())})
	client := kuadrantv1.NewRateLimitServiceClient(conn)
	call := func(hits uint32, report bool) string {
		t.Helper()
		r := request("edge", []string{"user", "u"})
		r.HitsAddend = hits
		method := client.CheckRateLimit
		if report {
			method = client.Report
		}
		got, err := method(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return brief(got)
	}
	for i, step := range []struct {
		hits   uint32
		report bool
		want   string
	}{
		{1, false, "ok: ok/3"},
		{1, false, "ok: ok/3"}, // nothing was charged
		{2, true, "ok: ok/1"},
		{2, true, "ok: ok/0"}, // more than there is: a debt
		{1, false, "over: over/0"},
		{1, true, "ok: ok/0"}, // nothing is left, and it is owed all the same: see TestReportsAreOwed
	} {
		if got := call(step.hits, step.report); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// TestRemainingIsClamped: what is left has 32 bits.
func TestRemainingIsClamped(t *testing.T) {
	set := usersAndTenants()
	set.Policies[0] = windowed("user", 1<<40, policy.AttributeText("user"))
	_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, set)})
	s := ask(t, conn, request("edge", []string{"user", "u"})).GetStatuses()[0]
	if s.GetLimitRemaining() != math.MaxUint32 || s.GetCurrentLimit().GetRequestsPerUnit() != math.MaxUint32 {
		t.Errorf("%v", s)
	}
}

// TestDeniedDescriptorsAreOverLimit: what a rule denies is refused however it comes: as a call, a probe, a refund, a check or a report.
// The others of the call are charged nothing, and the metadata say which rule it was.
func TestDeniedDescriptorsAreOverLimit(t *testing.T) {
	set := usersAndTenants()
	set.Rules = append(set.Rules,
		policy.Rule{Name: "banned", Match: policy.Match{Paths: []string{"/banned"}}, Deny: true},
		policy.Rule{Name: "free", Match: policy.Match{Paths: []string{"/banned"}}, Exempt: true})
	_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, set)})
	user, banned := []string{"user", "u"}, []string{"banned", "b"}
	back := request("edge", user, banned)
	back.Descriptors[1].HitsAddend, back.Descriptors[1].IsNegativeHits = wrapperspb.UInt64(2), true
	probe := request("edge", user, banned)
	probe.Descriptors[1].HitsAddend = wrapperspb.UInt64(0)
	for name, r := range map[string]*ratelimitv3.RateLimitRequest{"call": request("edge", user, banned), "refund": back, "probe": probe} {
		got := ask(t, conn, r)
		if text := brief(got); text != "over: ok/3 over/-" && text != "over: ok/2 over/-" {
			t.Errorf("%s: %s", name, text)
		}
		if m := metadataOf(got); m["reason"] != "denied" || m["rule"] != "banned" || len(m) != 2 {
			t.Errorf("%s: %v", name, m)
		}
		if h := headersOf(got); h["retry-after"] != "" || h["ratelimit"] != "" {
			t.Errorf("%s: %v", name, h)
		}
	}
	client := kuadrantv1.NewRateLimitServiceClient(conn)
	for name, method := range map[string]func(context.Context, *ratelimitv3.RateLimitRequest, ...grpc.CallOption) (*ratelimitv3.RateLimitResponse, error){
		"check": client.CheckRateLimit, "report": client.Report,
	} {
		if got, err := method(t.Context(), request("edge", banned)); err != nil || brief(got) != "over: over/-" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got := brief(ask(t, conn, request("edge", user))); got != "ok: ok/2" {
		t.Errorf("the others were charged: %s", got)
	}
}
