package rlsapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/policy"
)

// TestCallsWithoutRequest: a client that begins calls and says nothing is not waited for when there are many such. It is refused: an
// error would let others pass that came at the same time.
func TestCallsWithoutRequest(t *testing.T) {
	t.Run("more than a few", func(t *testing.T) {
		testCallsWithoutRequest(t, 4, time.Millisecond)
	})
	t.Run("too many", func(t *testing.T) {
		testCallsWithoutRequest(t, 2, time.Hour)
	})
}

func testCallsWithoutRequest(t *testing.T, most int64, patience time.Duration) {
	t.Helper()
	limits, err := live.Fixed(&policy.Set{}, policy.EngineOptions{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(Options{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	w := &server.loop.Waiting
	w.Few, w.Max, w.Patience = 2, most, patience
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	begin := func() grpc.ClientStream {
		t.Helper()
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true},
			ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	end := func(stream grpc.ClientStream, want codes.Code, decided ratelimitv3.RateLimitResponse_Code) {
		t.Helper()
		got := new(ratelimitv3.RateLimitResponse)
		if err := stream.RecvMsg(got); status.Code(err) != want || got.GetOverallCode() != decided {
			t.Errorf("%v, %v, want %v, %v", got, err, decided, want)
		}
	}
	waiting := func(n int64) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); w.Calls() != n; {
			if time.Now().After(deadline) {
				t.Fatalf("%d calls wait, want %d", w.Calls(), n)
			}
			runtime.Gosched()
		}
	}
	first, second := begin(), begin()
	waiting(2)
	end(begin(), codes.OK, ratelimitv3.RateLimitResponse_OVER_LIMIT)
	waiting(2)
	// One that says what it wants is answered.
	request := &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonratelimitv3.RateLimitDescriptor{
		{Entries: []*commonratelimitv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}},
	}}
	if err := errors.Join(first.SendMsg(request), first.CloseSend()); err != nil {
		t.Error(err)
	}
	end(first, codes.OK, ratelimitv3.RateLimitResponse_OK)
	waiting(1)
	cancel()
	end(second, codes.Canceled, ratelimitv3.RateLimitResponse_UNKNOWN)
	waiting(0)
	_ = conn.Close()
	if err := errors.Join(server.Shutdown(t.Context()), <-served); err != nil {
		t.Error(err)
	}
}
