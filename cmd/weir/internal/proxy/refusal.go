package proxy

import (
	"net/http"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/ratelimitfields"
)

// crowdedPolicy is the name under which clients are told of the bound on concurrency.
const crowdedPolicy = "concurrency"

// The fields in which limits are told.
const (
	limitField  = "Ratelimit"
	policyField = "Ratelimit-Policy"
)

// told are the limits of a request as its client is told of them.
type told struct{ limit, policy []string }

// takeTold takes what is told of the limits of an allowed request out of the header of its response, into which the upstream
// will write.
func takeTold(h http.Header) told {
	t := told{h[limitField], h[policyField]}
	delete(h, limitField)
	delete(h, policyField)
	return t
}

// tell adds the limits to a response to a request that was allowed. RateLimit fields that the upstream has set stay, and ours
// come after them, as further items of the same lists. Only if those are not lists of items, as in drafts before the eighth, ours
// are left out: together they would be of no form.
//
// Clients are told of the limits of the engine alone, and not of the bound on concurrency: that is the same for all of them, and
// what is left of it at a moment is nothing that one of them could plan with.
func (t *told) tell(h http.Header) {
	if t.limit == nil || !areItems(h[limitField]) || !areItems(h[policyField]) {
		return
	}
	h[limitField] = append(h[limitField], t.limit...)
	h[policyField] = append(h[policyField], t.policy...)
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

// toldOf completes a refusal of the engine: its client is told by which ID it is known.
func toldOf(r *http.Request, f *httplimit.Refusal) {
	answer.TellRefusal(f.Header, f.Verdict.RefusalID)
	forCaller(r, f)
}

// crowd serves a request for which there is no room at the upstream.
func (x *exchange) crowd(d weir.Decision) {
	x.outcome = crowded
	p, h := x.proxy, x.out.Header()
	x.told.tell(h)
	refusal := httplimit.NewRefusal(h, &p.headers, p.crowded, ratelimitfields.State{Remaining: d.Remaining}, 1, d)
	forCaller(x.in, &refusal)
	x.send(&refusal)
}

// respond returns an allowed request with something other than a response of the upstream.
func (x *exchange) respond(status int, detail string) {
	x.told.tell(x.out.Header())
	x.send(&httplimit.Refusal{Status: status, Problem: httplimit.Problem{
		Type: "about:blank", Title: http.StatusText(status), Detail: detail,
	}})
}

// send responds with a problem detail.
func (x *exchange) send(f *httplimit.Refusal) {
	r := *x.in
	if x.body != nil { // the transport may still be reading what is left of it
		r.Body = http.NoBody
	}
	_ = f.Send(&x.out, &r) // its status can be sent
}
