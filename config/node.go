package config

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// decoder turns the nodes of a file into policies and rules. It goes on after a mistake, and leaves out what cannot be used.
type decoder struct {
	mistakes

	source      *source
	env         func(string) (string, bool)
	expressions *expressions
	warnings    mistakes
	// shown are the values that came from the environment as they are written, by their paths.
	shown map[string]string
	// refusals are what the engine has against values of conditions, which often come again.
	refusals map[string]string
	// budget is how many more nodes may be looked at.
	budget int
	// hasStore tells that shared policies need no store in the file.
	hasStore bool
	// hasCluster tells that policies of durability cluster need no cluster in the file.
	hasCluster bool
	// stateFile is where the program keeps calendar windows that say nothing else, "" if it does not, or the file has a cluster.
	stateFile string
	// hasShedder tells that priorities count.
	hasShedder bool
}

// mostAliased is how many nodes may be looked at again, as aliases lead to them.
const mostAliased = 1_000_000

// nodes counts those of a tree. Aliases are not followed.
func nodes(n *yaml.Node) int {
	count := 1
	for _, c := range n.Content {
		count += nodes(c)
	}
	return count
}

// spend takes nodes from the budget, and reports whether there were enough.
func (d *decoder) spend(n int) bool {
	d.budget -= n
	return d.budget >= 0
}

// value is a node with its place in the structure.
type value struct {
	node *yaml.Node // no alias
	path string
	// key is the node of its key, nil in a list.
	key *yaml.Node
}

// at is where to point to if a value is missing something.
func (v value) at() *yaml.Node {
	if v.key != nil && (v.node.Kind != yaml.ScalarNode || v.isNull()) {
		return v.key
	}
	return v.node
}

func (v value) isNull() bool {
	return v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == "!!null"
}

// wrong adds a mistake about a value.
func (d *decoder) wrong(v value, message, fix string) {
	d.add(d.about(v, message, fix))
}

// warn adds a warning about a value.
func (d *decoder) warn(v value, message, fix string) {
	d.warnings.add(d.about(v, message, fix))
}

func (d *decoder) about(v value, message, fix string) Mistake {
	at := v.at()
	m := d.source.mistake(at.Line, at.Column, message, fix)
	m.Path = v.path
	if v.node.Kind == yaml.ScalarNode && v.node.Value != "" {
		m.Value = shorten(v.node.Value)
	}
	return *m
}

// resolve follows aliases.
func (d *decoder) resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// child is a node below another one.
func (d *decoder) child(n, key *yaml.Node, path string) value {
	return value{d.resolve(n), path, key}
}

// The kinds of nodes that are no scalars, as describe names them.
const (
	isMapping = "is a mapping"
	isList    = "is a list"
)

// describe names the kind of a node.
func describe(v value) string {
	switch {
	case v.node.Kind == yaml.MappingNode:
		return isMapping
	case v.node.Kind == yaml.SequenceNode:
		return isList
	case v.isNull():
		return "is empty"
	}
	switch v.node.ShortTag() {
	case tagInt, "!!float":
		return "is a number"
	case "!!bool":
		return "is true or false"
	}
	return "is text"
}

