package rlsapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
	"github.com/weirhq/weir/store"
)

func TestOptions(t *testing.T) {
	limits := limitsOf(t, usersAndTenants())
	for want, o := range map[string]rlsapi.Options{
		"Headers.Fields is 0b1001: must be a com": {Limits: limits, Fields: ratelimitfields.NoFields | ratelimitfields.RateLimit11},
	} {
		if _, err := rlsapi.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// panics is a service of quotas that has a mistake.
type panics struct {
	ratelimitquotav3.UnimplementedRateLimitQuotaServiceServer
}

// StreamRateLimitQuotas implements [ratelimitquotav3.RateLimitQuotaServiceServer].
func (panics) StreamRateLimitQuotas(ratelimitquotav3.RateLimitQuotaService_StreamRateLimitQuotasServer) error {
	panic("as it was asked for")
}

// TestStreamThatPanics: it ends alone.
func TestStreamThatPanics(t *testing.T) {
	var said lockedLines
	_, conn := serve(t, rlsapi.Options{
		Limits: limitsOf(t, usersAndTenants()), Quotas: panics{}, Logger: slog.New(slog.NewTextHandler(&said, nil)),
	})
	stream, err := ratelimitquotav3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("%v, want Internal", err)
	}
	if n := strings.Count(said.String(), "has panicked"); n != 1 {
		t.Errorf("%d lines of it: %s", n, said.String())
	}
	if got := ask(t, conn, request("edge", []string{"user", "u"})); got.GetOverallCode() != ok {
		t.Errorf("afterwards: %v", got)
	}
}

func TestHealth(t *testing.T) {
	server, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, usersAndTenants())})
	client := healthv1.NewHealthClient(conn)
	services := []string{
		"", "envoy.service.ratelimit.v3.RateLimitService", "kuadrant.service.ratelimit.v1.RateLimitService",
		"ratelimit", // as envoyproxy/ratelimit calls itself
	}
	check := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, service := range services {
			got, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
			if err != nil || got.GetStatus() != want {
				t.Errorf("%q: %v, %v, want %v", service, got, err, want)
			}
		}
	}
	check(healthv1.HealthCheckResponse_SERVING)
	watch, err := client.Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthv1.HealthCheckResponse_ServingStatus{
		healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING,
	} {
		got, err := watch.Recv()
		if err != nil || got.GetStatus() != want {
			t.Fatalf("%v, %v, want %v", got, err, want)
		}
		server.Drain()
	}
	check(healthv1.HealthCheckResponse_NOT_SERVING)
	if got := ask(t, conn, request("edge", []string{"user", "u"})); got.GetOverallCode() != ok {
		t.Errorf("while it drains: %v", got)
	}
}

type quotas struct {
	ratelimitquotav3.UnimplementedRateLimitQuotaServiceServer

	served chan struct{}
}

// StreamRateLimitQuotas waits until its client has gone.
func (q quotas) StreamRateLimitQuotas(
	stream grpc.BidiStreamingServer[ratelimitquotav3.RateLimitQuotaUsageReports, ratelimitquotav3.RateLimitQuotaResponse],
) error {
	q.served <- struct{}{}
	<-stream.Context().Done()
	q.served <- struct{}{}
	return stream.Context().Err()
}

func TestReflection(t *testing.T) {
	_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, usersAndTenants()), Quotas: quotas{}})
	want := []string{
		"envoy.service.rate_limit_quota.v3.RateLimitQuotaService", "envoy.service.ratelimit.v3.RateLimitService",
		"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
		"kuadrant.service.ratelimit.v1.RateLimitService",
	}
	v1, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
	if err = v1.Send(list); err != nil {
		t.Fatal(err)
	}
	got, err := v1.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range got.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("the services are %q, want %q", names, want)
	}
	for _, name := range []string{"envoy/service/ratelimit/v3/rls.proto", "kuadrantrls.proto"} {
		err = v1.Send(&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: name},
		})
		if err != nil {
			t.Fatal(err)
		}
		file, failed := v1.Recv()
		if failed != nil || len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("%s: %v, %v", name, file, failed)
		}
	}
	v1alpha, err := reflectionv1alpha.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = v1alpha.Send(&reflectionv1alpha.ServerReflectionRequest{ //nolint:staticcheck // tools still ask it
		MessageRequest: &reflectionv1alpha.ServerReflectionRequest_ListServices{},
	})
	if err != nil {
		t.Fatal(err)
	}
	alpha, err := v1alpha.Recv()
	if err != nil || len(alpha.GetListServicesResponse().GetService()) != len(want) { //nolint:staticcheck // likewise
		t.Errorf("v1alpha: %v, %v", alpha, err)
	}
}

