package yamlread

import "strings"

// Table is a kind of mapping with its keys, each of which is read into a T by a D.
type Table[D, T any] struct {
	*Kind

	Keys []Key[D, T]
}

// Key is a key of a mapping.
type Key[D, T any] struct {
	Name string
	// Read reads its value. Default: nil, the one who reads the mapping does that afterwards, as it depends on other keys.
	Read func(d D, v Value, to T)
	// About is what people and editors are told.
	About About
}

// About is what a reference and a JSON Schema say of a key.
type About struct {
	// Words are what it accepts, in Markdown. Schema is the same as a JSON Schema.
	Words, Schema string
	// Text is what it is for, in Markdown.
	Text string
	// Default is what holds without it, as JSON; Instead says so in words, where it is no value or not always the same.
	Default, Instead string
	// Examples are a list of JSON.
	Examples string
}

// Named is what is said of a key with its name.
type Named struct {
	About

	Name string
}

// Otherwise is what holds without the key, in Markdown. It is "" if that is not said.
func (a About) Otherwise() string {
	switch text, isText := strings.CutPrefix(a.Default, `"`); {
	case a.Instead != "":
		return a.Instead
	case isText && (text[0] < '0' || text[0] > '9'):
		return "`" + strings.TrimSuffix(text, `"`) + "`"
	default:
		return strings.TrimSuffix(text, `"`)
	}
}

// About returns what is said of the keys, in their order.
func (t *Table[D, T]) About() []Named {
	all := make([]Named, len(t.Keys))
	for i := range t.Keys {
		all[i] = Named{t.Keys[i].About, t.Keys[i].Name}
	}
	return all
}

// NewTable returns a table of a kind, whose keys are those of the table.
func NewTable[D, T any](k Kind, keys ...Key[D, T]) *Table[D, T] {
	for i := range keys {
		k.Keys = append(k.Keys, keys[i].Name)
	}
	return &Table[D, T]{&k, keys}
}

// Fill reads the values of a mapping, in the order of the file.
func (t *Table[D, T]) Fill(d D, o *Object, to T) {
	for _, name := range o.Keys {
		t.Read(d, name, o.Fields[name], to)
	}
}

// Within are keys that are read into a part of another target.
func Within[D, T, U any](keys []Key[D, T], of func(U) T) []Key[D, U] {
	within := make([]Key[D, U], len(keys))
	for i, key := range keys {
		within[i] = Key[D, U]{Name: key.Name, Read: func(d D, v Value, to U) { key.Read(d, v, of(to)) }}
	}
	return within
}

// Read reads the value of a key.
func (t *Table[D, T]) Read(d D, name string, v Value, to T) {
	for i := range t.Keys {
		if key := &t.Keys[i]; key.Name == name && key.Read != nil {
			key.Read(d, v, to)
		}
	}
}
