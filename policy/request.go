package policy

import (
	"context"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/policy/match"
)

// Request is what rules see of a request, of any origin: HTTP, gRPC, a line of an access log. What is not known is left out. A
// Request is used by one call of an [Engine] at a time, which may keep notes in it, and can be used again afterwards.
type Request struct {
	// Protocol is what the request came by in lower case, such as "http" or "grpc".
	Protocol string
	// Method is the method of HTTP, in upper case; for gRPC it is POST. Another spelling can be read in two ways, as many
	// services take post for POST: rules are asked about both, as about the ways to read a path.
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
	// Query is what follows the "?" of the URL, as it was sent. Services differ about a parameter with a semicolon, or with a
	// percent sign without two hexadecimal digits: some leave it out, as [net/url.ParseQuery] does, and some take it as it stands
	// or for two. Rules are asked about all of these, as about the ways to read a path.
	Query string
	// Route is the name that the server itself has for what is asked for, such as the pattern of [net/http.ServeMux].
	Route string
	// Header has the fields of the header; nil is an empty one. Of a field that comes several times, as of a parameter of the
	// query, some services read the first value and others the last: rules are asked about both, as about the ways to read a
	// path. A service can read the first value of fields and the last of parameters, or the other way round: where both come
	// several times, rules are asked about all four ways.
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

	// What conditions see of the request, for the reading of its path that rules are asked about: memory of the call that asks
	// them, or of the request itself once it is looked at beside one.
	seen *match.View
}

// HeaderValue is the first value of a field, and whether there is one. The name is in canonical form. While an [Engine] asks
// about another way to read the request it can be the last value.
func (r *Request) HeaderValue(name string) (string, bool) { return r.view().Value(r.Header, name) }

// QueryValue is the first value of a parameter of the query, percent-decoded, with a plus sign for a space; "" if there is none.
// Like [net/url.ParseQuery] it skips parameters that contain a semicolon or a percent sign without two hexadecimal digits. While
// an [Engine] asks about another way to read the request it can be the last value, and skips none.
func (r *Request) QueryValue(name string) string {
	value, err := url.QueryUnescape(r.sentQueryValue(name))
	if err != nil {
		return "" // it was looked at
	}
	return value
}

// QueryInOrder is the query for functions that look for the first value of a parameter, as [net/url.ParseQuery] reads it. While
// an [Engine] asks about another way to read the request its parameters can be in the reverse order, and odd ones escaped.
func (r *Request) QueryInOrder() string {
	const most = 64 // parameters that are compared
	v := r.view()
	query := r.Query
	switch {
	case v.Last&match.Odd != 0:
		query = queryAs(v.Last, query)
	case strings.IndexByte(query, ';') >= 0:
		v.Repeated |= match.Odd
	case !isDecodable(query):
		v.Repeated |= match.Whole
	}
	parameters := strings.Split(query, "&")
	if len(parameters) == 1 {
		return query
	}
	for i := 0; i < len(parameters) && v.Repeated&match.Parameters == 0; i++ {
		name, _, _ := strings.Cut(parameters[i], "=")
		if i == most || slices.ContainsFunc(parameters[:i], func(before string) bool {
			other, _, _ := strings.Cut(before, "=")
			return before != parameters[i] && (other == name || strings.ContainsAny(other+name, "%+"))
		}) {
			v.Repeated |= match.Parameters
		}
	}
	if v.Last&match.Parameters == 0 {
		return query
	}
	slices.Reverse(parameters)
	return strings.Join(parameters, "&")
}

// sentQueryValue is QueryValue, still encoded.
func (r *Request) sentQueryValue(name string) string {
	v := r.view()
	if v.Last&match.Odd != 0 {
		first, last, _ := queryValues(queryAs(v.Last, r.Query), name)
		return v.OneOf(match.Parameters, first, last)
	}
	first, last, odd := queryValues(r.Query, name)
	if odd {
		for _, way := range [...]match.Repeatable{match.Whole, match.Split} {
			if a, b, _ := queryValues(queryAs(way, r.Query), name); a != first || b != last {
				v.Repeated |= way
			}
			if strings.IndexByte(r.Query, ';') < 0 {
				break // both ways are the same
			}
		}
	}
	return v.OneOf(match.Parameters, first, last)
}

// queryValues returns the first and the last value of a parameter, still encoded, and whether one that may be of that name was
// skipped, as services read it differently.
func queryValues(query, name string) (first, last string, odd bool) {
	found := false
	for query != "" {
		var parameter string
		parameter, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(parameter, "=")
		switch {
		case parameter == "":
			continue
		case strings.IndexByte(parameter, ';') >= 0:
			odd = true
			continue
		case !decodesTo(key, name):
			continue
		case !isDecodable(value):
			odd = true
			continue
		}
		if last = value; !found {
			first, found = value, true
		}
	}
	return first, last, odd
}

