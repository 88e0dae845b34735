package ratelimitconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// decoder reads files one after another, and goes on after a mistake.
type decoder struct {
	o        Options
	file     *source
	mistakes complaints
	warnings complaints
	path     []string // to what is looked at
	budget   int      // how many more nodes may be looked at
	count    int      // of descriptors
	domains  map[string]*domain
	limits   []*Limit // in the order of the files
	// replacing are the names that limits replace.
	replacing []replacing
}

// mostAliased is how many nodes may be looked at again, as aliases lead to them.
const mostAliased = 500_000

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

// field is an entry of a mapping. Its value is no alias.
type field struct {
	name       string
	key, value *yaml.Node
}

func (d *decoder) place(n *yaml.Node) place { return place{d.file, n.Line, n.Column} }

// wrong adds a mistake about a node.
func (d *decoder) wrong(n *yaml.Node, message, fix string) {
	d.mistakes.add(d.place(n), d.where(), valueOf(n), message, fix)
}

// wrongField is wrong for a field, whose key shows where it stands if there is no value.
func (d *decoder) wrongField(f field, message, fix string) {
	d.complain(&d.mistakes, f, message, fix)
}

// warn adds a warning about a field.
func (d *decoder) warn(f field, message, fix string) { d.complain(&d.warnings, f, message, fix) }

func (d *decoder) complain(c *complaints, f field, message, fix string) {
	at := f.value
	if at.Kind != yaml.ScalarNode || at.Value == "" {
		at = f.key
	}
	d.path = append(d.path, "."+f.name)
	c.add(d.place(at), d.where(), valueOf(f.value), message, fix)
	d.path = d.path[:len(d.path)-1]
}

// where is the path, such as "descriptors[0].rate_limit.unit".
func (d *decoder) where() string { return strings.TrimPrefix(strings.Join(d.path, ""), ".") }

// within does something one level below.
func (d *decoder) within(step string, do func()) {
	d.path = append(d.path, step)
	do()
	d.path = d.path[:len(d.path)-1]
}

// valueOf is the value of a scalar, "" of anything else.
func valueOf(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// resolve follows aliases.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// mapping is a mapping whose keys are known.
type mapping struct {
	node   *yaml.Node
	fields []field
	odd    bool // some keys could not be read, so nothing can be said about those that are missing
}

// get is a field. One without a value is as if it were not there.
func (m *mapping) get(name string) (field, bool) {
	for _, f := range m.fields {
		if f.name == name {
			return f, !isNull(f.value)
		}
	}
	return field{}, false
}

// missing adds a mistake about a key that must be there, unless it may be one of those that could not be read.
func (d *decoder) missing(m *mapping, message, fix string) {
	if !m.odd {
		d.wrong(m.node, message, fix)
	}
}

// read reads a mapping of a kind.
func (d *decoder) read(n *yaml.Node, k *kind) (*mapping, bool) {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, "must be a mapping, "+k.what, "write "+k.example)
		return nil, false
	}
	m := &mapping{node: n, fields: make([]field, 0, len(n.Content)/2)}
	before := d.mistakes.made()
	d.collect(m, n, 0)
	m.fields = slices.DeleteFunc(m.fields, func(f field) bool { return !d.known(f, k) })
	m.odd = d.budget < 0 || d.mistakes.made() > before
	return m, true
}

// mostFields is how many keys a mapping may have: more than any has that are known.
const mostFields = 64

// deepestMerge is how many merges may lead to one another.
const deepestMerge = 8

// collect reads the entries of a mapping, and those that it merges: what stands in the mapping itself wins.
func (d *decoder) collect(m *mapping, n *yaml.Node, depth int) {
	if !d.spend(1 + len(n.Content)) {
		return
	}
	inherited := len(m.fields)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, content := resolve(n.Content[i]), n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.wrong(n.Content[i], "a key must be text", "write key: value")
			continue
		case n.Content[i].Kind == yaml.ScalarNode && key.ShortTag() == "!!merge":
			merged = append(merged, content)
			continue
		}
		same := func(f field) bool { return f.name == key.Value }
		if at := slices.IndexFunc(m.fields, same); at >= inherited {
			d.wrong(n.Content[i], fmt.Sprintf("stands here twice: first in line %d", m.fields[at].key.Line), "remove one of them")
		} else if at < 0 && len(m.fields) < mostFields {
			m.fields = append(m.fields, field{key.Value, n.Content[i], resolve(content)})
		} else if at < 0 {
			d.wrong(n.Content[i], fmt.Sprintf("has more than %d keys", mostFields), "remove those that are not known")
			return
		}
	}
	for _, from := range merged {
		from = resolve(from)
		sources := []*yaml.Node{from}
		if from.Kind == yaml.SequenceNode {
			sources = from.Content
		}
		if !d.spend(len(sources)) {
			return
		}
		for _, s := range sources {
			if s = resolve(s); s.Kind != yaml.MappingNode || depth >= deepestMerge {
				d.wrong(s, "must be a mapping, or a list of mappings, that << merges into this one", "write <<: *anchor")
				continue
			}
			d.collect(m, s, depth+1)
		}
	}
}

// items are those of the list that the path leads to, none if it is empty.
func (d *decoder) items(f field, what, example string) []*yaml.Node {
	if f.value.Kind != yaml.SequenceNode {
		at := f.value
		if at.Kind != yaml.ScalarNode || at.Value == "" {
			at = f.key
		}
		d.mistakes.add(d.place(at), d.where(), valueOf(f.value), "must be a list of "+what,
			"write a line with - for each: "+example)
		return nil
	}
	if !d.spend(1 + len(f.value.Content)) {
		return nil
	}
	return f.value.Content
}

// text is the text of a field as it is written, whether it is a string for YAML or a number.
func (d *decoder) text(f field) (string, bool) {
	if f.value.Kind != yaml.ScalarNode {
		d.wrongField(f, "must be text", "write "+f.name+": text")
		return "", false
	}
	return f.value.Value, true
}

const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

// flag is a field that is true or false, false if there is none. It reads the words of YAML 1.1.
func (d *decoder) flag(m *mapping, name string) (set bool, f field) {
	f, ok := m.get(name)
	if !ok {
		return false, f
	}
	if f.value.Kind == yaml.ScalarNode && f.value.Style&quoted == 0 {
		switch strings.ToLower(f.value.Value) {
		case "true", "yes", "on", "y":
			return true, f
		case "false", "no", "off", "n":
			return false, f
		}
	}
	d.wrongField(f, "must be true or false", "write true or false, without quotes")
	return false, f
}

// number is a field that is a whole number.
func (d *decoder) number(f field, lo, hi int64) (int64, bool) {
	must := fmt.Sprintf("must be a whole number from %d to %d", lo, hi)
	if f.value.Kind != yaml.ScalarNode {
		d.wrongField(f, must, "write "+f.name+": 100")
		return 0, false
	}
	digits := strings.ReplaceAll(f.value.Value, "_", "")
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case f.value.Style&quoted != 0:
		d.wrongField(f, "is text: "+must, "write it without quotes")
	case err != nil || digits != strconv.FormatInt(n, 10) || strings.HasPrefix(f.value.Value, "_"):
		d.wrongField(f, "is not written as a decimal number in range: "+must,
			fmt.Sprintf("write %d, for instance", max(lo, min(hi, 100))))
	case n < lo || n > hi:
		d.wrongField(f, must, fmt.Sprintf("write %d, for instance", min(max(n, lo), hi)))
	default:
		return n, true
	}
	return 0, false
}
