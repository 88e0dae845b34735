package checkapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/policy"
)

// exchange is the memory of one decision.
type exchange struct {
	question  question
	described described
	request   policy.Request
	verdict   policy.Verdict
	last      answer.Last
	scanner   scanner   // of the body
	space     [512]byte // of the body
	reply     [512]byte
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// begin returns memory, which must end.
func begin() *exchange {
	x, _ := exchanges.Get().(*exchange)
	return x
}

// end keeps the memory for another decision.
func (x *exchange) end() {
	if x.question.described != nil {
		x.described = described{}
	}
	x.question, x.request, x.scanner = question{}, policy.Request{}, scanner{}
	exchanges.Put(x)
}

var jsonType = []string{"application/json"}

// check serves POST /v1/check, or the problem with it.
func (h *Handler) check(w http.ResponseWriter, r *http.Request, x *exchange) *answer.Problem {
	x.question.Cost = 1
	if p := ask(r, x, &checkDialect, &x.question); p != nil {
		return p
	}
	return h.answerTo(w, r, x)
}

// decide serves POST /v1/decide, or the problem with it.
func (h *Handler) decide(w http.ResponseWriter, r *http.Request, x *exchange) *answer.Problem {
	x.question.described = &x.described
	if p := ask(r, x, &describedDialect, &x.described); p != nil {
		return p
	}
	return h.answerTo(w, r, x)
}

// answerTo decides on the question and writes the answer, or returns the problem with it.
func (h *Handler) answerTo(w http.ResponseWriter, r *http.Request, x *exchange) *answer.Problem {
	q := &x.question
	if p := h.named(q); p != nil {
		return p
	}
	q.of(r.Context(), &x.request)
	gone := h.decideOn(r.Context(), w, &x.request, &x.verdict, way{probe: q.probes(), wait: q.patience()})
	defer x.verdict.Release()
	if gone {
		return nil
	}
	if x.verdict.Unknown(0) { // it was removed meanwhile
		return unknownPolicy(q.Policy, h.limits.PolicyNames())
	}
	reply := append(q.appendTo(x.reply[:0], &x.verdict, 0), '\n')
	length(w, r, reply)
	h.tell(w, &x.verdict, &x.last)
	_, _ = w.Write(reply) // a client that has gone is not told
	return nil
}

// length tells the length of a reply of HTTP/2: net/http does not, as it is flushed before its handler ends.
func length(w http.ResponseWriter, r *http.Request, reply []byte) {
	if r.ProtoMajor > 1 {
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(reply))}
	}
}

// named checks what a check names, and fills in what it does not.
func (h *Handler) named(a *question) *answer.Problem {
	switch {
	case a.described != nil:
		return nil
	case a.Policy == nil:
		a.Policy = defaultPolicy
	}
	if len(a.Key) == 0 && !h.limits.MayLackKey(string(a.Policy)) {
		return badBody(noKey())
	}
	if !h.limits.Has(string(a.Policy)) {
		return unknownPolicy(a.Policy, h.limits.PolicyNames())
	}
	return nil
}

// of makes r what a question asks.
func (q *question) of(ctx context.Context, r *policy.Request) {
	if q.described == nil {
		*r = policy.Request{Named: &q.Named, Context: ctx}
		return
	}
	*r = q.described.Request
	r.Context = ctx
}

// probes reports whether a question takes nothing.
func (q *question) probes() bool {
	if q.described != nil {
		return q.described.probe
	}
	return q.Cost == 0
}

// patience is for how long the client is ready to wait.
func (q *question) patience() time.Duration {
	if q.described != nil {
		return q.described.wait
	}
	return q.wait
}

// appendTo appends the answer to a question, which is one of the requests of a verdict.
func (q *question) appendTo(b []byte, v *policy.Verdict, request int) []byte {
	if q.described != nil {
		b = appendVerdict(b, v, request)
	} else {
		b = appendChecked(b, v, request, q.Policy)
	}
	for i, name := range v.Over(request) {
		if i == 0 {
			b = append(b, `,"over":[`...)
		} else {
			b = append(b[:len(b)-1], ',')
		}
		b = append(appendQuoted(b, name), ']')
	}
	return append(b, '}')
}

// way is how a request is decided on.
type way struct {
	probe   bool // takes nothing, and counts for no lockout
	reserve bool
	wait    time.Duration // for how long the client is ready to wait
}

// decideOn decides on q. It reports whether the client has gone: then it got nothing.
func (h *Handler) decideOn(
	ctx context.Context, w http.ResponseWriter, q *policy.Request, v *policy.Verdict, how way,
) (gone bool) {
	engine := h.limits.Engine()
	switch {
	case how.probe:
		engine.Peek(q, v)
	case how.wait > 0 && !h.waiting.Ended():
		return h.wait(ctx, w, q, v, how)
	case how.reserve:
		engine.Reserve(q, v)
	default:
		engine.Take(q, v)
	}
	return false
}

// tell sets the header fields about a verdict, and the status.
func (h *Handler) tell(w http.ResponseWriter, v *policy.Verdict, last *answer.Last) {
	header := w.Header()
	header["Content-Type"] = jsonType
	h.fields.Tell(header, v, last)
	if !v.Allowed {
		w.WriteHeader(refusal(v.Decision()))
	}
}

// refusal is the status of a refusal: 429, 403 of a rule that denies, or 503 if it is none, as it could not be decided.
func refusal(d weir.Decision) int {
	switch d.Reason { //nolint:exhaustive // all others are refusals
	case weir.ReasonUnavailable, weir.ReasonClosed:
		return http.StatusServiceUnavailable
	case weir.ReasonDenied:
		return http.StatusForbidden
	}
	return http.StatusTooManyRequests
}

func unknownPolicy(name []byte, names []string) *answer.Problem {
	p := problemOf(http.StatusNotFound, &fault{
		field: policyName, value: excerpt(name),
		wrong: "there is no such policy", accepted: "must be one of: " + strings.Join(names, ", "),
	})
	p.Policies = names
	return p
}

// answerTime is how long the answer to a client that has waited may take.
const answerTime = 30 * time.Second

// wait decides on q for a client that is ready to wait. It reports whether the client has gone.
func (h *Handler) wait(
	ctx context.Context, w http.ResponseWriter, q *policy.Request, v *policy.Verdict, how way,
) (gone bool) {
	// The server bounds how long a request takes that does not wait. If the connection cannot have deadlines, it has none.
	at, control := time.Now().Add(how.wait+answerTime), http.NewResponseController(w)
	_ = control.SetReadDeadline(at)
	_ = control.SetWriteDeadline(at)
	decide := h.limits.Engine().Wait
	if how.reserve {
		decide = h.limits.Engine().WaitReserve
	}
	return !h.waiting.For(ctx, how.wait, q, v, decide)
}

// EndWaiting tells callers that wait for permits that the server ends. From now on no caller waits.
func (h *Handler) EndWaiting() { h.waiting.End() }
