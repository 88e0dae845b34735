package policytest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/config"
)

// reader turns the nodes of a file into tests. It goes on after a mistake.
type reader struct {
	file     string
	mistakes []config.Mistake
	omitted  int
}

// mostMistakes is how many mistakes are kept.
const mostMistakes = 1000

// wrong adds a mistake about a node. What is at the path has the value of the node.
func (r *reader) wrong(n *yaml.Node, path, message, fix string) {
	if len(r.mistakes) >= mostMistakes {
		r.omitted++
		return
	}
	m := config.Mistake{File: r.file, Line: max(n.Line, 1), Column: max(n.Column, 1), Path: path, Message: message, Fix: fix}
	if n.Kind == yaml.ScalarNode {
		m.Value = short(n.Value)
	}
	r.mistakes = append(r.mistakes, m)
}

// mostShown is how many bytes of a value are shown.
const mostShown = 60

func short(s string) string {
	if len(s) > mostShown {
		return strings.ToValidUTF8(s[:mostShown], "") + "..."
	}
	return s
}

// parse reads the only document of a file.
func (r *reader) parse(data []byte) *yaml.Node {
	at := func(line, column int, message, fix string) {
		r.wrong(&yaml.Node{Line: line, Column: column}, "", message, fix)
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		at(1, 1, "is not YAML: "+err.Error(), "")
		return nil
	}
	var document, second yaml.Node
	switch err := loader.Load(&document); {
	case errors.Is(err, io.EOF) || err == nil && len(document.Content) == 0:
		at(1, 1, "the file is empty", "begin with config: and the name of the configuration")
		return nil
	case err != nil:
		r.syntax(err)
		return nil
	}
	switch err := loader.Load(&second); {
	case err == nil:
		at(second.Line, second.Column, "begins a second document: a file has one only", "remove the line ---")
		return nil
	case !errors.Is(err, io.EOF):
		r.syntax(err)
		return nil
	}
	return resolve(document.Content[0])
}

// syntax adds an error of the parser.
func (r *reader) syntax(err error) {
	n := &yaml.Node{}
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		message = e.Message
		mark := e.Mark
		if mark.Line == 0 {
			mark = e.ContextMark
		}
		n.Line, n.Column = mark.Line, mark.Column
	}
	r.wrong(n, "", "is not YAML: "+message, "see the indentation, quotes and brackets here and in the line above")
}

// resolve follows aliases.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// field is a key of a mapping with its value.
type field struct {
	key, value *yaml.Node
	path       string
}

// fields reads a mapping whose keys are among those known, nil for any.
func (r *reader) fields(n *yaml.Node, path, what string, known []string) ([]field, bool) {
	if n.Kind != yaml.MappingNode {
		r.wrong(n, path, kind(n)+": must be a mapping, "+what, "write key: value below it")
		return nil, false
	}
	var fields []field
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		at := join(path, key.Value)
		twice := slices.IndexFunc(fields, func(f field) bool { return f.key.Value == key.Value })
		switch {
		case key.Kind != yaml.ScalarNode:
			r.wrong(key, path, "a key must be text", "write key: value")
		case twice >= 0:
			r.wrong(key, at, fmt.Sprintf("stands here twice: first in line %d", fields[twice].key.Line), "remove one of them")
		case known != nil && !slices.Contains(known, key.Value):
			fix := "accepted are " + strings.Join(known, ", ")
			if nearest, ok := flags.Nearest(key.Value, known); ok {
				fix = "did you mean " + strconv.Quote(nearest) + "?"
			}
			r.wrong(key, path, "unknown key: "+what+" has no such key", fix)
		default:
			fields = append(fields, field{key, value, at})
		}
	}
	return fields, true
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// kind names the kind of a node.
func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "is a mapping"
	case n.Kind == yaml.SequenceNode:
		return "is a list"
	case isNull(n):
		return "is empty"
	default:
		return "is a single value"
	}
}

// items reads a list.
func (r *reader) items(f field, what string) []*yaml.Node {
	if f.value.Kind != yaml.SequenceNode || len(f.value.Content) == 0 {
		text := kind(f.value)
		if f.value.Kind == yaml.SequenceNode {
			text = "is an empty list"
		}
		r.wrong(f.value, f.path, text+": must be a list of "+what, "begin each item with - in a line of its own")
		return nil
	}
	items := make([]*yaml.Node, 0, len(f.value.Content))
	for _, n := range f.value.Content {
		items = append(items, resolve(n))
	}
	return items
}

// text reads a text that is not empty.
func (r *reader) text(f field, must string) (string, bool) {
	if f.value.Kind != yaml.ScalarNode || isNull(f.value) || f.value.Value == "" {
		r.wrong(f.value, f.path, kind(f.value)+": must be "+must, "write "+must)
		return "", false
	}
	return f.value.Value, true
}

// number reads a whole number from lowest to highest.
func (r *reader) number(f field, lowest, highest int64) (int64, bool) {
	if f.value.Kind == yaml.ScalarNode && f.value.ShortTag() == "!!int" {
		n, err := strconv.ParseInt(strings.ReplaceAll(f.value.Value, "_", ""), 10, 64)
		if err == nil && n >= lowest && n <= highest {
			return n, true
		}
	}
	r.wrong(f.value, f.path, fmt.Sprintf("must be a whole number from %d to %d", lowest, highest),
		fmt.Sprintf("write %d, for instance", max(lowest, 1)))
	return 0, false
}

// boolean reads true or false.
func (r *reader) boolean(f field) bool {
	if f.value.Kind == yaml.ScalarNode && f.value.ShortTag() == "!!bool" {
		return strings.EqualFold(f.value.Value, "true")
	}
	r.wrong(f.value, f.path, "must be true or false", "write true or false, without quotes")
	return false
}

// pairs reads a mapping from texts to texts. A number is taken as it is written.
func (r *reader) pairs(f field, what string) map[string]string {
	fields, ok := r.fields(f.value, f.path, what, nil)
	if !ok {
		return nil
	}
	pairs := make(map[string]string, len(fields))
	for _, pair := range fields {
		if pair.value.Kind != yaml.ScalarNode || isNull(pair.value) {
			r.wrong(pair.value, pair.path, kind(pair.value)+": must be text", `write a value, "" for an empty one`)
			continue
		}
		pairs[pair.key.Value] = pair.value.Value
	}
	return pairs
}
