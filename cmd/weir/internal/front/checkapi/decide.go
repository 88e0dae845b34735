package checkapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/holds"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/policy"
)

const (
	decidePath  = "/v1/decide"
	explainPath = "/v1/explain"
	statusPath  = "/v1/status"
	reloadPath  = "/v1/reload"
)

// configured is what a handler has that answers for the limits of a configuration.
type configured struct {
	limits *live.Limits
	holds  *holds.Holds
	admin  Admin
	fields answer.Fields
	// extra is added to the status.
	extra func() map[string]any
	// quotas is nil if there are none.
	quotas Quotas
	// waiting ends when nobody waits any more.
	waiting    context.Context //nolint:containedctx // until EndWaiting
	endWaiting context.CancelFunc
}

// Options configure a [Handler].
type Options struct {
	// Limits are those that it answers for: of a configuration, or fixed. Required.
	Limits *live.Limits
	// Holds keep reservations. They belong to the caller, who closes them when the handler has answered its last request.
	// Default: nil, some of its own, which are never closed.
	Holds *holds.Holds
	// Admin says who may look at the state of the server. Default: nobody.
	Admin Admin
	// Extra answers what the status has besides. Default: nil, nothing.
	Extra func() map[string]any
	// Quotas keep the limits of durability cluster. Default: nil, nobody does.
	Quotas Quotas
}

// NewHandler answers a handler.
func NewHandler(o Options) *Handler {
	c := &configured{limits: o.Limits, holds: o.Holds, admin: o.Admin, extra: o.Extra, quotas: o.Quotas}
	if c.holds == nil {
		c.holds = holds.New(holds.Options{})
	}
	c.waiting, c.endWaiting = context.WithCancel(context.Background())
	return &Handler{configured: c}
}

// NewConfigured is [NewHandler] with holds of its own.
func NewConfigured(limits *live.Limits, admin Admin, extra func() map[string]any) *Handler {
	return NewHandler(Options{Limits: limits, Admin: admin, Extra: extra})
}

// exchange is the memory of one decision.
type exchange struct {
	request policy.Request
	verdict policy.Verdict
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// checkConfigured answers a check of a policy of the configuration.
func (h *Handler) checkConfigured(w http.ResponseWriter, r *http.Request, ask request, space []byte) *problem {
	c := h.configured
	if !c.limits.Has(string(ask.policy)) {
		return unknownPolicy(ask.policy, h.policyNames())
	}
	x, _ := exchanges.Get().(*exchange)
	defer x.end()
	live.CheckRequest(r.Context(), &x.request, ask.policy, ask.key, ask.cost)
	gone := h.answer(w, r, x, ask.cost == 0, ask.wait)
	defer x.verdict.Release()
	if gone {
		return nil
	}

	header := w.Header()
	header["Content-Type"] = jsonType
	c.fields.Tell(header, &x.request, &x.verdict)
	d := x.verdict.Decision()
	name := d.Policy
	if name == "" { // it is not enforced
		name = string(ask.policy)
	}
	if !x.verdict.Allowed {
		w.WriteHeader(refusal(x.verdict.Decision()))
	}
	// If the client is gone, nobody is there to be told.
	_, _ = w.Write(append(appendDecision(space, d, quoted(name), x.verdict.Binding >= 0), "}\n"...))
	return nil
}

// answer decides on the request of x, for which the client is ready to wait. A probe takes nothing, and counts for no lockout.
// It tells whether the client has gone, who got nothing then.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, x *exchange, probe bool, wait time.Duration) (gone bool) {
	engine := h.configured.limits.Engine()
	switch {
	case probe:
		engine.Peek(&x.request, &x.verdict)
	case wait > 0:
		return h.wait(w, r, x, wait)
	default:
		engine.Take(&x.request, &x.verdict)
	}
	return false
}

// end keeps the memory for another decision.
func (x *exchange) end() {
	x.request = policy.Request{}
	exchanges.Put(x)
}

