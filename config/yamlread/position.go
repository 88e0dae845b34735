package yamlread

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// position is where the byte at of the value of a scalar stands in the file. It follows the value and its spelling side by side,
// so it holds for quotes, escapes and blocks of several lines.
func (r *Reader) position(n *yaml.Node, at int) (line, column int) {
	p := pointer{file: r, line: n.Line, rest: r.line(n.Line), column: 1}
	for p.column < n.Column && p.rest != "" {
		p.step()
	}
	if !p.enter(n.Style) {
		return n.Line, n.Column
	}
	double := n.Style&yaml.DoubleQuotedStyle != 0
	single := n.Style&yaml.SingleQuotedStyle != 0
	for i, c := range n.Value {
		blank := unicode.IsSpace(c)
		if !blank {
			p.space()
		}
		if i >= at {
			break
		}
		switch {
		case blank:
			p.blank(double)
		case double && strings.HasPrefix(p.rest, `\`):
			p.escape()
		case single && strings.HasPrefix(p.rest, "''"):
			p.step()
			p.step()
		default:
			p.step()
		}
	}
	return p.line, p.column
}

// pointer is a place in a file.
type pointer struct {
	file         *Reader
	line, column int
	rest         string // of the line
}

// enter goes from the beginning of a scalar to its text, behind a tag, an anchor, a quote, or the line that begins a block.
func (p *pointer) enter(style yaml.Style) bool {
	switch {
	case style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return p.next()
	case style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		for p.rest != "" && p.rest[0] != '\'' && p.rest[0] != '"' {
			p.step()
		}
		p.step()
	default:
		for strings.HasPrefix(p.rest, "!") || strings.HasPrefix(p.rest, "&") {
			for p.rest != "" && p.rest[0] != ' ' {
				p.step()
			}
			p.space()
		}
	}
	return true
}

// step goes over a character.
func (p *pointer) step() {
	if p.rest == "" {
		return
	}
	_, size := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[size:]
	p.column++
}

// next goes to the next line, if there is one.
func (p *pointer) next() bool {
	if p.line >= len(p.file.lines) {
		return false
	}
	p.line++
	p.column, p.rest = 1, p.file.line(p.line)
	return true
}

// blank goes over one space, or the end of a line, or an escape that stands for one.
func (p *pointer) blank(double bool) {
	switch {
	case p.rest == "":
		p.next()
	case p.rest[0] == ' ', p.rest[0] == '\t':
		p.step()
	case double && p.rest[0] == '\\':
		p.escape()
	}
}

// space goes over all white space.
func (p *pointer) space() {
	for {
		switch {
		case p.rest == "":
			if !p.next() {
				return
			}
		case p.rest[0] == ' ', p.rest[0] == '\t':
			p.step()
		case p.rest == `\`: // the end of a line that continues
			p.step()
		default:
			return
		}
	}
}

// escape goes over an escape in double quotes.
func (p *pointer) escape() {
	digits := 0
	if len(p.rest) > 1 {
		switch p.rest[1] {
		case 'x':
			digits = 2
		case 'u':
			digits = 4
		case 'U':
			digits = 8
		}
	}
	for range 2 + digits {
		p.step()
	}
}
