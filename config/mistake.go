package config

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

// Errors are all mistakes of a file. It is the error of [Parse] and, if the file could be read, of [Load].
type Errors struct { //nolint:errname // all errors of a file
	// File is the name of the file.
	File string
	// Mistakes are in the order of the file. There are at most 1000.
	Mistakes []Mistake
	// Omitted counts those beyond.
	Omitted int
}

// Error lists all mistakes, each in a line of its own.
func (e *Errors) Error() string {
	var b strings.Builder
	if n := len(e.Mistakes) + e.Omitted; n == 1 {
		fmt.Fprintf(&b, "weir: %s cannot be used: 1 mistake", e.File)
	} else {
		fmt.Fprintf(&b, "weir: %s cannot be used: %d mistakes", e.File, n)
	}
	for _, m := range e.Mistakes {
		b.WriteString("\n" + m.String())
	}
	if e.Omitted > 0 {
		fmt.Fprintf(&b, "\n%s: %d more", e.File, e.Omitted)
	}
	return b.String()
}

// mostMistakes is how many mistakes are kept.
const mostMistakes = 1000

// mistakes collects them.
type mistakes struct {
	all     []Mistake
	seen    map[Mistake]struct{}
	omitted int
}

// add keeps a mistake, once for each place, however often an alias leads there.
func (c *mistakes) add(m Mistake) {
	once := Mistake{Line: m.Line, Column: m.Column, Message: m.Message}
	if _, known := c.seen[once]; known {
		return
	}
	if len(c.all) >= mostMistakes {
		c.omitted++
		return
	}
	if c.seen == nil {
		c.seen = map[Mistake]struct{}{}
	}
	c.seen[once] = struct{}{}
	c.all = append(c.all, m)
}

// sorted answers them in the order of the file.
func (c *mistakes) sorted() []Mistake {
	slices.SortStableFunc(c.all, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return c.all
}

// mostShown is how many characters of a value are shown.
const mostShown = 60

// shorten cuts off a text that is too long to be shown.
func shorten(s string) string {
	runes := 0
	for i := range s {
		if runes == mostShown {
			return s[:i] + "..."
		}
		runes++
	}
	return s
}
