package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir"
)

// Queued is a [Store] that keeps the queue of those who wait for permits, so that they are served in the order of arrival
// whichever process they are in.
type Queued interface {
	Store
	// Acquire is Take for a request that may wait, or Reserve if w.Expiry is not 0: until the permits of all charges are there,
	// in the order of arrival at each of their limits, or until w.Most has passed or ctx has ended, when nothing is taken. The
	// decisions tell which, by their Reason: ReasonQueueFull, ReasonDeadline, ReasonCanceled, ReasonClosed, or
	// ReasonNever at once. A charge whose Queue is 0 refuses at once.
	//
	// The error is nil if and only if the permits are the caller's. One that matches weir.ErrRefused is that of [Refusal]: the
	// decisions are made. With any other error, such as ErrUnavailable, they are not.
	Acquire(ctx context.Context, charges []Charge, decisions []weir.Decision, w Waiting) (Reservation, error)
}

// Refusal is the error of [Queued].Acquire for decisions that were made: nil if all of them are Allowed, or else a
// *[weir.RefusedError] with the one that binds. It wraps the error of ctx, and its cause, if that is why.
func Refusal(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	at := Binding(decisions)
	if at < 0 || decisions[at].Allowed {
		return nil
	}
	e := &weir.RefusedError{Decision: decisions[at]}
	if at < len(charges) {
		e.Permits = charges[at].N
	}
	why, ended := decisions[at].Reason, ctx.Err()
	if ended != nil && (why == weir.ReasonCanceled || why == weir.ReasonDeadline) {
		if e.Err = ended; context.Cause(ctx) != ended { //nolint:errorlint // it is asked whether there is another one
			e.Err = fmt.Errorf("%w: %w", ended, context.Cause(ctx))
		}
	}
	return e
}

// Waiting says how a request waits.
type Waiting struct {
	// Most is how long, from 0, which is not at all, to 24 h.
	Most time.Duration
	// Expiry makes the request a reservation: see [Store.Reserve]. Default: 0, the permits are taken.
	Expiry time.Duration
}
