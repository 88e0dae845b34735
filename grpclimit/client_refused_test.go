package grpclimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

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
