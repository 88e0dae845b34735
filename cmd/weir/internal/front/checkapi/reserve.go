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

const acceptedReserved = "must be a whole number from 1 to 10^15: what is not known yet is reserved and told by " + commitPath

// decodeReserve reads the object of a reservation. It is as strict as decode, and overwrites body where strings are escaped.
func decodeReserve(body []byte) (a asking, err error) {
	a = asking{request: newRequest(1), expires: holds.DefaultExpiry}
	s := scanner{text: body}
	if err = s.asking(&a, reserveDialect); err == nil {
		err = s.end()
	}
	switch {
	case err != nil:
	case a.described == nil && a.Cost == 0:
		err = &fault{field: costName, value: "0", accepted: acceptedReserved}
	case a.described != nil && a.described.probe:
		err = &fault{field: requestName + "." + costName, value: "0", accepted: acceptedReserved}
	}
	return a, err
}

// reserve serves POST /v1/reserve, or the problem with it.
func (h *Handler) reserve(w http.ResponseWriter, r *http.Request) *answer.Problem {
	if p := contentProblem(r); p != nil {
		return p
	}
	x := begin()
	defer x.end()
	body, p := readBody(r, x.space[:0], maxBody)
	if p != nil {
		return p
	}
	ask, err := decodeReserve(body)
	if err != nil {
		return badBody(err)
	}
	how := way{reserve: true, wait: ask.wait}
	if ask.described != nil {
		how.wait = ask.described.wait
	} else if p := h.named(&ask.request); p != nil {
		return p
	}
	ask.of(r.Context(), &x.request)
	v := h.holds.Verdict()
	gone := h.decideOn(w, r, &x.request, v, how)
	if gone {
		h.holds.Drop(v)
		return nil
	}
	if v.Unknown(0) { // it was removed meanwhile
		h.holds.Drop(v)
		return unknownPolicy(ask.Policy, h.policyNames())
	}
	header := w.Header()
	h.fields.Tell(header, v)
	reply := ask.appendTo(make([]byte, 0, 512), v, 0)
	if !v.Allowed {
		status := refusal(v.Decision())
		h.holds.Drop(v)
		header["Content-Type"] = jsonType
		w.WriteHeader(status)
		_, _ = w.Write(append(reply, '\n')) //nolint:gosec // it is JSON, and says so
		return nil
	}
	expires := min(ask.expires, holds.Longest(v))
	id, err := h.holds.Keep(v, expires, callerOf(r))
	if err != nil {
		delete(header, "Ratelimit") // what they tell has been given back
		delete(header, "Ratelimit-Policy")
		return keptProblem(w, err)
	}
	header["Content-Type"] = jsonType
	reply = append(reply[:len(reply)-1], `,"id":"`...)
	reply = append(reply, id...)
	reply = append(reply, `","expires_in":`...)
	reply = appendSeconds(reply, expires)
	// If the client is gone, it expires.
	_, _ = w.Write(append(reply, "}\n"...)) //nolint:gosec // it is JSON, and says so
	return nil
}

// callerOf is the address of who asks, the zero Addr if it is not known.
func callerOf(r *http.Request) netip.Addr {
	caller, _ := clientip.Parse(r.RemoteAddr)
	return caller
}

// keptProblem is why a reservation is not kept.
func keptProblem(w http.ResponseWriter, err error) *answer.Problem {
	w.Header().Set("Retry-After", "1")
	return &answer.Problem{Status: http.StatusServiceUnavailable, Detail: strings.TrimPrefix(err.Error(), "weir: ")}
}

// commit serves POST /v1/commit, or the problem with it.
func (h *Handler) commit(w http.ResponseWriter, r *http.Request) *answer.Problem {
	return h.settle(w, r, commitDialect, "committed", func(a *asking) error { return h.holds.Commit(string(a.id), a.Cost) })
}

// cancel serves POST /v1/cancel, or the problem with it.
func (h *Handler) cancel(w http.ResponseWriter, r *http.Request) *answer.Problem {
	return h.settle(w, r, cancelDialect, "canceled", func(a *asking) error { return h.holds.Cancel(string(a.id)) })
}

// settle ends a reservation.
func (h *Handler) settle(
	w http.ResponseWriter, r *http.Request, d dialect, settled string, how func(*asking) error,
) *answer.Problem {
	if p := contentProblem(r); p != nil {
		return p
	}
	x := begin()
	defer x.end()
	body, p := readBody(r, x.space[:0], maxBody)
	if p != nil {
		return p
	}
	ask, err := decodeSettlement(body, d)
	if err != nil {
		return badBody(err)
	}
	id := string(ask.id)
	if err := how(&ask); errors.Is(err, holds.ErrUnknown) {
		return problemOf(http.StatusNotFound, &fault{
			field: idName, value: excerpt(ask.id), wrong: "there is no such reservation",
			accepted: "must be the id of one that has not expired and was not settled before",
		})
	}
	return writeJSON(w, struct {
		ID      string `json:"id"`
		Settled string `json:"settled"`
	}{id, settled})
}

// decodeSettlement reads what ends a reservation. The cost is -1 if it is not told.
func decodeSettlement(body []byte, d dialect) (a asking, err error) {
	a = asking{request: newRequest(-1)}
	s := scanner{text: body}
	if err = s.asking(&a, d); err == nil {
		err = s.end()
	}
	if err == nil && a.id == nil {
		err = &fault{field: idName, wrong: "is missing", accepted: acceptedID}
	}
	return a, err
}
