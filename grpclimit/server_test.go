package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/grpclimit"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/ratelimitfields"
)

func TestRefusalSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		client := setup{service: s, peer: "192.0.2.1:4711", server: limited(t, grpclimit.ServerOptions{
			Keyed: keyed(t, weir.TokenBucket(weir.PerMinute(7), 2), weir.KeyedOptions{Name: "per-client"}),
		})}.dial(t)
		for range 2 {
			want(t, call(t.Context(), client), codes.OK)
		}
		var header, trailer metadata.MD
		err := call(t.Context(), client, grpc.Header(&header), grpc.Trailer(&trailer))
		want(t, err, codes.ResourceExhausted)
		delay, violations := details(err)
		if delay != 8572*time.Millisecond { // a seventh of a minute, rounded up
			t.Errorf("the delay is %v", delay)
		}
		const text = `the limit "per-client" is exceeded: 0 of 2 permits remain, and it needs 1; retry after 8.6 seconds`
		if len(violations) != 1 || violations[0].GetSubject() != "per-client" || violations[0].GetDescription() != text {
			t.Errorf("the violations are %v", violations)
		}
		if got := status.Convert(err).Message(); got != text {
			t.Errorf("the message is %q", got)
		}
		if got := trailer["grpc-retry-pushback-ms"]; len(got) != 1 || got[0] != "8572" {
			t.Errorf("the trailer is %v", trailer)
		}
		if s.served.Load() != 2 {
			t.Errorf("the handler was called %d times", s.served.Load())
		}
		time.Sleep(delay - time.Millisecond)
		want(t, call(t.Context(), client), codes.ResourceExhausted)
		time.Sleep(time.Millisecond)
		want(t, call(t.Context(), client), codes.OK)
	})
}

func TestWhatCanNeverSucceedHasNoDelay(t *testing.T) {
	client := setup{server: limited(t, grpclimit.ServerOptions{
		Limiter: bucket(t, weir.TokenBucket(weir.PerSecond(1), 3), weir.Options{Name: "all"}),
		Cost:    func(context.Context, *grpclimit.Call) int64 { return 4 },
		Headers: &ratelimitfields.Headers{},
	})}.dial(t)
	var trailer metadata.MD
	err := call(t.Context(), client, grpc.Trailer(&trailer))
	want(t, err, codes.ResourceExhausted)
	delay, violations := details(err)
	if delay >= 0 || len(violations) != 1 || len(trailer["retry-after"]) > 0 {
		t.Errorf("delay %v, violations %v, trailer %v", delay, violations, trailer)
	}
	if got := trailer["grpc-retry-pushback-ms"]; len(got) != 1 || got[0] != "-1" {
		t.Errorf("the trailer is %v", trailer)
	}
}

func TestCodeOfEachReason(t *testing.T) {
	for reason, code := range map[weir.Reason]codes.Code{
		weir.ReasonNone: codes.OK, weir.ReasonLimited: codes.ResourceExhausted, weir.ReasonNever: codes.ResourceExhausted,
		weir.ReasonQueueFull: codes.ResourceExhausted, weir.ReasonDeadline: codes.ResourceExhausted,
		weir.ReasonEvicted: codes.ResourceExhausted, weir.ReasonSoftThrottle: codes.ResourceExhausted,
		weir.ReasonHardLockout: codes.ResourceExhausted, weir.ReasonCanceled: codes.Canceled,
		weir.ReasonClosed: codes.Unavailable, weir.ReasonTableFull: codes.Unavailable, weir.ReasonTrackingCap: codes.Unavailable,
		weir.ReasonOverloaded: codes.Unavailable, weir.ReasonUnavailable: codes.Unavailable, weir.ReasonInvalid: codes.Internal,
		weir.ReasonDenied: codes.PermissionDenied,
	} {
		if got := grpclimit.Code(reason); got != code {
			t.Errorf("%v is %v, want %v", reason, got, code)
		}
	}
}

