package yamlread

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// MaxBytes is how long a file may be.
const MaxBytes = 16 << 20

// Options say how a file is read.
type Options struct {
	// Words are how its format words mistakes.
	Words Words
	// Env looks up variables of the environment. Default: nil, ${NAME} is text like any other.
	Env func(name string) (value string, ok bool)
	// Aliased is how many nodes may be looked at again because aliases lead to them.
	Aliased int
}

// Words are how a format words the mistakes that any YAML can have. In a message {key} stands for a key, {what} for the mapping
// that it is in, and {first} for the line of the first of two.
type Words struct {
	// Found begins a message with what there is: "is a list: must be a mapping". Default: false, "must be a mapping".
	Found bool
	// Single is what all scalars are called. Default: "", each by its type.
	Single string
	// Mapping is what to do where a mapping of no [Kind] with an example must be.
	Mapping string
	// Unknown is a key that its kind does not have, Twice one that is there already.
	Unknown, Twice OfKey
	// Merge and MergeFix are about what << cannot merge.
	Merge, MergeFix string
	// Empty and EmptyFix are about a list without items. Default: "", such a list is a list.
	Empty, EmptyFix string
	// NotUTF8 is what is wrong with such a byte. Default: "", with the byte.
	NotUTF8 string
	// Second is what to do about a second document.
	Second string
	// Syntax words an error of the parser. Default: nil, with what is likely to help.
	Syntax func(message string) (fix string)
}

// OfKey is what is wrong with a key.
type OfKey struct {
	Message string
	// Path has the path of the key in the mistake, and not that of its mapping; Value has the key as the value.
	Path, Value bool
}

// Reader reads one file. It goes on after a mistake, so that all are found at once.
type Reader struct {
	// Mistakes and Warnings are what was found.
	Mistakes, Warnings Findings
	// Shown are the values that came from the environment as they are written, by their paths.
	Shown map[string]string

	name   string
	lines  []string // without their ends
	data   []byte
	o      Options
	budget int // how many more nodes may be looked at
}

// New returns a reader of a file that is in memory.
func New(name string, data []byte, o Options) *Reader {
	r := &Reader{name: name, data: bytes.TrimPrefix(data, []byte("\ufeff")), o: o, Shown: map[string]string{}}
	if len(r.data) > MaxBytes {
		return r
	}
	text := string(r.data)
	for text != "" {
		end, size := lineEnd(text)
		r.lines = append(r.lines, text[:end])
		text = text[end+size:]
	}
	return r
}

// File is the name of the file.
func (r *Reader) File() string { return r.name }

// Exhausted reports whether aliases lead to more nodes than may be looked at. Then something was left out, which may have made
// other mistakes.
func (r *Reader) Exhausted() bool { return r.budget < 0 }

// Env looks up a variable of the environment.
func (r *Reader) Env(name string) (value string, ok bool) { return r.o.Env(name) }

// Root parses the only document of the file. It returns false if there is none, or after a mistake.
func (r *Reader) Root() (Value, bool) {
	if len(r.data) > MaxBytes {
		r.WrongAt(1, 1, fmt.Sprintf("the file has more than %d MB", MaxBytes>>20), "split it among several servers")
		return Value{}, false
	}
	if r.unreadable() {
		return Value{}, false
	}
	loader, err := yaml.NewLoader(bytes.NewReader(r.data))
	if err != nil {
		r.syntax(err)
		return Value{}, false
	}
	var document, second yaml.Node
	if err := loader.Load(&document); err != nil {
		if !errors.Is(err, io.EOF) {
			r.syntax(err)
		}
		return Value{}, false
	}
	switch err := loader.Load(&second); {
	case err == nil:
		r.WrongAt(second.Line, second.Column, "begins a second document: a file has one only", r.o.Words.Second)
		return Value{}, false
	case !errors.Is(err, io.EOF):
		r.syntax(err)
		return Value{}, false
	case len(document.Content) == 0:
		return Value{}, false
	}
	r.budget = nodes(document.Content[0]) + r.o.Aliased
	return Value{Node: resolve(document.Content[0])}, true
}

