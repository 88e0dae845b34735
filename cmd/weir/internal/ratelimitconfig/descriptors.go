package ratelimitconfig

import (
	"fmt"
	"math"
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
	dom := new(domain) // where there is a mistake: the rest is read nevertheless
	f, ok := m.get(keyDomain)
	switch name := ""; {
	case ok:
		if name, ok = d.text(f); !ok {
			break
		}
		if name == "" {
			d.wrongField(f, "must not be empty", "write domain: a name")
			break
		}
		if first := d.domains[name]; first != nil && !d.o.Merge {
			d.wrongField(f, "is the domain of another file, "+first.at.String()+", and files are not merged",
				"put the descriptors into one file, or have files merged")
			break
		}
		dom = d.domain(name, d.place(f.value))
	default:
		d.missing(m, "has no domain", "write domain: a name")
	}
	if f, ok := m.get(keyDescriptors); ok {
		d.descriptors(f, &dom.root, &scope{domain: dom.name, path: dom.name})
	}
	if d.budget < 0 {
		d.mistakes.add(place{d.file, 1, 1}, "", "", fmt.Sprintf("aliases make more than %d values of it", mostAliased),
			"write what they stand for once, or split the file")
	}
}

// domain is the one with this name, which is made if need be.
func (d *decoder) domain(name string, at place) *domain {
	dom := d.domains[name]
	if dom == nil {
		dom = &domain{name: name, at: at}
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
	if key != "" {
		d.attach(parent, key, value, child)
	}
	below := &scope{s.domain, s.path + "." + key, append(s.levels[:len(s.levels):len(s.levels)], l)}
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
			d.warn(f, "is a key, in which * stands for itself: wildcards are for values", "remove it if it is meant to match others")
		}
	}
	if f, ok := m.get(keyValue); ok {
		value, _ = d.text(f)
	}
	return key, value
}

// attach puts a node into its parent.
func (d *decoder) attach(parent *node, key, value string, child *node) {
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
		return
	}
	if value == "" {
		b.any = child
		return
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
}

// limitOf reads the limit of a descriptor, if it has one.
func (d *decoder) limitOf(m *mapping, child *node, s *scope) {
	var l Limit
	d.modes(m, &l)
	f, ok := m.get(keyRateLimit)
	if !ok {
		for _, name := range []string{keyShadowMode, keyQuotaMode, keyMetadata} {
			if f, ok := m.get(name); ok {
				d.warn(f, "has no effect: the descriptor has no limit of its own", "move it to the descriptor with the limit")
			}
		}
		return
	}
	l.Domain, l.Path, l.Source, l.levels = s.domain, s.path, child.at.String(), s.levels
	d.within("."+keyRateLimit, func() {
		if m, ok := d.read(f.value, limitKind); ok && d.readLimit(m, &l) {
			child.limit = &l
			d.limits = append(d.limits, &l)
		}
	})
}

// modes reads what a descriptor says about its limit.
func (d *decoder) modes(m *mapping, l *Limit) {
	var quota field
	l.Shadow, _ = d.flag(m, keyShadowMode)
	l.Quota, quota = d.flag(m, keyQuotaMode)
	l.DetailedMetric, _ = d.flag(m, keyDetailedMetric)
	l.ValueToMetric, _ = d.flag(m, keyValueToMetric)
	if d.o.Shadow {
		l.Shadow = true
	} else if l.Shadow && l.Quota {
		d.warn(quota, "has no effect beside shadow_mode", "remove one of them")
	}
	l.Quota = l.Quota && !l.Shadow
	if f, ok := m.get(keyMetadata); ok {
		l.Metadata = d.metadata(f)
	}
}

// readLimit reads a limit, and answers whether it can be used.
func (d *decoder) readLimit(m *mapping, l *Limit) bool {
	before := d.mistakes.made()
	l.Unlimited, _ = d.flag(m, keyUnlimited)
	if f, ok := m.get(keyName); ok {
		l.Name, _ = d.text(f)
	}
	d.replaces(m, l)
	if l.Unlimited {
		d.unlimited(m)
	} else {
		d.limited(m, l)
	}
	return d.mistakes.made() == before
}

// unlimited refuses what makes no sense for a limit that has none.
func (d *decoder) unlimited(m *mapping) {
	for _, name := range []string{keyUnit, keyMultiplier, keyAlgorithm, keyBurst, keyConsistency} {
		if f, ok := m.get(name); ok {
			d.wrongField(f, "must not stand beside unlimited: true", "remove one of them")
		}
	}
	if f, ok := m.get(keyRequests); ok {
		d.warn(f, "has no effect beside unlimited: true", "remove one of them")
	}
}

