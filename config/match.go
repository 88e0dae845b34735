package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// mostMatches is how many values a condition may have.
const mostMatches = 10_000

// match reads the conditions of a rule. Each value is checked by itself, so that a mistake tells its place.
func (d *decoder) match(v yamlread.Value, r *placedRule) {
	o, ok := d.Object(v, matchTable.Kind)
	if !ok {
		return
	}
	m := &r.Match
	for _, field := range []struct {
		key, what, example string
		noun               string
		to                 *[]string
		one                func(s string) (policy.Match, string)
	}{
		{keyMethod, "a method in upper case", "GET", "a method", &m.Methods, func(s string) (policy.Match, string) {
			if upper := strings.ToUpper(s); upper != s {
				return policy.Match{}, "must be in upper case"
			}
			return policy.Match{Methods: []string{s}}, ""
		}},
		{keyHost, "a host without port", "api.example.com", "a host", &m.Hosts, func(s string) (policy.Match, string) {
			return policy.Match{Hosts: []string{s}}, ""
		}},
		{keyPath, "a pattern of paths", "/users/{id}", "a pattern", &m.Paths, func(s string) (policy.Match, string) {
			if !strings.HasPrefix(s, "/") {
				return policy.Match{}, "must begin with a slash"
			}
			return policy.Match{Paths: []string{s}}, ""
		}},
		{"route", "the name of a route", "GET /users/{id}", "a name", &m.Routes, func(s string) (policy.Match, string) {
			return policy.Match{Routes: []string{s}}, ""
		}},
		{keyProtocol, "a protocol in lower case", "http", "a protocol", &m.Protocols, func(s string) (policy.Match, string) {
			if lower := strings.ToLower(s); lower != s {
				return policy.Match{}, "must be in lower case"
			}
			return policy.Match{Protocols: []string{s}}, ""
		}},
	} {
		entry, given := o.Get(field.key)
		if !given {
			continue
		}
		fix := "write " + field.example + ", for instance"
		for _, item := range d.matches(entry, field.what) {
			s, ok := d.Text(item, field.what, fix)
			if !ok {
				continue
			}
			one, message := field.one(s.Text)
			if message == "" {
				message = d.refusal(field.key+" "+s.Text, one, field.noun)
			}
			if message != "" {
				d.Wrong(item, message, matchFix(field.key, s, fix))
				continue
			}
			*field.to = append(*field.to, s.Text)
			switch {
			case field.key == keyPath:
				d.foreignWildcard(item, s.Text)
			case field.key == keyProtocol && !s.FromEnv && !slices.Contains(protocols, s.Text):
				d.Warn(item, "no request has this protocol: those to weir have "+yamlread.OneOf(protocols),
					yamlread.Meant(s.Text, protocols, "write one of these"))
			}
		}
	}
	if entry, given := o.Get("client"); given {
		for _, item := range d.matches(entry, "an address or a network") {
			if p, ok := d.network(item); ok {
				m.Clients = append(m.Clients, p)
			}
		}
	}
	if entry, given := o.Get("header"); given {
		d.headers(entry, r)
	}
}

// protocols are those by which requests come to weir: to the program, and to package grpclimit. A Go program can have others.
var protocols = []string{"http", "grpc", "grpc-message", "rls", "rlqs"}

// otherWildcard is a segment that is a wildcard elsewhere: :id or <id>.
var otherWildcard = regexp.MustCompile(`/(:(\w+)|<(?:\w+:)?(\w+)>)(/|$)`)

// foreignWildcard warns of a pattern with a wildcard of another program, which matches only itself.
func (d *decoder) foreignWildcard(v yamlread.Value, pattern string) {
	if m := otherWildcard.FindStringSubmatch(pattern); m != nil {
		d.Warn(v, fmt.Sprintf("matches the segment %s only as it is written: it is no wildcard", m[1]), "write {"+m[2]+m[3]+"}")
	}
}

// matches returns the values of a condition.
func (d *decoder) matches(v yamlread.Value, what string) []yamlread.Value {
	items, _ := d.oneOrList(v, what)
	if len(items) > mostMatches {
		d.Wrong(v, "has "+strconv.Itoa(len(items))+" values: there must be at most "+strconv.Itoa(mostMatches),
			"use a pattern or an expression")
		return nil
	}
	return items
}

// matchFix proposes what to write.
func matchFix(key string, s yamlread.Scalar, otherwise string) string {
	if s.FromEnv {
		return otherwise
	}
	switch {
	case key == keyMethod && strings.ToUpper(s.Text) != s.Text:
		return "write " + strings.ToUpper(s.Text)
	case key == keyProtocol && strings.ToLower(s.Text) != s.Text:
		return "write " + strings.ToLower(s.Text)
	case key == keyPath && !strings.ContainsAny(s.Text, "/ "):
		return "write /" + s.Text
	case key == keyPath && strings.Contains(s.Text, " /"):
		return "write the method in match.method, and the path alone here"
	case key == keyHost:
		host, _, hasPort := strings.Cut(s.Text, ":")
		if _, rest, hasScheme := strings.Cut(s.Text, "://"); hasScheme {
			host, _, _ = strings.Cut(rest, "/")
			host, _, _ = strings.Cut(host, ":")
			hasPort = true
		}
		if hasPort && host != "" {
			return "write " + host
		}
	}
	return otherwise
}