// refusal is the status of a refusal: 429, or 503 if it is none, as nobody could decide.
func refusal(d weir.Decision) int {
	switch d.Reason { //nolint:exhaustive // all others are refusals
	case weir.ReasonUnavailable, weir.ReasonClosed:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// quoted is text in JSON.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil { // a string can always be encoded
		return `""`
	}
	return string(b)
}

// policyNames are those of all policies.
func (h *Handler) policyNames() []string {
	if h.configured == nil {
		return h.names
	}
	set := h.configured.limits.Engine().Set()
	names := make([]string, len(set.Policies))
	for i := range set.Policies {
		names[i] = set.Policies[i].Name
	}
	return names
}

func unknownPolicy(name []byte, names []string) *problem {
	p := problemOf(http.StatusNotFound, &fault{
		field: policyName, value: excerpt(name),
		wrong: "there is no such policy", accepted: "must be one of: " + strings.Join(names, ", "),
	})
	p.Policies = names
	return p
}

// readDescribed reads a POST whose body describes a request, whether that is a probe, and how long the client is ready to wait.
func readDescribed(
	w http.ResponseWriter, r *http.Request, space []byte, into *policy.Request,
) (probe bool, wait time.Duration, wrong *problem) {
	if r.Method != http.MethodPost {
		return false, 0, methodProblem(w, r, "POST")
	}
	if p := contentProblem(r); p != nil {
		return false, 0, p
	}
	body, p := readBody(r, space)
	if p != nil {
		return false, 0, p
	}
	probe, wait, err := decodeDescribed(body, into)
	if err != nil {
		return false, 0, badBody(err)
	}
	return probe, wait, nil
}

// decide answers POST /v1/decide, or the problem with it.
func (h *Handler) decide(w http.ResponseWriter, r *http.Request) *problem {
	small, _ := buffers.Get().(*[512]byte)
	defer buffers.Put(small)
	x, _ := exchanges.Get().(*exchange)
	defer x.end()
	probe, wait, p := readDescribed(w, r, small[:0], &x.request)
	if p != nil {
		return p
	}
	x.request.Context = r.Context() //nolint:fatcontext // each request has its own
	gone := h.answer(w, r, x, probe, wait)
	defer x.verdict.Release()
	if gone {
		return nil
	}

	header := w.Header()
	header["Content-Type"] = jsonType
	h.configured.fields.Tell(header, &x.request, &x.verdict)
	if !x.verdict.Allowed {
		w.WriteHeader(refusal(x.verdict.Decision()))
	}
	_, _ = w.Write(appendVerdict(small[:0], &x.verdict)) // if the client is gone, nobody is there to be told
	return nil
}

// appendVerdict appends the decision that binds, and all of them. Without one, as for a request that is exempt, there is no
// policy, no limit and nothing that remains.
func appendVerdict(b []byte, v *policy.Verdict) []byte {
	d := v.Decision()
	name := "null"
	if d.Policy != "" {
		name = quoted(d.Policy)
	}
	b = appendDecision(b, d, name, v.Binding >= 0)
	b = append(b, `,"exempt":`...)
	b = strconv.AppendBool(b, v.Exempt)
	b = append(b, `,"binding":`...)
	if v.Binding < 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(v.Binding), 10)
	}
	b = append(b, `,"decisions":[`...)
	for i := range v.Parts {
		p := &v.Parts[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendDecision(b, p.Decision, quoted(p.Decision.Policy), true)
		b = append(b, `,"rule":`...)
		if p.Rule != nil {
			b = append(b, quoted(p.Rule.Name)...)
		} else {
			b = append(b, "null"...)
		}
		b = append(b, `,"key":`...)
		b = append(b, quoted(string(p.Key))...)
		b = append(b, `,"cost":`...)
		b = strconv.AppendInt(b, p.Cost, 10)
		b = append(b, '}')
	}
	return append(b, "]}\n"...)
}
