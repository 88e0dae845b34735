package checkapi

import (
	"net/http"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/policy"
)

// decide serves POST /v1/decide, or the problem with it.
func (h *Handler) decide(w http.ResponseWriter, r *http.Request) *answer.Problem {
	x := begin()
	defer x.end()
	how, p := readDescribed(r, x.space[:0], &x.request)
	if p != nil {
		return p
	}
	x.request.Context = r.Context() //nolint:fatcontext // each request has its own
	gone := h.decideOn(w, r, &x.request, &x.verdict, how)
	defer x.verdict.Release()
	if gone {
		return nil
	}
	h.tell(w, &x.verdict)
	// A client that has gone is not told.
	_, _ = w.Write(append(appendVerdict(x.space[:0], &x.verdict, 0), "}\n"...))
	return nil
}

// readDescribed reads a body that describes a request, and how to decide on it.
func readDescribed(r *http.Request, space []byte, into *policy.Request) (how way, wrong *answer.Problem) {
	if p := contentProblem(r); p != nil {
		return way{}, p
	}
	body, p := readBody(r, space, maxBody)
	if p != nil {
		return way{}, p
	}
	probe, wait, err := decodeDescribed(body, into)
	if err != nil {
		return way{}, badBody(err)
	}
	return way{probe: probe, wait: wait}, nil
}
