package httplimit

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inwords"
	"github.com/weirhq/weir/ratelimitfields"
)

// The problem types that the draft of the RateLimit fields registers.
const (
	// QuotaExceeded is the type of a request that exceeds the limit of its client. Its usual status is 429.
	QuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	// TemporaryReducedCapacity is the type of a request that the server cannot serve now, for any client. Its usual status is
	// 503.
	TemporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

const (
	quotaExceededTitle   = "Request cannot be satisfied as assigned quota has been exceeded"
	reducedCapacityTitle = "Request cannot be satisfied due to temporary server capacity constraints"
)

// aboutBlank is the type of a problem that is no more than its status.
const aboutBlank = "about:blank"

// deniedDetail is the detail of a refusal by a rule that denies: not which rule.
const deniedDetail = "This request is not allowed here, whenever it comes."

// Problem is a problem detail of RFC 9457, the body of a refusal.
type Problem struct {
	// Type is a URI that identifies the kind of problem, Title its short name in English.
	Type  string `json:"type"`
	Title string `json:"title"`
	// Status is the status code of the response.
	Status int `json:"status"`
	// Detail is one sentence: what happened and what to do.
	Detail string `json:"detail,omitempty"`
	// Instance is a URI that identifies this occurrence. Default: left out.
	Instance string `json:"instance,omitempty"`
	// ViolatedPolicies are the names of the policies that refused.
	ViolatedPolicies []string `json:"violated-policies,omitempty"` //nolint:tagliatelle // registered with the type
	// RetryAfter is the value of the field of the same name in seconds, 0 if there is none.
	RetryAfter int64 `json:"retry-after,omitempty"` //nolint:tagliatelle // that of the header field
}

// json is p as JSON. Bytes that are not UTF-8 are replaced. A flood of refusals must cost little, so what needs no care is
// written without package json, to the same bytes.
func (p *Problem) json() []byte {
	if text, ok := p.appendPlain(make([]byte, 0, 512)); ok {
		return append(text, '\n')
	}
	text, err := json.Marshal(p)
	if err != nil { // a struct of strings and integers can always be encoded
		return []byte("{}")
	}
	return append(text, '\n')
}

// appendPlain appends p as JSON, unless there is more to escape than quotes.
func (p *Problem) appendPlain(b []byte) (_ []byte, ok bool) {
	ok = true
	write := func(before, s string) {
		b = append(append(b, before...), '"')
		for i := range len(s) {
			switch c := s[i]; {
			case c == '"', c == '\\':
				b = append(b, '\\')
			case c < ' ', c > '~', c == '<', c == '>', c == '&':
				ok = false
			}
			b = append(b, s[i])
		}
		b = append(b, '"')
	}
	write(`{"type":`, p.Type)
	write(`,"title":`, p.Title)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(p.Status), 10)
	if p.Detail != "" {
		write(`,"detail":`, p.Detail)
	}
	if p.Instance != "" {
		write(`,"instance":`, p.Instance)
	}
	for i, name := range p.ViolatedPolicies {
		before := ","
		if i == 0 {
			before = `,"violated-policies":[`
		}
		write(before, name)
	}
	if len(p.ViolatedPolicies) > 0 {
		b = append(b, ']')
	}
	if p.RetryAfter != 0 {
		b = strconv.AppendInt(append(b, `,"retry-after":`...), p.RetryAfter, 10)
	}
	return append(b, '}'), ok
}

// text is p in one line.
func (p *Problem) text() []byte {
	line := p.Detail
	if line == "" {
		line = p.Title
	}
	return []byte(strings.Map(printable, line) + "\n")
}

// printable keeps a line one line.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r == '\u0085' || r == '\u2028' || r == '\u2029' {
		return ' '
	}
	return r
}

// isCapacity reports whether a refusal says something about the server rather than about the client: it is closed, tracks
// as many keys as it may, or has all permits in use, for a time that is not known.
func isCapacity(d weir.Decision, unit ratelimitfields.Unit) bool {
	switch d.Reason {
	case weir.ReasonClosed, weir.ReasonTableFull, weir.ReasonOverloaded, weir.ReasonUnavailable:
		return true
	case weir.ReasonNever, weir.ReasonHardLockout:
		return false
	default:
	}
	return unit == ratelimitfields.ConcurrentRequests || d.RetryAfter == 0
}

// newProblem describes a refusal without its status.
func newProblem(d weir.Decision, cost int64, policy *ratelimitfields.Policy, numbers bool, seconds int64) Problem {
	if d.Reason == weir.ReasonDenied {
		return Problem{Type: aboutBlank, Title: http.StatusText(http.StatusForbidden), Detail: deniedDetail}
	}
	p := Problem{Type: QuotaExceeded, Title: quotaExceededTitle, RetryAfter: seconds}
	if policy.Name != "" {
		p.ViolatedPolicies = []string{policy.Name}
	}
	if isCapacity(d, policy.Unit) {
		p.Type, p.Title = TemporaryReducedCapacity, reducedCapacityTitle
	}
	var scratch [256]byte
	p.Detail = string(appendDetail(scratch[:0], d, cost, policy, numbers, seconds))
	return p
}

