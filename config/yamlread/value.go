package yamlread

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// nodes counts those of a tree. Aliases are not followed.
func nodes(n *yaml.Node) int {
	count := 1
	for _, c := range n.Content {
		count += nodes(c)
	}
	return count
}

// Spend counts nodes as looked at, and reports whether so many may still be.
func (r *Reader) Spend(n int) bool {
	r.budget -= n
	return r.budget >= 0
}

// resolve follows aliases.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// Value is a node with its place in the structure.
type Value struct {
	Node *yaml.Node // no alias
	Path string
	// Key is the node of its key, nil in a list.
	Key *yaml.Node
}

// IsNull reports whether nothing is written, or null.
func (v Value) IsNull() bool { return v.IsScalar() && v.Node.ShortTag() == "!!null" }

// IsScalar reports whether it is neither a mapping nor a list.
func (v Value) IsScalar() bool { return v.Node.Kind == yaml.ScalarNode }

// IsMapping reports whether it is a mapping.
func (v Value) IsMapping() bool { return v.Node.Kind == yaml.MappingNode }

// IsList reports whether it is a list.
func (v Value) IsList() bool { return v.Node.Kind == yaml.SequenceNode }

// IsBool reports whether it is true or false.
func (v Value) IsBool() bool { return v.IsScalar() && v.Node.ShortTag() == tagBool }

// IsQuoted reports whether a scalar is in quotes, or a block of text.
func (v Value) IsQuoted() bool {
	return v.Node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
}

// isTemplate reports whether a value is {{ ... }}: text, or what YAML makes of it without quotes.
func (v Value) isTemplate() bool {
	if v.IsScalar() {
		return strings.HasPrefix(v.Node.Value, "{{") && strings.HasSuffix(v.Node.Value, "}}")
	}
	return v.IsMapping() && len(v.Node.Content) == 2 && v.Node.Content[0].Kind == yaml.MappingNode
}

// OfKey is the key as a value, at the same path.
func (v Value) OfKey() Value { return Value{Node: v.Key, Path: v.Path} }

// Itself is the value without its key, so that a mistake stands at the value whatever it is.
func (v Value) Itself() Value { return Value{Node: v.Node, Path: v.Path} }

// at is where to point to if a value is missing something.
func (v Value) at() *yaml.Node {
	if v.Key != nil && (!v.IsScalar() || v.IsNull()) {
		return v.Key
	}
	return v.Node
}

// found says what a value is.
func (r *Reader) found(v Value) string {
	switch {
	case v.isTemplate():
		return "is a template"
	case v.IsMapping():
		return "is a mapping"
	case v.IsList():
		return "is a list"
	case v.IsNull():
		return "is empty"
	case r.o.Words.Single != "":
		return r.o.Words.Single
	}
	switch v.Node.ShortTag() {
	case TagInt, "!!float":
		return "is a number"
	case tagBool:
		return "is true or false"
	}
	return "is text"
}

// wrongKind is what is wrong with a value that is of another type than it must be.
func (r *Reader) wrongKind(v Value, must string) string {
	if r.o.Words.Found {
		return r.found(v) + ": must be " + must
	}
	return "must be " + must
}