func TestServerWithoutCapacityIsUnavailable(t *testing.T) {
	closed := bucket(t, weir.TokenBucket(weir.PerSecond(1), 0), weir.Options{})
	closed.Close()
	full := keyed(t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{MaxKeys: 1})
	full.Take("another", 1)
	shedder, err := overload.NewShedder(overload.ShedderOptions{
		Sources: []overload.Pressure{overload.NewPressure("test", func(int64) (float64, error) { return 10, nil })}, Rise: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]grpclimit.ServerOptions{
		"closed": {Limiter: closed}, "full": {Keyed: full}, "overloaded": {Shedder: shedder},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{}
			err := call(t.Context(), setup{service: s, server: limited(t, o)}.dial(t))
			want(t, err, codes.Unavailable)
			if delay, violations := details(err); len(violations) > 0 || delay > 0 != (name != "closed") {
				t.Errorf("delay %v, violations %v", delay, violations)
			}
			if s.served.Load() > 0 {
				t.Error("it was served")
			}
		})
	}
}

func TestMetadataTellsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := setup{server: limited(t, grpclimit.ServerOptions{
			Limiter: bucket(t, weir.TokenBucket(weir.PerSecond(1), 2), weir.Options{Name: "all"}),
			Headers: &ratelimitfields.Headers{Fields: ratelimitfields.RateLimit11 | ratelimitfields.XRateLimit},
		})}.dial(t)
		for i, c := range []struct {
			code codes.Code
			want string
		}{
			{codes.OK, `ratelimit "all";r=1;t=1 ratelimit-policy "all";q=2;w=2`},
			{codes.OK, `ratelimit "all";r=0;t=2 ratelimit-policy "all";q=2;w=2`},
			{codes.ResourceExhausted, `ratelimit "all";r=0;t=1 ratelimit-policy "all";q=2;w=2 retry-after 1`},
		} {
			var header, trailer metadata.MD
			want(t, call(t.Context(), client, grpc.Header(&header), grpc.Trailer(&trailer)), c.code)
			md := header
			if c.code != codes.OK {
				md = trailer
				if len(header["ratelimit"]) > 0 {
					t.Error("a refusal has a header of its own")
				}
			}
			var got []string
			for _, name := range []string{"ratelimit", "ratelimit-policy", "retry-after"} {
				if v := md[name]; len(v) == 1 {
					got = append(got, name, v[0])
				}
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("call %d: %s, want %s", i, text, c.want)
			}
			if got := md["x-ratelimit-limit"]; len(got) != 1 || got[0] != "2" {
				t.Errorf("call %d: x-ratelimit-limit is %q", i, got)
			}
		}
	})
}

// TestOverrideIsToldWithItsWindow, also where it has as many permits as the limit that was set up.
func TestOverrideIsToldWithItsWindow(t *testing.T) {
	limiter := keyed(t, weir.TokenBucket(weir.PerHour(10), 0), weir.KeyedOptions{Name: "per-client"})
	client := setup{peer: "192.0.2.1:1", server: limited(t, grpclimit.ServerOptions{Keyed: limiter, Headers: &ratelimitfields.Headers{}})}.dial(t)
	for i, want := range []string{
		`"per-client";q=10;w=3600`, `"per-client";q=20;w=3600`, `"per-client";q=10;w=60`, `"per-client";q=10;w=3600`,
	} {
		var header metadata.MD
		if err := call(t.Context(), client, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		if got := header["ratelimit-policy"]; len(got) != 1 || got[0] != want {
			t.Errorf("the policy is %q, want %s", got, want)
		}
		next := []weir.Limit{weir.TokenBucket(weir.PerHour(20), 0), weir.TokenBucket(weir.PerMinute(10), 0)}
		if i < len(next) {
			if err := keyset.Of(limiter).Override("192.0.2.1", next[i], time.Hour); err != nil {
				t.Fatal(err)
			}
		} else {
			keyset.Of(limiter).Restore("192.0.2.1")
		}
	}
}

// TestCalendarIsToldAsRequestsWithoutAWindow: months are not alike, and their permits are not for calls at a time.
func TestCalendarIsToldAsRequestsWithoutAWindow(t *testing.T) {
	limiter, err := weir.New(weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarMonth}), weir.Options{
		Name: "month",
	})
	if err != nil {
		t.Fatal(err)
	}
	client := setup{server: limited(t, grpclimit.ServerOptions{Limiter: limiter, Headers: &ratelimitfields.Headers{}})}.dial(t)
	var header metadata.MD
	if err := call(t.Context(), client, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if got := header["ratelimit-policy"]; len(got) != 1 || got[0] != `"month";q=10` {
		t.Errorf("the policy is %q", got)
	}
}