// limited reads how much is granted, and how it is counted.
func (d *decoder) limited(m *mapping, l *Limit) {
	names := unitNames[Second:]
	if f, ok := m.get(keyUnit); !ok {
		d.missing(m, "has no unit", "write unit: "+oneOf(names))
	} else if text, ok := d.text(f); ok {
		if l.Unit, ok = unitNamed(text); !ok {
			fix := "write unit: minute, for instance"
			if near := nearest(text, names); near != "" {
				fix = "did you mean " + strconv.Quote(near) + "?"
			}
			d.wrongField(f, "is not a unit: must be "+oneOf(names), fix)
		}
	}
	if f, ok := m.get(keyRequests); !ok {
		d.missing(m, "has no requests_per_unit", "write requests_per_unit: 100, for instance, or 0 to refuse everything")
	} else if n, ok := d.number(f, 0, 1<<32-1); ok {
		l.RequestsPerUnit = uint32(n) //nolint:gosec // it is in range
		if l.Unit == Second && n > mostPerSecond {
			d.warn(f, fmt.Sprintf("is counted as %d per second", mostPerSecond), "write unlimited: true if there is no limit")
		}
	}
	if f, ok := m.get(keyMultiplier); ok {
		n, _ := d.number(f, 1, l.Unit.mostMultiplier())
		l.UnitMultiplier = uint32(min(n, math.MaxUint32)) //nolint:gosec // it is in range
	}
	algorithm, burst := d.o.Algorithm, int64(0)
	if f, ok := m.get(keyAlgorithm); ok {
		if text, ok := d.text(f); ok && algorithm.UnmarshalText([]byte(text)) != nil {
			d.wrongField(f, "is not an algorithm: must be "+oneOf(algorithmNames[:]), "remove it to have "+algorithm.String())
		}
	}
	if f, ok := m.get(keyBurst); ok {
		switch {
		case algorithm != TokenBucket:
			d.wrongField(f, "is for token buckets, and this is "+algorithm.String(), "remove it, or write algorithm: token_bucket")
		case l.RequestsPerUnit == 0:
			d.wrongField(f, "has no effect where requests_per_unit is 0", "remove one of them")
		default:
			burst, _ = d.number(f, 1, mostBurst)
		}
	}
	l.consistency = d.o.Consistency
	if f, ok := m.get(keyConsistency); ok {
		if text, ok := d.text(f); ok && l.consistency.UnmarshalText([]byte(text)) != nil {
			d.wrongField(f, "is not a consistency: must be local, coherent, leased or optimistic", "remove it to have "+
				d.o.Consistency.String())
		}
	}
	l.algorithm = algorithm
	if l.Unit != UnitUnknown {
		l.Counted = algorithm.limit(l.RequestsPerUnit, l.Unit, l.UnitMultiplier, burst)
		if err := l.Counted.Check(); err != nil {
			d.wrong(m.node, strings.TrimPrefix(err.Error(), "weir: "), "choose a smaller burst, or a larger limit")
		}
	}
}

// replaces reads the names of limits that this one replaces.
func (d *decoder) replaces(m *mapping, l *Limit) {
	f, ok := m.get(keyReplaces)
	if !ok {
		return
	}
	d.within("."+keyReplaces, func() {
		for i, n := range d.items(f, "names of limits", "- name: the name of another limit") {
			d.within("["+strconv.Itoa(i)+"]", func() {
				m, ok := d.read(resolve(n), replacesKind)
				if !ok {
					return
				}
				f, ok := m.get(keyName)
				if !ok {
					d.missing(m, "has no name", "write - name: the name of another limit")
					return
				}
				switch name, ok := d.text(f); {
				case !ok:
				case name == "":
					d.wrongField(f, "must not be empty", "write the name of another limit")
				case name == l.Name:
					d.wrongField(f, "is the name of the limit itself", "write the name of another limit")
				case !slices.Contains(l.Replaces, name):
					l.Replaces = append(l.Replaces, name)
					d.replacing = append(d.replacing, replacing{l.Domain, name, d.place(f.value), d.where() + "." + keyName})
				}
			})
		}
	})
}

// replacing is a name in a list of replaces.
type replacing struct {
	domain, name string
	at           place
	path         string
}

// checkReplaces warns of names that no limit has.
func (d *decoder) checkReplaces() {
	type named struct{ domain, name string }
	names := make(map[named]bool)
	for _, l := range d.limits {
		names[named{l.Domain, l.Name}] = true
	}
	for _, r := range d.replacing {
		if !names[named{r.domain, r.name}] {
			d.warnings.add(r.at, r.path, r.name, "no limit of the domain has this name", "see how it is spelled")
		}
	}
}