// refusal is that of [refusal], which is asked once for each name.
func (d *decoder) refusal(name string, m policy.Match, noun string) string {
	if message, known := d.refusals[name]; known {
		return message
	}
	if d.refusals == nil {
		d.refusals = map[string]string{}
	}
	message := refusal(m, noun)
	d.refusals[name] = message
	return message
}

// refusal is what the engine has against a match of one value, which is a noun; "" if nothing.
func refusal(m policy.Match, noun string) string {
	set := policy.Set{Rules: []policy.Rule{{Name: "x", Match: m, Exempt: true}}}
	var e *weir.OptionError
	switch err := set.Check(); {
	case err == nil:
		return ""
	case errors.As(err, &e):
		for _, preposition := range []string{"with ", "without ", "of "} {
			if strings.HasPrefix(e.Accepted, preposition) {
				return "must be " + noun + " " + e.Accepted
			}
		}
		return "must be " + e.Accepted
	default:
		return "cannot be used"
	}
}

// network reads an address or a network.
func (d *decoder) network(v yamlread.Value) (netip.Prefix, bool) {
	const must, fix = "an address or a network", "write 10.0.0.0/8 or 192.0.2.1, for instance"
	s, ok := d.Text(v, must, fix)
	if !ok {
		return netip.Prefix{}, false
	}
	if a, err := netip.ParseAddr(s.Text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s.Text)
	if err != nil {
		d.Wrong(v, "must be "+must, fix)
		return netip.Prefix{}, false
	}
	if p.Masked() != p {
		fix := "write the network"
		if !s.FromEnv {
			fix = "write " + p.Masked().String() + " for the network, or " + p.Addr().String() + " for the address"
		}
		d.Wrong(v, "has bits behind its length, so that it is neither a network nor an address", fix)
		return netip.Prefix{}, false
	}
	return p, true
}

// headers reads the conditions on fields of the header.
func (d *decoder) headers(v yamlread.Value, r *placedRule) {
	o, ok := d.Mapping(v, "field: value", "")
	if !ok {
		return
	}
	if len(o.Keys) == 0 {
		d.Wrong(v, "names no field", `write {X-Plan: gold}, for instance`)
	}
	names := map[string]string{}
	for _, name := range o.Keys {
		field := o.Fields[name]
		h := policy.HeaderMatch{Name: name, Absent: field.IsNull()}
		bad := func(message, fix string) {
			d.Wrong(field.OfKey(), message, fix)
		}
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if first, twice := names[canonical]; twice {
			bad("is the same field as "+first+": case does not matter", "remove one of them")
			continue
		}
		names[canonical] = name
		if canonical == "Host" {
			bad("the host is no field of the header here", "write it in match.host")
			continue
		}
		absent := policy.Match{Headers: []policy.HeaderMatch{{Name: name, Absent: true}}}
		if message := d.refusal("field "+name, absent, "a name"); message != "" {
			bad(message, "write X-Api-Key, for instance")
			continue
		}
		if h.Absent {
			r.Match.Headers = append(r.Match.Headers, h)
			continue
		}
		s, ok := d.Text(field, "a value, prefix* or *, or null for a field that must be absent", `write "*" for any value`)
		if !ok {
			continue
		}
		h.Value = s.Text
		present := policy.Match{Headers: []policy.HeaderMatch{h}}
		if message := d.refusal("value "+h.Value, present, "a value"); message != "" {
			d.Wrong(field, message, "remove what cannot be in a value")
			continue
		}
		if s.FromEnv { // the engine would show the value in explanations
			r.When = and(r.When, &secretHeader{match: h, shown: field.Node.Value})
			continue
		}
		r.Match.Headers = append(r.Match.Headers, h)
	}
}

// secretHeader is a condition on a field whose value came from the environment.
type secretHeader struct {
	match policy.HeaderMatch
	shown string
}

func (h *secretHeader) Holds(r *policy.Request) (bool, error) {
	got, present := r.HeaderValue(textproto.CanonicalMIMEHeaderKey(h.match.Name))
	if prefix, isPrefix := strings.CutSuffix(h.match.Value, "*"); isPrefix {
		return present && strings.HasPrefix(got, prefix), nil
	}
	return present && got == h.match.Value, nil
}

func (h *secretHeader) String() string {
	return "request.headers[" + strconv.Quote(strings.ToLower(h.match.Name)) + "] == " + strconv.Quote(h.shown)
}

// conjunction holds if all do.
type conjunction []policy.Condition

// and returns both conditions, of which each can be nil.
func and(a, b policy.Condition) policy.Condition { //nolint:ireturn // one of several
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	if c, several := a.(conjunction); several {
		return append(c, b)
	}
	return conjunction{a, b}
}

func (c conjunction) Holds(r *policy.Request) (bool, error) {
	for _, one := range c {
		if ok, err := one.Holds(r); !ok || err != nil {
			return ok, err
		}
	}
	return true, nil
}

func (c conjunction) String() string {
	words := make([]string, len(c))
	for i, one := range c {
		words[i] = "(" + one.String() + ")"
	}
	return strings.Join(words, " && ")
}
