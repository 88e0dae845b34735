package proxy

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/internal/inwords"
	"github.com/weirhq/weir/ratelimitfields"
)

// limits tells clients of the limits: in the fields of a response, and in the body of a refusal.
type limits struct {
	headers     ratelimitfields.Headers
	rate        *ratelimitfields.Policies
	concurrency *ratelimitfields.Policies // nil: no bound

	exceeded, full, crowded body
}

const crowdedPolicy = "concurrency"

func newLimits(rate *weir.Keyed[string], concurrency *weir.Concurrency) (limits, error) {
	policy := ratelimitfields.PolicyOf(rate.Peek("", 0).Policy, rate.Limit())
	capacity := httplimit.Problem{
		Type:   httplimit.TemporaryReducedCapacity,
		Title:  "Request cannot be satisfied due to temporary server capacity constraints",
		Status: http.StatusServiceUnavailable, ViolatedPolicies: []string{policy.Name},
		Detail: "The server cannot tell more clients apart" + waitHere, RetryAfter: waitMark,
	}
	var l limits
	l.full = newBody(capacity)
	capacity.ViolatedPolicies = []string{crowdedPolicy}
	capacity.Detail, capacity.RetryAfter = "The service has as many requests as it takes at a time; retry later.", 0
	l.crowded = newBody(capacity)
	l.exceeded = newBody(httplimit.Problem{
		Type: httplimit.QuotaExceeded, Title: "Request cannot be satisfied as assigned quota has been exceeded",
		Status: http.StatusTooManyRequests, ViolatedPolicies: []string{policy.Name},
		Detail: "The limit is " + rate.LimitOf("").String() + waitHere, RetryAfter: waitMark,
	})
	var err error
	if l.rate, err = ratelimitfields.NewPolicies(policy); err != nil {
		return l, err
	}
	if concurrency != nil {
		l.concurrency, err = ratelimitfields.NewPolicies(ratelimitfields.PolicyOf(crowdedPolicy, concurrency.Limit()))
	}
	return l, err
}

// body is the problem detail of a refusal, cut where the time to wait goes: a flood of refusals must cost little.
type body struct {
	status         int
	before, middle []byte // of the time in words, and between that and the seconds
	after          []byte // no seconds go before it if there is no middle
}

const (
	// waitMark is where the seconds go, wordsMark where the same in words does.
	waitMark  = 987_654_321_987_654
	wordsMark = "@987654321987654@"
	waitHere  = "; retry after " + wordsMark + "."
)

func newBody(p httplimit.Problem) body {
	b := body{status: p.Status}
	var told bool
	if b.before, b.after, told = bytes.Cut(marshal(p), []byte(wordsMark)); told {
		b.middle, b.after, _ = bytes.Cut(b.after, strconv.AppendInt(nil, waitMark, 10))
	}
	return b
}

func (b body) append(dst []byte, seconds int64) []byte {
	dst = append(dst, b.before...)
	if b.middle != nil {
		dst = inwords.AppendAfter(dst, inwords.Seconds(seconds), time.Now())
		dst = strconv.AppendInt(append(dst, b.middle...), seconds, 10)
	}
	return append(dst, b.after...)
}

func marshal(p httplimit.Problem) []byte {
	text, err := json.Marshal(p)
	if err != nil { // a struct of strings and integers can always be encoded
		return []byte("{}")
	}
	return append(text, '\n')
}

// tell adds the limit to a response to a request that was admitted. RateLimit fields that the upstream has set stay, and
// ours come after them, as further items of the same lists. Only if those are not lists of items, as in drafts before
// the eighth, ours are left out: together they would be of no form.
//
// Clients are told of the limit alone, and not of the bound on concurrency: that is the same for all of them, and what
// is left of it at a moment is nothing that one of them could plan with.
func (l *limits) tell(h http.Header, d weir.Decision) {
	if areItems(h["Ratelimit"]) && areItems(h["Ratelimit-Policy"]) {
		l.headers.SetAdmitted(h, l.rate, stateOf(d))
	}
}

func stateOf(d weir.Decision) ratelimitfields.State {
	return ratelimitfields.State{Remaining: d.Remaining, Reset: d.ResetAfter}
}

// areItems reports whether lines of a field can be items that begin with a String or a Token: further ones may follow.
func areItems(lines []string) bool {
	for _, line := range lines {
		line = strings.TrimLeft(line, " \t")
		if line == "" || line[0] == '"' {
			continue
		}
		if c := line[0] | 0x20; c < 'a' || c > 'z' {
			return false
		}
		if end := strings.IndexAny(line, "=;, \t"); end >= 0 && line[end] == '=' {
			return false
		}
	}
	return true
}

// refuse serves a request that a limit has refused.
func (x *exchange) refuse(o outcome, d weir.Decision) {
	x.outcome = o
	l := &x.proxy.limits
	policies, refusal := l.rate, l.exceeded
	switch {
	case o == crowded:
		policies, refusal = l.concurrency, l.crowded
	case d.Reason == weir.ReasonTableFull:
		refusal = l.full
		d.Remaining = 0 // there may be some, but not for this client
	}
	seconds := l.headers.SetRefused(x.out.Header(), policies, d.RetryAfter, stateOf(d))
	var space [512]byte
	x.write(refusal.status, refusal.append(space[:0], seconds))
}

// respond returns an admitted request with something other than a response of the upstream.
func (x *exchange) respond(status int, detail string) {
	x.proxy.limits.tell(x.out.Header(), x.decision)
	x.write(status, marshal(httplimit.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
	}))
}

// write answers with a problem detail.
func (x *exchange) write(status int, text []byte) {
	h := x.out.Header()
	h["Content-Type"] = problemType
	h["X-Content-Type-Options"] = noSniff
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	x.out.WriteHeader(status)
	_, _ = x.out.Write(text) // a client that has gone is not told
	if x.body == nil {       // nobody else reads what is left of it
		httplimit.Drain(x.out.ResponseWriter, x.in)
	}
}

var (
	problemType = []string{"application/problem+json"}
	noSniff     = []string{"nosniff"}
)
