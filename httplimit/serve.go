package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/weirhq/weir"
)

// StatusClientClosedRequest is the status that a response has if the client went away while its request waited. It is
// seen by middlewares that log, not by clients.
const StatusClientClosedRequest = 499

// badStatus is logged of a hook that is wrong.
const badStatus = "httplimit: the hook set a status that is not from 200 to 599"

// front is what the middleware of [New] and a [Gate] do alike: it calls the handlers of requests that are allowed, and serves
// the refusals of others.
type front struct {
	skip      func(*http.Request) bool
	cost      func(*http.Request) int64
	status    int
	onRefused func(*http.Request, *Refusal)
	logger    *slog.Logger

	decider string // the limiter or the engine, for the log
	charged any    // the key under which the context of a request has that it was charged
	begin   func() asker

	refused, aborted, failed atomic.Uint64
}

// asker decides on one request.
type asker interface {
	// ask decides, and returns why the request is refused, ReasonNone if it is allowed. After an error nothing has decided: there
	// is no key, which is a [keyFailedError], the client has gone, or the limiter or the engine has failed.
	ask(r *http.Request, cost int64) (weir.Reason, error)
	// admit sets the fields of an allowed request in dst, and returns the context for its handler.
	admit(dst http.Header, r *http.Request) context.Context
	// refuse returns the refusal of a request, whose fields it sets in dst.
	refuse(dst http.Header, r *http.Request) *Refusal
	// end releases what the request has.
	end()
}

// handler is the front before next.
func (f *front) handler(next http.Handler) http.Handler {
	if next == nil {
		panic("weir: httplimit: the handler is nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(w, r, next) })
}

func (f *front) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if f.skip != nil && f.skip(r) || r.Context().Value(f.charged) != nil {
		next.ServeHTTP(w, r)
		return
	}
	cost := int64(1)
	if f.cost != nil {
		cost = f.cost(r)
	}
	if cost < 0 {
		f.fail(w, r, "httplimit: the cost is negative", slog.Int64("cost", cost))
		return
	}
	a := f.begin()
	defer a.end()
	switch reason, err := a.ask(r, cost); {
	case err != nil:
		f.abandon(w, r, err)
	case reason == weir.ReasonNone || cost == 0 && reason != weir.ReasonDenied:
		handle(a.admit(w.Header(), r), w, r, next) //nolint:contextcheck // it inherits
	case reason == weir.ReasonInvalid:
		f.fail(w, r, "httplimit: the "+f.decider+" does not accept the request", slog.Int64("cost", cost))
	default:
		refusal := a.refuse(w.Header(), r)
		if f.status != 0 && reason != weir.ReasonDenied {
			refusal.Status, refusal.Problem.Status = f.status, f.status
		}
		f.refuse(w, r, refusal)
	}
}

// handle calls the handler of a request with another context. What that finds in the request and others look for later is put
// back: the server removes the files of a form, and middlewares log the pattern.
func handle(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler) {
	inner := r.WithContext(ctx)
	defer func() { r.MultipartForm, r.Pattern = inner.MultipartForm, inner.Pattern }()
	next.ServeHTTP(w, inner)
}

// refuse serves a refusal, which the hook may change.
func (f *front) refuse(w http.ResponseWriter, r *http.Request, refusal *Refusal) {
	f.refused.Add(1)
	if f.onRefused != nil {
		f.onRefused(r, refusal)
	}
	f.send(w, r, refusal)
}

func (f *front) send(w http.ResponseWriter, r *http.Request, refusal *Refusal) {
	status := refusal.Status
	if refusal.Send(w, r) != nil {
		f.logger.ErrorContext(r.Context(), badStatus, "status", status)
	}
}

// keyFailedError is what a key function returned instead of a key.
type keyFailedError struct{ error }

// Unwrap returns the error of the key function.
func (e keyFailedError) Unwrap() error { return e.error }

// abandon ends a request that nothing has decided on.
func (f *front) abandon(w http.ResponseWriter, r *http.Request, err error) {
	if key, ok := errors.AsType[keyFailedError](err); ok {
		f.refuseKey(w, r, key.error)
		return
	}
	if errors.Is(r.Context().Err(), context.Canceled) {
		f.aborted.Add(1)
		w.WriteHeader(StatusClientClosedRequest)
		return
	}
	f.fail(w, r, "httplimit: the "+f.decider+" failed", slog.Any("error", err))
}

// refuseKey ends a request whose key function returned an error instead of a key.
func (f *front) refuseKey(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*KeyError](err)
	if !ok || e.Status < 400 || e.Status > 599 {
		f.fail(w, r, "httplimit: the key could not be told", slog.Any("error", err))
		return
	}
	f.refuse(w, r, &Refusal{
		Decision: weir.Decision{Reason: weir.ReasonInvalid}, Header: w.Header(), Status: e.Status,
		Problem: Problem{Type: aboutBlank, Title: http.StatusText(e.Status), Status: e.Status, Detail: e.Detail},
	})
}

// fail serves a request that cannot be decided. Clients are not told why.
func (f *front) fail(w http.ResponseWriter, r *http.Request, message string, why slog.Attr) {
	f.failed.Add(1)
	f.logger.LogAttrs(r.Context(), slog.LevelError, message, why)
	status := http.StatusInternalServerError
	f.send(w, r, &Refusal{Status: status, Problem: Problem{Type: aboutBlank, Title: http.StatusText(status)}})
}
