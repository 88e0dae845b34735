package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/grpclimit"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// plenty are servers that refuse no call, by the kind of limiter that they ask.
func plenty(t testing.TB) map[string]grpclimit.ServerOptions {
	t.Helper()
	rate := weir.PerSecond(100_000_000)
	perClient := keyed(t, weir.TokenBucket(rate, 0), weir.KeyedOptions{Name: "per-client"})
	set := only(policy.Policy{Limits: []policy.Limit{{Limit: weir.TokenBucket(rate, 0)}}, Key: policy.ClientIP()}, policy.Match{
		Paths: []string{"/grpc.testing.TestService/"},
	})
	return map[string]grpclimit.ServerOptions{
		"limiter": {Limiter: bucket(t, weir.TokenBucket(rate, 0), weir.Options{Name: "all"})},
		"keyed":   {Keyed: perClient},
		"headers": {Keyed: perClient, Headers: &ratelimitfields.Headers{}},
		"engine":  {Engine: engine(t, set, policy.EngineOptions{})},
	}
}

// incoming is the context of a call as an interceptor gets it.
func incoming(t testing.TB) context.Context {
	t.Helper()
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(
		":authority", "api.example.com", "content-type", "application/grpc", "user-agent", "test", "x-api-key", "gold",
	))
	return peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 4711}})
}

func TestAdmittedAllocations(t *testing.T) {
	ctx := incoming(t)
	info := &grpc.UnaryServerInfo{FullMethod: "/grpc.testing.TestService/UnaryCall"}
	request, reply := &testgrpc.SimpleRequest{}, &testgrpc.SimpleResponse{}
	handler := func(context.Context, any) (any, error) { return reply, nil } //nolint:unparam // a handler has an error
	for name, most := range map[string]float64{
		"limiter": 1, // the context that says that the call has been charged
		"keyed":   2, // and the key
		"engine":  2, // or a copy of the authority
	} {
		s, err := grpclimit.NewServer(plenty(t)[name])
		if err != nil {
			t.Fatal(err)
		}
		unary := s.Unary()
		once := func() {
			if _, err := unary(ctx, request, info, handler); err != nil {
				t.Error(err)
			}
		}
		once()
		if got := testing.AllocsPerRun(100, once); got > most && !race.Enabled {
			t.Errorf("%s: %v allocations, want %v", name, got, most)
		}
	}
}

// BenchmarkInterceptor is what the interceptor costs alone.
func BenchmarkInterceptor(b *testing.B) {
	info := &grpc.UnaryServerInfo{FullMethod: "/grpc.testing.TestService/UnaryCall"}
	request, reply := &testgrpc.SimpleRequest{}, &testgrpc.SimpleResponse{}
	handler := func(context.Context, any) (any, error) { return reply, nil } //nolint:unparam // a handler has an error
	for _, name := range []string{"limiter", "keyed", "engine"} {
		b.Run(name, func(b *testing.B) {
			s, err := grpclimit.NewServer(plenty(b)[name])
			if err != nil {
				b.Fatal(err)
			}
			ctx, unary := incoming(b), s.Unary()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := unary(ctx, request, info, handler); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkClientInterceptor is what the interceptor of a client costs alone.
func BenchmarkClientInterceptor(b *testing.B) {
	c, err := grpclimit.NewClient(grpclimit.ClientOptions{
		Limiter: bucket(b, weir.TokenBucket(weir.PerSecond(100_000_000), 0), weir.Options{QueueLimit: 1}),
	})
	if err != nil {
		b.Fatal(err)
	}
	cc, unary, ctx := setup{}.connect(b), c.Unary(), b.Context()
	invoker := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := unary(ctx, "/grpc.testing.TestService/UnaryCall", nil, nil, cc, invoker); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUnaryCall is a call over a connection in memory, beside a server without limits.
func BenchmarkUnaryCall(b *testing.B) {
	for _, name := range []string{"bare", "limiter", "keyed", "headers", "engine", "refused"} {
		b.Run(name, func(b *testing.B) {
			s := setup{peer: "192.0.2.1:4711"}
			switch name {
			case "bare":
			case "refused":
				limiter := keyed(b, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{Name: "per-client"})
				limiter.Take("192.0.2.1", 1)
				s.server = limited(b, grpclimit.ServerOptions{Keyed: limiter})
			default:
				s.server = limited(b, plenty(b)[name])
			}
			client := s.dial(b)
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if err := call(ctx, client); err != nil != (name == "refused") {
					b.Fatal(err)
				}
			}
		})
	}
}
