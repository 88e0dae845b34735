package policy

import (
	"context"
	"net/netip"

	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/policy/match"
)

// Request is what rules see of a request, of any origin: HTTP, gRPC, a line of an access log. What is not known is left out. A
// Request is used by one call of an [Engine] at a time, which may keep notes in it, and can be used again afterwards.
type Request struct {
	// Protocol is what the request came by in lower case, such as "http" or "grpc".
	Protocol string
	// Method is the method of HTTP. Rules and keys see it in upper case, as many services take post for POST. For gRPC it is
	// POST.
	Method string
	// Host is the host that was asked, with its port or without.
	Host string
	// Path is the path without the query, decoded: that of the URL, or the full method of gRPC, "/package.Service/Method".
	Path string
	// RawPath is the path as it was sent, still encoded, where Path does not show it, as in [net/url.URL]: "" stands for the
	// usual encoding of Path. Where servers could read the path in several ways, as with an encoded slash, a backslash or an
	// encoding of an encoding, rules are asked about each of them. What applies under any of them applies to the request. It is
	// exempt only if it is under all.
	RawPath string
	// Query is what follows the "?" of the URL, as it was sent.
	Query string
	// Route is the name that the server itself has for what is asked for, such as the pattern of [net/http.ServeMux].
	Route string
	// Header has the fields of the header; nil is an empty one.
	Header match.Header
	// Client is the address of the client, not of a proxy in between. The zero Addr is that of a client that is not known.
	Client netip.Addr
	// Attributes are what else is known: the user of a token, the entries of a descriptor.
	Attributes map[string]string
	// Cost is how many permits the request costs if neither the rule nor the policy has a cost: from 1 to 10^15. 0 stands for 1.
	Cost int64
	// Named is the policy and the key of a request that names both itself, so that no rule is asked. Default: nil, rules say
	// which policies apply.
	Named *Named
	// Context bounds the calls of a store about shared limits, where the call has no context of its own, and in [Engine.Wait],
	// whose own context is that of the waiting. A request whose context was canceled is refused with ReasonCanceled, and one
	// whose deadline has passed is decided as if the store were unavailable. Limits of this process do not look at it. Default:
	// nil, as long as the store itself allows.
	Context context.Context

	seen match.View // what conditions see of the request, for the reading of its path that rules are asked about
}

// HeaderValue is the first value of a field, and whether there is one. The name is in canonical form.
func (r *Request) HeaderValue(name string) (string, bool) {
	return match.FirstValue(r.Header, name)
}

// CleanPath is the path as rules see it, for conditions and texts: Path without empty and dot segments. While an [Engine] asks
// about another way to read the path it is that one, in which %2F stands for a slash within a segment.
func (r *Request) CleanPath() string { return r.view().CleanPath() }

// PathValue is the part of the path at a wildcard of the pattern of the current rule, "" if there is none of this name.
func (r *Request) PathValue(name string) string { return r.view().PathValue(name) }

func (r *Request) cleanHost() string { return r.view().CleanHost() }

// view is what conditions see of the request. What was noted of another path or host is not trusted.
func (r *Request) view() *match.View {
	if r.seen.Path != r.Path || r.seen.Host != r.Host {
		r.readAs(0, nil)
	}
	return &r.seen
}

// readAs makes the path that of a reading. 0 is the usual one, and the others are those of readings, from 1 on. It forgets all
// that was noted of an earlier request.
func (r *Request) readAs(reading int, others []string) {
	v := &r.seen // in place, as a View is large
	*v = match.View{}
	v.Protocol, v.Method, v.Host = r.Protocol, keytext.CleanMethod(r.Method), r.Host
	v.Path, v.Route, v.Header, v.Client = r.Path, r.Route, r.Header, r.Client
	if reading > 0 {
		r.seen.ReadAs(others[reading-1])
	}
}

// readings returns the other ways to read the path, nil for a path that all servers read alike or that nothing has looked at.
func (r *Request) readings() []string { return r.seen.Readings(r.RawPath) }

// cost is Cost with its default.
func (r *Request) cost() int64 {
	if r.Cost == 0 {
		return 1
	}
	return r.Cost
}
