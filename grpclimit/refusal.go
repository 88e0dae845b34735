package grpclimit

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inwords"
	"github.com/weirhq/weir/ratelimitfields"
)

// Refusal is the response to a call or a message that was refused, before it is sent. A hook may change Status and Trailer.
type Refusal struct {
	// Call is what was refused: a message if its Protocol is ProtocolMessage.
	Call *Call
	// Decision is that of the limit that refused with the longest wait, and Cost how many permits it was asked for. Key is what
	// was counted under, "" where the limit has no keys.
	Decision weir.Decision
	Cost     int64
	Key      string
	// Refused are the decisions of all limits that refuse.
	Refused []weir.Decision
	// Status is what the client gets: the [Code] of the Reason, with the details RetryInfo, if it is known when to come back, and
	// QuotaFailure, if limits have refused. One that is nil or OK is replaced by the original.
	Status *status.Status
	// Trailer is the metadata that is sent with it.
	Trailer metadata.MD
}

// Code is the code of a refusal:
//
//   - codes.ResourceExhausted if a limit has refused it, also where the caller was ready to wait, and where it asks for more than
//     the limit has;
//   - codes.Unavailable if another server may allow it: this one is overloaded, its table of keys is full, its limiter is closed,
//     or what the decision depends on cannot be reached;
//   - codes.PermissionDenied if a rule denies it;
//   - codes.Canceled if the context of the caller has ended;
//   - codes.Internal for misuse, and codes.OK for weir.ReasonNone.
func Code(r weir.Reason) codes.Code {
	switch r {
	case weir.ReasonNone:
		return codes.OK
	case weir.ReasonOverloaded, weir.ReasonTableFull, weir.ReasonTrackingCap, weir.ReasonClosed, weir.ReasonUnavailable:
		return codes.Unavailable
	case weir.ReasonDenied:
		return codes.PermissionDenied
	case weir.ReasonCanceled:
		return codes.Canceled
	case weir.ReasonInvalid:
		return codes.Internal
	default:
		return codes.ResourceExhausted
	}
}

// The names of the metadata of a refusal, in its trailer.
const (
	// pushback is obeyed by the retries that gRPC clients make by their service configuration: the milliseconds to wait, and
	// no retry at all if it is negative.
	pushback       = "grpc-retry-pushback-ms"
	retryAfterName = "retry-after"
)

// refuse makes the status of a refusal, and sends its trailer.
func (s *Server) refuse(ctx context.Context, r *Refusal, parts []part, a answer) error {
	if r.Decision.Reason == weir.ReasonNone {
		r.Decision.Reason = weir.ReasonLimited
	}
	quiet := s.o.Headers != nil && s.o.Headers.Fields == ratelimitfields.NoFields
	r.Status = newStatus(r, quiet)
	original := r.Status
	r.Trailer = metadata.MD{}
	switch delay := r.Decision.RetryAfter; {
	case delay == weir.Never:
		r.Trailer[pushback] = []string{"-1"}
	case delay > 0:
		r.Trailer[pushback] = []string{strconv.FormatInt(min(ceilMilliseconds(delay), math.MaxInt32), 10)}
	}
	if s.o.Headers != nil {
		s.told.refused(&s.o, r, parts)
	}
	if s.o.OnRefused != nil {
		s.o.OnRefused(ctx, r)
		if r.Status == nil || r.Status.Code() == codes.OK {
			s.o.Logger.LogAttrs(ctx, slog.LevelError, "grpclimit: the hook took the status of a refusal away",
				slog.String("method", r.Call.Path))
			r.Status = original
		}
	}
	if len(r.Trailer) > 0 {
		if err := a.SetTrailer(ctx, r.Trailer); err != nil {
			s.o.Logger.LogAttrs(ctx, slog.LevelError, "grpclimit: the trailer could not be set", slog.Any("error", err))
		}
	}
	return r.Status.Err()
}

// newStatus is the status of a refusal with its details.
func newStatus(r *Refusal, quiet bool) *status.Status {
	code := Code(r.Decision.Reason)
	st := status.New(code, message(&r.Decision, r.Cost, quiet))
	details := make([]protoadapt.MessageV1, 0, 2)
	if delay := r.Decision.RetryAfter; delay > 0 && delay != weir.Never {
		ms := ceilMilliseconds(delay)
		details = append(details, &errdetails.RetryInfo{
			RetryDelay: &durationpb.Duration{Seconds: ms / 1000, Nanos: int32(ms % 1000 * 1_000_000)},
		})
	}
	if code == codes.ResourceExhausted && len(r.Refused) > 0 {
		failure := &errdetails.QuotaFailure{}
		for i := range r.Refused {
			d := &r.Refused[i]
			failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
				Subject: d.Policy, Description: message(d, r.Cost, quiet),
			})
		}
		details = append(details, failure)
	}
	if len(details) == 0 {
		return st
	}
	detailed, err := st.WithDetails(details...)
	if err != nil { // it has a code, and details of known types
		return st
	}
	return detailed
}

// message says in one sentence what happened and what to do.
func message(d *weir.Decision, cost int64, quiet bool) string {
	name := ""
	if d.Policy != "" {
		name = " " + strconv.Quote(d.Policy)
	}
	var text string
	switch d.Reason {
	case weir.ReasonDenied:
		return "this call is not allowed here, whenever it comes"
	case weir.ReasonOverloaded:
		return "the server is overloaded" + comeBack(d)
	case weir.ReasonClosed:
		return "the server is about to stop"
	case weir.ReasonTableFull, weir.ReasonTrackingCap:
		return "the limit" + name + " tracks as many callers as it may" + comeBack(d)
	case weir.ReasonUnavailable:
		return "the limit" + name + " cannot be decided now" + comeBack(d)
	case weir.ReasonHardLockout:
		return "the limit" + name + " has locked the caller out" + comeBack(d)
	case weir.ReasonNever:
		text = "the limit" + name + " can never allow this"
	case weir.ReasonDeadline, weir.ReasonEvicted:
		text = "the limit" + name + " could not allow this in time"
	case weir.ReasonQueueFull:
		text = "the limit" + name + " is exceeded, and too many wait for it"
	default:
		text = "the limit" + name + " is exceeded"
	}
	if !quiet {
		text += fmt.Sprintf(": %d of %d permits remain, and it needs %d", d.Remaining, d.Limit, cost)
	}
	return text + comeBack(d)
}

func comeBack(d *weir.Decision) string {
	if d.RetryAfter <= 0 || d.RetryAfter == weir.Never {
		return ""
	}
	ms := ceilMilliseconds(d.RetryAfter)
	if ms > int64(weir.Never/time.Millisecond) {
		return ""
	}
	return "; retry after " + inwords.After(time.Duration(ms)*time.Millisecond, time.Now())
}

// ceilMilliseconds is d in milliseconds, rounded up.
func ceilMilliseconds(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