// Join is the path of a key below another path. A key of the file itself is its own path.
func Join(path, key string) string {
	if path == "" {
		return Shorten(key)
	}
	plain := key != "" && len(key) <= 64
	for i := range len(key) {
		c := key[i]
		plain = plain && (c == '_' || c == '-' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z')
	}
	if !plain {
		return path + "[" + strconv.Quote(Shorten(key)) + "]"
	}
	return path + "." + key
}

// Kind is a mapping whose keys are fixed.
type Kind struct {
	// What it is, in the words of a mistake.
	What string
	// Example is what to write where it must be. Default: "", that of [Words].
	Example string
	// Keys are those that it has.
	Keys []string
	// Hints are proposals for keys that people expect here.
	Hints map[string]string
	// Meant proposes what to write for a key that is not known, from what else the mapping has, or for a value that is no
	// mapping: then the key is "". It returns "" if that is not clear. What it proposes for several keys is told once. Default:
	// nil, only Example and Hints do.
	Meant func(v Value, key string) string
	// Free is what keys begin with that are free, as anchors are put there. Default: "", there are none.
	Free string
}

// Object is a mapping.
type Object struct {
	Value

	// Keys are in the order of the file. Fields are their values.
	Keys   []string
	Fields map[string]Value
	// Failed is true if some keys could not be read. Then nothing can be said about those that are missing.
	Failed bool

	r *Reader
}

// Object reads a mapping of a kind. It returns false if it is none.
func (r *Reader) Object(v Value, k *Kind) (*Object, bool) {
	example := k.Example
	if k.Meant != nil && !v.IsMapping() {
		example = cmp.Or(k.Meant(v, ""), example)
	}
	o, ok := r.Mapping(v, k.What, example)
	if !ok {
		return nil, false
	}
	var told []string
	for _, key := range o.Keys {
		if slices.Contains(k.Keys, key) || k.Free != "" && strings.HasPrefix(key, k.Free) {
			continue
		}
		meant := ""
		if k.Meant != nil {
			meant = k.Meant(v, key)
		}
		switch {
		case meant == "":
			r.Unknown(o, key, k)
		case slices.Contains(told, meant):
			o.Failed = true
		default:
			r.unknown(o, key, k, "write "+meant)
			told = append(told, meant)
		}
	}
	return o, true
}

// Unknown adds a mistake about a key that a kind does not have.
func (r *Reader) Unknown(o *Object, key string, k *Kind) {
	fix, hinted := k.Hints[key]
	if !hinted {
		fix = Meant(key, k.Keys, "accepted are "+OneOf(k.Keys))
	}
	r.unknown(o, key, k, fix)
}

// unknown is Unknown with what to do.
func (r *Reader) unknown(o *Object, key string, k *Kind, fix string) {
	r.wrongKey(o, key, o.Fields[key].Key, r.o.Words.Unknown, k.What, 0, fix)
	o.Failed = true
}

// wrongKey adds a mistake about a key of a mapping.
func (r *Reader) wrongKey(o *Object, key string, at *yaml.Node, words OfKey, what string, first int, fix string) {
	message := strings.NewReplacer("{key}", strconv.Quote(Shorten(key)), "{what}", what, "{first}", strconv.Itoa(first)).
		Replace(words.Message)
	m := r.mistake(at.Line, at.Column, message, fix)
	m.Path = o.Path
	if words.Path {
		m.Path = Join(o.Path, key)
	}
	if words.Value {
		m.Value = Shorten(key)
	}
	r.Mistakes.Add(m)
}

// Mapping reads a mapping with any keys, which is for what. It returns false if it is none. The example is what to write then, ""
// for that of [Words].
func (r *Reader) Mapping(v Value, what, example string) (*Object, bool) {
	if !v.IsMapping() {
		fix := r.o.Words.Mapping
		if example != "" {
			fix = "write " + example
		}
		r.Wrong(v, r.wrongKind(v, "a mapping, "+what), fix)
		return nil, false
	}
	o := &Object{r: r, Value: v, Fields: make(map[string]Value, len(v.Node.Content)/2)}
	r.collect(o, v.Node, 0)
	return o, true
}

// deepestMerge is how many merges may lead to one another.
const deepestMerge = 8

// collect reads the entries of a mapping, and those that it merges: what stands in the mapping itself wins.
func (r *Reader) collect(o *Object, n *yaml.Node, depth int) {
	if !r.Spend(1 + len(n.Content)) {
		o.Failed = true
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
		key = resolve(key)
		if key.Kind != yaml.ScalarNode {
			r.Wrong(Value{Node: key, Path: o.Path}, "a key must be text", "write key: value")
			o.Failed = true
			continue
		}
		name := key.Value
		if first, twice := own[name]; twice {
			r.wrongKey(o, name, n.Content[i], r.o.Words.Twice, "", first.Line, "remove one of them")
			continue
		}
		own[name] = key
		if _, overridden := o.Fields[name]; overridden {
			continue
		}
		o.Keys = append(o.Keys, name)
		o.Fields[name] = Value{resolve(content), Join(o.Path, name), n.Content[i]}
	}
	for _, m := range merged {
		m = resolve(m)
		sources := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			sources = m.Content
		}
		if !r.Spend(len(sources)) {
			return
		}
		for _, s := range sources {
			s = resolve(s)
			if s.Kind != yaml.MappingNode || depth >= deepestMerge {
				r.Wrong(Value{Node: s, Path: o.Path}, r.o.Words.Merge, r.o.Words.MergeFix)
				o.Failed = true
				continue
			}
			r.collect(o, s, depth+1)
		}
	}
}

// Get is the value of a key.
func (o *Object) Get(key string) (Value, bool) {
	v, ok := o.Fields[key]
	return v, ok
}

// Missing adds a mistake about a key that must be given, unless it may be one of those that could not be read.
func (o *Object) Missing(key, what, fix string) {
	if o.Failed {
		return
	}
	m := o.r.about(o.Value, what, fix)
	m.Path, m.Value = Join(o.Path, key), ""
	o.r.Mistakes.Add(m)
}

// List returns the items of a list.
func (r *Reader) List(v Value, must, fix string) ([]Value, bool) {
	switch {
	case !v.IsList():
		r.Wrong(v, r.wrongKind(v, must), fix)
		return nil, false
	case len(v.Node.Content) == 0 && r.o.Words.Empty != "":
		r.Wrong(v, r.o.Words.Empty+": must be "+must, r.o.Words.EmptyFix)
		return nil, false
	case !r.Spend(1 + len(v.Node.Content)):
		return nil, false
	}
	items := make([]Value, 0, len(v.Node.Content))
	for i, n := range v.Node.Content {
		items = append(items, Value{Node: resolve(n), Path: v.Path + "[" + strconv.Itoa(i) + "]"})
	}
	return items, true
}

// Place is where a value stands, such as "weir.yaml:12:5".
func (r *Reader) Place(v Value) string {
	n := v.Node
	if v.Key != nil {
		n = v.Key
	}
	return strings.Join([]string{r.name, strconv.Itoa(n.Line), strconv.Itoa(n.Column)}, ":")
}
