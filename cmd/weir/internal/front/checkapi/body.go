package checkapi

import (
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/front/room"
)

const (
	maxBatchBody = 1 << 20
	// batchRoom is how much memory the bodies of batches have together, beside the first 64 KiB of each.
	batchRoom = 64 << 20
)

// ask reads what a body asks.
func ask[T any](r *http.Request, x *exchange, d *dialect[T], to *T) *answer.Problem {
	return askUpTo(r, x, x.space[:0], answer.MaxBody, room.Share{}, d, to)
}

// askUpTo reads what a body of at most so many bytes asks, which begins in space.
func askUpTo[T any](
	r *http.Request, x *exchange, space []byte, most int, bodies room.Share, d *dialect[T], to *T,
) *answer.Problem {
	if p := contentProblem(r); p != nil {
		return p
	}
	body, p := answer.ReadBody(r, space, most, bodies)
	if p != nil {
		return p
	}
	x.scanner = scanner{text: body}
	if err := decode(d, &x.scanner, to); err != nil {
		return badBody(err)
	}
	return nil
}

// sameOrigin knows requests that a page of another origin makes a browser send.
var sameOrigin = http.NewCrossOriginProtection()

// contentProblem is what is wrong with the type of the content, if anything. It should be JSON in UTF-8, which a web page of
// another origin cannot send unless the server allows it. No type, and the one that curl -d sends by itself, are taken for JSON
// too, but not from such a page: otherwise a page could use up the permits of its visitors.
func contentProblem(r *http.Request) *answer.Problem {
	values := r.Header["Content-Type"]
	if len(values) == 1 && values[0] == "application/json" {
		return nil
	}
	if len(values) <= 1 {
		kind, parameters, err := "application/x-www-form-urlencoded", map[string]string(nil), error(nil)
		if len(values) == 1 {
			kind, parameters, err = mime.ParseMediaType(values[0])
		}
		charset, given := parameters["charset"]
		switch {
		case err != nil, given && !strings.EqualFold(charset, "utf-8"):
		case kind == "application/json":
			return nil
		case kind == "application/x-www-form-urlencoded":
			if err := sameOrigin.Check(r); err != nil {
				return answer.BadField(http.StatusForbidden, "Origin", answer.Excerpt(r.Header.Get("Origin")),
					"must be that of the server, or the Content-Type must be application/json")
			}
			return nil
		}
	}
	return answer.BadField(http.StatusUnsupportedMediaType, "Content-Type", answer.Excerpt(r.Header.Get("Content-Type")),
		"must be application/json")
}

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
