package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/grpclimit"
	"github.com/weirhq/weir/overload"
)

// told is an error that tells when to come back, as other servers make it.
func told(t *testing.T, code codes.Code, d time.Duration) error {
	t.Helper()
	st, err := status.New(code, "come back later").WithDetails(
		&errdetails.ErrorInfo{Reason: "RATE"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(d)},
	)
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

// answering is a service that answers UnaryCall with these errors, and then with none.
func answering(answers ...error) *service {
	var mu sync.Mutex
	return &service{unary: func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if len(answers) == 0 {
			return nil
		}
		err := answers[0]
		answers = answers[1:]
		return err
	}}
}

// elapsed checks how long f takes.
func elapsed(t *testing.T, want time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took != want {
		t.Errorf("it took %v, want %v", took, want)
	}
}

func TestClientPacesItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := setup{client: paced(t, grpclimit.ClientOptions{
			Limiter: bucket(t, weir.TokenBucket(weir.PerSecond(2), 2), weir.Options{QueueLimit: 100}),
		})}.dial(t)
		elapsed(t, 2*time.Second, func() {
			for range 6 {
				want(t, call(t.Context(), client), codes.OK)
			}
		})
	})
}

func TestCallThatWouldBeTooLateIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		limiter := bucket(t, weir.TokenBucket(weir.PerMinute(1), 1), weir.Options{Name: "out", QueueLimit: 100})
		client := setup{service: s, client: paced(t, grpclimit.ClientOptions{Limiter: limiter})}.dial(t)
		want(t, call(t.Context(), client), codes.OK)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		elapsed(t, 0, func() {
			err := call(ctx, client)
			want(t, err, codes.ResourceExhausted)
			e, ok := errors.AsType[*grpclimit.NotSentError](err)
			if !ok || e.Held || e.Decision.Policy != "out" || e.Method != "/grpc.testing.TestService/UnaryCall" ||
				e.Target != "passthrough:///memory" || e.Cost != 1 || e.Decision.Reason != weir.ReasonDeadline {
				t.Errorf("the error is %#v", err)
			}
			if delay, violations := details(err); delay != time.Minute || len(violations) != 1 {
				t.Errorf("delay %v, violations %v", delay, violations)
			}
			const text = `weir: /grpc.testing.TestService/UnaryCall was not sent: the limit "out" could not allow this in time`
			if !strings.HasPrefix(err.Error(), text) || !strings.Contains(status.Convert(err).Message(), text) {
				t.Errorf("the text is %v", err)
			}
		})
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		want(t, call(canceled, client), codes.Canceled)
		want(t, call(canceled, client), codes.Canceled)
		if s.served.Load() != 1 {
			t.Errorf("%d were sent", s.served.Load())
		}
	})
}

// TestClientWithoutQueueSaysSo: a call that would have to wait where there is no queue is not one that too many wait before.
func TestClientWithoutQueueSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := bucket(t, weir.TokenBucket(weir.PerMinute(1), 1), weir.Options{Name: "out"})
		client := setup{client: paced(t, grpclimit.ClientOptions{Limiter: limiter})}.dial(t)
		want(t, call(t.Context(), client), codes.OK)
		err := call(t.Context(), client)
		if !errors.Is(err, weir.ErrNoQueue) || !errors.Is(err, weir.ErrRefused) || strings.Contains(err.Error(), "wait for it") {
			t.Error(err)
		}
		if _, violations := details(err); len(violations) != 1 || strings.Contains(violations[0].GetDescription(), "wait for it") {
			t.Errorf("the details say %v", violations)
		}
	})
}

func TestMaxWaitOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			wait, took time.Duration
			keyed      bool
		}{{2 * time.Second, 2 * time.Second, false}, {-1, 0, false}, {2 * time.Second, 2 * time.Second, true}, {-1, 0, true}} {
			o := grpclimit.ClientOptions{MaxWait: c.wait}
			if c.keyed {
				k := keyedSlots(t, 1, weir.KeyedOptions{QueueLimit: 5})
				k.TryAcquire("/grpc.testing.TestService/UnaryCall", 1)
				o.Keyed = k
			} else {
				limiter := slots(t, 1, 5)
				limiter.TryAcquire(1)
				o.Limiter = limiter
			}
			client := setup{client: paced(t, o)}.dial(t)
			elapsed(t, c.took, func() {
				err := call(t.Context(), client)
				want(t, err, codes.ResourceExhausted)
				if _, ok := errors.AsType[*grpclimit.NotSentError](err); !ok {
					t.Error(err)
				}
			})
			_, err := client.EmptyCall(t.Context(), &testgrpc.Empty{})
			if c.keyed {
				want(t, err, codes.OK) // another key
			} else {
				want(t, err, codes.ResourceExhausted)
			}
		}
	})
}

