package grpclimit_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/grpclimit"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

func engine(t testing.TB, set *policy.Set, o policy.EngineOptions) *policy.Engine {
	t.Helper()
	e, err := policy.NewEngine(set, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func perHour(n int64) policy.Limit {
	return policy.Limit{Limit: weir.TokenBucket(weir.PerHour(n), 0)}
}

// only is a set of one rule with one policy, called "p".
func only(p policy.Policy, m policy.Match) *policy.Set {
	p.Name = "p"
	return &policy.Set{
		Policies: []policy.Policy{p}, Rules: []policy.Rule{{Name: "r", Match: m, Limits: []policy.Use{{Policy: "p"}}}},
	}
}

func TestRulesSeeTheCall(t *testing.T) {
	for name, c := range map[string]struct{ is, isNot policy.Match }{
		"path":     {policy.Match{Paths: []string{"/grpc.testing.TestService/{method}"}}, policy.Match{Paths: []string{"/grpc.testing.OtherService/"}}},
		"method":   {policy.Match{Methods: []string{"POST"}}, policy.Match{Methods: []string{"GET"}}},
		"host":     {policy.Match{Hosts: []string{"memory"}}, policy.Match{Hosts: []string{"disk"}}},
		"protocol": {policy.Match{Protocols: []string{"grpc"}}, policy.Match{Protocols: []string{"http", "grpc-message"}}},
		"client":   {policy.Match{Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, policy.Match{Clients: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
		"metadata": {policy.Match{Headers: []policy.HeaderMatch{{Name: "X-Plan", Value: "go*"}}}, policy.Match{Headers: []policy.HeaderMatch{{Name: "X-Plan", Absent: true}}}},
		"route":    {policy.Match{Routes: []string{"gold"}}, policy.Match{Routes: []string{"silver"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, m := range []policy.Match{c.is, c.isNot} {
				client := setup{peer: "192.0.2.1:1", server: limited(t, grpclimit.ServerOptions{
					Engine:  engine(t, only(policy.Policy{Limits: []policy.Limit{perHour(1)}}, m), policy.EngineOptions{}),
					Prepare: func(_ context.Context, c *grpclimit.Call) { c.Route = c.Metadata("X-Plan") },
				})}.dial(t)
				ctx := metadata.AppendToOutgoingContext(t.Context(), "x-plan", "gold")
				want(t, call(ctx, client), codes.OK)
				want(t, call(ctx, client), []codes.Code{codes.ResourceExhausted, codes.OK}[i])
			}
		})
	}
}

func TestRefusalOfAnEngineNamesEveryLimit(t *testing.T) {
	set := &policy.Set{
		Policies: []policy.Policy{
			{Name: "client", Limits: []policy.Limit{perHour(2)}, Key: policy.ClientIP()},
			{Name: "all", Limits: []policy.Limit{
				{Name: "hour", Limit: weir.TokenBucket(weir.PerHour(1), 0)}, {Name: "day", Limit: weir.TokenBucket(weir.PerDay(100), 0)},
			}},
		},
		Rules: []policy.Rule{{Name: "r", Limits: []policy.Use{{Policy: "client", Cost: policy.FixedNumber(2)}, {Policy: "all"}}}},
	}
	var seen grpclimit.Refusal
	client := setup{peer: "192.0.2.1:1", server: limited(t, grpclimit.ServerOptions{
		Engine: engine(t, set, policy.EngineOptions{Clock: manualclock.New(0)}), Headers: &ratelimitfields.Headers{},
		OnRefused: func(_ context.Context, r *grpclimit.Refusal) { seen = *r },
	})}.dial(t)
	var header, trailer metadata.MD
	want(t, call(t.Context(), client, grpc.Header(&header)), codes.OK)
	if got := header["ratelimit-policy"]; len(got) != 1 || got[0] != `"client";q=2;w=3600, "all/hour";q=1;w=3600, "all/day";q=100;w=86400` {
		t.Errorf("the policies are %q", got)
	}
	err := call(t.Context(), client, grpc.Trailer(&trailer))
	want(t, err, codes.ResourceExhausted)
	delay, violations := details(err)
	if len(violations) != 2 || violations[0].GetSubject() != "client" || violations[1].GetSubject() != "all/hour" ||
		delay != time.Hour {
		t.Errorf("delay %v, violations %v", delay, violations)
	}
	if len(seen.Refused) != 2 || seen.Decision.Allowed || seen.Decision.Reason != weir.ReasonLimited {
		t.Errorf("the hook saw %+v", seen)
	}
	if got := trailer["ratelimit"]; len(got) != 1 {
		t.Errorf("the trailer is %v", trailer)
	}
}

func TestEngineHoldsPermitsUntilTheCallEnds(t *testing.T) {
	set := only(policy.Policy{Limits: []policy.Limit{{Limit: weir.AtOnce(1)}}}, policy.Match{})
	e := engine(t, set, policy.EngineOptions{})
	inside := make(chan error)
	var client testgrpc.TestServiceClient
	s := &service{unary: func(ctx context.Context) error {
		if _, again := metadata.FromIncomingContext(ctx); again && len(metadata.ValueFromIncomingContext(ctx, "x-outer")) > 0 {
			inside <- call(context.WithoutCancel(ctx), client)
		}
		return nil
	}}
	client = setup{service: s, server: limited(t, grpclimit.ServerOptions{Engine: e})}.dial(t)
	for range 3 {
		outer := make(chan error)
		go func() { outer <- call(metadata.AppendToOutgoingContext(t.Context(), "x-outer", "1"), client) }()
		want(t, <-inside, codes.ResourceExhausted)
		want(t, <-outer, codes.OK)
	}
	want(t, countMessages(t, client, 2), codes.OK)
	want(t, countMessages(t, client, 2), codes.OK)
	if held := e.Limiter("p", "concurrency").Peek("", 1); !held.Allowed {
		t.Errorf("a permit is lost: %+v", held)
	}
}

func TestRulesForMessages(t *testing.T) {
	set := only(policy.Policy{Limits: []policy.Limit{perHour(7)}}, policy.Match{Protocols: []string{grpclimit.ProtocolMessage}})
	var refused string
	client := setup{server: limited(t, grpclimit.ServerOptions{
		Engine: engine(t, set, policy.EngineOptions{}), MessageCost: grpclimit.Each(2),
		OnRefused: func(_ context.Context, r *grpclimit.Refusal) { refused = r.Call.Protocol },
	})}.dial(t)
	for range 5 {
		want(t, call(t.Context(), client), codes.OK)
	}
	want(t, countMessages(t, client, 3), codes.OK)
	want(t, countMessages(t, client, 0), codes.OK)
	want(t, countMessages(t, client, 1), codes.ResourceExhausted)
	if refused != grpclimit.ProtocolMessage {
		t.Errorf("refused was %q", refused)
	}
}

func TestEngineWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := only(policy.Policy{
			Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(1), 0)}}, QueueLimit: 10, MaxWait: 3500 * time.Millisecond,
		}, policy.Match{})
		client := setup{server: limited(t, grpclimit.ServerOptions{
			Engine: engine(t, set, policy.EngineOptions{}), MaxWait: weir.Never, Logger: silent(t),
			OnRefused: func(_ context.Context, r *grpclimit.Refusal) {
				if r.Decision.Reason != weir.ReasonDeadline && r.Decision.Reason != weir.ReasonLimited {
					t.Errorf("refused because of %v", r.Decision.Reason)
				}
			},
		})}.dial(t)
		answers := make(chan error, 6)
		elapsed(t, 3*time.Second, func() {
			for range 6 {
				go func() { answers <- call(t.Context(), client) }()
			}
			served := 0
			for range 6 {
				if err := <-answers; err == nil {
					served++
				} else {
					want(t, err, codes.ResourceExhausted)
				}
			}
			if served != 4 {
				t.Errorf("%d were served", served)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		want(t, call(ctx, client), codes.Canceled)
		synctest.Wait()
	})
}

func TestShedderOfAnEngine(t *testing.T) {
	shedder, err := overload.NewShedder(overload.ShedderOptions{
		Sources: []overload.Pressure{overload.NewPressure("test", func(int64) (float64, error) { return 10, nil })}, Rise: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	set := only(policy.Policy{Limits: []policy.Limit{perHour(1)}}, policy.Match{})
	client := setup{server: limited(t, grpclimit.ServerOptions{Engine: engine(t, set, policy.EngineOptions{Shedder: shedder})})}.dial(t)
	err = call(t.Context(), client)
	want(t, err, codes.Unavailable)
	if delay, violations := details(err); delay <= 0 || len(violations) > 0 {
		t.Errorf("delay %v, violations %v", delay, violations)
	}
}

// TestDeniedCallsArePermissionDenied: a call that a rule denies gets a code of its own, no time to come back, and no word of limits or
// rules, also if it costs nothing; so does a message. Nothing is charged.
func TestDeniedCallsArePermissionDenied(t *testing.T) {
	set := only(policy.Policy{Limits: []policy.Limit{perHour(1)}}, policy.Match{})
	set.Rules = append(set.Rules, policy.Rule{
		Name: "secret rule", Match: policy.Match{Paths: []string{"/grpc.testing.TestService/UnaryCall"}}, Deny: true,
	}, policy.Rule{Name: "free", Exempt: true})
	for cost := range int64(2) {
		e := engine(t, set, policy.EngineOptions{})
		client := setup{server: limited(t, grpclimit.ServerOptions{
			Engine: e, Cost: func(context.Context, *grpclimit.Call) int64 { return cost },
		})}.dial(t)
		var trailer metadata.MD
		err := call(t.Context(), client, grpc.Trailer(&trailer))
		want(t, err, codes.PermissionDenied)
		delay, violations := details(err)
		if delay >= 0 || len(violations) > 0 || len(trailer["retry-after"]) > 0 || strings.Contains(err.Error(), "secret") {
			t.Errorf("cost %d: %v, trailer %v", cost, err, trailer)
		}
		if got := trailer["grpc-retry-pushback-ms"]; len(got) != 1 || got[0] != "-1" {
			t.Errorf("cost %d: the trailer is %v", cost, trailer)
		}
		if _, err := client.EmptyCall(t.Context(), &testgrpc.Empty{}); err != nil {
			t.Errorf("cost %d: another method: %v", cost, err)
		}
	}
}

// TestLockedOutIsSaidSo: the message of a refusal has the words for it.
func TestLockedOutIsSaidSo(t *testing.T) {
	client := setup{server: limited(t, grpclimit.ServerOptions{Engine: engine(t, &policy.Set{
		Policies: []policy.Policy{{
			Name: "login", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 1)}},
			Lockout: &policy.Lockout{Refusals: 1, Within: time.Hour, For: 24 * time.Hour},
		}},
		Rules: []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "login"}}}},
	}, policy.EngineOptions{})})}.dial(t)
	want(t, call(t.Context(), client), codes.OK)
	for range 2 {
		err := call(t.Context(), client)
		if text := status.Convert(err).Message(); !strings.HasPrefix(text, `the limit "login" has locked the caller out; retry after `) {
			t.Errorf("the message is %q", text)
		}
	}
}
