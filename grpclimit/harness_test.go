package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/grpclimit"
)

// TestMain wants no goroutine to be left. Those of a connection that was closed may need a while to see it.
func TestMain(m *testing.M) {
	code := m.Run()
	for deadline := time.Now().Add(2 * time.Minute); code == 0; {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// service is the service of the tests. Its functions replace what it does.
type service struct {
	testgrpc.UnimplementedTestServiceServer

	unary  func(context.Context) error
	input  func(testgrpc.TestService_StreamingInputCallServer) error
	duplex func(testgrpc.TestService_FullDuplexCallServer) error

	served atomic.Int64
}

func (s *service) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	s.served.Add(1)
	return &testgrpc.Empty{}, nil
}

func (s *service) UnaryCall(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	s.served.Add(1)
	if s.unary != nil {
		if err := s.unary(ctx); err != nil {
			return nil, err
		}
	}
	return &testgrpc.SimpleResponse{}, nil
}

// StreamingInputCall counts the messages.
func (s *service) StreamingInputCall(stream testgrpc.TestService_StreamingInputCallServer) error {
	s.served.Add(1)
	if s.input != nil {
		return s.input(stream)
	}
	for n := int32(0); ; n++ {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return stream.SendAndClose(&testgrpc.StreamingInputCallResponse{AggregatedPayloadSize: n})
		} else if err != nil {
			return err
		}
	}
}

func (s *service) StreamingOutputCall(
	_ *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer,
) error {
	s.served.Add(1)
	for range 3 {
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
	return nil
}

// FullDuplexCall returns each message with one.
func (s *service) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	s.served.Add(1)
	if s.duplex != nil {
		return s.duplex(stream)
	}
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

type healthy struct {
	healthgrpc.UnimplementedHealthServer
}

func (healthy) Check(context.Context, *healthgrpc.HealthCheckRequest) (*healthgrpc.HealthCheckResponse, error) {
	return &healthgrpc.HealthCheckResponse{Status: healthgrpc.HealthCheckResponse_SERVING}, nil
}

// listener is a listener in memory whose peers have an address of the test's choosing.
type listener struct {
	*bufconn.Listener

	peer net.Addr
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil || l.peer == nil {
		return c, err
	}
	return conn{c, l.peer}, nil
}

type conn struct {
	net.Conn

	peer net.Addr
}

func (c conn) RemoteAddr() net.Addr { return c.peer }

// setup is a server and a connection to it, both of which end with the test.
type setup struct {
	service *service
	peer    string // the address of the client, if it has one
	server  []grpc.ServerOption
	client  []grpc.DialOption
}

func (s setup) connect(t testing.TB) *grpc.ClientConn {
	t.Helper()
	l := listener{Listener: bufconn.Listen(1 << 20)}
	if s.peer != "" {
		addr, err := net.ResolveTCPAddr("tcp", s.peer)
		if err != nil {
			t.Fatal(err)
		}
		l.peer = addr
	}
	server := grpc.NewServer(s.server...)
	if s.service == nil {
		s.service = &service{}
	}
	testgrpc.RegisterTestServiceServer(server, s.service)
	healthgrpc.RegisterHealthServer(server, healthy{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	dial := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	}, s.client...)
	cc, err := grpc.NewClient("passthrough:///memory", dial...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		// Of a test that makes no call, the server may be stopped before it serves.
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return cc
}

func (s setup) dial(t testing.TB) testgrpc.TestServiceClient {
	t.Helper()
	return testgrpc.NewTestServiceClient(s.connect(t))
}

// limited are the options of a server with the interceptors of limits.
func limited(t testing.TB, all ...grpclimit.ServerOptions) []grpc.ServerOption {
	t.Helper()
	var options []grpc.ServerOption
	for _, o := range all {
		s, err := grpclimit.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, grpc.ChainUnaryInterceptor(s.Unary()), grpc.ChainStreamInterceptor(s.Stream()))
	}
	return options
}

// paced are the options of a client with the interceptors, and without jitter unless the test has some.
func paced(t testing.TB, o grpclimit.ClientOptions) []grpc.DialOption {
	t.Helper()
	if o.Random == nil {
		o.Random = func() float64 { return 0 }
	}
	c, err := grpclimit.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	return []grpc.DialOption{grpc.WithUnaryInterceptor(c.Unary()), grpc.WithStreamInterceptor(c.Stream())}
}

// silent is a logger that nothing must be told to.
func silent(t testing.TB) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(failing{t}, nil))
}

type failing struct{ t testing.TB }

func (f failing) Write(text []byte) (int, error) {
	f.t.Errorf("it was logged: %s", text)
	return len(text), nil
}

func bucket(t testing.TB, limit weir.Limit, o weir.Options) *weir.Limiter {
	t.Helper()
	b, err := weir.New(limit, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func keyed(t testing.TB, limit weir.Limit, o weir.KeyedOptions) *weir.Keyed[string] {
	t.Helper()
	k, err := weir.NewKeyed[string](limit, o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func keyedSlots(t testing.TB, n int64, o weir.KeyedOptions) *weir.KeyedConcurrency[string] {
	t.Helper()
	k, err := weir.NewKeyedConcurrency[string](n, o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func slots(t testing.TB, limit, queue int64) *weir.Concurrency {
	t.Helper()
	c, err := weir.NewConcurrency(limit, weir.Options{Name: "slots", QueueLimit: queue})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func call(ctx context.Context, c testgrpc.TestServiceClient, opts ...grpc.CallOption) error {
	_, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{}, opts...)
	return err
}

// want checks the code of an error.
func want(t testing.TB, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("%v, want the code %v", err, code)
	}
}

// details are those of a refusal; the delay is negative if there is no RetryInfo.
func details(err error) (delay time.Duration, violations []*errdetails.QuotaFailure_Violation) {
	delay = -1
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			delay = d.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			violations = append(violations, d.GetViolations()...)
		}
	}
	return delay, violations
}
