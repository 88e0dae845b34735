package ratelimitconfig

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/config/yamlread"
)

// Errors are all mistakes of all files: the error of [Parse].
type Errors struct { //nolint:errname // all errors of files
	// All are in the order of the files. There are at most 1000.
	All []yamlread.Mistake
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

// errorsOf are the mistakes of files, nil if there are none.
func errorsOf(readers []*yamlread.Reader) *Errors {
	e := &Errors{}
	for _, r := range readers {
		e.All = append(e.All, r.Mistakes.Sorted()...)
		e.Omitted += r.Mistakes.Omitted
	}
	if n := len(e.All); n > yamlread.MaxMistakes {
		e.All, e.Omitted = e.All[:yamlread.MaxMistakes], e.Omitted+n-yamlread.MaxMistakes
	}
	if len(e.All) == 0 {
		return nil
	}
	return e
}
