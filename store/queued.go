package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir"
)

// Queued is a [Store] with a queue for requests that wait for permits. They are served in the order of arrival whichever process
// they are in.
type Queued interface {
	Store
	// Acquire is Take for a request that may wait, or Reserve if w.Expiry is not 0. It waits until the permits of all charges are
	// there, in the order of arrival at each of their limits. If w.Most passes or ctx ends before that, nothing is taken, and the
	// Reason of the decisions is ReasonQueueFull, ReasonDeadline, ReasonCanceled or ReasonClosed. Permits that can never be there
	// are refused at once with ReasonNever, and a charge whose Queue is 0 refuses at once.
	//
	// The error is nil if and only if the permits are taken. One that matches weir.ErrRefused is that of [Refusal]: the decisions
	// are filled in. With any other error, such as ErrUnavailable, they are not.
	Acquire(ctx context.Context, charges []Charge, decisions []weir.Decision, w Waiting) (Reservation, error)
}

// Refusal is the error of [Queued].Acquire for its decisions. It is nil if all of them are Allowed, or else a
// *[weir.RefusedError] with the one at [Binding]. It wraps the error of ctx, and its cause, if that is the reason.
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

// Waiting is how a request waits.
type Waiting struct {
	// Most is how long, from 0, which is not at all, to 24 h.
	Most time.Duration
	// Expiry makes the request a reservation: see [Store.Reserve]. Default: 0, the permits are taken.
	Expiry time.Duration
}
