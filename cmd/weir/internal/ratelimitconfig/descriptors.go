package ratelimitconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/config/yamlread"
)

const (
	// mostDepth is how many descriptors may be nested: as many entries has the longest descriptor that anything matches.
	mostDepth = 64
	// mostBurst is the largest burst.
	mostBurst = 1_000_000_000_000
	// mostDescriptors is how many there may be in all files.
	mostDescriptors = 100_000
)

// readFile reads the domain of a file.
func (d *decoder) readFile(root yamlread.Value) {
	m, ok := d.read(root, fileKind)
	if !ok {
		return
	}
	dom := d.domainOf(m)
	if f, ok := get(m, keyDescriptors); ok {
		d.descriptors(f, &dom.root, &scope{domain: dom.name, path: dom.name})
	}
	if d.Exhausted() {
		d.WrongAt(1, 1, fmt.Sprintf("aliases make more than %d values of it", mostAliased),
			"write what they stand for once, or split the file")
	}
}

// domainOf returns the domain of a file. After a mistake it is one that is dropped, so that the rest of the file is read.
func (d *decoder) domainOf(m *yamlread.Object) *domain {
	f, ok := get(m, keyDomain)
	if !ok {
		d.missing(m, "has no domain", "write domain: a name")
		return new(domain)
	}
	name, ok := d.text(f)
	if ok && name == "" {
		d.empty(f, "write domain: a name")
	}
	if name == "" {
		return new(domain)
	}
	dom := d.domains[name]
	if dom != nil && !d.o.Merge {
		d.Wrong(f, "is the domain of another file, "+dom.at+", and files are not merged",
			"put the descriptors into one file, or have files merged by --ratelimit-merge")
		return new(domain)
	}
	if dom == nil {
		dom = &domain{name: name, at: d.Place(f.Itself())}
		d.domains[name] = dom
	}
	return dom
}

// scope is what leads to a list of descriptors.
type scope struct {
	domain string
	path   string  // as statistics have it: "domain.key_value"
	levels []level // a copy for each limit
}

// level is an entry of a descriptor, as the key of its counter has it.
type level struct {
	key, value string // value is "" if it varies
	vary       bool   // each value has a counter of its own
}

// descriptors reads a list of descriptors below a node.
func (d *decoder) descriptors(v yamlread.Value, parent *node, s *scope) {
	if len(s.levels) >= mostDepth {
		d.Wrong(v.OfKey(), fmt.Sprintf("more than %d descriptors are nested", mostDepth), "remove some")
		return
	}
	for _, item := range d.items(v, "descriptors", "- key: a name") {
		d.descriptor(item, parent, s)
	}
}

// descriptor reads one.
func (d *decoder) descriptor(v yamlread.Value, parent *node, s *scope) {
	m, ok := d.read(v, descriptorKind)
	if !ok {
		return
	}
	if d.count++; d.count >= mostDescriptors {
		if d.count == mostDescriptors {
			d.Wrong(v, fmt.Sprintf("there are more than %d descriptors", mostDescriptors), "split them among several servers")
		}
		return
	}
	key, value := d.entry(m)
	child := &node{at: d.Place(v)}
	l := level{key: key, value: value}
	wild := strings.Contains(value, "*")
	shared, f := d.flag(m, keyShareThreshold)
	switch {
	case value == "":
		l.vary = true
	case wild && !shared:
		l.vary, l.value = true, ""
	}
	if shared && !wild {
		d.Wrong(f, "is for values with a wildcard: there is no * in the value", "remove it, or write value: prefix*")
	}
	if key != "" && !d.attach(parent, key, value, child, v) {
		return
	}
	below := &scope{s.domain, s.path + "." + key, append(slices.Clip(s.levels), l)}
	if value != "" {
		below.path += "_" + value
	}
	d.limitOf(m, child, below)
	if f, ok := get(m, keyDescriptors); ok {
		d.descriptors(f, child, below)
	}
}

// entry reads the key and the value of a descriptor; key is "" after a mistake.
func (d *decoder) entry(m *yamlread.Object) (key, value string) {
	f, ok := get(m, keyKey)
	switch {
	case !ok:
		d.missing(m, "has no key", "write key: a name")
	default:
		if key, ok = d.text(f); ok && key == "" {
			d.empty(f, "write key: a name")
		}
		if strings.Contains(key, "*") {
			d.Warn(f, "is a key, in which * stands for itself: wildcards are for values",
				"remove it if it is meant to match others")
		}
	}
	if f, ok := get(m, keyValue); ok {
		value, _ = d.text(f)
	}
	return key, value
}

// attach puts a node into its parent. It returns false if an alias has put it there before.
func (d *decoder) attach(parent *node, key, value string, child *node, v yamlread.Value) bool {
	b := parent.branch(key)
	there := b.any
	if value != "" {
		there = b.exact[value]
	}
	if there != nil {
		what := "this key and no value"
		if value != "" {
			what = "this key and this value"
		}
		d.Wrong(v, "is a second descriptor with "+what+": the first is "+there.at, "remove one of them")
		return there.at != child.at
	}
	if value == "" {
		b.any = child
		return true
	}
	if b.exact == nil {
		b.exact = make(map[string]*node, 1)
	}
	b.exact[value] = child
	if strings.Contains(value, "*") {
		if b.wildcards == nil {
			b.wildcards = new(wildcards)
		}
		b.wildcards.add(value, child)
	}
	return true
}
