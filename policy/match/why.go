package match

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/clientip"
)

// Why returns the first condition of a rule that does not hold, such as "method is GET, rule wants POST". It returns "" if all
// hold.
func (x *Index) Why(v *View, rule int32) string {
	c := &x.rules[rule]
	failing := func(kind Kind) bool { return c.has&kind != 0 && !c.hold(v, kind) }
	switch {
	case failing(Method):
		return "method is " + shown(v.Method) + ", rule wants " + list(c.methods)
	case failing(Host):
		return "host is " + shown(v.CleanHost()) + ", rule wants " + listOf(c.hosts, hostPattern.String)
	case failing(Path):
		return "path is " + shown(v.matchPath()) + ", rule wants " + listOf(c.paths, func(p *pattern) string { return p.source })
	case failing(onHeader | onHeaders):
		return c.whyHeader(v)
	case failing(onClient):
		return "client is " + shownClient(v.Client) + ", rule wants " + listOf(c.clients, netip.Prefix.String)
	case failing(Route):
		return "route is " + shown(v.Route) + ", rule wants " + list(c.routes)
	case failing(Protocol):
		return "protocol is " + shown(v.Protocol) + ", rule wants " + list(c.protocols)
	}
	return ""
}

func shownClient(a netip.Addr) string {
	if !a.IsValid() {
		return "not known"
	}
	return clientip.Fold(a).String()
}

func (c *Conditions) whyHeader(v *View) string {
	for _, h := range c.headers {
		value, present := v.field(h.name)
		if h.matches(value, present) {
			continue
		}
		about := "header " + h.name + ": "
		switch {
		case h.kind == headerAbsent:
			return about + quote(value) + " is there, but must be absent"
		case h.kind == headerPrefix && h.text == "":
			return about + "there is none"
		case h.kind == headerPrefix && !present:
			return about + "there is none that begins with " + quote(h.text)
		case h.kind == headerPrefix:
			return about + quote(value) + " does not begin with " + quote(h.text)
		case !present:
			return about + "there is none that is " + quote(h.text)
		default:
			return about + quote(value) + " is not " + quote(h.text)
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