func TestClientObeysRetryInfo(t *testing.T) {
	for name, c := range map[string]struct {
		code          codes.Code
		by            grpclimit.HoldScope
		same, another time.Duration
	}{
		"method":      {codes.ResourceExhausted, grpclimit.HoldMethod, 3 * time.Second, 0},
		"target":      {codes.Unavailable, grpclimit.HoldTarget, 3 * time.Second, 3 * time.Second},
		"none":        {codes.ResourceExhausted, grpclimit.HoldNone, 0, 0},
		"other codes": {codes.FailedPrecondition, grpclimit.HoldTarget, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				holds := 0
				client := setup{
					service: answering(told(t, c.code, 3*time.Second)),
					client: paced(t, grpclimit.ClientOptions{HoldBy: c.by, OnHold: func(_ context.Context, o *grpclimit.Outgoing, d time.Duration, err error) {
						holds++
						if d != 3*time.Second || status.Code(err) != c.code || o.Message == nil {
							t.Errorf("held %v for %v by %v", o, d, err)
						}
					}}),
				}.dial(t)
				want(t, call(t.Context(), client), c.code)
				var wait sync.WaitGroup
				wait.Go(func() {
					elapsed(t, c.same, func() { want(t, call(t.Context(), client), codes.OK) })
				})
				wait.Go(func() {
					elapsed(t, c.another, func() {
						_, err := client.EmptyCall(t.Context(), &testgrpc.Empty{})
						want(t, err, codes.OK)
					})
				})
				wait.Wait()
				elapsed(t, 0, func() { want(t, call(t.Context(), client), codes.OK) })
				if held := c.same > 0; holds == 1 != held {
					t.Errorf("%d holds", holds)
				}
			})
		})
	}
}

func TestHoldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := setup{
			service: answering(told(t, codes.ResourceExhausted, 1000*time.Hour), told(t, codes.ResourceExhausted, -time.Hour)),
			client:  paced(t, grpclimit.ClientOptions{MaxHold: 5 * time.Second, Jitter: 0.4, Random: func() float64 { return 0.5 }, MaxRetries: 3}),
		}.dial(t)
		elapsed(t, 0, func() { want(t, call(t.Context(), client), codes.ResourceExhausted) })
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		elapsed(t, 0, func() {
			err := call(short, client)
			want(t, err, codes.ResourceExhausted)
			if e, ok := errors.AsType[*grpclimit.NotSentError](err); !ok || !e.Held || e.Decision.RetryAfter != 5*time.Second {
				t.Errorf("the error is %v", err)
			}
		})
		elapsed(t, 6*time.Second, func() { want(t, call(t.Context(), client), codes.ResourceExhausted) })
		elapsed(t, 0, func() { want(t, call(t.Context(), client), codes.OK) })
	})
}

func TestUnaryCallIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		client := setup{
			service: s,
			server: limited(t, grpclimit.ServerOptions{
				Limiter: bucket(t, weir.TokenBucket(weir.PerMinute(6), 1), weir.Options{}),
			}),
			client: paced(t, grpclimit.ClientOptions{MaxRetries: 1}),
		}.dial(t)
		want(t, call(t.Context(), client), codes.OK)
		elapsed(t, 10*time.Second, func() { want(t, call(t.Context(), client), codes.OK) })
		elapsed(t, 0, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
			defer cancel()
			want(t, call(ctx, client), codes.ResourceExhausted)
		})
		if s.served.Load() != 2 {
			t.Errorf("%d were served", s.served.Load())
		}
	})
}

func TestTriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := told(t, codes.ResourceExhausted, time.Second)
		for _, c := range []struct {
			answers []error
			took    time.Duration
			code    codes.Code
			tries   int64
		}{
			{[]error{late, late, late, late}, 2 * time.Second, codes.ResourceExhausted, 3},
			{[]error{late, late}, 2 * time.Second, codes.OK, 3},
			{[]error{status.Error(codes.ResourceExhausted, "too large")}, 0, codes.ResourceExhausted, 1},
			{[]error{status.Error(codes.Unavailable, "gone")}, 0, codes.Unavailable, 1},
			{[]error{told(t, codes.Internal, time.Second)}, 0, codes.Internal, 1},
		} {
			s := answering(c.answers...)
			client := setup{service: s, client: paced(t, grpclimit.ClientOptions{MaxRetries: 2})}.dial(t)
			elapsed(t, c.took, func() { want(t, call(t.Context(), client), c.code) })
			if s.served.Load() != c.tries {
				t.Errorf("%d tries, want %d", s.served.Load(), c.tries)
			}
		}
	})
}

func TestPermitsOfHeldCallsAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := bucket(t, weir.TokenBucket(weir.PerSecond(1), 2), weir.Options{QueueLimit: 10})
		client := setup{
			service: answering(nil, told(t, codes.ResourceExhausted, time.Minute)),
			client:  paced(t, grpclimit.ClientOptions{Limiter: limiter}),
		}.dial(t)
		want(t, call(t.Context(), client), codes.OK)
		var wait sync.WaitGroup
		start := time.Now()
		times := make(chan time.Duration, 4)
		for range 4 {
			wait.Go(func() {
				if call(t.Context(), client) == nil {
					times <- time.Since(start)
				}
			})
		}
		wait.Wait()
		close(times)
		// One was refused, and three have waited, two of them for their turn as well. They do not come back at once.
		var all []time.Duration
		for took := range times {
			all = append(all, took)
		}
		if len(all) != 3 || all[0] != time.Minute || all[1] != time.Minute || all[2] != time.Minute+time.Second {
			t.Errorf("they were sent after %v", all)
		}
	})
}

func TestPermitThatCameDuringAHoldIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		s := &service{unary: func(context.Context) error {
			if !first {
				return nil
			}
			first = false
			time.Sleep(90 * time.Second)
			return told(t, codes.ResourceExhausted, 30*time.Second) // until 120 s
		}}
		client := setup{service: s, client: paced(t, grpclimit.ClientOptions{
			Limiter: bucket(t, weir.TokenBucket(weir.Per(1, 100*time.Second), 1), weir.Options{QueueLimit: 1}),
		})}.dial(t)
		go func() { _ = call(t.Context(), client) }()
		synctest.Wait()
		elapsed(t, 120*time.Second, func() { want(t, call(t.Context(), client), codes.OK) })
	})
}

func TestJitterLeavesTimeForTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := grpclimit.ClientOptions{Jitter: 1, Random: func() float64 { return 0.8 }, MaxRetries: 1}
		client := setup{service: answering(told(t, codes.ResourceExhausted, 5*time.Second)), client: paced(t, o)}.dial(t)
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		elapsed(t, 5500*time.Millisecond, func() { want(t, call(ctx, client), codes.OK) })
		client = setup{service: answering(told(t, codes.ResourceExhausted, 5*time.Second)), client: paced(t, o)}.dial(t)
		elapsed(t, 9*time.Second, func() { want(t, call(t.Context(), client), codes.OK) })
	})
}

func TestStreamsOfTheClientArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := grpclimit.ClientOptions{
			Limiter:     bucket(t, weir.TokenBucket(weir.PerSecond(1), 1), weir.Options{QueueLimit: 10}),
			MessageCost: func(context.Context, *grpclimit.Outgoing) int64 { return 2 },
			Cost:        func(context.Context, *grpclimit.Outgoing) int64 { return 1 },
		}
		client := setup{client: paced(t, o)}.dial(t)
		elapsed(t, 0, func() { want(t, countMessages(t, client, 0), codes.OK) })
		elapsed(t, time.Second, func() { want(t, countMessages(t, client, 0), codes.OK) })
		// A message asks for more than the limit ever holds. The server must not take the stream for complete.
		served := make(chan error, 1)
		client = setup{client: paced(t, o), service: &service{input: func(stream testgrpc.TestService_StreamingInputCallServer) error {
			_, err := stream.Recv()
			served <- err
			return err
		}}}.dial(t)
		time.Sleep(time.Second)
		err := countMessagesSent(t, client)
		if e, ok := errors.AsType[*grpclimit.NotSentError](err); !ok || e.Decision.RetryAfter != weir.Never {
			t.Errorf("the error is %v", err)
		}
		want(t, <-served, codes.Canceled)
		o.MessageCost = func(context.Context, *grpclimit.Outgoing) int64 { return 1 }
		client = setup{client: paced(t, o)}.dial(t)
		time.Sleep(time.Second)
		elapsed(t, 5*time.Second, func() { want(t, countMessages(t, client, 5), codes.OK) })
		time.Sleep(time.Second)
		elapsed(t, 0, func() { // the request of a stream of the server is part of its opening
			stream, err := client.StreamingOutputCall(t.Context(), &testgrpc.StreamingOutputCallRequest{})
			for err == nil {
				_, err = stream.Recv()
			}
		})
	})
}