// queryAs is a query of which [net/url.ParseQuery] reads what services do that read odd parameters in one of the other ways.
func queryAs(way match.Repeatable, query string) string {
	var b strings.Builder
	b.Grow(len(query))
	for i := range len(query) {
		switch c := query[i]; {
		case c == ';' && way&match.Split != 0:
			b.WriteByte('&')
		case c == ';':
			b.WriteString("%3B")
		case c == '%' && !isDecodable(query[i:min(i+3, len(query))]):
			b.WriteString("%25")
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// CleanPath is the path as rules see it, for conditions and texts: Path without empty and dot segments. While an [Engine] asks
// about another way to read the path it is that one, in which %2F stands for a slash within a segment.
func (r *Request) CleanPath() string { return r.view().CleanPath() }

// PathValue is the part of the path at a wildcard of the pattern of the current rule, "" if there is none of this name.
func (r *Request) PathValue(name string) string { return r.view().PathValue(name) }

// CleanHost is the host as rules see it: in lower case and without port.
func (r *Request) CleanHost() string { return r.view().CleanHost() }

// CleanMethod is the method as rules see it: in upper case, or as it was sent while an [Engine] asks about that.
func (r *Request) CleanMethod() string {
	if r.view().Method == r.Method {
		return r.Method
	}
	return keytext.CleanMethod(r.Method)
}

// view is what conditions see of the request. What was noted of another path or host is not trusted.
func (r *Request) view() *match.View {
	if r.seen == nil || r.seen.Path != r.Path || r.seen.Host != r.Host {
		r.readAs(0, nil)
	}
	return r.seen
}

// reading is a way in which servers may read the path, the method and the host.
type reading struct {
	path  string
	usual bool // the path is read as usual
	sent  bool // the method and the host are read as they were sent
}

// readAs makes what rules see that of a reading. 0 is the usual one, and those after it read the path, the method and the host as
// the others. Then come the same with the last value of fields, the last of parameters, and the last of both; and all of these
// again for each of the other ways to read odd parameters. It forgets all that was noted of an earlier request.
func (r *Request) readAs(at int, others []reading) {
	if r.seen == nil {
		r.seen = new(match.View)
	}
	v := r.seen
	*v = match.View{Repeated: v.Repeated}
	v.Protocol, v.Method, v.Host = r.Protocol, keytext.CleanMethod(r.Method), r.Host
	v.Path, v.Route, v.Header, v.Client = r.Path, r.Route, r.Header, r.Client
	if at == 0 {
		v.Repeated = 0
		return
	}
	spellings := 1 + len(others)
	v.Last = match.Repeatable(at / spellings)
	if at %= spellings; at == 0 {
		return
	}
	one := &others[at-1]
	if one.sent {
		if v.Method = r.Method; keytext.HasSeveralNames(r.Host) {
			v.ReadHostAs(keytext.WholeHost(r.Host))
		}
	}
	if !one.usual {
		v.ReadAs(one.path)
	}
}

// next returns the reading after another one that rules are to be asked about, 0 if there is none. Those with the last value of
// fields are left out unless rules have looked at a field whose values differ: they see what they saw before. So are those with
// the last value of parameters, and those that read odd ones in another way.
func (r *Request) next(at int, others []reading) int {
	spellings := 1 + len(others)
	switch at++; {
	case at < spellings:
		return at
	case r.seen.Repeated == 0: // as usual, and a division takes its time
		return 0
	}
	for ; ; at++ {
		switch last := match.Repeatable(at / spellings); {
		case last >= match.Odd: // each way was looked at alone
			return 0
		case last&^r.seen.Repeated == 0:
			return at
		}
	}
}

// readings returns the other ways to read the path, the method and the host, as far as rules, which were asked about the usual
// one, have looked at them. It returns all where they may look at more, as another value of a field leads to other rules.
func (r *Request) readings() []reading {
	if r.seen.Repeated != 0 || r.seen.Method != r.Method || keytext.HasSeveralNames(r.Host) {
		return r.allReadings()
	}
	return ofPaths(nil, r.seen.Readings(r.RawPath), false)
}

// allReadings is readings, whatever rules have looked at. Where readings returns any, they are the same.
func (r *Request) allReadings() []reading {
	paths := keytext.Readings(r.Path, r.RawPath)
	all := ofPaths(nil, paths, false)
	if r.isRespelled() {
		all = ofPaths(append(all, reading{usual: true, sent: true}), paths, true)
	}
	return all
}

func ofPaths(all []reading, paths []string, sent bool) []reading {
	for _, path := range paths {
		all = append(all, reading{path: path, sent: sent})
	}
	return all
}

// isRespelled reports whether services may take the method or the host for another one.
func (r *Request) isRespelled() bool {
	return keytext.CleanMethod(r.Method) != r.Method || keytext.HasSeveralNames(r.Host)
}

// cost is Cost with its default.
func (r *Request) cost() int64 {
	if r.Cost == 0 {
		return 1
	}
	return r.Cost
}
