package yamlread

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mistake is something that is wrong with a file, or a warning about something that is likely not meant.
type Mistake struct {
	// File is the name of the file. Line and Column are the place of the mistake, counted from 1, columns in characters.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Path is the same place in the structure, such as "policies.per-client.limits[1].rate", with items of lists counted from
	// 0. It is "" for mistakes of the whole file.
	Path string `json:"path,omitempty"`
	// Value is the wrong value as it is written, cut off if it is long; "" if it is a mapping or a list.
	Value string `json:"value,omitempty"`
	// Message is what is wrong, and what is accepted.
	Message string `json:"message"`
	// Fix proposes what to do.
	Fix string `json:"fix"`
}

// String is the mistake in one line: `weir.yaml:4:12: policies.a.rate: "fast": must be a rate: write 100/s, for instance`.
func (m Mistake) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", m.File, m.Line, m.Column)
	if m.Path != "" {
		b.WriteString(m.Path + ": ")
	}
	if m.Value != "" {
		b.WriteString(strconv.Quote(m.Value) + ": ")
	}
	b.WriteString(m.Message)
	if m.Fix != "" {
		b.WriteString("; " + m.Fix)
	}
	return b.String()
}

// Errors are all mistakes of a file, or of files that are read as one.
type Errors struct { //nolint:errname // all errors of a file
	// File is the name of the file, or what several are called together.
	File string
	// Mistakes are in the order of the file. There are at most 1000.
	Mistakes []Mistake
	// Omitted counts those beyond.
	Omitted int
}

// Error lists all mistakes, each in a line of its own.
func (e *Errors) Error() string {
	n, noun := len(e.Mistakes)+e.Omitted, "mistakes"
	if n == 1 {
		noun = "mistake"
	}
	return fmt.Sprintf("weir: %s cannot be used: %d %s\n%s", e.File, n, noun, strings.Join(e.Lines(), "\n"))
}

// Lines are the mistakes, a line each, and how many more there are.
func (e *Errors) Lines() []string {
	lines := make([]string, 0, len(e.Mistakes)+1)
	for _, m := range e.Mistakes {
		lines = append(lines, m.String())
	}
	if e.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("%s: %d more", e.File, e.Omitted))
	}
	return lines
}

// MaxMistakes is how many mistakes are kept.
const MaxMistakes = 1000

// Findings are mistakes, or warnings.
type Findings struct {
	// All are those that are kept, Omitted counts those beyond. There are at most 1000.
	All     []Mistake
	Omitted int

	seen  map[Mistake]struct{}
	count int
}

// Add keeps a mistake, once for each place, however often an alias leads there.
func (c *Findings) Add(m Mistake) {
	c.count++
	once := Mistake{Line: m.Line, Column: m.Column, Message: m.Message}
	if _, known := c.seen[once]; known {
		return
	}
	if len(c.All) >= MaxMistakes {
		c.Omitted++
		return
	}
	if c.seen == nil {
		c.seen = map[Mistake]struct{}{}
	}
	c.seen[once] = struct{}{}
	c.All = append(c.All, m)
}

// Count is how many were added, so that it grows with each, whether or not it is kept.
func (c *Findings) Count() int { return c.count }

// Sorted returns them in the order of the file.
func (c *Findings) Sorted() []Mistake {
	slices.SortStableFunc(c.All, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return c.All
}

// Errors returns all mistakes of the file as an error, nil if there are none.
func (r *Reader) Errors() *Errors { return ErrorsOf(r.name, r) }

// ErrorsOf returns all mistakes of files, which are called name together, in their order. It is nil if there are none.
func ErrorsOf(name string, files ...*Reader) *Errors {
	e := &Errors{File: name}
	for _, r := range files {
		e.Mistakes = append(e.Mistakes, r.Mistakes.Sorted()...)
		e.Omitted += r.Mistakes.Omitted
	}
	if len(e.Mistakes) == 0 {
		return nil
	}
	kept := min(len(e.Mistakes), MaxMistakes)
	e.Mistakes, e.Omitted = e.Mistakes[:kept], e.Omitted+len(e.Mistakes)-kept
	return e
}

// Wrong adds a mistake about a value.
func (r *Reader) Wrong(v Value, message, fix string) { r.Mistakes.Add(r.about(v, message, fix)) }

// Warn adds a warning about a value.
func (r *Reader) Warn(v Value, message, fix string) { r.Warnings.Add(r.about(v, message, fix)) }

// WrongAs adds a mistake about a value that is shown as another text, "" for none.
func (r *Reader) WrongAs(v Value, shown, message, fix string) {
	m := r.about(v, message, fix)
	m.Value = shown
	r.Mistakes.Add(m)
}

// WrongAt adds a mistake about a place.
func (r *Reader) WrongAt(line, column int, message, fix string) {
	r.Mistakes.Add(r.mistake(line, column, message, fix))
}

// Only makes a mistake of the whole file the only one.
func (r *Reader) Only(message, fix string) {
	r.Mistakes = Findings{}
	r.WrongAt(1, 1, message, fix)
}

// mistake is one at a line and a column.
func (r *Reader) mistake(line, column int, message, fix string) Mistake {
	return Mistake{File: r.name, Line: max(line, 1), Column: max(column, 1), Message: message, Fix: fix}
}

func (r *Reader) about(v Value, message, fix string) Mistake {
	at := v.at()
	switch name, isVariable := strings.CutPrefix(v.Node.Value, "$"); {
	case v.isTemplate():
		fix = "fill in the template, and give the file that comes out"
	case isVariable && r.o.Env != nil && IsVariable(name) && strings.ToUpper(name) == name:
		fix = "write ${" + name + "}"
	}
	m := r.mistake(at.Line, at.Column, message, fix)
	m.Path = v.Path
	if v.IsScalar() && v.Node.Value != "" {
		m.Value = Shorten(v.Node.Value)
	}
	return m
}

// mostShown is how many characters of a value are shown.
const mostShown = 60

// Shorten cuts off a text that is too long to be shown.
func Shorten(s string) string {
	runes := 0
	for i := range s {
		if runes == mostShown {
			return s[:i] + "..."
		}
		runes++
	}
	return s
}
