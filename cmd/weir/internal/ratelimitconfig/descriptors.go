package ratelimitconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
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
func (d *decoder) readFile(root *yaml.Node) {
	m, ok := d.read(resolve(root), fileKind)
	if !ok {
		return
	}
	dom := d.domainOf(m)
	if f, ok := m.get(keyDescriptors); ok {
		d.descriptors(f, &dom.root, &scope{domain: dom.name, path: dom.name})
	}
	if d.budget < 0 {
		d.mistakes.add(place{d.file, 1, 1}, "", "", fmt.Sprintf("aliases make more than %d values of it", mostAliased),
			"write what they stand for once, or split the file")
	}
}

// domainOf is the domain of a file; after a mistake it is one that nobody sees, so that the rest of the file is read.
func (d *decoder) domainOf(m *mapping) *domain {
	f, ok := m.get(keyDomain)
	if !ok {
		d.missing(m, "has no domain", "write domain: a name")
		return new(domain)
	}
	name, ok := d.text(f)
	if ok && name == "" {
		d.wrongField(f, "must not be empty", "write domain: a name")
	}
	if name == "" {
		return new(domain)
	}
	dom := d.domains[name]
	if dom != nil && !d.o.Merge {
		d.wrongField(f, "is the domain of another file, "+dom.at.String()+", and files are not merged",
			"put the descriptors into one file, or have files merged by --ratelimit-merge")
		return new(domain)
	}
	if dom == nil {
		dom = &domain{name: name, at: d.place(f.value)}
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
func (d *decoder) descriptors(f field, parent *node, s *scope) {
	d.within("."+keyDescriptors, func() {
		if len(s.levels) >= mostDepth {
			d.wrong(f.key, fmt.Sprintf("more than %d descriptors are nested", mostDepth), "remove some")
			return
		}
		for i, n := range d.items(field{keyDescriptors, f.key, f.value}, "descriptors", "- key: a name") {
			d.within("["+strconv.Itoa(i)+"]", func() { d.descriptor(resolve(n), parent, s) })
		}
	})
}

// descriptor reads one.
func (d *decoder) descriptor(n *yaml.Node, parent *node, s *scope) {
	m, ok := d.read(n, descriptorKind)
	if !ok {
		return
	}
	if d.count++; d.count >= mostDescriptors {
		if d.count == mostDescriptors {
			d.wrong(n, fmt.Sprintf("there are more than %d descriptors", mostDescriptors), "split them among several servers")
		}
		return
	}
	key, value := d.entry(m)
	child := &node{at: d.place(n)}
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
		d.wrongField(f, "is for values with a wildcard: there is no * in the value", "remove it, or write value: prefix*")
	}
	if key != "" && !d.attach(parent, key, value, child) {
		return
	}
	below := &scope{s.domain, s.path + "." + key, append(slices.Clip(s.levels), l)}
	if value != "" {
		below.path += "_" + value
	}
	d.limitOf(m, child, below)
	if f, ok := m.get(keyDescriptors); ok {
		d.descriptors(f, child, below)
	}
}

// entry reads the key and the value of a descriptor; key is "" after a mistake.
func (d *decoder) entry(m *mapping) (key, value string) {
	f, ok := m.get(keyKey)
	switch {
	case !ok:
		d.missing(m, "has no key", "write key: a name")
	default:
		if key, ok = d.text(f); ok && key == "" {
			d.wrongField(f, "must not be empty", "write key: a name")
		}
		if strings.Contains(key, "*") {
			d.warn(f, "is a key, in which * stands for itself: wildcards are for values",
				"remove it if it is meant to match others")
		}
	}
	if f, ok := m.get(keyValue); ok {
		value, _ = d.text(f)
	}
	return key, value
}

// attach puts a node into its parent. It returns false if an alias has put it there before.
func (d *decoder) attach(parent *node, key, value string, child *node) bool {
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
		d.mistakes.add(child.at, d.where(), "", "is a second descriptor with "+what+": the first is "+there.at.String(),
			"remove one of them")
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