// join is the path of a key below another path.
func join(path, key string) string {
	plain := key != "" && len(key) <= 64
	for i := range len(key) {
		c := key[i]
		plain = plain && (c == '_' || c == '-' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z')
	}
	if !plain {
		return path + "[" + strconv.Quote(shorten(key)) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// object is a mapping.
type object struct {
	value

	d      *decoder
	keys   []string // in the order of the file
	fields map[string]value
	failed bool // some keys could not be read, so nothing can be said about those that are missing
}

// object reads a mapping whose keys are fixed: those of a [kind].
func (d *decoder) object(v value, k kind) (*object, bool) {
	o, ok := d.mapping(v, k.what)
	if !ok {
		return nil, false
	}
	for _, key := range o.keys {
		if _, ok := k.keys[key]; ok || k.ignored(key) {
			continue
		}
		field := o.fields[key]
		fix, hinted := k.hints[key]
		if !hinted {
			known := k.names()
			fix = meant(key, known, "accepted are "+oneOf(known))
		}
		m := d.source.mistake(field.key.Line, field.key.Column,
			"unknown key: no "+strconv.Quote(shorten(key))+" is accepted in "+k.what, fix)
		m.Path = field.path
		d.add(*m)
		o.failed = true
	}
	return o, true
}

// mapping reads a mapping with any keys.
func (d *decoder) mapping(v value, what string) (*object, bool) {
	if v.node.Kind != yaml.MappingNode {
		d.wrong(v, describe(v)+": must be a mapping, "+what, "write key: value below it, or {key: value}")
		return nil, false
	}
	o := &object{d: d, value: v, fields: make(map[string]value, len(v.node.Content)/2)}
	d.collect(o, v.node, 0)
	return o, true
}

// deepestMerge is how many merges may lead to one another.
const deepestMerge = 8

// collect reads the entries of a mapping, and those that it merges: what stands in the mapping itself wins.
func (d *decoder) collect(o *object, n *yaml.Node, depth int) {
	if !d.spend(1 + len(n.Content)) {
		return
	}
	var merged []*yaml.Node
	own := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, content := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
			merged = append(merged, content)
			continue
		}
		key = d.resolve(key)
		if key.Kind != yaml.ScalarNode {
			d.wrong(value{node: key, path: o.path}, "a key must be text", "write key: value")
			o.failed = true
			continue
		}
		name := key.Value
		if first, twice := own[name]; twice {
			m := d.source.mistake(n.Content[i].Line, n.Content[i].Column,
				fmt.Sprintf("the key %q stands here twice: first in line %d", shorten(name), first.Line), "remove one of them")
			m.Path = join(o.path, name)
			d.add(*m)
			continue
		}
		own[name] = key
		if _, overridden := o.fields[name]; overridden {
			continue
		}
		o.keys = append(o.keys, name)
		o.fields[name] = d.child(content, n.Content[i], join(o.path, name))
	}
	for _, m := range merged {
		m = d.resolve(m)
		sources := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			sources = m.Content
		}
		if !d.spend(len(sources)) {
			return
		}
		for _, s := range sources {
			s = d.resolve(s)
			if s.Kind != yaml.MappingNode || depth >= deepestMerge {
				d.wrong(value{node: s, path: o.path},
					"<< must be a mapping, or a list of mappings, that are merged into this one",
					"write <<: *name of an anchor &name")
				o.failed = true
				continue
			}
			d.collect(o, s, depth+1)
		}
	}
}

// get is the value of a key.
func (o *object) get(key string) (value, bool) {
	v, ok := o.fields[key]
	return v, ok
}

// missing adds a mistake about a key that must be given, unless it may be one of those that could not be read.
func (o *object) missing(key, what, fix string) {
	if o.failed {
		return
	}
	m := o.d.about(o.value, what, fix)
	m.Path, m.Value = join(o.path, key), ""
	o.d.add(m)
}

// list returns the items of a list, or a single value as the only item if one is accepted.
func (d *decoder) list(v value, single bool, what string) ([]value, bool) {
	if v.node.Kind != yaml.SequenceNode {
		if single && !v.isNull() {
			return []value{v}, true
		}
		if single {
			what += ", or a list"
		}
		d.wrong(v, describe(v)+": must be "+what, "write [a, b], or a line with - for each item")
		return nil, false
	}
	if len(v.node.Content) == 0 {
		d.wrong(v, "the list is empty: must be "+what, "add an item, or remove the key")
		return nil, false
	}
	if !d.spend(1 + len(v.node.Content)) {
		return nil, false
	}
	items := make([]value, 0, len(v.node.Content))
	for i, n := range v.node.Content {
		items = append(items, d.child(n, nil, v.path+"["+strconv.Itoa(i)+"]"))
	}
	return items, true
}

// place is where a value stands, such as "weir.yaml:12:5".
func (d *decoder) place(v value) string {
	n := v.node
	if v.key != nil {
		n = v.key
	}
	return strings.Join([]string{d.source.name, strconv.Itoa(n.Line), strconv.Itoa(n.Column)}, ":")
}
