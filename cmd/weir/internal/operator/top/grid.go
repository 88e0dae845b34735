package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// sorted are the rows that have the filter somewhere, in the order of a column.
func sorted(rows []row, p *pane, by int, reverse bool, filter string) []row {
	if filter != "" {
		filter = strings.ToLower(filter)
		rows = slices.DeleteFunc(rows, func(r row) bool {
			for _, c := range r.cells {
				if strings.Contains(strings.ToLower(c.text), filter) {
					return false
				}
			}
			return true
		})
	}
	if by >= 0 {
		number := p.columns[by].number
		slices.SortStableFunc(rows, func(a, b row) int {
			if number {
				return cmp.Compare(b.cells[by].number, a.cells[by].number)
			}
			return cmp.Compare(a.cells[by].text, b.cells[by].text)
		})
	}
	if reverse {
		slices.Reverse(rows)
	}
	return rows
}

// grid lays rows out in columns.
type grid struct {
	columns []column
	widths  []int
}

// The marks behind the head of the column that rows are sorted by.
const (
	down, up = "▼", "▲"
)

func newGrid(columns []column, rows []row, width int) *grid {
	g := &grid{columns: columns, widths: make([]int, len(columns))}
	for i, c := range columns {
		g.widths[i] = runewidth.StringWidth(c.head) + 1 // with a mark
		for j := range rows {
			g.widths[i] = max(g.widths[i], runewidth.StringWidth(rows[j].cells[i].text))
		}
	}
	operator.Shrink(g.widths, func(i int) bool { return !columns[i].number }, width)
	return g
}

// head is the line above the rows.
func (g *grid) head(by int, reverse bool) string {
	cells := make([]string, len(g.columns))
	for i, c := range g.columns {
		cells[i] = c.head
		if i == by {
			mark := up
			if c.number != reverse {
				mark = down
			}
			cells[i] += mark
		}
	}
	return g.line(cells)
}

func (g *grid) row(r *row) string {
	cells := make([]string, len(r.cells))
	for i, c := range r.cells {
		cells[i] = c.text
	}
	return g.line(cells)
}

func (g *grid) line(cells []string) string {
	return operator.Line(cells, g.widths, func(i int) bool { return g.columns[i].number })
}

// cut is a line of at most so many columns.
func cut(line string, width int) string { return runewidth.Truncate(line, width, "…") }
