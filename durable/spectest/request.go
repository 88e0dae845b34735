package spectest

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// Asked can be asked for permits: a *durable.Owner, or a *durable.Node.
type Asked interface {
	Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error)
	Settle(ctx context.Context, h store.Hold, actual []int64) error
}

// Request is a request for the permits of one charge.
type Request struct {
	Policy, Key string
	Limit       weir.Limit
	N, Queue    int64
	Wait, Hold  time.Duration
}

// Charge is that of a request.
func (r Request) Charge() store.Charge {
	return store.Charge{Policy: r.Policy, Key: r.Key, Limit: r.Limit, N: r.N, Queue: r.Queue}
}

// Ask is what is done with the charge.
func (r Request) Ask() store.Ask { return store.Ask{Wait: r.Wait, Hold: r.Hold} }

// Answer is how a request has ended: with the decision, or with an error.
type Answer struct {
	weir.Decision

	Hold store.Hold
	Err  error
}

// Acquire asks for permits and waits for the decision. That of an error is ReasonUnavailable, or the end of the context: then it
// is ReasonDeadline or ReasonCanceled.
func Acquire(ctx context.Context, who Asked, r Request) Answer {
	charges, decisions := [1]store.Charge{r.Charge()}, [1]weir.Decision{}
	h, err := who.Do(ctx, r.Ask(), charges[:], decisions[:])
	switch {
	case err == nil:
		return Answer{Decision: decisions[0], Hold: h}
	case errors.Is(err, context.DeadlineExceeded):
		return Answer{Decision: weir.Decision{Reason: weir.ReasonDeadline}, Err: err}
	case errors.Is(err, context.Canceled):
		return Answer{Decision: weir.Decision{Reason: weir.ReasonCanceled}, Err: err}
	}
	return Answer{Decision: weir.Decision{Reason: weir.ReasonUnavailable}, Err: err}
}

// Peek is what a probe of a limit finds.
func Peek(ctx context.Context, who Asked, policy, key string, l weir.Limit) (weir.Decision, error) {
	a := []weir.Decision{{}}
	_, err := who.Do(ctx, store.Ask{Mode: store.ModePeek}, []store.Charge{{Policy: policy, Key: key, Limit: l}}, a)
	return a[0], err //nolint:wrapcheck // it is what is tested
}
