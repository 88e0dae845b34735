package terminal

import (
	"strings"
	"unicode/utf8"
)

// Wrap breaks text between words into lines of at most width columns, each indented. A longer word has a line of its own.
func Wrap(text string, indent, width int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		columns := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			b.WriteString(strings.Repeat(" ", indent))
			column = indent
		case column+1+columns > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += columns
	}
	return b.String()
}
