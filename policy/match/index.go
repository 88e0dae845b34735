package match

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// Index finds the rules whose conditions apply to a request. It does not change, and is safe for concurrent use.
//
// Each rule is filed under one of its conditions, the one whose values it shares with the fewest other rules, so that a
// request asks for the rules of its own path, host and so on, and not for all. Where many rules share even that, they are filed
// by another condition once more. What remains of their conditions is checked of the few that were found. Rules without a
// condition that they could be filed under, such as those for all requests, are checked one after the other.
//
// What a request costs is bounded by the rules, and not by what it says: no more segments of a path and no more labels of a
// host are looked at than the longest pattern has, each node of the tree of paths is visited at most once, and what is longer
// than any value of the rules is not even hashed. Only to make the path and the host clean they are read as a whole, once. The
// zero Index is not usable: call [NewIndex].
type Index struct {
	rules   []Conditions // by the number of the rule
	briefs  []brief      // of the rules
	root    *node
	buckets []bucket
}

// slot is where rules are filed: the number of a single rule, or the complement of a place in Index.buckets.
type slot = int32

const nowhere = math.MinInt32

// bucket are several rules that share a value: in a list if they are few, otherwise filed by another condition.
type bucket struct {
	rules  []int32
	deeper *node
}

// node is a set of rules, each of which is filed by one of its conditions.
type node struct {
	known     Kind // hold for all requests that come here
	methods   textTable
	protocols textTable
	routes    textTable
	hosts     hostTable
	paths     *pathTable
	headers   []headerTable
	clients   []networkTable
	others    []int32 // rules that are not filed
}

// brief is what a rule is checked by first: it is short, so that those of thousands of rules are at hand.
type brief struct {
	has     Kind      // that are not empty
	wild    bool      // whether a pattern has wildcards with a name
	methods methodSet // all methods of the rule; empty if there is one that is not among those below
}

// methodSet is a set of the usual methods.
type methodSet uint16

// usualMethod is the set of a method, empty if it is not usual.
func usualMethod(s string) methodSet {
	switch s {
	case "GET":
		return 1 << 0
	case "HEAD":
		return 1 << 1
	case "POST":
		return 1 << 2
	case "PUT":
		return 1 << 3
	case "PATCH":
		return 1 << 4
	case "DELETE":
		return 1 << 5
	case "OPTIONS":
		return 1 << 6
	case "CONNECT":
		return 1 << 7
	case "TRACE":
		return 1 << 8
	default:
		return 0
	}
}

func (c *Conditions) brief() brief {
	b := brief{has: c.has, wild: slices.ContainsFunc(c.paths, func(p *pattern) bool { return p.wild })}
	for _, s := range c.methods {
		usual := usualMethod(s)
		if usual == 0 {
			b.methods = 0
			break
		}
		b.methods |= usual
	}
	return b
}

// NewIndex returns the index of rules, which are known by their places among the conditions. These must not be changed any more.
func NewIndex(rules []Conditions) *Index {
	x := &Index{rules: slices.Clone(rules), briefs: make([]brief, len(rules))}
	all := make([]int32, len(rules))
	for i := range x.rules {
		c := &x.rules[i]
		if slices.Contains(c.methods, "GET") && !slices.Contains(c.methods, "HEAD") {
			c.methods = append(slices.Clip(c.methods), "HEAD") // servers run the handler of GET for it
		}
		x.briefs[i] = c.brief()
		all[i] = int32(i)
	}
	x.root = x.file(all, 0, nil)
	return x
}

// MatchesAll reports whether a rule has no conditions.
func (x *Index) MatchesAll(rule int32) bool { return x.briefs[rule].has == 0 }

// Match appends the places of the rules that match to found, in ascending order.
func (x *Index) Match(v *View, found []int32) []int32 {
	v.method = usualMethod(v.Method)
	before := len(found)
	found = x.look(x.root, v, found)
	matched := found[before:]
	for i := 1; i < len(matched); i++ {
		if matched[i-1] >= matched[i] { // a rule is found twice if two of its patterns match
			slices.Sort(matched)
			return found[:before+len(slices.Compact(matched))]
		}
	}
	return found
}

// look appends the rules below n that match v.
func (x *Index) look(n *node, v *View, found []int32) []int32 {
	for _, rule := range n.others {
		found = x.check(rule, v, n.known, found)
	}
	if p := n.methods.get(v.Method); p != nowhere {
		found = x.open(p, v, n.known|Method, found)
	}
	if p := n.protocols.get(v.Protocol); p != nowhere {
		found = x.open(p, v, n.known|Protocol, found)
	}
	if p := n.routes.get(v.Route); p != nowhere {
		found = x.open(p, v, n.known|Route, found)
	}
	if !n.hosts.empty() {
		found = x.lookHost(n, v, found)
	}
	if n.paths != nil {
		found = x.lookPath(n, v, found)
	}
	for i := range n.headers {
		h := &n.headers[i]
		if value, ok := v.field(h.name); ok {
			if p := h.values.get(value); p != nowhere {
				found = x.open(p, v, n.known|onHeader, found)
			}
		}
	}
	if len(n.clients) > 0 && v.Client.IsValid() {
		found = x.lookClient(n, v, found)
	}
	return found
}

