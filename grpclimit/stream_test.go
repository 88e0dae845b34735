package grpclimit_test

import (
	"context"
	"errors"
	"io"
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
)

// countMessages sends n messages on a stream, and returns how the stream ends.
func countMessages(t *testing.T, client testgrpc.TestServiceClient, n int) error {
	t.Helper()
	stream, err := client.StreamingInputCall(t.Context())
	if err != nil {
		return err
	}
	for range n {
		if err = stream.Send(&testgrpc.StreamingInputCallRequest{}); err != nil {
			break // CloseAndRecv tells why
		}
	}
	reply, err := stream.CloseAndRecv()
	if err == nil && reply.GetAggregatedPayloadSize() != int32(n) {
		t.Errorf("%d of %d messages have arrived", reply.GetAggregatedPayloadSize(), n)
	}
	return err
}

func TestStreamIsChargedAtItsOpening(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 2), weir.Options{Name: "all"})
	s := &service{}
	client := setup{service: s, server: limited(t, grpclimit.ServerOptions{Limiter: limiter})}.dial(t)
	for range 2 {
		want(t, countMessages(t, client, 50), codes.OK)
	}
	err := countMessages(t, client, 1)
	want(t, err, codes.ResourceExhausted)
	if delay, violations := details(err); delay <= 0 || len(violations) != 1 {
		t.Errorf("delay %v, violations %v", delay, violations)
	}
	if s.served.Load() != 2 {
		t.Errorf("%d streams were served", s.served.Load())
	}
}

func TestStreamHoldsItsPermitUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := slots(t, 1, 0)
		client := setup{server: limited(t, grpclimit.ServerOptions{Limiter: limiter})}.dial(t)
		for name, end := range map[string]func(testgrpc.TestService_FullDuplexCallClient, context.CancelFunc){
			"end": func(stream testgrpc.TestService_FullDuplexCallClient, _ context.CancelFunc) {
				if err := stream.CloseSend(); err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			},
			"cancel": func(_ testgrpc.TestService_FullDuplexCallClient, cancel context.CancelFunc) { cancel() },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			stream, err := client.FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
			want(t, call(t.Context(), client), codes.ResourceExhausted)
			end(stream, cancel)
			synctest.Wait()
			if left := limiter.Stats().Remaining; left != 1 {
				t.Errorf("%s: %d permits are free", name, left)
			}
			cancel()
		}
	})
}

func TestMessagesAreCharged(t *testing.T) {
	// The handler may say what it likes: a refused message ends the stream.
	swallow := func(stream testgrpc.TestService_StreamingInputCallServer) error {
		for {
			if _, err := stream.Recv(); err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(context.Cause(stream.Context()), err) {
					t.Errorf("the cause is %v, want %v", context.Cause(stream.Context()), err)
				}
				if _, again := stream.Recv(); !errors.Is(again, err) {
					t.Errorf("then %v, want %v", again, err)
				}
				return stream.SendAndClose(&testgrpc.StreamingInputCallResponse{AggregatedPayloadSize: 3})
			}
		}
	}
	for name, input := range map[string]func(testgrpc.TestService_StreamingInputCallServer) error{"returns": nil, "swallows": swallow} {
		t.Run(name, func(t *testing.T) {
			limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 8), weir.Options{Name: "all"})
			var refused []string
			client := setup{service: &service{input: input}, server: limited(t, grpclimit.ServerOptions{
				Limiter: limiter, MessageCost: grpclimit.Each(2),
				OnRefused: func(_ context.Context, r *grpclimit.Refusal) {
					refused = append(refused, r.Call.Protocol)
					if !r.Call.ClientStreams || r.Call.ServerStreams || r.Call.Message == nil || r.Cost != 2 {
						t.Errorf("refused was %+v", r)
					}
				},
			})}.dial(t)
			want(t, countMessages(t, client, 3), codes.OK) // 1 + 3 x 2
			err := countMessages(t, client, 1)
			want(t, err, codes.ResourceExhausted)
			if delay, violations := details(err); delay <= 0 || len(violations) != 1 {
				t.Errorf("delay %v, violations %v", delay, violations)
			}
			if len(refused) != 1 || refused[0] != grpclimit.ProtocolMessage {
				t.Errorf("the hook saw %q", refused)
			}
		})
	}
}

