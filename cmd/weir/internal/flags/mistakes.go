package flags

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/config/yamlread"
)

// WriteMistakes writes each mistake in a line: file, line and column, and what is wrong. What to do about it stands in the next
// line, so that both can be read.
func WriteMistakes(w io.Writer, out terminal.Output, all []yamlread.Mistake) {
	for _, m := range all {
		fix := m.Fix
		m.Fix = ""
		place := fmt.Sprintf("%s:%d:%d:", m.File, m.Line, m.Column)
		fmt.Fprintf(w, "%s %s\n", out.Bold(place), terminal.Printable(strings.TrimPrefix(m.String(), place+" ")))
		if fix != "" {
			fmt.Fprintf(w, "    %s\n", out.Dim(terminal.Printable(fix)))
		}
	}
}

// WarnMistakes writes warnings.
func WarnMistakes(w io.Writer, out terminal.Output, all []yamlread.Mistake) {
	for _, m := range all {
		m.Message = "warning: " + m.Message
		WriteMistakes(w, out, []yamlread.Mistake{m})
	}
}

// InvalidFile turns an error of package config into one with which the program exits with 2, after it has written all mistakes to
// w: also that of a file that cannot be read, as it is not there. Any other error stays as it is.
func InvalidFile(w io.Writer, err error) error {
	var wrong *yamlread.Errors
	if _, unreadable := errors.AsType[*fs.PathError](err); unreadable {
		return Inputf("%s", err)
	}
	if !errors.As(err, &wrong) {
		return err
	}
	WriteMistakes(w, terminal.Of(w), wrong.Mistakes)
	if wrong.Omitted > 0 {
		fmt.Fprintf(w, "%s: %d more\n", wrong.File, wrong.Omitted)
	}
	return Inputf("%s cannot be used: %s", wrong.File, CountMistakes(len(wrong.Mistakes)+wrong.Omitted))
}

// CountMistakes is "1 mistake" or "3 mistakes".
func CountMistakes(n int) string { return terminal.Plural(n, "mistake", "mistakes") }
