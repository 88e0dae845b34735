package ratelimitconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/config"
)

// Errors are all mistakes of all files: the error of [Parse].
type Errors struct { //nolint:errname // all errors of files
	// All are in the order of the files. There are at most 1000.
	All []config.Mistake
	// Omitted counts those beyond.
	Omitted int
}

// Error lists all mistakes, each in a line of its own.
func (e *Errors) Error() string {
	n, noun := len(e.All)+e.Omitted, "mistakes"
	if n == 1 {
		noun = "mistake"
	}
	return fmt.Sprintf("weir: the rate limit configuration cannot be used: %d %s\n%s", n, noun, strings.Join(e.Mistakes(), "\n"))
}

// Mistakes are the mistakes, a line each.
func (e *Errors) Mistakes() []string {
	lines := make([]string, len(e.All), len(e.All)+1)
	for i, m := range e.All {
		lines[i] = m.String()
	}
	if e.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("%d more", e.Omitted))
	}
	return lines
}

// mostMistakes is how many are kept, and so of warnings.
const mostMistakes = 1000

// place is where something stands.
type place struct {
	file      *source
	line, col int
}

// String is the place as other tools write it, such as "limits.yaml:12:5".
func (p place) String() string { return fmt.Sprintf("%s:%d:%d", p.file.name, p.line, p.col) }

// complaints collects mistakes or warnings, once for each place, however often an alias leads there.
type complaints struct {
	all     []complaint
	seen    map[said]struct{}
	omitted int
}

type complaint struct {
	config.Mistake

	file int
}

type said struct {
	at      place
	message string
}

// made is how many there were.
func (c *complaints) made() int { return len(c.all) + c.omitted }

// sorted answers them in the order of the files.
func (c *complaints) sorted() []config.Mistake {
	slices.SortStableFunc(c.all, func(a, b complaint) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	list := make([]config.Mistake, len(c.all))
	for i := range c.all {
		list[i] = c.all[i].Mistake
	}
	return list
}

func (c *complaints) add(at place, path, value, message, fix string) {
	at.line, at.col = max(at.line, 1), max(at.col, 1)
	once := said{at, message}
	if _, known := c.seen[once]; known {
		return
	}
	if len(c.all) >= mostMistakes {
		c.omitted++
		return
	}
	if c.seen == nil {
		c.seen = make(map[said]struct{})
	}
	c.seen[once] = struct{}{}
	m := config.Mistake{
		File: at.file.name, Line: at.line, Column: at.col, Path: path, Value: shorten(value), Message: message, Fix: fix,
	}
	c.all = append(c.all, complaint{m, at.file.number})
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
