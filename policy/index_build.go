package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// fewRules are so many that they are checked one after the other rather than filed.
const fewRules = 8

// value is what a rule can be filed under.
type value struct {
	kind conditions
	name string // of a field
	text string // unlike those of all other values of the kind and name
}

// filing files the rules of one node.
type filing struct {
	x     *index
	known conditions
	names []string // of fields that are known
	// shared is how many rules have a value, and fields are the names of fields that rules could be filed under.
	shared   map[value]int
	fields   map[string]bool
	patterns map[string]*pattern // by their shape
	filed    map[value][]int32
	order    []value // of those in filed
}

// file returns a node with rules for which some conditions are known to hold: those in known, and those on the fields with
// these names.
func (x *index) file(rules []int32, known conditions, names []string) *node {
	n := &node{known: known}
	if len(rules) <= fewRules {
		n.others = rules
		return n
	}
	f := &filing{x, known, names, map[value]int{}, map[string]bool{}, map[string]*pattern{}, map[value][]int32{}, nil}
	for _, rule := range rules {
		for _, values := range f.alternatives(&x.matchers[rule]) {
			for _, v := range values {
				f.shared[v]++
			}
			if values[0].kind == onHeader {
				f.fields[values[0].name] = true
			}
		}
	}
	for _, rule := range rules {
		values := f.choose(&x.matchers[rule])
		if len(values) == 0 {
			n.others = append(n.others, rule)
		}
		for _, v := range values {
			if len(f.filed[v]) == 0 {
				f.order = append(f.order, v)
			}
			f.filed[v] = append(f.filed[v], rule)
		}
	}
	for _, v := range f.order {
		f.put(n, v, f.place(v))
	}
	n.freeze()
	return n
}

// alternatives are the ways in which a rule can be filed, each with the values that it is then filed under. Of several that are
// as good the first is taken.
func (f *filing) alternatives(m *matcher) [][]value {
	var all [][]value
	add := func(values []value) {
		if len(values) > 0 && (f.known&values[0].kind == 0 || values[0].kind == onHeader) {
			slices.SortFunc(values, func(a, b value) int { return cmp.Compare(a.text, b.text) })
			all = append(all, slices.Compact(values))
		}
	}
	paths := make([]value, 0, len(m.paths))
	for _, p := range m.paths {
		shape := p.shape()
		f.patterns[shape] = p
		paths = append(paths, value{onPath, "", shape})
	}
	add(paths)
	add(valuesOf(onHost, m.hosts, hostPattern.String))
	add(valuesOf(onRoute, m.routes, strings.Clone))
	add(valuesOf(onClient, m.clients, netip.Prefix.String))
	for _, c := range m.headers {
		if c.kind == headerExact && !slices.Contains(f.names, c.name) {
			add([]value{{onHeader, c.name, c.text}})
		}
	}
	add(valuesOf(onMethod, m.methods, strings.Clone))
	add(valuesOf(onProtocol, m.protocols, strings.Clone))
	return all
}

func valuesOf[T any](kind conditions, all []T, text func(T) string) []value {
	values := make([]value, len(all))
	for i, v := range all {
		values[i] = value{kind, "", text(v)}
	}
	return values
}

// shape is the pattern without the names of its wildcards: patterns of one shape match the same paths.
func (p *pattern) shape() string {
	var b strings.Builder
	for _, s := range p.segments {
		b.WriteByte('/')
		b.WriteByte('0' + byte(s.kind))
		if s.kind == literalSegment {
			b.WriteString(s.text)
		}
	}
	return b.String()
}

// choose returns the values that a rule is filed under: those that it shares with the fewest rules. A field counts more the more
// fields there are, as every request is asked for each of them.
func (f *filing) choose(m *matcher) []value {
	var best []value
	least := 0
	for _, values := range f.alternatives(m) {
		cost := 0
		for _, v := range values {
			cost = max(cost, f.shared[v])
		}
		if values[0].kind == onHeader {
			cost += len(f.fields)
		}
		if best == nil || cost < least {
			best, least = values, cost
		}
	}
	return best
}

// place returns where the rules of a value are.
func (f *filing) place(v value) slot {
	rules := f.filed[v]
	if len(rules) == 1 {
		return rules[0]
	}
	b := bucket{rules: rules}
	if len(rules) > fewRules {
		names := f.names
		if v.kind == onHeader {
			names = append(slices.Clone(names), v.name)
		}
		if deeper := f.x.file(rules, f.known|v.kind, names); len(deeper.others) < len(rules) {
			b.deeper = deeper
		}
	}
	f.x.buckets = append(f.x.buckets, b)
	return ^slot(len(f.x.buckets) - 1)
}

// put files a place at n.
func (f *filing) put(n *node, v value, p slot) {
	switch v.kind {
	case onHeaders: // rules are filed by one field at a time
	case onPath:
		if n.paths == nil {
			n.paths = newPathTable()
		}
		n.paths.put(f.patterns[v.text], p)
	case onHost:
		h := hostPattern{text: v.text}
		h.text, h.below = strings.CutPrefix(v.text, "*")
		n.hosts.put(h, p)
	case onRoute:
		n.routes.put(v.text, p)
	case onMethod:
		n.methods.put(v.text, p)
	case onProtocol:
		n.protocols.put(v.text, p)
	case onHeader:
		n.header(v.name).put(v.text, p)
	case onClient:
		network := netip.MustParsePrefix(v.text)
		n.network(network).put(network, p)
	}
}

// freeze makes the tables of n ready for use.
func (n *node) freeze() {
	for _, t := range []*textTable{&n.methods, &n.protocols, &n.routes, &n.hosts.exact, &n.hosts.below} {
		t.freeze()
	}
	for i := range n.headers {
		n.headers[i].values.freeze()
	}
	if n.paths != nil {
		n.paths.freeze()
	}
}

// header is the table of a field.
func (n *node) header(name string) *textTable {
	for i := range n.headers {
		if n.headers[i].name == name {
			return &n.headers[i].values
		}
	}
	n.headers = append(n.headers, headerTable{name: name})
	return &n.headers[len(n.headers)-1].values
}

// network is the table of networks like this one.
func (n *node) network(network netip.Prefix) *networkTable {
	is4 := network.Addr().Is4()
	for i := range n.clients {
		if t := &n.clients[i]; t.bits == network.Bits() && (t.v4 != nil) == is4 {
			return t
		}
	}
	t := networkTable{bits: network.Bits()}
	if is4 {
		t.v4 = map[uint32]slot{}
	} else {
		t.v6 = map[[16]byte]slot{}
	}
	n.clients = append(n.clients, t)
	return &n.clients[len(n.clients)-1]
}