func TestNoFieldsTellsNoNumbers(t *testing.T) {
	client := setup{server: limited(t, grpclimit.ServerOptions{
		Limiter: bucket(t, weir.TokenBucket(weir.PerHour(1), 1234), weir.Options{Name: "all"}),
		Cost:    func(context.Context, *grpclimit.Call) int64 { return 1234 },
		Headers: &ratelimitfields.Headers{Fields: ratelimitfields.NoFields},
	})}.dial(t)
	var header, trailer metadata.MD
	want(t, call(t.Context(), client, grpc.Header(&header)), codes.OK)
	err := call(t.Context(), client, grpc.Trailer(&trailer))
	want(t, err, codes.ResourceExhausted)
	_, violations := details(err)
	if text := fmt.Sprint(err, violations, header, trailer); strings.Contains(text, "1234 ") || strings.Contains(text, "holds") {
		t.Errorf("it tells %s", text)
	}
}

func TestPermitIsHeldUntilTheCallEnds(t *testing.T) {
	for name, end := range map[string]func() error{
		"answer": func() error { return nil },
		"error":  func() error { return status.Error(codes.NotFound, "no") },
		"panic":  func() error { panic("handler") },
	} {
		t.Run(name, func(t *testing.T) {
			limiter := slots(t, 1, 0)
			s := &service{unary: func(context.Context) error {
				if out := 1 - limiter.Stats().Remaining; out != 1 {
					t.Errorf("%d permits are out", out)
				}
				return end()
			}}
			options := []grpc.ServerOption{grpc.ChainUnaryInterceptor(recovering)}
			client := setup{service: s, server: append(options, limited(t, grpclimit.ServerOptions{Limiter: limiter})...)}.dial(t)
			for range 3 {
				if status.Code(call(t.Context(), client)) == codes.ResourceExhausted {
					t.Fatal("the permit is lost")
				}
			}
		})
	}
}

func TestAdaptiveLimitLearnsFromHandlers(t *testing.T) {
	for _, failed := range []error{status.Error(codes.Unavailable, "the database is gone"), context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			limiter, err := overload.NewAdaptive(overload.AdaptiveOptions{InitialLimit: 20, MinLimit: 1, MaxLimit: 40})
			if err != nil {
				t.Fatal(err)
			}
			s := &service{unary: func(context.Context) error { return failed }}
			client := setup{service: s, server: limited(t, grpclimit.ServerOptions{Limiter: limiter})}.dial(t)
			for range 100 {
				if err := call(t.Context(), client); err == nil {
					t.Fatal("a call that fails has succeeded")
				}
				time.Sleep(100 * time.Millisecond)
			}
			if limit := limiter.Stats().Limit; limit >= 20 {
				t.Errorf("%v: the limit is %d", failed, limit)
			}
		})
	}
}

func TestAdaptiveLimitLearnsNothingFromCanceledCalls(t *testing.T) {
	for _, canceled := range []error{status.Error(codes.Canceled, "gone"), context.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			limiter, err := overload.NewAdaptive(overload.AdaptiveOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s := &service{unary: func(context.Context) error { return canceled }}
			client := setup{service: s, server: limited(t, grpclimit.ServerOptions{Limiter: limiter})}.dial(t)
			for range 100 {
				want(t, call(t.Context(), client), codes.Canceled)
				time.Sleep(100 * time.Millisecond)
			}
			if windows := limiter.Estimate().Windows; windows > 0 {
				t.Errorf("%v: it has learned from %d windows", canceled, windows)
			}
		})
	}
}

