// Package terminal prints the results of commands: in colours and to the width of a terminal, as plain text, or as JSON.
package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Output is what is known about a writer.
type Output struct {
	// Interactive reports whether it is a terminal.
	Interactive bool
	// Colour reports whether escape sequences for colours may be written: to a terminal that is not "dumb", unless the
	// environment variable NO_COLOR is set to anything.
	Colour bool
	// Width is its width in columns, 80 if that is not known.
	Width int
}

const usualWidth = 80

// Of looks at w.
func Of(w io.Writer) Output {
	out := Output{Width: usualWidth}
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return out
	}
	out.Interactive = true
	out.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		out.Width = width
	}
	return out
}

// Bold is s in bold type where there are colours.
func (o Output) Bold(s string) string { return o.in("1", s) }

// Red is s in red where there are colours.
func (o Output) Red(s string) string { return o.in("31", s) }

// Dim is s in faint type where there are colours.
func (o Output) Dim(s string) string { return o.in("2", s) }

func (o Output) in(code, s string) string {
	if !o.Colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
