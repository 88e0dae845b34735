package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// mostBytes is how long a file may be.
const mostBytes = 16 << 20

// source is the text of a file.
type source struct {
	name  string
	lines []string // without their ends
}

// newSource cuts a text into lines as YAML does.
func newSource(name string, data []byte) *source {
	s := &source{name: name}
	text := string(data)
	for text != "" {
		end, size := lineEnd(text)
		s.lines = append(s.lines, text[:end])
		text = text[end+size:]
	}
	return s
}

// lineEnd finds the first line break of a text, and how long it is.
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
func (s *source) line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	return s.lines[n-1]
}

// mistake is one at a line and a column.
func (s *source) mistake(line, column int, message, fix string) *Mistake {
	return &Mistake{File: s.name, Line: max(line, 1), Column: max(column, 1), Message: message, Fix: fix}
}

// unreadable finds what cannot be in a text, such as bytes that are not UTF-8.
func (s *source) unreadable() *Mistake {
	for i, line := range s.lines {
		column := 0
		for rest := line; rest != ""; {
			column++
			r, size := utf8.DecodeRuneInString(rest)
			switch {
			case r == utf8.RuneError && size == 1:
				return s.mistake(i+1, column, fmt.Sprintf("the byte 0x%02X is not UTF-8", rest[0]), "save the file as UTF-8")
			case r < ' ' && r != '\t', r == 0x7F, r >= 0x80 && r < 0xA0, r == 0xFFFE, r == 0xFFFF:
				return s.mistake(i+1, column, fmt.Sprintf("the control character %U cannot stand in YAML", r),
					`remove it, or write it as "\x01" in double quotes`)
			}
			rest = rest[size:]
		}
	}
	return nil
}

// parse reads the only document of a file. It returns nil for one that is empty.
func parse(name string, data []byte) (s *source, root *yaml.Node, wrong *Mistake) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	s = &source{name: name}
	if len(data) > mostBytes {
		wrong = s.mistake(1, 1, fmt.Sprintf("the file has more than %d MB", mostBytes>>20), "split it among several servers")
		return s, nil, wrong
	}
	s = newSource(name, data)
	if m := s.unreadable(); m != nil {
		return s, nil, m
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		wrong = s.syntax(err)
		return s, nil, wrong
	}
	var document, second yaml.Node
	switch err := loader.Load(&document); {
	case errors.Is(err, io.EOF):
		return s, nil, nil
	case err != nil:
		wrong = s.syntax(err)
		return s, nil, wrong
	}
	switch err := loader.Load(&second); {
	case err == nil:
		wrong = s.mistake(second.Line, second.Column, "begins a second document: a file has one only", "remove the line ---")
		return s, nil, wrong
	case !errors.Is(err, io.EOF):
		wrong = s.syntax(err)
		return s, nil, wrong
	}
	if len(document.Content) == 0 {
		return s, nil, nil
	}
	return s, document.Content[0], nil
}

// syntax is an error of the parser.
func (s *source) syntax(err error) *Mistake {
	line, column, message := 1, 1, strings.TrimPrefix(err.Error(), "yaml: ")
	fix := "see the indentation, quotes and brackets here and in the line above"
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		return s.mistake(line, column, "is not YAML: "+message, fix)
	}
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
	before, rest := "", s.line(line)
	for i := 1; i < column && rest != ""; i++ {
		_, size := utf8.DecodeRuneInString(rest)
		before, rest = rest[:size], rest[size:]
	}
	switch {
	case strings.HasPrefix(message, "did not find expected ',' or") && strings.IndexAny(rest, `{["`) == 0 &&
		strings.Trim(before, " ,{:") != "":
		fix = "put a value that has brackets or braces in quotes, as it stands within others"
	case strings.HasPrefix(rest, "\t"):
		message, fix = "a tab cannot indent in YAML", "indent with spaces"
	case strings.Contains(message, "cannot start any token"):
		fix = "put the value in quotes"
	case strings.Contains(message, "mapping values are not allowed"):
		fix = "see the indentation here and in the line above, or put a value that has a colon in quotes"
	case strings.Contains(message, "scanning an alias"):
		fix = `put the value in quotes: "*"`
	case strings.Contains(message, "unknown anchor"):
		fix = "put the value in quotes if it is no alias, or define the anchor with & before"
	case strings.Contains(message, "depth"):
		fix = "remove the brackets"
	}
	return s.mistake(line, column, "is not YAML: "+message, fix)
}