func TestCallThatHasEndedIsNotCharged(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 5), weir.Options{})
	s, err := grpclimit.NewServer(grpclimit.ServerOptions{Limiter: limiter})
	if err != nil {
		t.Fatal(err)
	}
	handler := func(context.Context, any) (any, error) {
		t.Error("it was served")
		return nil, errors.New("served")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for ctx, code := range map[context.Context]codes.Code{canceled: codes.Canceled, late: codes.DeadlineExceeded} {
		_, err = s.Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/x/y"}, handler)
		want(t, err, code)
	}
	if left := limiter.Stats().Remaining; left != 5 {
		t.Errorf("%d are left", left)
	}
}

func recovering(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "panic")
		}
	}()
	return handler(ctx, req)
}

func TestOneCallIsChargedOnce(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 10), weir.Options{})
	o := grpclimit.ServerOptions{Limiter: limiter}
	s, err := grpclimit.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	client := setup{server: []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.Unary(), recovering), grpc.ChainUnaryInterceptor(s.Unary()),
		grpc.ChainStreamInterceptor(s.Stream()), grpc.ChainStreamInterceptor(s.Stream()),
	}}.dial(t)
	want(t, call(t.Context(), client), codes.OK)
	if left := limiter.Stats().Remaining; left != 9 {
		t.Errorf("%d are left after a call", left)
	}
	want(t, countMessages(t, client, 3), codes.OK)
	if left := limiter.Stats().Remaining; left != 8 {
		t.Errorf("%d are left after a stream", left)
	}
}

func TestHealthIsSkippedUnlessTold(t *testing.T) {
	for _, all := range []bool{false, true} {
		o := grpclimit.ServerOptions{Limiter: bucket(t, weir.TokenBucket(weir.PerHour(1), 0), weir.Options{})}
		if all {
			o.Skip = grpclimit.SkipNone
		}
		health := healthgrpc.NewHealthClient(setup{server: limited(t, o)}.connect(t))
		_, first := health.Check(t.Context(), &healthgrpc.HealthCheckRequest{})
		_, second := health.Check(t.Context(), &healthgrpc.HealthCheckRequest{})
		want(t, first, codes.OK)
		if all {
			want(t, second, codes.ResourceExhausted)
		} else {
			want(t, second, codes.OK)
		}
	}
}