func TestRequestOfAServerStreamIsPartOfItsOpening(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 5), weir.Options{})
	client := setup{server: limited(t, grpclimit.ServerOptions{Limiter: limiter, MessageCost: grpclimit.Each(1)})}.dial(t)
	stream, err := client.StreamingOutputCall(t.Context(), &testgrpc.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if left := limiter.Stats().Remaining; !errors.Is(err, io.EOF) || left != 4 {
		t.Errorf("%v, and %d are left", err, left)
	}
}

func TestMessagesThatWaitHoldTheClientUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := setup{server: limited(t, grpclimit.ServerOptions{
			Limiter:     bucket(t, weir.TokenBucket(weir.PerSecond(1), 1), weir.Options{QueueLimit: 10}),
			MessageCost: grpclimit.Each(1), MessageMaxWait: 2 * time.Second,
		})}.dial(t)
		start := time.Now()
		want(t, countMessages(t, client, 4), codes.OK)
		if took := time.Since(start); took != 4*time.Second { // the opening had the first permit
			t.Errorf("it took %v", took)
		}
	})
}

func TestMessageThatWaitsTooLongEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := slots(t, 2, 10)
		client := setup{server: limited(t, grpclimit.ServerOptions{
			Limiter: limiter, MessageCost: grpclimit.Each(1), MessageMaxWait: 2 * time.Second,
		})}.dial(t)
		want(t, countMessages(t, client, 5), codes.OK) // a message holds its permit until the next one
		lease := limiter.TryAcquire(1)
		start := time.Now()
		want(t, countMessages(t, client, 1), codes.ResourceExhausted)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
		lease.Release()
		synctest.Wait()
		if left := limiter.Stats().Remaining; left != 2 {
			t.Errorf("%d permits are free", left)
		}
	})
}

func TestMessageIsReleasedThoughItsReaderOutlivesTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := slots(t, 2, 0)
		got := make(chan struct{})
		s := &service{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			go func() {
				if _, err := stream.Recv(); err != nil {
					t.Error(err)
				}
				close(got)
				_, _ = stream.Recv() // until the stream ends
			}()
			<-got
			return nil
		}}
		client := setup{service: s, server: limited(t, grpclimit.ServerOptions{Limiter: limiter, MessageCost: grpclimit.Each(1)})}.dial(t)
		stream, err := client.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		synctest.Wait()
		if left := limiter.Stats().Remaining; left != 2 {
			t.Errorf("%d permits are free", left)
		}
	})
}

func TestStreamThatPanicsHoldsNothing(t *testing.T) {
	for _, messages := range []bool{false, true} {
		limiter := slots(t, 2, 0)
		o := grpclimit.ServerOptions{Limiter: limiter}
		if messages {
			o.MessageCost = grpclimit.Each(1)
		}
		s := &service{input: func(stream testgrpc.TestService_StreamingInputCallServer) error {
			if _, err := stream.Recv(); err != nil {
				t.Error(err)
			}
			panic("handler")
		}}
		recovers := func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
			defer func() {
				if recover() != nil {
					err = status.Error(codes.Internal, "panic")
				}
				if left := limiter.Stats().Remaining; left != 2 {
					t.Errorf("%d permits are free", left)
				}
			}()
			return handler(srv, ss)
		}
		client := setup{
			service: s, server: append([]grpc.ServerOption{grpc.ChainStreamInterceptor(recovers)}, limited(t, o)...),
		}.dial(t)
		want(t, countMessages(t, client, 1), codes.Internal)
	}
}

func TestTwoServersLimitOpeningsAndMessagesApart(t *testing.T) {
	openings := bucket(t, weir.TokenBucket(weir.PerHour(1), 5), weir.Options{Name: "openings"})
	messages := bucket(t, weir.TokenBucket(weir.PerHour(1), 5), weir.Options{Name: "messages"})
	client := setup{server: limited(
		t, grpclimit.ServerOptions{Limiter: openings},
		grpclimit.ServerOptions{
			Limiter: messages, MessageCost: grpclimit.Each(1),
			Cost: func(context.Context, *grpclimit.Call) int64 { return 0 },
		},
	)}.dial(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", "y")
	want(t, call(ctx, client), codes.OK)
	want(t, countMessages(t, client, 4), codes.OK)
	if a, b := openings.Stats().Remaining, messages.Stats().Remaining; a != 3 || b != 1 {
		t.Errorf("%d openings and %d messages are left", a, b)
	}
}
