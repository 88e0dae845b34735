package grpcserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/examples/integrations/grpcserver"
	"github.com/weirhq/weir/grpclimit"
)

// echo stands for any service.
type echo struct {
	testgrpc.UnimplementedTestServiceServer
}

func (echo) UnaryCall(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: r.GetPayload()}, nil
}

func (echo) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: m.GetPayload()}); err != nil {
			return err
		}
	}
}

func start(t *testing.T) (target string) {
	t.Helper()
	server, err := grpcserver.NewServer(func(key string) bool { return key == "gold" || key == "silver" })
	if err != nil {
		t.Fatal(err)
	}
	testgrpc.RegisterTestServiceServer(server, echo{})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// plain is a client that has no limits.
func plain(t *testing.T, target string) testgrpc.TestServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return connected(t, conn, err)
}

func connected(t *testing.T, conn *grpc.ClientConn, err error) testgrpc.TestServiceClient {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return testgrpc.NewTestServiceClient(conn)
}

func call(ctx context.Context, client testgrpc.TestServiceClient) error {
	_, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{})
	return err
}

func with(t *testing.T, key string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(t.Context(), "x-api-key", key)
}

func TestEachKeyHasItsLimit(t *testing.T) {
	client := plain(t, start(t))
	for range 10 { // they are not charged
		if err := call(with(t, "unknown"), client); status.Code(err) != codes.Unauthenticated {
			t.Fatal(err)
		}
	}
	for range 3 {
		if err := call(with(t, "gold"), client); err != nil {
			t.Fatal(err)
		}
	}
	err := call(with(t, "gold"), client)
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	var delay time.Duration
	subject := ""
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			delay = d.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			subject = d.GetViolations()[0].GetSubject()
		}
	}
	if delay <= 0 || delay > 10*time.Second || subject != "per-key" {
		t.Errorf("refused for %v by %q", delay, subject)
	}
	if err := call(with(t, "silver"), client); err != nil {
		t.Error(err)
	}
}

func TestStreamThatSendsTooMuchEnds(t *testing.T) {
	stream, err := plain(t, start(t)).FullDuplexCall(with(t, "gold"))
	if err != nil {
		t.Fatal(err)
	}
	answers := 0
	for range 100 {
		if err = stream.Send(&testgrpc.StreamingOutputCallRequest{}); err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			break
		}
		answers++
	}
	if errors.Is(err, io.EOF) {
		_, err = stream.Recv()
	}
	// 20 at once, and those whose permits have come in the meantime.
	if status.Code(err) != codes.ResourceExhausted || answers < 20 || answers > 90 {
		t.Errorf("%d messages, then %v", answers, err)
	}
}

func TestClientObeysTheServer(t *testing.T) {
	conn, err := grpcserver.Dial(start(t), "gold")
	client := connected(t, conn, err)
	for range 3 {
		if err = call(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	// The fourth has to wait for 10 s, which is more than the context allows: the refusal of the server is the answer.
	if err = call(ctx, client); status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	// The server is not asked again before that.
	err = call(ctx, client)
	e, ok := errors.AsType[*grpclimit.NotSentError](err)
	if !ok || !e.Held || e.Decision.RetryAfter > 10*time.Second {
		t.Errorf("%v", err)
	}
}
