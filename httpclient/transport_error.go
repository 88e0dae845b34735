package httpclient

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inwords"
)

// ErrLimited is wrapped by every error of a [Transport] or a [Metered] that did not send a request because of a limit.
var ErrLimited = errors.New("weir: httpclient: request not sent")

// LimitedError is why a [Transport] or a [Metered] did not send a request. [errors.As] finds it in the error of an http.Client.
type LimitedError struct {
	// Host is the partition of the request, usually its host.
	Host string
	// Limit is the name of the limit that held the request back: of the limiter of the client, or the name that the server uses.
	// It is "" where the server has named none.
	Limit string
	// Server is true if it was a limit of the server, and not one of the client.
	Server bool
	// Reason is why the request did not wait: ReasonDeadline because its turn would have come after the deadline of its context
	// or after MaxWait, ReasonQueueFull because there was no room, or that of the limiter.
	Reason weir.Reason
	// RetryAfter is how long the request would have had to wait, as far as is known: weir.Never if no wait helps, 0 if it is not
	// known.
	RetryAfter time.Duration
	// Cost is how many permits were asked for, 0 where a server holds requests back.
	Cost int64
	// Err is what is behind it, such as why durable limits are not available. Default: nil, there is nothing to add.
	Err error
}

// Error is the limit, the reason and the wait, in words.
func (e *LimitedError) Error() string {
	by := "the limit of the client"
	if e.Server {
		by = "the limit of the server"
	}
	if e.Limit != "" {
		by += fmt.Sprintf(" %.80q", e.Limit)
	}
	text := fmt.Sprintf("%v to %.80q: %s (%v)", ErrLimited, e.Host, by, e.Reason)
	switch {
	case e.RetryAfter == weir.Never:
		text += "; no later attempt can succeed"
	case e.RetryAfter > 0:
		text += "; it would have had to wait for " + inwords.Duration(e.RetryAfter)
	}
	if e.Err != nil {
		text += ": " + strings.TrimPrefix(e.Err.Error(), "weir: ")
	}
	return text
}

// Unwrap returns [ErrLimited], and a [*weir.RefusedError] with what is known of the decision, which wraps Err.
func (e *LimitedError) Unwrap() []error {
	d := weir.Decision{Reason: e.Reason, RetryAfter: e.RetryAfter, Policy: e.Limit}
	return []error{ErrLimited, &weir.RefusedError{Decision: d, Permits: e.Cost, Err: e.Err}}
}

// Timeout reports whether the request would have had to wait for too long, as it does of errors of package net.
func (e *LimitedError) Timeout() bool { return e.Reason == weir.ReasonDeadline }
