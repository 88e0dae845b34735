package weir

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inwords"
)

// ErrRefused is what every [RefusedError] matches.
var ErrRefused = errors.New("weir: refused")

// ErrNoQueue is matched by the error of a call that would have had to wait for permits of a limiter that has no queue.
var ErrNoQueue = errors.New("weir: the limiter has no queue: set QueueLimit to wait for permits")

var errReleased = errors.New("weir: permits of AlgorithmConcurrency come back on release: use Acquire or Do")

// A RefusedError is the error of a call that may wait when the permits were not taken, except where a context ended: that
// error wraps the one of the context, and its cause. So a RefusedError means that the limiter has decided. It matches
// [ErrRefused] and what it wraps:
//
//   - [ErrNoQueue]: the call would have had to wait, and the limiter has no queue.
//   - [ErrClosed]: the limiter is closed.
//   - an *[OptionError]: the function that chooses the limits of keys returned one that cannot be used.
//
// A deadline that comes before the permits is found out at once, while the context is still alive: then the error has
// ReasonDeadline and does not match context.DeadlineExceeded. As with Wait of golang.org/x/time/rate, a caller that wants to
// know whether it was out of time looks at both.
type RefusedError struct {
	// Decision is that of the limiter that refused. It is never Allowed.
	Decision Decision
	// Permits is how many were asked for.
	Permits int64
	// Err says more, or is nil.
	Err error
}

// Is reports whether target is ErrRefused.
func (*RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

// Error names the limiter, what was asked for, the reason, and when to come back.
func (e *RefusedError) Error() string {
	var b strings.Builder
	b.WriteString("weir: ")
	if e.Decision.Policy != "" {
		fmt.Fprintf(&b, "%q ", e.Decision.Policy)
	}
	b.WriteString("refused " + inwords.Permits(e.Permits))
	if e.Decision.Reason != ReasonNone {
		b.WriteString(": " + e.Decision.Reason.String())
	}
	switch d := e.Decision.RetryAfter; {
	case d == Never:
		b.WriteString(", waiting does not help")
	case d > 0:
		b.WriteString(", retry after " + inwords.Duration(d))
	}
	if e.Err != nil {
		b.WriteString(": " + strings.TrimPrefix(e.Err.Error(), "weir: "))
	}
	return b.String()
}

// refusal is the error of a call that may wait and was decided with d: nil if the permits were taken.
func refusal(d Decision, n int64, why error) error {
	if d.Allowed {
		return nil
	}
	if why == nil {
		why = causeOf(d.Reason, n)
	}
	return &RefusedError{Decision: d, Permits: n, Err: why}
}

// causeOf is what a refusal for this reason wraps.
func causeOf(r Reason, n int64) error {
	switch {
	case r == ReasonClosed:
		return ErrClosed
	case r != ReasonInvalid:
		return nil
	case n < 0:
		return errNegativePermits
	}
	return errMisuse
}

// noQueue is ErrNoQueue if a call was refused because it would have had to wait and the queue holds nothing.
func noQueue(r Reason, queueLimit int64) error {
	if r == ReasonQueueFull && queueLimit == 0 {
		return ErrNoQueue
	}
	return nil
}

// mustContext refuses a nil context at the call, whether it would have to wait or not.
func mustContext(ctx context.Context) {
	if ctx == nil {
		panic("weir: nil context")
	}
}

// over reports whether ctx has ended.
func over(ctx context.Context) bool {
	mustContext(ctx)
	return ctx.Err() != nil
}

// errNegativePermits is wrapped where a negative number of permits is asked for.
var errNegativePermits = errors.New("weir: negative number of permits: must be 0 or more")

// errInvalidLimit is wrapped where the function that chooses the limits of keys returns one that cannot be used, by Keyed.Acquire
// and Reserve together with what is wrong with it.
var errInvalidLimit = errors.New("weir: the limit that was chosen for the key cannot be used")

// errMisuse is wrapped where a lease or a decision is all that is known of a refusal because of misuse.
var errMisuse = errors.New("weir: the limit that was chosen for the key, or a charge of the request, cannot be used")

// An OptionError names the option of a constructor that cannot be used, its value and what is accepted.
type OptionError struct {
	Option   string // such as Limit.Burst
	Value    string
	Accepted string
}

// Error names the option, its value and what is accepted.
func (e *OptionError) Error() string {
	return fmt.Sprintf("weir: %s is %s: must be %s", e.Option, e.Value, e.Accepted)
}

// optionError turns the error of a constructor of algo into one that names the option.
func optionError(of string, err error) error {
	p, ok := errors.AsType[*algo.ParameterError](err)
	if !ok {
		return err
	}
	option := "Rate" // permits and period, or limit and window
	switch p.Parameter {
	case "burst":
		option = "Burst"
	case "segments":
		option = "Segments"
	}
	return &OptionError{of + "." + option, p.Value, p.Accepted}
}

// ErrClosed is what the errors of calls match that were refused as the limiter has been closed, and of Override and Restore then.
var ErrClosed = errors.New("weir: the limiter is closed")
