package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/grpclimit"
)

// TestClientSaysThatItsOwnLimitRefuses: the error of a call, and of a stream, that the limit of the client refuses matches
// weir.ErrRefused and carries the decision. The call is not sent.
func TestClientSaysThatItsOwnLimitRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keyed, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]grpclimit.ClientOptions{
			"limiter": {Limiter: bucket(t, weir.TokenBucket(weir.PerHour(1), 1), weir.Options{})},
			"keyed":   {Keyed: keyed, Key: func(context.Context, *grpclimit.Outgoing) string { return "all" }},
		} {
			client := setup{client: paced(t, o)}.dial(t)
			if err := call(t.Context(), client); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_, unary := client.UnaryCall(t.Context(), &testgrpc.SimpleRequest{})
			_, stream := client.StreamingInputCall(t.Context())
			for kind, err := range map[string]error{"unary": unary, "stream": stream} {
				refused, ok := errors.AsType[*weir.RefusedError](err)
				if !errors.Is(err, weir.ErrRefused) || !ok || refused.Decision.Allowed || refused.Decision.RetryAfter <= 0 {
					t.Errorf("%s, %s: %v, want a refusal", name, kind, err)
				}
			}
		}
	})
}

// TestClientThatIsClosedSaysSo: of a limiter of the client that is closed the error matches weir.ErrClosed, whether the call waits
// or not, and does not say that the server stops.
func TestClientThatIsClosedSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := bucket(t, weir.TokenBucket(weir.PerHour(1), 1), weir.Options{Name: "out", QueueLimit: 1})
		limiter.Close()
		for _, wait := range []time.Duration{-1, 0, time.Minute} {
			err := call(t.Context(), setup{client: paced(t, grpclimit.ClientOptions{Limiter: limiter, MaxWait: wait})}.dial(t))
			want(t, err, codes.Unavailable)
			if !errors.Is(err, weir.ErrClosed) || !errors.Is(err, weir.ErrRefused) || strings.Contains(err.Error(), "server") {
				t.Errorf("wait %v: %v", wait, err)
			}
		}
	})
}

// TestMaxWaitThatIsOverAtOnce: where MaxWait is over before anything was tried, a call that need not wait is sent, and one that a
// server holds back fails with a NotSentError: the deadline is not that of the call.
func TestMaxWaitThatIsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := setup{
			service: answering(told(t, codes.ResourceExhausted, time.Minute)),
			client: paced(t, grpclimit.ClientOptions{
				MaxWait: time.Second, Limiter: bucket(t, weir.TokenBucket(weir.PerHour(1), 2), weir.Options{}),
				Cost: func(context.Context, *grpclimit.Outgoing) int64 {
					time.Sleep(2 * time.Second) // as on a machine that is overloaded
					return 1
				},
			}),
		}.dial(t)
		err := call(t.Context(), client)
		if _, ok := errors.AsType[*grpclimit.NotSentError](err); ok || status.Code(err) != codes.ResourceExhausted {
			t.Errorf("there was a permit: %v, want the refusal of the server", err)
		}
		err = call(t.Context(), client)
		if e, ok := errors.AsType[*grpclimit.NotSentError](err); !ok || !e.Held || e.Decision.Reason != weir.ReasonDeadline {
			t.Errorf("the server has asked to hold back: %v", err)
		}
	})
}
