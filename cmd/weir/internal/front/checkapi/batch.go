package checkapi

import (
	"context"
	"net/http"
	"strconv"
	"sync"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/policy"
)

// batchMemory is the memory of the answer to a batch.
type batchMemory struct {
	requests []policy.Request
	pointers []*policy.Request
	verdict  policy.Verdict
	told     policy.Verdict // what the header fields tell
	last     answer.Last
	keys     []byte // of told
	answer   []byte
}

var batchMemories = sync.Pool{New: func() any { return new(batchMemory) }}

// mostKept is how many bytes of an answer are kept for the next one.
const mostKept = 256 << 10

func (m *batchMemory) end() {
	clear(m.requests)
	clear(m.pointers)
	clear(m.told.Parts)
	if cap(m.answer) > mostKept {
		m.answer = nil
	}
	batchMemories.Put(m)
}

// batch serves POST /v1/batch, or the problem with it.
func (h *Handler) batch(w http.ResponseWriter, r *http.Request, x *exchange) *answer.Problem {
	var asked batch
	from, _ := clientip.Parse(r.RemoteAddr)
	bodies := h.bodies.Of(from)
	p := askUpTo(r, x, make([]byte, 0, 4096), maxBatchBody, bodies, &batchDialect, &asked)
	defer func() { answer.FreeBody(bodies, x.scanner.text) }()
	if p != nil {
		return p
	}
	checks := asked.checks
	for i := range checks {
		if p = h.named(&checks[i]); p != nil {
			return problemWithin(p, checkName(i))
		}
	}
	m, _ := batchMemories.Get().(*batchMemory)
	defer m.end()
	m.answer = append(m.answer[:0], `{"allowed":false,"atomic":`...)
	m.answer = strconv.AppendBool(m.answer, asked.atomic)
	m.answer = append(m.answer, `,"results":[`...)
	var (
		d       weir.Decision
		allowed bool
	)
	if asked.atomic {
		allowed, d, p = h.together(r.Context(), w, m, checks)
	} else {
		allowed, d, p = h.oneByOne(r.Context(), w, m, checks)
	}
	if p != nil {
		return p
	}
	if m.answer = append(m.answer, "]}\n"...); allowed {
		m.answer = append(append(m.answer[:0], `{"allowed":true`...), m.answer[len(`{"allowed":false`):]...)
	}
	w.Header()["Content-Type"] = jsonType
	length(w, r, m.answer)
	if !allowed {
		w.WriteHeader(refusal(d))
	}
	_, _ = w.Write(m.answer) // a client that has gone is not told
	return nil
}

// together decides on all checks as one. It returns the decision that binds.
func (h *Handler) together(
	ctx context.Context, w http.ResponseWriter, m *batchMemory, checks []question,
) (allowed bool, d weir.Decision, wrong *answer.Problem) {
	m.requests, m.pointers = m.requests[:0], m.pointers[:0]
	probes, described := 0, -1
	for i := range checks {
		a := &checks[i]
		var q policy.Request
		a.of(ctx, &q)
		m.requests = append(m.requests, q)
		if a.probes() {
			probes++
			if a.described != nil {
				described = i
			}
		}
	}
	for i := range m.requests {
		m.pointers = append(m.pointers, &m.requests[i])
	}
	switch {
	case probes == len(checks):
		h.limits.Engine().PeekAll(ctx, m.pointers, &m.verdict)
	case described >= 0:
		return false, d, problemOf(http.StatusBadRequest, &fault{
			field: checkName(described) + ".request.cost", value: "0", wrong: "other checks of the batch take something",
			accepted: "must be from 1 to 10^15, or 0 in all checks of a batch that is atomic",
		})
	default:
		h.limits.Engine().TakeAll(ctx, m.pointers, &m.verdict)
	}
	v := &m.verdict
	defer v.Release()
	for i := range checks {
		if v.Unknown(i) { // it was removed meanwhile
			return false, d, unknownPolicy(checks[i].Policy, h.limits.PolicyNames())
		}
	}
	d = v.Decision()
	if !v.Allowed && d.Reason == weir.ReasonInvalid {
		return false, d, problemOf(http.StatusBadRequest, &fault{
			field: checksName, wrong: "more limits apply to them than can be decided on at once",
			accepted: "must be held to at most " + strconv.Itoa(keyset.MostCharges) + " limits in a batch that is atomic",
		})
	}
	for i := range checks {
		if i > 0 {
			m.answer = append(m.answer, ',')
		}
		m.answer = checks[i].appendTo(m.answer, v, i)
	}
	if p, ok := v.BindingPart(); ok {
		m.tellOf(p.Request)
		h.fields.Tell(w.Header(), &m.told, &m.last)
	}
	return v.Allowed, d, nil
}

// tellOf makes told the verdict on one of the requests.
func (m *batchMemory) tellOf(request int) {
	m.told.Allowed, m.told.Parts, m.told.RefusalID = m.verdict.Allowed, m.told.Parts[:0], m.verdict.RefusalID
	for i := range m.verdict.Parts {
		if p := &m.verdict.Parts[i]; p.Request == request {
			if i == m.verdict.Binding {
				m.told.Binding = len(m.told.Parts)
			}
			m.told.Parts = append(m.told.Parts, *p)
		}
	}
}

// copyTold makes told a copy of the verdict, which is used again.
func (m *batchMemory) copyTold() {
	m.told.Allowed, m.told.Binding, m.told.RefusalID = m.verdict.Allowed, m.verdict.Binding, m.verdict.RefusalID
	m.told.Parts, m.keys = append(m.told.Parts[:0], m.verdict.Parts...), m.keys[:0]
	for i := range m.told.Parts {
		p := &m.told.Parts[i]
		start := len(m.keys)
		m.keys = append(m.keys, p.Key...)
		p.Key = m.keys[start:len(m.keys):len(m.keys)]
	}
}

// oneByOne decides on the checks one after the other. It returns the decision that binds among them.
func (h *Handler) oneByOne(
	ctx context.Context, w http.ResponseWriter, m *batchMemory, checks []question,
) (allowed bool, binding weir.Decision, wrong *answer.Problem) {
	m.requests = append(m.requests[:0], policy.Request{}, policy.Request{})
	q, v, engine := &m.requests[0], &m.verdict, h.limits.Engine()
	allowed, told := true, false
	for i := range checks {
		a := &checks[i]
		a.of(ctx, q)
		if a.probes() {
			engine.Peek(q, v)
		} else {
			engine.Take(q, v)
		}
		if v.Unknown(0) { // it was removed meanwhile; what the checks before it have taken stays taken
			return false, binding, unknownPolicy(a.Policy, h.limits.PolicyNames())
		}
		if i > 0 {
			m.answer = append(m.answer, ',')
		}
		m.answer = a.appendTo(m.answer, v, 0)
		allowed = allowed && v.Allowed
		if d := v.Decision(); (len(v.Parts) > 0 || !v.Allowed) && (!told || bindsMore(&d, &binding)) {
			told, binding = true, d
			m.requests[1] = *q
			m.copyTold()
		}
		v.Release()
	}
	if told {
		h.fields.Tell(w.Header(), &m.told, &m.last)
	}
	return allowed, binding, nil
}

// bindsMore reports whether a decision binds rather than another one: a refusal, that with the longest wait, or if there is none
// that which leaves the fewest permits.
func bindsMore(d, other *weir.Decision) bool {
	switch {
	case d.Allowed != other.Allowed:
		return other.Allowed
	case d.Allowed:
		return d.Remaining < other.Remaining
	}
	return d.RetryAfter > other.RetryAfter
}
