package ratelimitconfig

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/keytext"
)

// Entry is an entry of a descriptor.
type Entry struct{ Key, Value string }

// Override is the limit that a descriptor brings itself. One whose Unit is UnitUnknown is none.
type Override struct {
	RequestsPerUnit uint32
	Unit            Unit
	// UnitMultiplier is how many units it is for: as many as make 3660 days, at most. Default: 1.
	UnitMultiplier uint32
}

// Outcome is what was found for a descriptor.
type Outcome uint8

const (
	// None says that no limit applies to the descriptor: it passes.
	None Outcome = iota
	// Unlimited reports whether a limit applies that allows everything.
	Unlimited
	// Limited says that a limit holds, which is counted.
	Limited
	// Replaced says that a limit would hold which another descriptor of the request replaces: it passes, and is not counted.
	Replaced
)

// Match is what was found for a descriptor. It can be used again, which saves memory; the zero Match is ready.
type Match struct {
	// Outcome reports whether a limit holds.
	Outcome Outcome
	// Overrides tells that the policy must be asked with Brought: the limit of an override, or one whose policy counts
	// others as well.
	Overrides bool
	// Limit is the limit, nil if Outcome is None. That of an override has only Domain, Policy, PolicyBytes, RequestsPerUnit,
	// Unit, UnitMultiplier, Shadow, Quota, ShadowQuota and Counted, and is valid until the Match is used again.
	Limit *Limit
	// Key is what the descriptor is counted under in the policy of Limit, valid until the Match is used again. One of more than
	// 128 bytes is replaced by its beginning and its SHA-256, which no shorter one looks like.
	Key []byte
	// Cost is how many permits the descriptor takes: the hits, up to 10^15. If the limit is 0 per unit it is more than the
	// policy ever has, unless there are no hits.
	Cost int64
	// Brought is the limit that the request brings with it if Overrides is set.
	Brought weir.Limit

	override Limit
}

// Match finds the limit of a descriptor that counts so many hits. A descriptor has the limit of exactly as many nested
// descriptors of the file as it has entries: each is the one with the key and the value, or the first with a wildcard that
// matches the value, or that with the key alone. A descriptor with an override has that in every domain there is. Nothing is
// allocated but Key, once.
func (c *Config) Match(m *Match, domain string, entries []Entry, override Override, hits uint64) {
	m.Outcome, m.Overrides, m.Limit, m.Key, m.Cost = None, false, nil, m.Key[:0], int64(min(hits, uint64(algo.MaxPermits)))
	d := c.domains[domain]
	switch {
	case d == nil:
	case override.Unit != UnitUnknown && override.Unit < units:
		c.matchOverride(m, domain, entries, override)
	case len(entries) > 0:
		n := &d.root
		for i := range entries {
			if n = n.find(entries[i].Key, entries[i].Value); n == nil {
				return
			}
		}
		if n.limit != nil {
			m.hold(n.limit, entries)
		}
	}
}

// hold says that a limit of the file holds.
func (m *Match) hold(l *Limit, entries []Entry) {
	m.Limit = l
	if l.Unlimited {
		m.Outcome = Unlimited
		return
	}
	m.Outcome = Limited
	for i := range l.key {
		p := &l.key[i]
		m.Key = append(m.Key, p.literal...)
		switch {
		case p.entry < 0:
		case p.raw:
			m.Key = append(m.Key, entries[p.entry].Value...)
		default:
			m.Key = appendValue(m.Key, entries[p.entry].Value)
		}
	}
	m.Key = keytext.Bound(m.Key, 0)
	if l.grouped {
		m.Overrides, m.Brought = true, l.Counted
	}
	m.nothing(l)
}

// nothing makes a limit of 0 refuse everything.
func (m *Match) nothing(l *Limit) {
	if l.RequestsPerUnit == 0 && m.Cost > 0 && !l.Quota {
		m.Cost = algo.MaxPermits
	}
}