func TestTLS(t *testing.T) {
	own := fronttest.SelfSigned(t, "weir")
	_, address := listen(t, rlsapi.Options{
		Limits: limitsOf(t, usersAndTenants()),
		TLS:    &tls.Config{Certificates: []tls.Certificate{own.Pair}, MinVersion: tls.VersionTLS13},
	})
	conn := dial(t, address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: own.Pool, ServerName: "localhost", MinVersion: tls.VersionTLS13,
	})))
	if got := ask(t, conn, request("edge", []string{"user", "u"})); got.GetOverallCode() != ok {
		t.Errorf("%v", got)
	}
	plain := dial(t, address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	_, err := ratelimitv3.NewRateLimitServiceClient(plain).ShouldRateLimit(t.Context(), request("edge", []string{"user", "u"}))
	if status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
}

// slow is a store that answers when it is told to.
type slow struct {
	store.Home

	asked, answer chan struct{}
}

func (s *slow) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []decision) (store.Hold, error) {
	if ask.Mode == store.ModeTake {
		s.asked <- struct{}{}
		<-s.answer
	}
	return s.Home.Do(ctx, ask, charges, decisions)
}

// slowLimits are those of a policy that a slow store shares.
func slowLimits(t *testing.T) (*slow, rlsapi.Options) {
	t.Helper()
	memory, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	s := &slow{Home: memory, asked: make(chan struct{}, 1), answer: make(chan struct{})}
	set := usersAndTenants()
	set.Policies[0].Consistency = policy.ConsistencyCoherent
	return s, rlsapi.Options{Limits: limitsWith(t, set, policy.EngineOptions{Store: s}), Quotas: quotas{served: make(chan struct{}, 2)}}
}

func TestShutdownAnswersWhatWasAccepted(t *testing.T) {
	s, o := slowLimits(t)
	server, conn := serve(t, o)
	stream, err := ratelimitquotav3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q, _ := o.Quotas.(quotas)
	served := q.served
	<-served
	type result struct {
		r   *ratelimitv3.RateLimitResponse
		err error
	}
	answered := make(chan result, 1)
	go func() {
		r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request("edge", []string{"user", "u"}))
		answered <- result{r, err}
	}()
	<-s.asked
	ended := make(chan error, 1)
	go func() { ended <- server.Shutdown(t.Context()) }()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	<-served // what served it has ended as well
	select {
	case err := <-ended:
		t.Fatalf("it ended before it had answered: %v", err)
	default:
	}
	close(s.answer)
	if a := <-answered; a.err != nil || a.r.GetOverallCode() != ok {
		t.Errorf("%v, %v", a.r, a.err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestShutdownCutsOff(t *testing.T) {
	s, o := slowLimits(t)
	server, conn := serve(t, o)
	answered := make(chan error, 1)
	go func() {
		_, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request("edge", []string{"user", "u"}))
		answered <- err
	}()
	<-s.asked
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Shutdown(ctx) }()
	cancel()
	if err := <-answered; status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	close(s.answer)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestConnectionsAreBounded: when there are as many clients as may be, one that asks nothing makes room, and if there is none, the
// new one is closed.
func TestConnectionsAreBounded(t *testing.T) {
	for name, bound := range map[string]func(o *rlsapi.Options){
		"of all":         func(o *rlsapi.Options) { o.MaxConnections = 1 },
		"of one address": func(o *rlsapi.Options) { o.ConnectionsPerAddress = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			slow, o := slowLimits(t)
			bound(&o)
			server, address := listen(t, o)
			counts := func(open int, evicted, refused int64) {
				t.Helper()
				s := server.Status()
				if s["connections"] != open || s["connections_evicted"] != evicted || s["connections_refused"] != refused {
					t.Errorf("%v, want %d open, %d evicted, %d refused", s, open, evicted, refused)
				}
			}
			idle := dial(t, address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			ask(t, idle, request("edge", []string{"tenant", "t"}))
			watch, err := healthv1.NewHealthClient(idle).Watch(t.Context(), &healthv1.HealthCheckRequest{})
			if err == nil {
				_, err = watch.Recv()
			}
			if err != nil {
				t.Fatal(err)
			}
			// A stream on which nothing is sent keeps no place.
			busy := dial(t, address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			answered := make(chan error, 1)
			go func() { // the other client may have its reply a moment before its connection is at rest: then this one tries again
				_, err := ratelimitv3.NewRateLimitServiceClient(busy).ShouldRateLimit(t.Context(),
					request("edge", []string{"user", "u"}), grpc.WaitForReady(true))
				answered <- err
			}()
			<-slow.asked
			early, _ := server.Status()["connections_refused"].(int64)
			if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
				t.Errorf("the idle one: %v", err)
			}
			counts(1, 1, early)
			for range 3 {
				third, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				if n, err := third.Read(make([]byte, 1)); n > 0 || err == nil {
					t.Errorf("one client too many was read %d bytes, %v", n, err)
				}
				_ = third.Close()
			}
			counts(1, 1, early+3)
			close(slow.answer)
			if err := <-answered; err != nil {
				t.Errorf("the call that was in flight: %v", err)
			}
			last := dial(t, address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			ask(t, last, request("edge", []string{"tenant", "t"}))
		})
	}
}

// TestIdleClientsAreToldToGo: with a time limit for idle clients, their connections end.
func TestIdleClientsAreToldToGo(t *testing.T) {
	o := rlsapi.Options{Limits: limitsOf(t, usersAndTenants()), IdleTimeout: 50 * time.Millisecond}
	server, conn := serve(t, o)
	ask(t, conn, request("edge", []string{"user", "u"}))
	for deadline := time.Now().Add(time.Minute); server.Status()["connections"] != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("an idle connection is open after a minute")
		}
	}
	ask(t, conn, request("edge", []string{"user", "u"}))
}