// appendDetail appends a sentence such as
//
//	The limit "per-client" is 10/s, burst 20, and has 0 remaining, but this request needs 1; retry after 1 second.
func appendDetail(b []byte, d weir.Decision, cost int64, policy *ratelimitfields.Policy, numbers bool, seconds int64) []byte {
	if d.Reason == weir.ReasonOverloaded {
		b = append(b, "The server is under load and does not serve this request"...)
		return appendRetry(b, d, seconds)
	}
	b = append(b, "The limit"...)
	if policy.Name != "" {
		b = append(append(append(b, ` "`...), policy.Name...), '"')
	}
	switch {
	case d.Reason == weir.ReasonUnavailable:
		b = append(b, " cannot be told for this request"...)
		return appendRetry(b, d, seconds)
	case d.Reason == weir.ReasonHardLockout:
		b = append(b, " was exceeded too often, and locks this client out"...)
		return appendRetry(b, d, seconds)
	case d.Reason == weir.ReasonClosed:
		return append(b, " is closed and lets no request pass."...)
	case d.Reason == weir.ReasonTableFull:
		b = append(b, " tracks as many clients as it can"...)
		return appendRetry(b, d, seconds)
	case !numbers:
		b = append(b, " does not allow this request"...)
		return appendRetry(b, d, seconds)
	}
	b = appendLimit(b, policy)
	if d.Reason != weir.ReasonNever {
		b = append(b, " and has "...)
		b = strconv.AppendInt(b, max(d.Remaining, 0), 10)
		b = append(b, " remaining"...)
	}
	b = append(bytes.TrimSuffix(b, []byte{','}), ", but this request needs "...)
	b = strconv.AppendInt(b, cost, 10)
	b = append(b, reasonClauses[d.Reason]...)
	return appendRetry(b, d, seconds)
}

// appendLimit appends what a policy is: its limit as it was configured or, where only that is known, its quota.
func appendLimit(b []byte, p *ratelimitfields.Policy) []byte {
	if p.Limit == (weir.Limit{}) || p.Unit == ratelimitfields.ConcurrentRequests {
		b = appendCount(append(b, " allows "...), p.Quota, p.Unit)
		if p.Window > 0 {
			b = append(b, " per "...)
			b = appendPeriod(b, p.Window)
		}
		return b
	}
	b = append(b, " is "...)
	b = append(b, p.Limit.String()...)
	if p.Unit != ratelimitfields.Requests {
		b = append(b, ", in "...)
		b = appendCountless(b, p.Unit)
	}
	return append(b, ',')
}

var reasonClauses = map[weir.Reason]string{
	weir.ReasonQueueFull: ", and there is no room to wait",
	weir.ReasonDeadline:  ", and its turn would come too late",
	weir.ReasonEvicted:   ", and newer requests took its place in the queue",
}

func appendRetry(b []byte, d weir.Decision, seconds int64) []byte {
	switch {
	case d.RetryAfter == weir.Never:
		return append(b, "; no later attempt can succeed."...)
	case seconds == 0:
		return append(b, "; retry later."...)
	}
	b = append(b, "; retry after "...)
	b = inwords.AppendAfter(b, inwords.Seconds(seconds), time.Now())
	return append(b, '.')
}

// unitNouns are what the units that have a word of their own count.
var unitNouns = map[ratelimitfields.Unit]string{
	ratelimitfields.Requests: "request", ratelimitfields.ContentBytes: "byte", ratelimitfields.Tokens: "token",
	ratelimitfields.ConcurrentRequests: "request",
}

func appendCount(b []byte, n int64, unit ratelimitfields.Unit) []byte {
	noun, ok := unitNouns[unit]
	if !ok {
		return append(append(strconv.AppendInt(b, n, 10), ' '), unit...)
	}
	b = appendPlural(b, n, noun)
	if unit == ratelimitfields.ConcurrentRequests {
		b = append(b, " at a time"...)
	}
	return b
}

// appendCountless appends what a unit counts.
func appendCountless(b []byte, unit ratelimitfields.Unit) []byte {
	if noun, ok := unitNouns[unit]; ok {
		return append(append(b, noun...), 's')
	}
	return append(b, unit...)
}

func appendPlural(b []byte, n int64, noun string) []byte {
	b = strconv.AppendInt(b, n, 10)
	b = append(b, ' ')
	b = append(b, noun...)
	if n != 1 {
		b = append(b, 's')
	}
	return b
}

// appendPeriod appends a period in words, "hour", "2 hours" or "1.5 seconds", or as "1h0m30s" where these would round it.
func appendPeriod(b []byte, d time.Duration) []byte {
	const day = 24 * time.Hour
	switch {
	case d%time.Hour == 0, d < day && d%time.Minute == 0, d < time.Hour && d%time.Second == 0:
	case d < 10*time.Second && d%(100*time.Millisecond) == 0:
	default:
		return append(b, d.String()...)
	}
	text := inwords.Duration(d)
	if noun, ok := strings.CutPrefix(text, "1 "); ok && !strings.Contains(noun, " ") {
		text = noun
	}
	return append(b, text...)
}

// usualStatus is the status that belongs to a refusal with a type of problem.
func usualStatus(why weir.Reason, problemType string) int {
	switch {
	case why == weir.ReasonDenied:
		return http.StatusForbidden
	case problemType == TemporaryReducedCapacity:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}
