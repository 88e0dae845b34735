package checkapi

import (
	"errors"
	"net/http"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
)

// problemWithin says in which field of the request the problem is.
func problemWithin(p *answer.Problem, field string) *answer.Problem {
	p.Field = field + "." + p.Field
	p.Detail = field + "." + p.Detail
	return p
}

func problemOf(status int, f *fault) *answer.Problem {
	return &answer.Problem{Status: status, Detail: f.Error(), Field: f.field, Value: f.value, Accepted: f.accepted}
}

// badBody returns the problem that decode found.
func badBody(err error) *answer.Problem {
	var f *fault
	if !errors.As(err, &f) {
		return &answer.Problem{Status: http.StatusBadRequest, Detail: err.Error()}
	}
	return problemOf(http.StatusBadRequest, f)
}
