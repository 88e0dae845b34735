package policy

import (
	"fmt"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/internal/keytext"
)

// What is accepted in a Match.
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

	maxHost = 255
)

// matchChecker makes a matcher, and collects what is wrong with a Match.
type matchChecker struct {
	rule string
	errs []error
}

func newMatcher(rule *Rule) (matcher, []error) {
	c := matchChecker{rule: rule.Name}
	m := matcher{
		methods:   texts(&c, "Methods", rule.Match.Methods, isMethod, methodForm),
		hosts:     each(&c, "Hosts", rule.Match.Hosts, parseHost),
		paths:     each(&c, "Paths", rule.Match.Paths, parsePattern),
		headers:   c.headers(rule.Match.Headers),
		clients:   c.clients(rule.Match.Clients),
		routes:    texts(&c, "Routes", rule.Match.Routes, isPrintable, routeForm),
		protocols: texts(&c, "Protocols", rule.Match.Protocols, isProtocol, protocolForm),
	}
	if slices.Contains(m.methods, "GET") && !slices.Contains(m.methods, "HEAD") {
		m.methods = append(m.methods, "HEAD") // servers run the handler of GET for it
	}
	m.wild = slices.ContainsFunc(m.paths, func(p *pattern) bool { return p.wild })
	return m, c.errs
}

// refuse reports what is wrong with a field of the Match.
func (c *matchChecker) refuse(field, value, accepted string) {
	c.errs = append(c.errs, &weir.OptionError{
		Option: fmt.Sprintf("rule %q: Match.%s", c.rule, field), Value: value, Accepted: accepted,
	})
}

// each parses all texts of a field. What parse answers as accepted is "" for a good one.
func each[T any](c *matchChecker, field string, all []string, parse func(s string) (T, string)) []T {
	parsed := make([]T, 0, len(all))
	for i, s := range all {
		p, accepted := parse(s)
		if accepted != "" {
			c.refuse(fmt.Sprintf("%s[%d]", field, i), quote(s), accepted)
			continue
		}
		parsed = append(parsed, p)
	}
	return parsed
}

func texts(c *matchChecker, field string, all []string, good func(string) bool, form string) []string {
	return each(c, field, all, func(s string) (string, string) {
		if !good(s) {
			return "", form
		}
		return s, ""
	})
}

func (c *matchChecker) headers(all []HeaderMatch) []headerCondition {
	conditions := make([]headerCondition, 0, len(all))
	for i, h := range all {
		field := fmt.Sprintf("Headers[%d].", i)
		name := textproto.CanonicalMIMEHeaderKey(h.Name)
		condition := headerCondition{name, headerExact, h.Value}
		prefix, isPrefix := strings.CutSuffix(h.Value, "*")
		switch {
		case !isToken(h.Name):
			c.refuse(field+"Name", quote(h.Name), fieldForm)
		case name == "Host":
			c.refuse(field+"Name", quote(h.Name), fieldNoHost)
		case h.Absent && h.Value != "":
			c.refuse(field+"Value", quote(h.Value), absentForm)
		case h.Value != "" && !isFieldValue(h.Value):
			c.refuse(field+"Value", quote(h.Value), valueForm)
		case h.Absent:
			condition.kind = headerAbsent
		case isPrefix:
			condition.kind, condition.text = headerPrefix, prefix
		}
		conditions = append(conditions, condition)
	}
	return conditions
}

func (c *matchChecker) clients(all []netip.Prefix) []netip.Prefix {
	folded := make([]netip.Prefix, 0, len(all))
	for i, p := range all {
		if !p.IsValid() {
			c.refuse(fmt.Sprintf("Clients[%d]", i), p.String(), clientForm)
			continue
		}
		folded = append(folded, foldNetwork(p))
	}
	return folded
}

// foldNetwork is the network in its only form.
func foldNetwork(p netip.Prefix) netip.Prefix {
	const mapped = 96 // bits before the IPv4 address
	if a := p.Addr(); a.Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(clientip.Fold(a), p.Bits()-mapped)
	}
	return p.Masked()
}

func isMethod(s string) bool   { return isToken(s) && strings.ToUpper(s) == s }
func isProtocol(s string) bool { return isPrintable(s) && strings.ToLower(s) == s }

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
	if clean == "" || len(text) > maxHost || hasPort(text) || clean[0] == '.' || strings.Contains(clean, "..") {
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

func hasPort(host string) bool {
	return strings.Count(host, ":") == 1 || strings.Contains(host, "]:")
}

// quote is s in quotes, shortened if it is long.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
