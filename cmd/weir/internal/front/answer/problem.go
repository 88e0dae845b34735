package answer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// Problem is a problem detail.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Field, Value and Accepted say which part of the request is wrong, what stands there and what is accepted.
	Field    string `json:"field,omitempty"`
	Value    string `json:"value,omitempty"`
	Accepted string `json:"accepted,omitempty"`
	// Policies are the names of all policies, if the one that was asked for is not among them.
	Policies []string `json:"policies,omitempty"`
	// Mistakes are what is wrong with a configuration.
	Mistakes []string `json:"mistakes,omitempty"`

	retryAfter string // "" if nothing is told
}

// Write writes p as the response.
func (p *Problem) Write(w http.ResponseWriter) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	body, err := json.Marshal(p)
	if err != nil { // strings and integers can always be encoded
		body = []byte("{}")
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.retryAfter != "" {
		h.Set("Retry-After", p.retryAfter)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that has gone is not told
}

// BadField is the problem with a part of the request. value is what stands there, as [Excerpt] has it, "" if nothing does.
func BadField(status int, field, value, accepted string) *Problem {
	detail := field + ": " + accepted
	if value != "" {
		detail = field + " " + value + ": " + accepted
	}
	return &Problem{Status: status, Detail: detail, Field: field, Value: value, Accepted: accepted}
}

// Later is the problem of a server that cannot do now what it is asked: the client may come back in a second.
func Later(format string, args ...any) *Problem {
	p := PlainProblem(http.StatusServiceUnavailable, format, args...)
	p.retryAfter = "1"
	return p
}

// PlainProblem is a problem that is with no part of the request.
func PlainProblem(status int, format string, args ...any) *Problem {
	return &Problem{Status: status, Detail: fmt.Sprintf(format, args...)}
}

const mostExcerpt = 64

// Excerpt is a value in quotes, cut off where it is long.
func Excerpt(value string) string {
	if len(value) <= mostExcerpt {
		return strconv.Quote(value)
	}
	cut := mostExcerpt
	for cut > mostExcerpt-utf8.UTFMax && !utf8.RuneStart(value[cut]) {
		cut--
	}
	return strconv.Quote(value[:cut]) + "..."
}
