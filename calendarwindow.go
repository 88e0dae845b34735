package weir

import (
	"context"
	"time"
)

// CalendarWindowOptions configure a [CalendarWindow].
type CalendarWindowOptions struct {
	// Name is the Policy of the decisions. Default: "".
	Name string
	// Limit is how many permits each window has: from 1 to 10^15. Required.
	Limit int64
	// Calendar says where windows begin. Its Unit is required.
	Calendar Calendar
	// QueueLimit bounds the sum of the permits that callers of Acquire wait for: from 0 to 10^15. Default: 0, nobody
	// waits.
	QueueLimit int64
	// QueueOrder is who is served first. Default: OldestFirst.
	QueueOrder Order
	// MaxDebt is how many permits commits may charge beyond those available: from 1 to 10^15, or NoDebt. Default:
	// Limit. Debt is carried into the windows that follow.
	MaxDebt int64
	// Clock replaces the wall clock of the machine: its Now is in nanoseconds since 1970-01-01 UTC. Default: nil.
	Clock Clock
}

// CalendarWindow grants up to Limit permits in each window of a [Calendar]: in each month of a zone, however long it is, from
// its 15th at 08:00, say. RetryAfter and ResetAfter are exact, also where the clocks are changed.
//
// Like a [FixedWindow] it grants up to 2 x Limit permits in an arbitrarily short time around the border of two windows.
//
// Windows end by the wall clock, which is compared with the process clock once a second and at the end of each window: a
// correction takes effect within a second, for those who wait as well. One that sets the clock back returns
// nothing that was used in a window that has begun already. See [algo.CalendarWindow] for corrections by more than a window.
type CalendarWindow struct {
	gate

	window   calendarMeter
	calendar Calendar
}

var _ Limiter = (*CalendarWindow)(nil)

// NewCalendarWindow returns an unused limiter, or an error that names the option that cannot be used.
func NewCalendarWindow(o CalendarWindowOptions) (*CalendarWindow, error) {
	const of = "CalendarWindowOptions"
	w := &CalendarWindow{calendar: o.Calendar}
	algorithm, err := newCalendarWindow(of, "Limit", o.Limit, o.Calendar, o.Clock != nil)
	if err != nil {
		return nil, err
	}
	w.window.algorithm = algorithm
	err = w.init(&w.window, gateOptions{of, o.Name, o.Limit, o.QueueLimit, o.QueueOrder, o.MaxDebt, o.Clock})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Allow takes one permit if it is available and nobody waits for it. It is TryAcquire(1) where the decision does not
// matter.
func (w *CalendarWindow) Allow() bool { return w.allow() }

// Wait takes n permits, and waits for them in the queue of the limiter. The error is nil if they were granted, and otherwise
// that of [Limiter].Acquire.
func (w *CalendarWindow) Wait(ctx context.Context, n int64) error { return waited(w.Acquire(ctx, n)) }

// Refund gives back n permits whatever their origin, at most until the limiter is full, and serves those who wait for
// them. It is for operators: to undo a request, reserve and Cancel, which cannot give back too much. An n below 1 is
// ignored.
func (w *CalendarWindow) Refund(n int64) { w.refund(n) }

// Quota is Limit permits, and the length of a window if all are equally long, otherwise 0: see Calendar.
func (w *CalendarWindow) Quota() (permits int64, window time.Duration) {
	a := w.window.algorithm
	return w.limit.Load(), a.Length(a.unix(w.now()))
}

// Calendar says where windows begin. It is ok for every CalendarWindow.
func (w *CalendarWindow) Calendar() (c Calendar, ok bool) { return w.calendar, true }

// Calendar says where the windows of keys begin that have no limit of their own. It is not ok with other algorithms than
// AlgorithmCalendarWindow.
func (k *Keyed[K]) Calendar() (c Calendar, ok bool) {
	return k.base.limit.Calendar, k.base.limit.Algorithm == AlgorithmCalendarWindow
}
