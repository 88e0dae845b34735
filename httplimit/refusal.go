package httplimit

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// Refusal is the response to a refused request before it is written. A hook may change it.
type Refusal struct {
	// Decision is that of the limiter, and Cost how many permits it was asked for.
	Decision weir.Decision
	Cost     int64
	// Key is the key of the request, "" where the limiter has none.
	Key string
	// Verdict is that of the engine of a [Gate], with all limits and the rules that have applied them. It is valid until the hook
	// returns. It is nil without an engine.
	Verdict *policy.Verdict
	// Header is the header of the response, in which the RateLimit fields and Retry-After are already set.
	Header http.Header
	// Status is the status code: from 200 to 599.
	Status int
	// Problem is the body, in JSON or in one line of text, whichever the client prefers. Its Status is set to that of the
	// refusal.
	Problem Problem
	// Body replaces the body, unless it is nil; an empty one leaves the response without a body. Default: nil.
	Body []byte
	// ContentType is the type of Body. Default: "text/plain; charset=utf-8".
	ContentType string
}

const (
	problemType = "application/problem+json"
	textType    = "text/plain; charset=utf-8"
)

// NewRefusal is the refusal of a request by one limit, as the middleware makes it, for servers that decide themselves:
// [Refusal.Send] sends it. state is that of the limit, which has its place in policies. NewRefusal sets the fields of the limit
// and Retry-After in dst, the header of the response, as [ratelimitfields.Headers.SetRefused] does. The Status is 429, or 503 if
// the server has no permits for any client.
func NewRefusal(
	dst http.Header, h *ratelimitfields.Headers, policies *ratelimitfields.Policies, state ratelimitfields.State, cost int64,
	d weir.Decision,
) Refusal {
	return newRefusal(dst, h, policies, []ratelimitfields.State{state}, cost, d)
}

// newRefusal is NewRefusal with the states of other limits behind that of the one that has refused.
func newRefusal(
	dst http.Header, h *ratelimitfields.Headers, policies *ratelimitfields.Policies, states []ratelimitfields.State, cost int64,
	d weir.Decision,
) Refusal {
	if d.Reason == weir.ReasonClosed || d.Reason == weir.ReasonTableFull {
		d.Remaining, states[0].Remaining = 0, 0 // there may be some, but not for this client
	}
	seconds := h.SetRefused(dst, policies, d.RetryAfter, states...)
	of, tells := policies.At(states[0].Policy), h.Fields != ratelimitfields.NoFields
	if !tells {
		of = &ratelimitfields.Policy{Unit: of.Unit}
	}
	return refusalOf(d, cost, dst, newProblem(d, cost, of, tells, seconds))
}

func refusalOf(d weir.Decision, cost int64, dst http.Header, p Problem) Refusal {
	p.Status = usualStatus(d.Reason, p.Type)
	return Refusal{Decision: d, Cost: cost, Header: dst, Problem: p, Status: p.Status}
}

// ofClient makes it a refusal that is about the client, as the limit of a key is, whatever it counts.
func (f *Refusal) ofClient() {
	f.Problem.Type, f.Problem.Title = QuotaExceeded, quotaExceededTitle
	f.Status = usualStatus(f.Decision.Reason, f.Problem.Type)
	f.Problem.Status = f.Status
}

// Send serves a request with the refusal, in JSON or in one line of text, whichever the client prefers. It removes fields such as
// ETag that were set for another response. It sets the Status of the Problem to that of the refusal. A Status that is not from
// 200 to 599 is replaced by 403, 429 or 503, which is the only error.
//
// It reads what the client still sends of the body, up to 256 KiB and for up to 500 ms, and closes a connection of HTTP/1 over
// which more comes. Where the client wants the connection to end, it does so after the response, as [Drain] does.
func (f *Refusal) Send(w http.ResponseWriter, r *http.Request) error {
	var err error
	if f.Status < http.StatusOK || f.Status > 599 {
		err = fmt.Errorf("weir: httplimit: Refusal.Status is %d: must be from 200 to 599", f.Status)
		f.Status = usualStatus(f.Decision.Reason, f.Problem.Type)
	}
	f.Problem.Status = f.Status
	body, contentType := f.Body, f.ContentType
	switch {
	case body != nil && contentType == "":
		contentType = textType
	case body != nil:
	case prefersText(r.Header["Accept"]):
		body, contentType = f.Problem.text(), textType
	default:
		body, contentType = f.Problem.json(), problemType
	}
	header := w.Header()
	for _, name := range [...]string{
		"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Cache-Control", "Expires",
	} {
		delete(header, name) // of the answer that is not given
	}
	hasBody := len(body) > 0 && f.Status != http.StatusNoContent && f.Status != http.StatusNotModified
	if hasBody {
		header.Set("Content-Type", contentType)
		header.Set("X-Content-Type-Options", "nosniff")
	}
	drains := leavesBody(r)
	// The end of the answer must not wait for that of the request. Of HTTP/2, net/http tells no length once an answer is flushed.
	if hasBody && (drains || r.ProtoMajor > 1) {
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	if !drains {
		readRest(w, r)
	}
	w.WriteHeader(f.Status)
	if hasBody && r.Method != http.MethodHead {
		_, _ = w.Write(body) //nolint:gosec // JSON or plain text, which browsers are told; a client that is gone needs no error
	}
	if drains {
		Drain(w, r)
	}
	return err
}
