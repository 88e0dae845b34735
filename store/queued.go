package store

import (
	"context"
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
	Acquire(ctx context.Context, charges []Charge, decisions []weir.Decision, w Waiting) (Reservation, error)
}

// Waiting says how a request waits.
type Waiting struct {
	// Most is how long, from 0, which is not at all, to 24 h.
	Most time.Duration
	// Expiry makes the request a reservation: see [Store.Reserve]. Default: 0, the permits are taken.
	Expiry time.Duration
}