func TestClientIsThePeerUnlessItIsTrusted(t *testing.T) {
	const forwarded = "127.0.0.1, 198.51.100.7"
	for _, c := range []struct {
		name, peer, want string
		clients          clientip.Options
	}{
		{"peer", "192.0.2.1:4711", "192.0.2.1", clientip.Options{}},
		{"mapped", "[::ffff:192.0.2.1]:4711", "192.0.2.1", clientip.Options{}},
		{"network", "[2001:db8:1:2:3::4]:4711", "2001:db8:1:2::/64", clientip.Options{}},
		{"proxy", "10.0.0.1:4711", "198.51.100.7", clientip.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
		{"stranger", "192.0.2.1:4711", "192.0.2.1", clientip.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
		{"hops", "10.0.0.1:4711", "127.0.0.1", clientip.Options{TrustedHops: 2}},
		{"no address", "", "bufconn", clientip.Options{}},
		{"socket", "", "198.51.100.7", clientip.Options{TrustUnixSocket: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			limiter := keyed(t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})
			client := setup{peer: c.peer, server: limited(t, grpclimit.ServerOptions{Keyed: limiter, Clients: c.clients})}.dial(t)
			want(t, call(metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", forwarded), client), codes.OK)
			if limiter.Peek(c.want, 1).Allowed {
				t.Errorf("%s was not charged", c.want)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	long := strings.Repeat("k", 300)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", "gold", "x-long", long)
	const method = "/grpc.testing.TestService/UnaryCall"
	failing := func(context.Context, *grpclimit.Call) (string, error) { return "", errors.New("no key") }
	for _, c := range []struct {
		name string
		key  grpclimit.KeyFunc
		want string
	}{
		{"method", grpclimit.ByMethod, method},
		{"metadata", grpclimit.ByMetadata("X-Api-Key"), "gold"},
		{"absent", grpclimit.ByMetadata("x-other"), ""},
		{"all", grpclimit.ByAll(grpclimit.ByMetadata("x-api-key"), grpclimit.ByMethod, grpclimit.ByClient), "4:gold35:" + method + "9:192.0.2.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			limiter := keyed(t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})
			client := setup{peer: "192.0.2.1:1", server: limited(t, grpclimit.ServerOptions{Keyed: limiter, Key: c.key})}.dial(t) //nolint:contextcheck // a server has its own
			want(t, call(ctx, client), codes.OK)
			if limiter.Peek(c.want, 1).Allowed {
				t.Errorf("%q was not charged", c.want)
			}
		})
	}
	limiter := keyed(t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})
	client := setup{server: limited(t, grpclimit.ServerOptions{Keyed: limiter, Key: grpclimit.ByMetadata("x-long")})}.dial(t)
	want(t, call(ctx, client), codes.OK)
	want(t, call(ctx, client), codes.ResourceExhausted)
	if !limiter.Peek(long, 1).Allowed {
		t.Error("a long key is kept as it is")
	}
	want(t, call(ctx, setup{server: limited(t, grpclimit.ServerOptions{Keyed: limiter, Key: failing})}.dial(t)), codes.Internal)
	want(t, call(ctx, setup{server: limited(t, grpclimit.ServerOptions{
		Keyed: limiter, Key: grpclimit.ByAll(failing),
	})}.dial(t)), codes.Internal)
}

func TestKeysThatCannotBe(t *testing.T) {
	for name, build := range map[string]func(){
		"ByMetadata":  func() { grpclimit.ByMetadata("") },
		"ByAll":       func() { grpclimit.ByAll() },
		"ByAll of no": func() { grpclimit.ByAll(grpclimit.ByMethod, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", name)
				}
			}()
			build()
		}()
	}
}

func TestHookMayChangeTheRefusal(t *testing.T) {
	for _, c := range []struct {
		name   string
		status *status.Status
		want   codes.Code
	}{
		{"another", status.New(codes.Aborted, "later"), codes.Aborted},
		{"none", nil, codes.ResourceExhausted},
		{"ok", status.New(codes.OK, ""), codes.ResourceExhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen grpclimit.Refusal
			client := setup{peer: "192.0.2.1:1", server: limited(t, grpclimit.ServerOptions{
				Keyed: keyed(t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{Name: "per-client"}),
				OnRefused: func(_ context.Context, r *grpclimit.Refusal) {
					seen = *r
					seen.Call = nil
					if r.Call.Path != "/grpc.testing.TestService/UnaryCall" || r.Call.Message == nil {
						t.Errorf("refused was %+v", r.Call)
					}
					r.Status = c.status
					r.Trailer.Set("x-hook", "yes")
				},
			})}.dial(t)
			want(t, call(t.Context(), client), codes.OK)
			var trailer metadata.MD
			want(t, call(t.Context(), client, grpc.Trailer(&trailer)), c.want)
			if got := trailer["x-hook"]; len(got) != 1 {
				t.Errorf("the trailer is %v", trailer)
			}
			if seen.Key != "192.0.2.1" || seen.Cost != 1 || seen.Decision.Policy != "per-client" || len(seen.Refused) != 1 {
				t.Errorf("the hook saw %+v", seen)
			}
		})
	}
}

func TestCostsOfCalls(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 10), weir.Options{})
	cost := int64(0)
	client := setup{server: limited(t, grpclimit.ServerOptions{
		Limiter: limiter,
		Prepare: func(_ context.Context, c *grpclimit.Call) { c.Attributes = map[string]string{"authority": c.Host} },
		Cost: func(_ context.Context, c *grpclimit.Call) int64 {
			if c.Attributes["authority"] != "memory" || c.Message == nil {
				t.Errorf("the call is %+v", c)
			}
			return cost
		},
	})}.dial(t)
	for _, c := range []struct {
		cost, left int64
		code       codes.Code
	}{{0, 10, codes.OK}, {7, 3, codes.OK}, {7, 3, codes.ResourceExhausted}, {-1, 3, codes.Internal}, {3, 0, codes.OK}, {0, 0, codes.OK}} {
		cost = c.cost
		want(t, call(t.Context(), client), c.code)
		if left := limiter.Stats().Remaining; left != c.left {
			t.Errorf("a cost of %d leaves %d, want %d", c.cost, left, c.left)
		}
	}
}

func TestCostThatPrepareSets(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 10), weir.Options{})
	client := setup{server: limited(t, grpclimit.ServerOptions{
		Limiter: limiter, Prepare: func(_ context.Context, c *grpclimit.Call) { c.Cost = 4 },
	})}.dial(t)
	for _, code := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		want(t, call(t.Context(), client), code)
	}
}