// countMessagesSent is the error of the first Send.
func countMessagesSent(t *testing.T, client testgrpc.TestServiceClient) error {
	t.Helper()
	stream, err := client.StreamingInputCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&testgrpc.StreamingInputCallRequest{})
	if again := stream.Send(&testgrpc.StreamingInputCallRequest{}); !errors.Is(again, err) {
		t.Errorf("the next is answered with %v", again)
	}
	if _, closed := stream.CloseAndRecv(); !errors.Is(closed, err) {
		t.Errorf("the stream ends with %v", closed)
	}
	return err
}

func TestStreamOfTheClientHoldsItsPermitUntilItEnds(t *testing.T) {
	for _, messages := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			limiter := slots(t, 2, 0)
			o := grpclimit.ClientOptions{Limiter: limiter}
			out := int64(1)
			if messages {
				o.MessageCost = func(context.Context, *grpclimit.Outgoing) int64 { return 1 }
				out = 2
			}
			client := setup{client: paced(t, o)}.dial(t)
			for name, end := range map[string]func(testgrpc.TestService_FullDuplexCallClient, context.CancelFunc){
				"end": func(stream testgrpc.TestService_FullDuplexCallClient, _ context.CancelFunc) {
					if err := stream.CloseSend(); err != nil {
						t.Error(err)
					}
					for err := error(nil); err == nil; {
						_, err = stream.Recv()
					}
				},
				"cancel": func(_ testgrpc.TestService_FullDuplexCallClient, cancel context.CancelFunc) { cancel() },
			} {
				ctx, cancel := context.WithCancel(t.Context())
				stream, err := client.FullDuplexCall(ctx)
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if err := stream.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
						t.Fatal(err)
					}
				}
				if left := limiter.Stats().Remaining; left != 2-out {
					t.Errorf("%s: %d permits are free while it lasts", name, left)
				}
				end(stream, cancel)
				synctest.Wait()
				if left := limiter.Stats().Remaining; left != 2 {
					t.Errorf("%s: %d permits are free in the end", name, left)
				}
				cancel()
			}
		})
	}
}

func TestStreamThatCannotBeOpenedHoldsNothing(t *testing.T) {
	for _, o := range []grpclimit.ClientOptions{{}, {MessageCost: func(context.Context, *grpclimit.Outgoing) int64 { return 1 }}} {
		limiter := slots(t, 1, 0)
		o.Limiter = limiter
		cc := setup{client: paced(t, o)}.connect(t)
		ctx, cancel := context.WithCancel(t.Context())
		client := testgrpc.NewTestServiceClient(cc)
		cancel()
		if _, err := client.FullDuplexCall(ctx); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		broken := status.Error(codes.Unavailable, "no connection")
		c, err := grpclimit.NewClient(o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Stream()(t.Context(), &grpc.StreamDesc{ClientStreams: true}, cc, "/x",
			func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				return nil, broken
			})
		want(t, err, codes.Unavailable)
		if left := limiter.Stats().Remaining; left != 1 {
			t.Errorf("%d permits are free", left)
		}
	}
}

func TestStreamThatIsRefusedHoldsFollowingOnesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := setup{
			server: limited(t, grpclimit.ServerOptions{Limiter: bucket(t, weir.TokenBucket(weir.PerMinute(6), 1), weir.Options{})}),
			client: paced(t, grpclimit.ClientOptions{}),
		}.dial(t)
		want(t, countMessages(t, client, 1), codes.OK)
		want(t, countMessages(t, client, 1), codes.ResourceExhausted)
		elapsed(t, 10*time.Second, func() { want(t, countMessages(t, client, 1), codes.OK) })
	})
}

func TestAdaptiveLimitLearnsFromServers(t *testing.T) {
	for _, chained := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			adaptive, err := overload.NewAdaptive(overload.AdaptiveOptions{InitialLimit: 20, MinLimit: 1, MaxLimit: 40})
			if err != nil {
				t.Fatal(err)
			}
			var limiter weir.Acquirer = adaptive
			if chained {
				if limiter, err = weir.NewChain(bucket(t, weir.TokenBucket(weir.PerSecond(1000), 0), weir.Options{}), adaptive); err != nil {
					t.Fatal(err)
				}
			}
			var answers []error
			for range 100 {
				answers = append(answers, status.Error(codes.Unavailable, "overloaded"))
			}
			client := setup{service: answering(answers...), client: paced(t, grpclimit.ClientOptions{Limiter: limiter})}.dial(t)
			for range 100 {
				want(t, call(t.Context(), client), codes.Unavailable)
				time.Sleep(100 * time.Millisecond)
			}
			if limit := adaptive.Stats().Limit; limit >= 20 {
				t.Errorf("chained %v: the limit is %d", chained, limit)
			}
		})
	}
}

