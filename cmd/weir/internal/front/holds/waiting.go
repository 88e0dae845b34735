package holds

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/policy"
)

// Waiting are the clients that wait for permits. All methods are safe for concurrent use.
type Waiting struct {
	ctx context.Context //nolint:containedctx // until End
	// End tells the clients that wait that the server ends. From then on no client waits.
	End context.CancelFunc
}

// NewWaiting returns a server that has clients wait.
func NewWaiting() *Waiting {
	ctx, end := context.WithCancel(context.Background()) //nolint:gosec // End cancels it
	return &Waiting{ctx, end}
}

// Ended reports whether End was called.
func (w *Waiting) Ended() bool { return w.ctx.Err() != nil }

// Decide is [policy.Engine.Wait] or WaitReserve.
type Decide func(ctx context.Context, r *policy.Request, v *policy.Verdict) error

// For decides on a request for a client that is ready to wait for so long. ctx is that of the client. It becomes that of the
// request, as a store may take longer to answer than the client waits for permits. For is false if the client has gone: then it
// has left the queue, and nothing was taken for it.
func (w *Waiting) For(
	ctx context.Context, most time.Duration, r *policy.Request, v *policy.Verdict, decide Decide,
) (stays bool) {
	r.Context = ctx
	waits, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	stop := context.AfterFunc(w.ctx, cancel) //nolint:contextcheck // it is that of the server
	defer stop()
	switch err := decide(waits, r, v); {
	case err == nil || errors.Is(err, weir.ErrRefused): // the verdict says so
		return true
	case ctx.Err() != nil:
		return false
	}
	answer.Close(v)
	return true
}
