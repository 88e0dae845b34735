package checkapi

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
)

// reserve serves POST /v1/reserve, or the problem with it.
func (h *Handler) reserve(w http.ResponseWriter, r *http.Request, x *exchange) *answer.Problem {
	q := &x.question
	q.Cost, q.expires = 1, holds.DefaultExpiry
	if p := ask(r, x, &reserveDialect, q); p != nil {
		return p
	}
	if p := h.named(q); p != nil {
		return p
	}
	q.of(r.Context(), &x.request)
	v := h.holds.Verdict()
	if gone := h.decideOn(r.Context(), w, &x.request, v, way{reserve: true, wait: q.patience()}); gone {
		h.holds.Drop(v)
		return nil
	}
	if v.Unknown(0) { // it was removed meanwhile
		h.holds.Drop(v)
		return unknownPolicy(q.Policy, h.limits.PolicyNames())
	}
	header := w.Header()
	h.fields.Tell(header, v, &x.last)
	reply := q.appendTo(x.reply[:0], v, 0)
	if !v.Allowed {
		status := refusal(v.Decision())
		h.holds.Drop(v)
		header["Content-Type"] = jsonType
		reply = append(reply, '\n')
		length(w, r, reply)
		w.WriteHeader(status)
		_, _ = w.Write(reply)
		return nil
	}
	expires := min(q.expires, holds.Longest(v))
	id, err := h.holds.Keep(v, expires, callerOf(r))
	if err != nil {
		delete(header, "Ratelimit") // what they tell has been given back
		delete(header, "Ratelimit-Policy")
		return answer.Later("%s", strings.TrimPrefix(err.Error(), "weir: "))
	}
	header["Content-Type"] = jsonType
	reply = append(reply[:len(reply)-1], `,"id":"`...)
	reply = append(reply, id...)
	reply = append(reply, `","expires_in":`...)
	reply = append(appendSeconds(reply, expires), "}\n"...)
	length(w, r, reply)
	// If the client is gone, it expires.
	_, _ = w.Write(reply) //nolint:gosec // it is JSON, and says so
	return nil
}

// callerOf is the address of the caller, the zero Addr if it is not known.
func callerOf(r *http.Request) netip.Addr {
	caller, _ := clientip.Parse(r.RemoteAddr)
	return caller
}

// commit serves POST /v1/commit, or the problem with it.
func (h *Handler) commit(w http.ResponseWriter, r *http.Request, x *exchange) *answer.Problem {
	return settle(w, r, x, &commitDialect, "committed", func(q *question) error { return h.holds.Commit(string(q.id), q.Cost) })
}

// cancel serves POST /v1/cancel, or the problem with it.
func (h *Handler) cancel(w http.ResponseWriter, r *http.Request, x *exchange) *answer.Problem {
	return settle(w, r, x, &cancelDialect, "canceled", func(q *question) error { return h.holds.Cancel(string(q.id)) })
}

// settle ends a reservation. The cost is -1 if it is not told.
func settle(
	w http.ResponseWriter, r *http.Request, x *exchange, d *dialect[question], settled string, how func(*question) error,
) *answer.Problem {
	q := &x.question
	q.Cost = -1
	if p := ask(r, x, d, q); p != nil {
		return p
	}
	switch err := how(q); {
	case errors.Is(err, holds.ErrUnsettled):
		return answer.PlainProblem(http.StatusServiceUnavailable, "%s", strings.TrimPrefix(err.Error(), "weir: "))
	case err != nil:
		return problemOf(http.StatusNotFound, &fault{
			field: idName, value: excerpt(q.id), wrong: "there is no such reservation",
			accepted: "must be the id of one that has not expired and was not settled before",
		})
	}
	return answer.WriteJSON(w, struct {
		ID      string `json:"id"`
		Settled string `json:"settled"`
	}{string(q.id), settled})
}
