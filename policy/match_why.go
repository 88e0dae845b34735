package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/clientip"
)

// why returns the first condition of a rule that does not hold for r, in words, and "" if all hold.
func (x *index) why(rule int32, r *Request) string {
	m := &x.matchers[rule]
	switch {
	case !m.methodHolds(r):
		return "method is " + shown(r.Method) + ", rule wants " + list(m.methods)
	case !m.hostHolds(r):
		return "host is " + shown(r.cleanHost()) + ", rule wants " + listOf(m.hosts, hostPattern.String)
	case !m.pathHolds(r):
		return m.whyPath(r)
	case !m.headerHolds(r):
		return m.whyHeader(r)
	case !m.clientHolds(r):
		return m.whyClient(r)
	case !m.routeHolds(r):
		return "route is " + shown(r.Route) + ", rule wants " + list(m.routes)
	case !m.protocolHolds(r):
		return "protocol is " + shown(r.Protocol) + ", rule wants " + list(m.protocols)
	}
	return ""
}

func (m *matcher) whyPath(r *Request) string {
	return "path is " + shown(r.matchPath()) + ", rule wants " + listOf(m.paths, func(p *pattern) string { return p.source })
}

func (m *matcher) whyClient(r *Request) string {
	client := "not known"
	if r.Client.IsValid() {
		client = clientip.Fold(r.Client).String()
	}
	return "client is " + client + ", rule wants " + listOf(m.clients, netip.Prefix.String)
}

func (m *matcher) whyHeader(r *Request) string {
	for _, c := range m.headers {
		value, present := r.HeaderValue(c.name)
		if c.matches(value, present) {
			continue
		}
		about := "header " + c.name + ": "
		switch {
		case c.kind == headerAbsent:
			return about + quote(value) + " is there, but must be absent"
		case c.kind == headerPrefix && c.text == "":
			return about + "there is none"
		case c.kind == headerPrefix && !present:
			return about + "there is none that begins with " + quote(c.text)
		case c.kind == headerPrefix:
			return about + quote(value) + " does not begin with " + quote(c.text)
		case !present:
			return about + "there is none that is " + quote(c.text)
		default:
			return about + quote(value) + " is not " + quote(c.text)
		}
	}
	return ""
}

// shown is s as it stands in a sentence: in quotes if it could be misread.
func shown(s string) string {
	if quoted := quote(s); s == "" || strings.ContainsAny(s, " ,") || quoted != `"`+s+`"` {
		return quoted
	}
	return s
}

func list(all []string) string { return listOf(all, shown) }

// listOf are the first of all, and how many there are besides.
func listOf[T any](all []T, of func(T) string) string {
	const most = 8
	first := all[:min(len(all), most)]
	words := make([]string, 0, len(first))
	for _, v := range first {
		words = append(words, of(v))
	}
	text := strings.Join(words, ", ")
	if n := len(all) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
