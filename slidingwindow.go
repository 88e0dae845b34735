package weir

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/algo"
)

// SlidingWindowOptions configure a [SlidingWindow].
type SlidingWindowOptions struct {
	// Name is the Policy of the decisions. Default: "".
	Name string
	// Limit is how many permits can be taken in a window: from 1 to 10^15. Required.
	Limit int64
	// Window is how long the window is: from 1 ns to 3660 days. Required.
	Window time.Duration
	// Segments is into how many segments the window is cut: from 1 to 64. More segments are finer and cost more time.
	// Default: 10. With Approximate it must be 0.
	Segments int
	// Approximate weighs two counters instead of counting segments: see algo.SlidingCounter for what it gets wrong.
	// Default: false.
	Approximate bool
	// QueueLimit bounds the sum of the permits that callers of Acquire wait for: from 0 to 10^15. Default: 0, nobody
	// waits.
	QueueLimit int64
	// QueueOrder is who is served first. Default: OldestFirst.
	QueueOrder Order
	// MaxDebt is how many permits commits may charge beyond those available: from 1 to 10^15, or NoDebt. Default:
	// Limit. Debt weighs until the window has passed.
	MaxDebt int64
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock Clock
}

// SlidingWindow grants up to Limit permits in a window that moves with time in steps of one segment. A permit comes
// back at most one window after it was taken, when its segment leaves the window.
//
// It never grants more than Limit permits within Window x (Segments-1) / Segments, and approaches that for whole
// windows as segments grow finer (TestSlidingWindowBound).
//
// Those who wait are served as of the moment at which their permits became available. A timer that is late, by up to 10
// ms, so shortens the time to the next grants by as much; where windows are shorter, those of several are served
// together.
type SlidingWindow struct {
	gate

	exact  slidingMeter
	approx counterMeter
}

var _ Limiter = (*SlidingWindow)(nil)

const defaultSegments = 10

// NewSlidingWindow returns an unused limiter, or an error that names the option that cannot be used.
func NewSlidingWindow(o SlidingWindowOptions) (*SlidingWindow, error) {
	const of = "SlidingWindowOptions"
	w := new(SlidingWindow)
	var m meter = &w.exact
	if o.Approximate {
		m = &w.approx
	}
	err := w.init(m, gateOptions{of, o.Name, o.Limit, o.QueueLimit, o.QueueOrder, o.MaxDebt, o.Clock})
	if err != nil {
		return nil, err
	}
	switch {
	case !o.Approximate:
		if o.Segments == 0 {
			o.Segments = defaultSegments
		}
		if most := int64(o.Window); most > 0 && most < int64(o.Segments) && o.Segments <= algo.MaxSegments {
			accepted := fmt.Sprintf("from 1 to %d, as a segment is at least 1ns long", most)
			return nil, &OptionError{of + ".Segments", fmt.Sprint(o.Segments), accepted}
		}
		w.exact.algorithm, err = algo.NewSlidingWindow(o.Limit, o.Window, o.Segments, w.born)
	case o.Segments != 0:
		return nil, &OptionError{of + ".Segments", fmt.Sprint(o.Segments), "0 when Approximate is set"}
	default:
		w.approx.algorithm, err = algo.NewSlidingCounter(o.Limit, o.Window, w.born)
	}
	if err != nil {
		return nil, optionError(of, err)
	}
	return w, nil
}

// Allow takes one permit if it is available and nobody waits for it. It is TryAcquire(1) where the decision does not
// matter.
func (w *SlidingWindow) Allow() bool { return w.allow() }

// Wait takes n permits, and waits for them in the queue of the limiter. The error is nil if they were granted, and otherwise
// that of [Limiter].Acquire.
func (w *SlidingWindow) Wait(ctx context.Context, n int64) error { return waited(w.Acquire(ctx, n)) }

// Refund gives back n permits whatever their origin, at most until the limiter is full, and serves those who wait for
// them. It is for operators: to undo a request, reserve and Cancel, which cannot give back too much. An n below 1 is
// ignored.
func (w *SlidingWindow) Refund(n int64) { w.refund(n) }
