package match

import (
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/internal/keytext"
)

// Kind is what a condition is about.
type Kind uint8

// The kinds of conditions that have values as texts.
const (
	// Method is the method of the request, in upper case. GET includes HEAD, as in [net/http.ServeMux].
	Method Kind = 1 << iota
	// Host is the host without port: "api.example.com", or "*.example.com" for all below example.com. Case does not matter.
	Host
	// Path is a pattern of paths, as those of [net/http.ServeMux]: "/users/{id}", "/files/{rest...}", "/files/" or "/files/{$}".
	Path
	// Route is the name of a route.
	Route
	// Protocol is a protocol in lower case.
	Protocol

	onClient
	onHeader
	onHeaders // more than one field; of a rule with one it is onHeader
)

// Conditions are what a rule asks of a request: all of them must hold, and of the values of one kind one must be that of the
// request. The zero Conditions apply to every request.
type Conditions struct {
	methods   []string
	hosts     []hostPattern
	paths     []*pattern
	headers   []headerCondition
	clients   []netip.Prefix
	routes    []string
	protocols []string

	has Kind // the kinds of which there are conditions
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

// hold reports whether the conditions of some kinds hold.
func (c *Conditions) hold(v *View, open Kind) bool {
	return (open&Method == 0 || slices.Contains(c.methods, v.Method)) &&
		(open&Protocol == 0 || slices.Contains(c.protocols, v.Protocol)) &&
		(open&Route == 0 || slices.Contains(c.routes, v.Route)) &&
		(open&Path == 0 || c.pathPattern(v) != nil) &&
		(open&Host == 0 || c.hostHolds(v)) &&
		(open&onClient == 0 || c.clientHolds(v)) &&
		(open&(onHeader|onHeaders) == 0 || c.headerHolds(v))
}

func (c *Conditions) hostHolds(v *View) bool {
	host := v.CleanHost()
	for _, h := range c.hosts {
		if h.matches(host) {
			return true
		}
	}
	return false
}

// pathPattern is the first pattern that the path matches, nil if it matches none.
func (c *Conditions) pathPattern(v *View) *pattern {
	path := v.matchPath()
	for _, p := range c.paths {
		if p.matches(path) {
			return p
		}
	}
	return nil
}

func (c *Conditions) clientHolds(v *View) bool {
	from := clientip.Fold(v.Client)
	for _, network := range c.clients {
		if network.Contains(from) {
			return true
		}
	}
	return false
}

func (c *Conditions) headerHolds(v *View) bool {
	for i := range c.headers {
		h := &c.headers[i]
		if !h.matches(v.field(h.name)) {
			return false
		}
	}
	return true
}

// What is accepted in conditions.
const (
	methodForm   = "a method in upper case, such as GET"
	hostForm     = "a host such as api.example.com or *.example.com, in ASCII and without port"
	fieldForm    = "the name of a header field, such as X-Api-Key"
	fieldNoHost  = "another field: hosts have a condition of their own, Match.Hosts"
	valueForm    = "without control characters and without spaces at its ends: no field has such a value"
	absentForm   = "empty with Absent"
	clientForm   = "a network such as 10.0.0.0/8"
	routeForm    = "the name of a route"
	protocolForm = "a protocol in lower case, such as http"
	kindForm     = "Method, Host, Path, Route or Protocol"

	maxHost = 255
)

// Add adds a value to the conditions of a kind. The error is an *[weir.OptionError] that has the value and what is accepted.
func (c *Conditions) Add(kind Kind, value string) error {
	accepted := kindForm
	switch kind {
	case Method:
		accepted = add(&c.methods, value, parseMethod)
	case Host:
		accepted = add(&c.hosts, value, parseHost)
	case Path:
		accepted = add(&c.paths, value, parsePattern)
	case Route:
		accepted = add(&c.routes, value, parseRoute)
	case Protocol:
		accepted = add(&c.protocols, value, parseProtocol)
	case onClient, onHeader, onHeaders:
	}
	if accepted != "" {
		return refuse("value of the condition", value, accepted)
	}
	c.has |= kind
	return nil
}

// AddHeader adds a condition on the first value of a header field. It must be the value, begin with what stands before a "*" at
// the end of the value, or be absent. The Option of the error is "Name" or "Value".
func (c *Conditions) AddHeader(name, value string, absent bool) error {
	h := headerCondition{textproto.CanonicalMIMEHeaderKey(name), headerExact, value}
	prefix, isPrefix := strings.CutSuffix(value, "*")
	switch {
	case !isToken(name):
		return refuse("Name", name, fieldForm)
	case h.name == "Host":
		return refuse("Name", name, fieldNoHost)
	case absent && value != "":
		return refuse("Value", value, absentForm)
	case value != "" && !isFieldValue(value):
		return refuse("Value", value, valueForm)
	case absent:
		h.kind = headerAbsent
	case isPrefix:
		h.kind, h.text = headerPrefix, prefix
	}
	if c.headers = append(c.headers, h); len(c.headers) == 1 {
		c.has |= onHeader
	} else {
		c.has = c.has&^onHeader | onHeaders
	}
	return nil
}

// AddClient adds a network to those of which one must contain the address of the client. Mapped IPv4 addresses count as IPv4.
func (c *Conditions) AddClient(network netip.Prefix) error {
	if !network.IsValid() {
		return &weir.OptionError{Option: "network", Value: network.String(), Accepted: clientForm}
	}
	c.clients = append(c.clients, foldNetwork(network))
	c.has |= onClient
	return nil
}

// add adds a value that parse accepts. It returns what is accepted instead, "" for a good value.
func add[T any](to *[]T, value string, parse func(string) (T, string)) (accepted string) {
	parsed, accepted := parse(value)
	if accepted == "" {
		*to = append(*to, parsed)
	}
	return accepted
}

func refuse(option, value, accepted string) error {
	return &weir.OptionError{Option: option, Value: quote(value), Accepted: accepted}
}

func parseMethod(s string) (method, accepted string) {
	if !isToken(s) || strings.ToUpper(s) != s {
		return "", methodForm
	}
	return s, ""
}

func parseRoute(s string) (route, accepted string) {
	if !isPrintable(s) {
		return "", routeForm
	}
	return s, ""
}

func parseProtocol(s string) (protocol, accepted string) {
	if !isPrintable(s) || strings.ToLower(s) != s {
		return "", protocolForm
	}
	return s, ""
}

// foldNetwork is the network in its only form.
func foldNetwork(p netip.Prefix) netip.Prefix {
	const mapped = 96 // bits before the IPv4 address
	if a := p.Addr(); a.Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(clientip.Fold(a), p.Bits()-mapped)
	}
	return p.Masked()
}

// isToken reports whether s is a token of HTTP (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return s != ""
}

// isFieldValue reports whether a field can have the value s.
func isFieldValue(s string) bool {
	return isPrintable(strings.ReplaceAll(s, "\t", " ")) && strings.Trim(s, " \t") == s
}

func parseHost(s string) (h hostPattern, accepted string) {
	text := s
	if domain, ok := strings.CutPrefix(s, "*."); ok {
		h.below, text = true, domain
	}
	clean := keytext.CleanHost(text)
	if clean == "" || len(text) > maxHost || strings.IndexByte(text, '%') >= 0 ||
		clean[0] == '.' || strings.Contains(text, "..") ||
		strings.ContainsAny(text, "[]:") && (h.below || !isIPv6(text)) {
		return h, hostForm
	}
	for i := range len(clean) {
		c := clean[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && strings.IndexByte("-._:", c) < 0 {
			return h, hostForm
		}
	}
	if h.below {
		clean = "." + clean
	}
	h.text = clean
	return h, ""
}

// isIPv6 reports whether a host is an IPv6 address, in brackets or without.
func isIPv6(host string) bool {
	if inside, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(inside, "]"); !ok {
			return false
		}
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Is6()
}

// quote is s in quotes, shortened if it is long.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