// lineEnd finds the first line break of a text, as YAML has them, and how long it is.
func lineEnd(text string) (at, size int) {
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\n':
			return i, 1
		case c == '\r' && strings.HasPrefix(text[i:], "\r\n"):
			return i, 2
		case c == '\r':
			return i, 1
		case c == 0xC2 && strings.HasPrefix(text[i:], "\u0085"):
			return i, 2
		case c == 0xE2 && (strings.HasPrefix(text[i:], "\u2028") || strings.HasPrefix(text[i:], "\u2029")):
			return i, 3
		}
	}
	return len(text), 0
}

// line is the line with this number, counted from 1.
func (r *Reader) line(n int) string {
	if n < 1 || n > len(r.lines) {
		return ""
	}
	return r.lines[n-1]
}

// unreadable finds what cannot be in a text, such as bytes that are not UTF-8.
func (r *Reader) unreadable() bool {
	for i, line := range r.lines {
		column := 0
		for rest := line; rest != ""; {
			column++
			c, size := utf8.DecodeRuneInString(rest)
			switch {
			case c == utf8.RuneError && size == 1:
				message := cmp.Or(r.o.Words.NotUTF8, fmt.Sprintf("the byte 0x%02X is not UTF-8", rest[0]))
				r.WrongAt(i+1, column, message, "save the file as UTF-8")
				return true
			case c < ' ' && c != '\t', c == 0x7F, c >= 0x80 && c < 0xA0, c == 0xFFFE, c == 0xFFFF:
				r.WrongAt(i+1, column, fmt.Sprintf("the control character %U cannot stand in YAML", c),
					`remove it, or write it as "\x01" in double quotes`)
				return true
			}
			rest = rest[size:]
		}
	}
	return false
}

// syntax adds an error of the parser.
func (r *Reader) syntax(err error) {
	line, column, message := 1, 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		message = e.Message
		switch {
		case e.Mark.Line > 0:
			line, column = e.Mark.Line, e.Mark.Column
		case e.ContextMark.Line > 0:
			line, column = e.ContextMark.Line, e.ContextMark.Column
		}
		if e.ContextMsg != "" {
			message += " " + e.ContextMsg
			if c := e.ContextMark; c.Line > 0 && c.Line != line {
				message += fmt.Sprintf(" that begins in line %d", c.Line)
			}
		}
	}
	fix := "see the indentation, quotes and brackets here and in the line above"
	if words := r.o.Words.Syntax; words == nil {
		message, fix = r.syntaxFix(line, column, message, fix)
	} else if found := words(message); found != "" {
		fix = found
	}
	r.WrongAt(line, column, "is not YAML: "+message, fix)
}

// syntaxFix is what is likely to help at a place.
func (r *Reader) syntaxFix(line, column int, message, otherwise string) (better, fix string) {
	before, rest := "", r.line(line)
	for i := 1; i < column && rest != ""; i++ {
		_, size := utf8.DecodeRuneInString(rest)
		before, rest = rest[:size], rest[size:]
	}
	switch {
	case strings.HasPrefix(message, "did not find expected ',' or") && strings.IndexAny(rest, `{["`) == 0 &&
		strings.Trim(before, " ,{:") != "":
		return message,
			`put a value that has brackets or braces in quotes, such as 'request.headers["x-user"]', as it stands within others`
	case strings.HasPrefix(rest, "\t"):
		return "a tab cannot indent in YAML", "indent with spaces"
	case strings.Contains(message, "cannot start any token"):
		return message, "put the value in quotes"
	case strings.Contains(message, "mapping values are not allowed"):
		return message, "see the indentation here and in the line above, or put a value that has a colon in quotes"
	case strings.Contains(message, "scanning an alias"):
		return message, `put the value in quotes: "*"`
	case strings.Contains(message, "unknown anchor"):
		return message, "put the value in quotes if it is no alias, or define the anchor with & before"
	case strings.Contains(message, "depth"):
		return message, "remove the brackets"
	}
	return message, otherwise
}
