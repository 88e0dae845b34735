package policy

import (
	"errors"
	"math"
	"slices"
)

// index finds the rules whose Match holds for a request. It does not change.
//
// Each rule is filed under one of its conditions, the one whose values it shares with the fewest other rules, so that a
// request asks for the rules of its own path, host and so on, and not for all. Where many rules share even that, they are filed
// by another condition once more. What remains of their conditions is checked of the few that were found. Rules without a
// condition that they could be filed under, such as those for all requests, are checked one after the other.
//
// What a request costs is bounded by the rules, and not by what it says: no more segments of a path and no more labels of a
// host are looked at than the longest pattern has, each node of the tree of paths is visited at most once, and what is longer
// than any value of the rules is not even hashed. Only to make the path and the host clean they are read as a whole, once.
type index struct {
	matchers []matcher // by the number of the rule
	briefs   []brief   // of the matchers
	root     *node
	buckets  []bucket
}

// slot is where rules are filed: the number of a single rule, or the complement of a place in index.buckets.
type slot = int32

const nowhere = math.MinInt32

// bucket are several rules that share a value: in a list if they are few, otherwise filed by another condition.
type bucket struct {
	rules  []int32
	deeper *node
}

// node is a set of rules, each of which is filed by one of its conditions.
type node struct {
	known     conditions // hold for all who come here
	methods   textTable
	protocols textTable
	routes    textTable
	hosts     hostTable
	paths     *pathTable
	headers   []headerTable
	clients   []networkTable
	others    []int32 // rules that are not filed
}

// newIndex returns the index of rules, or all that is wrong with their Match.
func newIndex(rules []Rule) (*index, error) {
	x := &index{matchers: make([]matcher, len(rules)), briefs: make([]brief, len(rules))}
	var errs []error
	all := make([]int32, len(rules))
	for i := range rules {
		var wrong []error
		x.matchers[i], wrong = newMatcher(&rules[i])
		errs = append(errs, wrong...)
		x.briefs[i] = x.matchers[i].brief()
		all[i] = int32(i)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	x.root = x.file(all, 0, nil)
	return x, nil
}

// match appends the numbers of the rules whose Match holds for r to found, in ascending order. It looks at the usual reading of
// the path.
func (x *index) match(r *Request, found []int32) []int32 {
	r.readAs(0, nil)
	return x.matchRead(r, found)
}

// matchRead is match for the reading of the path that [Request.readAs] has chosen.
func (x *index) matchRead(r *Request, found []int32) []int32 {
	before := len(found)
	found = x.look(x.root, r, found)
	// A rule is found twice if two of its patterns match.
	if matched := found[before:]; len(matched) > 1 {
		slices.Sort(matched)
		found = found[:before+len(slices.Compact(matched))]
	}
	return found
}

// look appends the rules below n that match r.
func (x *index) look(n *node, r *Request, found []int32) []int32 {
	for _, rule := range n.others {
		found = x.check(rule, r, n.known, found)
	}
	if p := n.methods.get(r.Method); p != nowhere {
		found = x.open(p, r, n.known|onMethod, found)
	}
	if p := n.protocols.get(r.Protocol); p != nowhere {
		found = x.open(p, r, n.known|onProtocol, found)
	}
	if p := n.routes.get(r.Route); p != nowhere {
		found = x.open(p, r, n.known|onRoute, found)
	}
	if !n.hosts.empty() {
		found = x.lookHost(n, r, found)
	}
	if n.paths != nil {
		found = x.lookPath(n, r, found)
	}
	for i := range n.headers {
		h := &n.headers[i]
		if value, ok := r.HeaderValue(h.name); ok {
			if p := h.values.get(value); p != nowhere {
				found = x.open(p, r, n.known|onHeader, found)
			}
		}
	}
	if len(n.clients) > 0 && r.Client.IsValid() {
		found = x.lookClient(n, r, found)
	}
	return found
}

// open appends the rules at a place that match r.
func (x *index) open(p slot, r *Request, known conditions, found []int32) []int32 {
	if p >= 0 {
		return x.check(p, r, known, found)
	}
	b := &x.buckets[^p]
	if b.deeper != nil {
		return x.look(b.deeper, r, found)
	}
	for _, rule := range b.rules {
		found = x.check(rule, r, known, found)
	}
	return found
}

// check appends a rule if its conditions hold, of which some are known to.
func (x *index) check(rule int32, r *Request, known conditions, found []int32) []int32 {
	b := x.briefs[rule]
	open := b.has &^ known
	if open&onMethod != 0 && b.methods != 0 {
		if b.methods&r.path.method == 0 {
			return found
		}
		open &^= onMethod
	}
	if open != 0 && !x.matchers[rule].hold(r, open) {
		return found
	}
	return append(found, rule)
}

// bind makes r.PathValue answer the wildcards of the first pattern of the rule that the path of r matches. It is looked for when
// somebody asks.
func (x *index) bind(r *Request, rule int32) {
	r.path.pattern, r.path.unbound = nil, nil
	if m := &x.matchers[rule]; m.wild {
		r.path.unbound = m
	}
}