// TestHostileBytes: what is not HTTP/2, or not gRPC, ends the connection or the call, and nothing else.
func TestHostileBytes(t *testing.T) {
	_, address := listen(t, rlsapi.Options{Limits: limitsOf(t, usersAndTenants())})
	var frames bytes.Buffer
	framer := http2.NewFramer(&frames, nil)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	huge := binary.BigEndian.AppendUint32(nil, 1<<31)
	for what, sent := range map[string]string{
		"HTTP/1.1":         "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"noise":            strings.Repeat("\x00\xff", 1<<10),
		"a frame too long": http2.ClientPreface + frames.String() + "\xff\xff\xff\x00\x00" + string(huge),
		"an orphan":        http2.ClientPreface + frames.String() + "\x00\x00\x04\x00\x01\x00\x00\x00\x05abcd",
		"a header bomb":    http2.ClientPreface + frames.String() + "\x00\x00\x01\x01\x04\x00\x00\x00\x01\xff",
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection stays", what)
		}
		_ = conn.Close()
	}
	conn := dial(t, address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if got := ask(t, conn, request("edge", []string{"user", "u"})); got.GetOverallCode() != ok {
		t.Errorf("afterwards: %v", got)
	}
}

// TestRapidResetsEndTheConnection: a client that opens calls only to give them up is cut off, and others are served.
func TestRapidResetsEndTheConnection(t *testing.T) {
	_, address := listen(t, rlsapi.Options{Limits: limitsOf(t, usersAndTenants())})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err = conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	append9 := func(b []byte, size int, kind, flags byte, stream uint32) []byte {
		return binary.BigEndian.AppendUint32(append(b, byte(size>>16), byte(size>>8), byte(size), kind, flags), stream)
	}
	path := healthv1.Health_Check_FullMethodName
	block := append([]byte{0x83, 0x86, 0x04, byte(len(path))}, path...) // POST, http, the path
	block = append(append(block, 0x0f, 0x10, 16), "application/grpc"...)
	block = append(append(append(block, 0, 2), "te"...), append([]byte{8}, "trailers"...)...)
	sent := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	sent = append9(sent, 0, 0x4, 0, 0)
	resets, stream := 0, uint32(1)
	for ; resets < 5_000_000; resets += 100 {
		for range 100 {
			sent = append(append9(sent, len(block), 0x1, 0x4, stream), block...)
			sent = append(append9(sent, 4, 0x3, 0, stream), 0, 0, 0, 8)
			stream += 2
		}
		if _, err = conn.Write(sent); err != nil {
			break
		}
		sent = sent[:0]
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d calls were opened and given up, and the connection goes on: %v", resets, err)
	}
	other := dial(t, address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if _, err := healthv1.NewHealthClient(other).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("another client: %v", err)
	}
}
