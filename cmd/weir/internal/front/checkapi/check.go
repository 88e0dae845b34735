package checkapi

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/policy"
)

// exchange is the memory of one decision.
type exchange struct {
	request policy.Request
	named   policy.Named // of request
	verdict policy.Verdict
	space   [512]byte // of the body of the request, and then of the response
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// begin returns memory, which must end.
func begin() *exchange {
	x, _ := exchanges.Get().(*exchange)
	return x
}

// end keeps the memory for another decision.
func (x *exchange) end() {
	x.request = policy.Request{}
	x.named = policy.Named{}
	exchanges.Put(x)
}

var jsonType = []string{"application/json"}

// check serves POST /v1/check, or the problem with it.
func (h *Handler) check(w http.ResponseWriter, r *http.Request) *answer.Problem {
	if p := contentProblem(r); p != nil {
		return p
	}
	x := begin()
	defer x.end()
	body, p := readBody(r, x.space[:0], maxBody)
	if p != nil {
		return p
	}
	ask, err := decode(body)
	if err != nil {
		return badBody(err)
	}
	if p := h.named(&ask); p != nil {
		return p
	}
	x.named = ask.Named
	x.request = policy.Request{Named: &x.named, Context: r.Context()}
	gone := h.decideOn(w, r, &x.request, &x.verdict, way{probe: ask.Cost == 0, wait: ask.wait})
	defer x.verdict.Release()
	if gone {
		return nil
	}
	if x.verdict.Unknown(0) { // it was removed meanwhile
		return unknownPolicy(ask.Policy, h.policyNames())
	}
	// What was asked may still stand in space.
	var few [64]byte
	name := append(few[:0], ask.Policy...)
	h.tell(w, &x.verdict)
	// A client that has gone is not told.
	_, _ = w.Write(append(appendChecked(x.space[:0], &x.verdict, 0, name), "}\n"...))
	return nil
}

// named checks what a check names, and fills in what it does not.
func (h *Handler) named(a *request) *answer.Problem {
	if a.Policy == nil {
		a.Policy = []byte(defaultPolicy)
	}
	if len(a.Key) == 0 && !h.limits.MayLackKey(string(a.Policy)) {
		return badBody(noKey())
	}
	if !h.limits.Has(string(a.Policy)) {
		return unknownPolicy(a.Policy, h.policyNames())
	}
	return nil
}

// way is how a request is decided on.
type way struct {
	probe   bool // takes nothing, and counts for no lockout
	reserve bool
	wait    time.Duration // for how long the client is ready to wait
}

// decideOn decides on q. It reports whether the client has gone, who got nothing then.
func (h *Handler) decideOn(w http.ResponseWriter, r *http.Request, q *policy.Request, v *policy.Verdict, how way) (gone bool) {
	engine := h.limits.Engine()
	switch {
	case how.probe:
		engine.Peek(q, v)
	case how.wait > 0:
		return h.wait(w, r, q, v, how)
	case how.reserve:
		engine.Reserve(q, v)
	default:
		engine.Take(q, v)
	}
	return false
}

// tell sets the header fields about a verdict, and the status.
func (h *Handler) tell(w http.ResponseWriter, v *policy.Verdict) {
	header := w.Header()
	header["Content-Type"] = jsonType
	h.fields.Tell(header, v)
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

// policyNames are those of all policies.
func (h *Handler) policyNames() []string {
	set := h.limits.Engine().Set()
	names := make([]string, len(set.Policies))
	for i := range set.Policies {
		names[i] = set.Policies[i].Name
	}
	return names
}

func unknownPolicy(name []byte, names []string) *answer.Problem {
	p := problemOf(http.StatusNotFound, &fault{
		field: policyName, value: excerpt(name),
		wrong: "there is no such policy", accepted: "must be one of: " + strings.Join(names, ", "),
	})
	p.Policies = names
	return p
}
