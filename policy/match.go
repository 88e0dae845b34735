package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weirhq/weir/clientip"
)

// matcher is a Match that was checked.
type matcher struct {
	methods   []string
	hosts     []hostPattern
	paths     []*pattern
	headers   []headerCondition
	clients   []netip.Prefix
	routes    []string
	protocols []string

	wild bool // whether a pattern has wildcards with a name
}

// hostPattern is a host in lower case, or what a host below a domain ends with, such as ".example.com".
type hostPattern struct {
	text  string
	below bool
}

func (h hostPattern) matches(host string) bool {
	if h.below {
		return len(host) > len(h.text) && strings.HasSuffix(host, h.text)
	}
	return host == h.text
}

func (h hostPattern) String() string {
	if h.below {
		return "*" + h.text
	}
	return h.text
}

// headerCondition is a condition on a field.
type headerCondition struct {
	name string // canonical
	kind headerKind
	text string // what it is or begins with
}

type headerKind uint8

const (
	headerExact headerKind = iota
	headerPrefix
	headerAbsent
)

func (c headerCondition) matches(value string, present bool) bool {
	switch c.kind {
	case headerExact:
		return present && value == c.text
	case headerPrefix:
		return present && strings.HasPrefix(value, c.text)
	default:
		return !present
	}
}

// conditions is a set of the conditions of a Match.
type conditions uint8

const (
	onMethod conditions = 1 << iota
	onHost
	onPath
	onHeader
	onClient
	onRoute
	onProtocol
	onHeaders // more than one field; of a rule with one it is onHeader
)

// hold reports whether the given conditions hold.
func (m *matcher) hold(r *Request, open conditions) bool {
	return (open&onMethod == 0 || m.methodHolds(r)) &&
		(open&onProtocol == 0 || m.protocolHolds(r)) &&
		(open&onRoute == 0 || m.routeHolds(r)) &&
		(open&onPath == 0 || m.pathHolds(r)) &&
		(open&onHost == 0 || m.hostHolds(r)) &&
		(open&onClient == 0 || m.clientHolds(r)) &&
		(open&(onHeader|onHeaders) == 0 || m.headerHolds(r))
}

func (m *matcher) methodHolds(r *Request) bool {
	return len(m.methods) == 0 || slices.Contains(m.methods, r.Method)
}

func (m *matcher) routeHolds(r *Request) bool {
	return len(m.routes) == 0 || slices.Contains(m.routes, r.Route)
}

func (m *matcher) protocolHolds(r *Request) bool {
	return len(m.protocols) == 0 || slices.Contains(m.protocols, r.Protocol)
}

func (m *matcher) hostHolds(r *Request) bool {
	if len(m.hosts) == 0 {
		return true
	}
	host := r.cleanHost()
	for _, h := range m.hosts {
		if h.matches(host) {
			return true
		}
	}
	return false
}

func (m *matcher) pathHolds(r *Request) bool {
	return len(m.paths) == 0 || m.pathPattern(r) != nil
}

// pathPattern is the first pattern that the path matches, nil if it matches none.
func (m *matcher) pathPattern(r *Request) *pattern {
	path := r.matchPath()
	for _, p := range m.paths {
		if p.matches(path) {
			return p
		}
	}
	return nil
}

func (m *matcher) clientHolds(r *Request) bool {
	if len(m.clients) == 0 {
		return true
	}
	client := clientip.Fold(r.Client)
	for _, c := range m.clients {
		if c.Contains(client) {
			return true
		}
	}
	return false
}

func (m *matcher) headerHolds(r *Request) bool {
	for i := range m.headers {
		c := &m.headers[i]
		if !c.matches(r.HeaderValue(c.name)) {
			return false
		}
	}
	return true
}
