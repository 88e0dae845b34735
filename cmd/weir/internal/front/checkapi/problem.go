package checkapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// problem is a problem detail of RFC 9457, with some members of our own.
type problem struct {
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
}

// write answers with p.
func (p *problem) write(w http.ResponseWriter) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	body, err := json.Marshal(p)
	if err != nil { // strings and integers can always be encoded
		body = []byte("{}")
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // if the client is gone, nobody is there to be told
}

// within says in which field of the request the problem is.
func (p *problem) within(field string) *problem {
	p.Field = field + "." + p.Field
	p.Detail = field + "." + p.Detail
	return p
}

// newProblem answers the problem with a part of the request.
func newProblem(status int, field, value, accepted string) *problem {
	return problemOf(status, &fault{field: field, value: value, accepted: accepted})
}

func problemOf(status int, f *fault) *problem {
	return &problem{Status: status, Detail: f.Error(), Field: f.field, Value: f.value, Accepted: f.accepted}
}

// badBody answers the problem that decode found.
func badBody(err error) *problem {
	var f *fault
	if !errors.As(err, &f) {
		return &problem{Status: http.StatusBadRequest, Detail: err.Error()}
	}
	return problemOf(http.StatusBadRequest, f)
}
