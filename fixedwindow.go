package weir

import (
	"context"
	"time"

	"github.com/weirhq/weir/algo"
)

// FixedWindowOptions configure a [FixedWindow].
type FixedWindowOptions struct {
	// Name is the Policy of the decisions. Default: "".
	Name string
	// Limit is how many permits each window has: from 1 to 10^15. Required.
	Limit int64
	// Window is how long a window is: from 1 ns to 3660 days. Required.
	Window time.Duration
	// QueueLimit bounds the sum of the permits that callers of Acquire wait for: from 0 to 10^15. Default: 0, nobody
	// waits.
	QueueLimit int64
	// QueueOrder is who is served first. Default: OldestFirst.
	QueueOrder Order
	// MaxDebt is how many permits commits may charge beyond those available: from 1 to 10^15, or NoDebt. Default:
	// Limit. Debt is carried into the windows that follow.
	MaxDebt int64
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock Clock
}

// FixedWindow grants up to Limit permits in each window of time. Windows follow one another without a gap from the time
// at which the limiter was made, however the traffic comes.
//
// It is the simplest algorithm, and the coarsest: around the border of two windows up to 2 x Limit permits are granted
// in an arbitrarily short time (TestFixedWindowBorder). Where that matters, use a [SlidingWindow] or a [TokenBucket].
//
// Those who wait are served as of the moment at which their permits became available. If the timer is late, those of the
// last 10 ms are served together: of all windows that began in them, where windows are shorter.
//
// While nobody waits, a limit below 2^31 is one word that calls exchange by compare-and-swap, like that of a
// TokenBucket.
type FixedWindow struct {
	gate

	window metered[algo.FixedWindowState, algo.FixedWindow]
	fast   windowWord
}

var _ Limiter = (*FixedWindow)(nil)

// NewFixedWindow returns an unused limiter, or an error that names the option that cannot be used.
func NewFixedWindow(o FixedWindowOptions) (*FixedWindow, error) {
	const of = "FixedWindowOptions"
	w := new(FixedWindow)
	err := w.init(&w.window, gateOptions{of, o.Name, o.Limit, o.QueueLimit, o.QueueOrder, o.MaxDebt, o.Clock})
	if err != nil {
		return nil, err
	}
	w.window.algorithm, err = algo.NewFixedWindow(o.Limit, o.Window, w.born)
	if err != nil {
		return nil, optionError(of, err)
	}
	if w.fast.init(w, o.Window) {
		w.word = &w.fast
		w.fast.lower()
	}
	return w, nil
}

// Allow takes one permit if it is available and nobody waits for it. It is TryAcquire(1) where the decision does not
// matter.
func (w *FixedWindow) Allow() bool {
	switch _, _, _, v := w.fast.take(1); v {
	case taken:
		w.fast.granted.Add()
		return true
	case short:
		w.fast.refused.Add()
		return false
	default:
		return w.allow()
	}
}

// TryAcquire implements [Limiter].
func (w *FixedWindow) TryAcquire(n int64) (l Lease) {
	if w.fast.try(&l, n, false, true) {
		return l
	}
	return w.gate.TryAcquire(n)
}

// TryReserve implements [Limiter].
func (w *FixedWindow) TryReserve(n int64) (l Lease) {
	if w.fast.try(&l, n, true, true) {
		return l
	}
	return w.gate.TryReserve(n)
}

// Acquire implements [Limiter].
func (w *FixedWindow) Acquire(ctx context.Context, n int64) (l Lease, err error) {
	if over(ctx) {
		return w.gate.Acquire(ctx, n)
	}
	if w.fast.try(&l, n, false, false) {
		return l, nil
	}
	return w.acquireBegun(ctx, n, false)
}

// Reserve implements [Limiter].
func (w *FixedWindow) Reserve(ctx context.Context, n int64) (l Lease, err error) {
	if over(ctx) {
		return w.gate.Reserve(ctx, n)
	}
	if w.fast.try(&l, n, true, false) {
		return l, nil
	}
	return w.acquireBegun(ctx, n, true)
}

// Wait takes n permits, and waits for them in the queue of the limiter. The error is nil if they were granted, and otherwise
// that of [Limiter].Acquire.
func (w *FixedWindow) Wait(ctx context.Context, n int64) error { return waited(w.Acquire(ctx, n)) }

// Refund gives back n permits whatever their origin, at most until the limiter is full, and serves those who wait for
// them. It is for operators: to undo a request, reserve and Cancel, which cannot give back too much. An n below 1 is
// ignored.
func (w *FixedWindow) Refund(n int64) { w.refund(n) }
