package ratelimitconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// mostBytes is how long a file may be, and all of them together.
const mostBytes = 16 << 20

// source is a file that is read, and which one it is.
type source struct {
	name   string
	number int
}

// root parses the only document of a file. It returns nil if there is none, or after a mistake.
func (d *decoder) root(data []byte) *yaml.Node {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if line, col, ok := unreadable(data); ok {
		d.mistakes.add(place{d.file, line, col}, "", "", "is not UTF-8", "save the file as UTF-8")
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		d.syntax(err)
		return nil
	}
	var document, second yaml.Node
	switch err := loader.Load(&document); {
	case errors.Is(err, io.EOF):
		d.mistakes.add(place{d.file, 1, 1}, "", "", "is empty: must have a domain", "write domain: a name")
		return nil
	case err != nil:
		d.syntax(err)
		return nil
	}
	switch err := loader.Load(&second); {
	case err == nil:
		d.mistakes.add(place{d.file, second.Line, second.Column}, "", "", "begins a second document: a file has one only",
			"write a file for each domain")
		return nil
	case !errors.Is(err, io.EOF):
		d.syntax(err)
		return nil
	}
	if len(document.Content) == 0 || isNull(document.Content[0]) {
		d.mistakes.add(place{d.file, 1, 1}, "", "", "is empty: must have a domain", "write domain: a name")
		return nil
	}
	return document.Content[0]
}

// unreadable finds the first byte that is not UTF-8.
func unreadable(data []byte) (line, col int, found bool) {
	if utf8.Valid(data) {
		return 0, 0, false
	}
	line, col = 1, 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			return line, col, true
		case r == '\n':
			line, col = line+1, 1
		default:
			col++
		}
		data = data[size:]
	}
	return 0, 0, false
}

// syntax is an error of the parser.
func (d *decoder) syntax(err error) {
	line, col, message := 1, 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		message = e.Message
		switch {
		case e.Mark.Line > 0:
			line, col = e.Mark.Line, e.Mark.Column
		case e.ContextMark.Line > 0:
			line, col = e.ContextMark.Line, e.ContextMark.Column
		}
		if e.ContextMsg != "" {
			message += " " + e.ContextMsg
			if c := e.ContextMark; c.Line > 0 && c.Line != line {
				message += fmt.Sprintf(" that begins in line %d", c.Line)
			}
		}
	}
	fix := "see the indentation, quotes and brackets here and in the line above"
	switch {
	case strings.Contains(message, "alias"):
		fix = `put a value that begins with * in quotes: "*"`
	case strings.Contains(message, "cannot start any token"):
		fix = "indent with spaces, and put the value in quotes"
	}
	d.mistakes.add(place{d.file, line, col}, "", "", "is not YAML: "+message, fix)
}