// TestAdaptiveLimitLearnsNothingFromCalls that are canceled, also in a chain, whose other limiters stay charged.
func TestAdaptiveLimitLearnsNothingFromCalls(t *testing.T) {
	for _, chained := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			adaptive, err := overload.NewAdaptive(overload.AdaptiveOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var limiter weir.Acquirer = adaptive
			tokens := bucket(t, weir.TokenBucket(weir.PerHour(1), 200), weir.Options{})
			if chained {
				if limiter, err = weir.NewChain(tokens, adaptive); err != nil {
					t.Fatal(err)
				}
			}
			var answers []error
			for range 150 {
				answers = append(answers, status.Error(codes.Canceled, "gone"))
			}
			client := setup{service: answering(answers...), client: paced(t, grpclimit.ClientOptions{Limiter: limiter})}.dial(t)
			for range 150 {
				want(t, call(t.Context(), client), codes.Canceled)
				time.Sleep(100 * time.Millisecond)
			}
			if e := adaptive.Estimate(); e.Windows > 0 || adaptive.Peek(0).Remaining != e.Limit {
				t.Errorf("chained %v: it has learned %+v, and %d remain", chained, e, adaptive.Peek(0).Remaining)
			}
			if left := tokens.Peek(0).Remaining; chained && left != 50 {
				t.Errorf("%d tokens remain, want 50", left)
			}
		})
	}
}

func TestSkippedCallsAreNotPaced(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 0), weir.Options{})
	client := setup{client: paced(t, grpclimit.ClientOptions{
		Limiter: limiter, Skip: func(_ context.Context, o *grpclimit.Outgoing) bool {
			return o.Method != "/grpc.testing.TestService/EmptyCall"
		},
	})}.dial(t)
	for range 3 {
		want(t, call(t.Context(), client), codes.OK)
		want(t, countMessages(t, client, 2), codes.OK)
	}
	if left := limiter.Stats().Remaining; left != 1 {
		t.Errorf("%d are left", left)
	}
}

func TestCostThatIsMisuse(t *testing.T) {
	cost := int64(-1)
	client := setup{client: paced(t, grpclimit.ClientOptions{
		Limiter: bucket(t, weir.TokenBucket(weir.PerHour(1), 0), weir.Options{}),
		Cost:    func(context.Context, *grpclimit.Outgoing) int64 { return cost },
	})}.dial(t)
	want(t, call(t.Context(), client), codes.Internal)
	cost = 0
	for range 3 {
		want(t, call(t.Context(), client), codes.OK)
	}
}

func TestClientOptionsThatCannotBeUsed(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 0), weir.Options{})
	one := func(context.Context, *grpclimit.Outgoing) int64 { return 1 }
	for _, c := range []struct {
		o    grpclimit.ClientOptions
		want string
	}{
		{grpclimit.ClientOptions{Limiter: (*weir.Limiter)(nil)}, "ClientOptions.Limiter is a nil"},
		{grpclimit.ClientOptions{Keyed: (*weir.Keyed[string])(nil)}, "ClientOptions.Keyed is a nil"},
		{grpclimit.ClientOptions{Limiter: limiter, Keyed: keyed(t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})}, "ClientOptions.Keyed is set"},
		{grpclimit.ClientOptions{Key: func(context.Context, *grpclimit.Outgoing) string { return "" }}, "ClientOptions.Key is set"},
		{grpclimit.ClientOptions{Cost: one}, "ClientOptions.Cost is set"},
		{grpclimit.ClientOptions{MessageCost: one}, "ClientOptions.MessageCost is set"},
		{grpclimit.ClientOptions{HoldBy: 3}, "ClientOptions.HoldBy is HoldScope(3)"},
		{grpclimit.ClientOptions{MaxHold: time.Microsecond}, "ClientOptions.MaxHold is 1µs"},
		{grpclimit.ClientOptions{MaxHold: 25 * time.Hour}, "ClientOptions.MaxHold is 25h0m0s"},
		{grpclimit.ClientOptions{Jitter: -1}, "ClientOptions.Jitter is -1"},
		{grpclimit.ClientOptions{MaxRetries: 11}, "ClientOptions.MaxRetries is 11"},
	} {
		if _, err := grpclimit.NewClient(c.o); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "weir: ") {
			t.Errorf("the error is %v, want %s", err, c.want)
		}
	}
}