// open appends the rules at a place that match v.
func (x *Index) open(p slot, v *View, known Kind, found []int32) []int32 {
	if p >= 0 {
		return x.check(p, v, known, found)
	}
	b := &x.buckets[^p]
	if b.deeper != nil {
		return x.look(b.deeper, v, found)
	}
	for _, rule := range b.rules {
		found = x.check(rule, v, known, found)
	}
	return found
}

// check appends a rule if its conditions hold, of which some are known to.
func (x *Index) check(rule int32, v *View, known Kind, found []int32) []int32 {
	b := x.briefs[rule]
	open := b.has &^ known
	if open&Method != 0 && b.methods != 0 {
		if b.methods&v.method == 0 {
			return found
		}
		open &^= Method
	}
	if open != 0 && !x.rules[rule].hold(v, open) {
		return found
	}
	return append(found, rule)
}

// Bind makes [View.PathValue] that of the first pattern of the rule that the path matches. It is looked for when it is needed.
func (x *Index) Bind(v *View, rule int32) {
	v.pattern, v.unbound = nil, nil
	if x.briefs[rule].wild {
		v.unbound = &x.rules[rule]
	}
}

// fewRules are so many that they are checked one after the other rather than filed.
const fewRules = 8

// value is what a rule can be filed under.
type value struct {
	kind Kind
	name string // of a field
	text string // unlike those of all other values of the kind and name
}

// filing files the rules of one node.
type filing struct {
	x     *Index
	known Kind
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
func (x *Index) file(rules []int32, known Kind, names []string) *node {
	n := &node{known: known}
	if len(rules) <= fewRules {
		n.others = rules
		return n
	}
	f := &filing{x, known, names, map[value]int{}, map[string]bool{}, map[string]*pattern{}, map[value][]int32{}, nil}
	for _, rule := range rules {
		for _, values := range f.alternatives(&x.rules[rule]) {
			for _, v := range values {
				f.shared[v]++
			}
			if values[0].kind == onHeader {
				f.fields[values[0].name] = true
			}
		}
	}
	for _, rule := range rules {
		values := f.choose(&x.rules[rule])
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
func (f *filing) alternatives(c *Conditions) [][]value {
	var all [][]value
	add := func(values []value) {
		if len(values) > 0 && (f.known&values[0].kind == 0 || values[0].kind == onHeader) {
			slices.SortFunc(values, func(a, b value) int { return cmp.Compare(a.text, b.text) })
			all = append(all, slices.Compact(values))
		}
	}
	paths := make([]value, 0, len(c.paths))
	for _, p := range c.paths {
		shape := p.shape()
		f.patterns[shape] = p
		paths = append(paths, value{Path, "", shape})
	}
	add(paths)
	add(valuesOf(Host, c.hosts, hostPattern.String))
	add(valuesOf(Route, c.routes, strings.Clone))
	add(valuesOf(onClient, c.clients, netip.Prefix.String))
	for _, h := range c.headers {
		if h.kind == headerExact && !slices.Contains(f.names, h.name) {
			add([]value{{onHeader, h.name, h.text}})
		}
	}
	add(valuesOf(Method, c.methods, strings.Clone))
	add(valuesOf(Protocol, c.protocols, strings.Clone))
	return all
}

func valuesOf[T any](kind Kind, all []T, text func(T) string) []value {
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
func (f *filing) choose(c *Conditions) []value {
	var best []value
	least := 0
	for _, values := range f.alternatives(c) {
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
	case Path:
		if n.paths == nil {
			n.paths = newPathTable()
		}
		n.paths.put(f.patterns[v.text], p)
	case Host:
		h := hostPattern{text: v.text}
		h.text, h.below = strings.CutPrefix(v.text, "*")
		n.hosts.put(h, p)
	case Route:
		n.routes.put(v.text, p)
	case Method:
		n.methods.put(v.text, p)
	case Protocol:
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
	for i := range n.clients {
		n.clients[i].freeze()
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
		if t := &n.clients[i]; t.bits == network.Bits() && t.is4 == is4 {
			return t
		}
	}
	t := networkTable{bits: network.Bits(), is4: is4}
	if is4 {
		t.v4 = map[uint32]slot{}
	} else {
		t.v6 = map[[16]byte]slot{}
	}
	n.clients = append(n.clients, t)
	return &n.clients[len(n.clients)-1]
}
