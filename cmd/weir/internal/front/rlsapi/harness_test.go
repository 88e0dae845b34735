package rlsapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// limitsOf are those of a set that never changes.
func limitsOf(t testing.TB, set *policy.Set) *live.Limits {
	t.Helper()
	limits, err := live.Fixed(set, policy.EngineOptions{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

// serve serves until the test ends, and answers a connection.
func serve(t testing.TB, o rlsapi.Options) (*rlsapi.Server, *grpc.ClientConn) {
	t.Helper()
	server, address := listen(t, o)
	return server, dial(t, address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func listen(t testing.TB, o rlsapi.Options) (*rlsapi.Server, string) {
	t.Helper()
	server, err := rlsapi.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := errors.Join(server.Shutdown(ctx), <-served); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return server, l.Addr().String()
}

func dial(t testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// request is one of descriptors that are given by keys and values.
func request(domain string, descriptors ...[]string) *ratelimitv3.RateLimitRequest {
	r := &ratelimitv3.RateLimitRequest{Domain: domain}
	for _, pairs := range descriptors {
		d := &commonratelimitv3.RateLimitDescriptor{}
		for i := 0; i < len(pairs); i += 2 {
			d.Entries = append(d.Entries, &commonratelimitv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func ask(t testing.TB, conn *grpc.ClientConn, r *ratelimitv3.RateLimitRequest) *ratelimitv3.RateLimitResponse {
	t.Helper()
	// A client that finds no room tries again: that of a call which has its reply is free a moment later.
	got, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), r, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// windowed is a policy with a window that does not end while a test runs.
func windowed(name string, permits int64, key policy.Text) policy.Policy {
	return policy.Policy{
		Name: name, Key: key,
		Limits: []policy.Limit{{Limit: weir.FixedWindow(weir.Rate{Permits: permits, Period: 24 * time.Hour})}},
	}
}

// usersAndTenants has a limit for users and one for tenants.
func usersAndTenants() *policy.Set {
	return &policy.Set{
		Policies: []policy.Policy{
			windowed("user", 3, policy.AttributeText("user")),
			windowed("tenant", 5, policy.AttributeText("tenant")),
		},
		Rules: []policy.Rule{
			{
				Name:   "users",
				Match:  policy.Match{Protocols: []string{"rls"}, Hosts: []string{"edge"}, Paths: []string{"/user"}},
				Limits: []policy.Use{{Policy: "user"}},
			},
			{
				Name:   "tenants",
				Match:  policy.Match{Protocols: []string{"rls"}, Hosts: []string{"edge"}, Paths: []string{"/tenant"}},
				Limits: []policy.Use{{Policy: "tenant"}},
			},
		},
	}
}

func addressOf(t testing.TB, text string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func limitsWith(t testing.TB, set *policy.Set, o policy.EngineOptions) *live.Limits {
	t.Helper()
	limits, err := live.Fixed(set, o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

// atFirst are limits whose windows have just begun, however long ago they were made.
func atFirst(t testing.TB, set *policy.Set) *live.Limits {
	t.Helper()
	return limitsWith(t, set, policy.EngineOptions{Clock: manualclock.New(0)})
}

type decision = weir.Decision

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

// Name implements [encoding.CodecV2].
func (bytesCodec) Name() string { return "proto" }

// Marshal implements [encoding.CodecV2].
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, _ := v.([]byte)
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal implements [encoding.CodecV2].
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, _ := v.(proto.Message)
	return proto.Unmarshal(data.Materialize(), m)
}