func TestGracefulStopAnswersThoseWhoWaitWhenTheirLimiterIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := slots(t, 1, 5)
		limiter.TryAcquire(1)
		client := setup{server: limited(t, grpclimit.ServerOptions{Limiter: limiter, MaxWait: weir.Never})}.dial(t)
		answer := make(chan error, 1)
		go func() { answer <- call(t.Context(), client) }()
		synctest.Wait()
		limiter.Close()
		want(t, <-answer, codes.Unavailable)
	})
}

func TestServerOptionsThatCannotBeUsed(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 0), weir.Options{})
	perClient := keyed(t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})
	for _, c := range []struct {
		o    grpclimit.ServerOptions
		want string
	}{
		{grpclimit.ServerOptions{}, "ServerOptions.Limiter is nil"},
		{grpclimit.ServerOptions{Limiter: (*weir.Limiter)(nil)}, "ServerOptions.Limiter is a nil *weir.Limiter"},
		{grpclimit.ServerOptions{Keyed: (*weir.Keyed[string])(nil)}, "ServerOptions.Keyed is a nil *weir.Keyed[string]"},
		{grpclimit.ServerOptions{Limiter: limiter, Keyed: perClient}, "exactly one of the three"},
		{grpclimit.ServerOptions{Limiter: limiter, Key: grpclimit.ByMethod}, "ServerOptions.Key is set"},
		{grpclimit.ServerOptions{Limiter: limiter, MaxWait: -1}, "ServerOptions.MaxWait is -1ns"},
		{grpclimit.ServerOptions{Limiter: limiter, MessageMaxWait: 1}, "ServerOptions.MessageMaxWait is 1ns"},
		{grpclimit.ServerOptions{Limiter: limiter, MessageCost: grpclimit.Each(1), MessageMaxWait: -1}, "ServerOptions.MessageMaxWait is -1ns"},
		{
			grpclimit.ServerOptions{Limiter: limiter, Priority: func(context.Context, *grpclimit.Call) overload.Priority { return 0 }},
			"ServerOptions.Priority is set",
		},
		{grpclimit.ServerOptions{Limiter: limiter, Clients: clientip.Options{TrustedHops: -1}}, "Options.TrustedHops is -1"},
		{grpclimit.ServerOptions{Limiter: limiter, Headers: &ratelimitfields.Headers{MaxRemaining: -1}}, "Headers.MaxRemaining is -1"},
	} {
		if _, err := grpclimit.NewServer(c.o); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "weir: ") {
			t.Errorf("the error is %v, want %s", err, c.want)
		}
	}
}

// TestAPermitThatIsThereNeedsNoTime: however short MaxWait is, and however busy the machine.
func TestAPermitThatIsThereNeedsNoTime(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 3), weir.Options{QueueLimit: 5})
	client := setup{server: limited(t, grpclimit.ServerOptions{Limiter: limiter, MaxWait: 1})}.dial(t)
	for _, code := range []codes.Code{codes.OK, codes.OK, codes.OK, codes.ResourceExhausted} {
		want(t, call(t.Context(), client), code)
	}
}
