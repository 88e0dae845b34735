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

// grid lays rows out in columns. The last ones are left out where there is no room for all: a part of a number is another one.
type grid struct {
	columns []column
	widths  []int // of those that are shown
}

// The marks behind the head of the column that rows are sorted by.
const (
	down, up = "▼", "▲"
)

func newGrid(columns []column, rows []row, width int) *grid {
	whole := make([]int, len(columns))
	for i, c := range columns {
		whole[i] = runewidth.StringWidth(c.head) + 1 // with a mark
		for j := range rows {
			whole[i] = max(whole[i], runewidth.StringWidth(rows[j].cells[i].text))
		}
	}
	for n := len(columns); ; n-- {
		g := &grid{columns: columns, widths: slices.Clone(whole[:n])}
		operator.Shrink(g.widths, func(i int) bool { return !columns[i].number }, width)
		if n == 1 || operator.TableWidth(g.widths) <= width {
			return g
		}
	}
}

// head is the line above the rows.
func (g *grid) head(by int, reverse bool) string { return g.line(g.heads(by, reverse)[:len(g.widths)]) }

// leftOut says which columns have no room, "" if all have.
func (g *grid) leftOut(by int, reverse bool) string {
	heads := g.heads(by, reverse)[len(g.widths):]
	if len(heads) == 0 {
		return ""
	}
	return "no room for " + strings.Join(heads, ", ")
}

// heads are those of all columns, with a mark at the one that rows are sorted by.
func (g *grid) heads(by int, reverse bool) []string {
	heads := make([]string, len(g.columns))
	for i, c := range g.columns {
		heads[i] = c.head
		if i == by {
			mark := up
			if c.number != reverse {
				mark = down
			}
			heads[i] += mark
		}
	}
	return heads
}

func (g *grid) row(r *row) string {
	cells := make([]string, len(g.widths))
	for i := range cells {
		cells[i] = r.cells[i].text
	}
	return g.line(cells)
}

func (g *grid) line(cells []string) string {
	return operator.Line(cells, g.widths, func(i int) bool { return g.columns[i].number })
}

// cut is a line of at most so many columns.
func cut(line string, width int) string { return runewidth.Truncate(line, width, "…") }
