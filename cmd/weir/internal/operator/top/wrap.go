package top

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

// wrap breaks text into lines of at most so many columns, between words where it can; all but the first begin with indent.
func wrap(text string, width int, indent string) []string {
	var lines []string
	for rest := text; ; {
		if runewidth.StringWidth(rest) <= width {
			return append(lines, rest)
		}
		line := runewidth.Truncate(rest, width, "")
		from := len(rest) - len(strings.TrimLeft(rest, " ")) // its indent is not a place to break
		if at := strings.LastIndexByte(rest[:min(len(line)+1, len(rest))], ' '); at > from {
			line = rest[:at]
		}
		if line == "" || width <= runewidth.StringWidth(indent) {
			return append(lines, cut(rest, width)) // there is no room for a word
		}
		lines = append(lines, line)
		rest = indent + strings.TrimLeft(rest[len(line):], " ")
	}
}

// below are the lines of what is told below the rows: as many as it needs, but not so many that nothing else is seen.
func (m *model) below() []string {
	most := max(1, m.height/4)
	lines := wrap(m.notice, m.width, "  ")
	if len(lines) > most {
		lines = append(lines[:most-1], cut(strings.Join(lines[most-1:], " "), m.width))
	}
	if m.failed {
		for i := range lines {
			lines[i] = m.paint.alarm(lines[i])
		}
	}
	return lines
}

// wrapped are the lines of the page, as wide as the screen is.
func (p *page) wrapped(width int) []string {
	all := make([]string, 0, len(p.lines))
	for _, line := range p.lines {
		line = "  " + line
		indent := len(line) - len(strings.TrimLeft(line, " "))
		all = append(all, wrap(line, width, strings.Repeat(" ", indent+2))...)
	}
	return all
}
