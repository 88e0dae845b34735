package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestCanceledIsNotRefused: a caller that counts refusals does not count requests of callers that have gone.
func TestCanceledIsNotRefused(t *testing.T) {
	gone := errors.New("the client has gone")
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	charges := []store.Charge{{Policy: "p", Key: "k", Limit: weir.TokenBucket(weir.PerHour(1), 3), N: 2}}
	for _, c := range []struct {
		ctx     context.Context //nolint:containedctx // it is a case
		reason  weir.Reason
		refused bool
	}{
		{canceled, weir.ReasonCanceled, false},
		{canceled, weir.ReasonQueueFull, true}, // before it was canceled
		{t.Context(), weir.ReasonLimited, true},
	} {
		err := store.Refusal(c.ctx, charges, []weir.Decision{{Reason: c.reason, Policy: "p"}})
		if err == nil || errors.Is(err, weir.ErrRefused) != c.refused {
			t.Errorf("%v: %v, want a refusal: %v", c.reason, err, c.refused)
		}
		if why := errors.Is(err, context.Canceled) && errors.Is(err, gone); why == c.refused {
			t.Errorf("%v: %v, want the error of the context and its cause: %v", c.reason, err, !c.refused)
		}
	}
}