// matchOverride says that the limit holds which the descriptor brings. It is counted apart from those of files.
func (c *Config) matchOverride(m *Match, domain string, entries []Entry, o Override) {
	name, algorithm := &c.overrides.other, c.overrides.algorithm
	if algorithm.plain(o.Unit, o.UnitMultiplier) {
		name = &c.overrides.plain
	}
	if c.quota && !c.overrides.shadow {
		m.Brought = algorithm.quota(int64(o.RequestsPerUnit), o.Unit, o.UnitMultiplier, 0)
	} else {
		m.Brought = algorithm.limit(int64(o.RequestsPerUnit), o.Unit, o.UnitMultiplier, 0)
	}
	m.override = Limit{
		Domain: domain, Policy: name.text, PolicyBytes: name.bytes, RequestsPerUnit: o.RequestsPerUnit, Unit: o.Unit,
		UnitMultiplier: o.UnitMultiplier, Shadow: c.overrides.shadow, Quota: c.quota && !c.overrides.shadow,
		ShadowQuota: c.quota && c.overrides.shadow, Counted: m.Brought,
	}
	m.Outcome, m.Overrides, m.Limit = Limited, true, &m.override
	m.Key = append(appendValue(m.Key, domain), '|')
	m.Key = append(m.Key, o.Unit.String()...)
	if o.UnitMultiplier > 1 {
		m.Key = strconv.AppendUint(append(m.Key, '*'), uint64(o.UnitMultiplier), 10)
	}
	for i := range entries {
		m.Key = append(appendKey(append(m.Key, '|'), entries[i].Key), '=')
		m.Key = appendValue(m.Key, entries[i].Value)
	}
	m.Key = keytext.Bound(m.Key, 0)
	m.nothing(m.Limit)
}

// Replace makes those matches of one request Replaced whose limits have a name that another of its limits replaces. Those
// that are Unlimited replace others, and are not replaced themselves.
func Replace(matches []Match) {
	for i := range matches {
		if matches[i].Limit == nil {
			continue
		}
		for _, name := range matches[i].Limit.Replaces {
			for j := range matches {
				if other := &matches[j]; other.Outcome == Limited && other.Limit.Name == name {
					other.Outcome = Replaced
				}
			}
		}
	}
}

// domain is a tree of descriptors.
type domain struct {
	name string
	at   string // where it stands, such as "limits.yaml:12:5"
	root node
}

// node is a descriptor. What leads to it stands in the branches of the one above.
type node struct {
	limit    *Limit
	branches map[string]*branch // by key, nil if there are none
	at       string             // where it stands
}

// branch is what there is for a key.
type branch struct {
	exact     map[string]*node // by value; those with wildcards are here as well, by the text that the file has
	wildcards *wildcards       // nil if there are none
	any       *node            // of values that are not there, nil for none
}

// branch is the one of a key, which is made if need be.
func (n *node) branch(key string) *branch {
	b := n.branches[key]
	if b == nil {
		if n.branches == nil {
			n.branches = make(map[string]*branch, 1)
		}
		b = new(branch)
		n.branches[key] = b
	}
	return b
}

// find is the descriptor below for an entry, nil if there is none: that of the value, or of the first wildcard of the file that
// matches, or of any value.
func (n *node) find(key, value string) *node {
	b := n.branches[key]
	if b == nil {
		return nil
	}
	if found := b.exact[value]; found != nil {
		return found
	}
	if b.wildcards != nil {
		if found := b.wildcards.find(value); found != nil {
			return found
		}
	}
	return b.any
}

// wildcards are values with asterisks, each of which stands for any text. They are filed by what stands before the first one, so
// that many of them are as fast as few.
type wildcards struct {
	count    int
	lengths  []int // of the beginnings, in order
	byPrefix map[string][]wildcard
}

type wildcard struct {
	order int      // in the file
	parts []string // between the asterisks, and behind the last one
	node  *node
}

func (w *wildcards) add(pattern string, n *node) {
	prefix, rest, _ := strings.Cut(pattern, "*")
	if w.byPrefix == nil {
		w.byPrefix = make(map[string][]wildcard)
	}
	if at, found := slices.BinarySearch(w.lengths, len(prefix)); !found {
		w.lengths = slices.Insert(w.lengths, at, len(prefix))
	}
	w.byPrefix[prefix] = append(w.byPrefix[prefix], wildcard{w.count, strings.Split(rest, "*"), n})
	w.count++
}

func (w *wildcards) find(value string) *node {
	var found *node
	first := w.count
	for _, length := range w.lengths {
		if length > len(value) {
			break
		}
		for _, c := range w.byPrefix[value[:length]] {
			if c.order >= first {
				break
			}
			if c.matches(value[length:]) {
				found, first = c.node, c.order
				break
			}
		}
	}
	return found
}

// matches reports whether the rest of a value, behind the beginning, is what the wildcard stands for.
func (w *wildcard) matches(rest string) bool {
	last := len(w.parts) - 1
	end := len(rest) - len(w.parts[last])
	if end < 0 || rest[end:] != w.parts[last] {
		return false
	}
	rest = rest[:end]
	for _, part := range w.parts[:last] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}
