package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// column is the head of a column. Numbers are aligned on the right.
type column struct {
	name   string
	number bool
}

// text and number are columns.
func text(name string) column   { return column{name, false} }
func number(name string) column { return column{name, true} }

// table is what both the terminal and the document show.
type table struct {
	columns []column
	rows    [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// writeText writes the table for a terminal, its columns as wide as what they hold.
func (t *table) writeText(w io.Writer) {
	widths := make([]int, len(t.columns))
	heads := make([]string, len(t.columns))
	for i, c := range t.columns {
		heads[i] = c.name
	}
	lines := slices.Concat([][]string{heads}, t.rows)
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			if i > 0 {
				b.WriteByte(' ')
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.columns[i].number {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// writeMarkdown writes the table for a document.
func (t *table) writeMarkdown(w io.Writer) {
	heads, rules := make([]string, len(t.columns)), make([]string, len(t.columns))
	for i, c := range t.columns {
		heads[i], rules[i] = c.name, "---"
		if c.number {
			rules[i] = "---:"
		}
	}
	for _, line := range slices.Concat([][]string{heads, rules}, t.rows) {
		cells := make([]string, len(line))
		for i, cell := range line {
			cells[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
}

// The forms of numbers in tables.

func nanos(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func percent(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }

// each is a count per call: whole numbers without decimals, and nothing that is only noise of the runtime.
func each(v float64) string {
	s := fmt.Sprintf("%.1f", v)
	return strings.TrimSuffix(s, ".0")
}

func yes(met bool) string {
	if met {
		return "yes"
	}
	return "NO"
}
