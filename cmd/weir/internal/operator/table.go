package operator

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/inwords"
)

// WriteTable writes rows, the first of which are heads, to w, with what out can do. The first columns are numbers, and stand at
// the right. What would move the cursor is replaced.
//
// In a terminal that is too narrow, columns in which all rows have 0 or nothing are named below the table instead, and the widest
// texts are cut in the middle. What has no room even so stands on another line of its row.
func WriteTable(w io.Writer, out terminal.Output, rows [][]string, heads, numbers int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			row[i] = terminal.Printable(row[i])
			widths[i] = max(widths[i], runewidth.StringWidth(row[i]))
		}
	}
	t := table{rows, widths, heads, numbers}
	lines, left := []int{0, len(widths)}, []string(nil)
	if out.Interactive {
		left = t.leaveOut(out.Width)
		lines = t.fit(out.Width)
	}
	for at, row := range t.rows {
		for n, to := range lines[1:] {
			from := lines[n]
			line := Line(row[from:to], t.widths[from:to], func(i int) bool { return from+i < t.numbers })
			if n > 0 {
				line = secondLine + line
			}
			if out.Interactive {
				line = runewidth.Truncate(strings.TrimRight(line, " "), out.Width, "…")
			}
			if at < heads {
				line = out.Bold(strings.TrimRight(line, " "))
			}
			fmt.Fprintln(w, line)
		}
	}
	if len(left) > 0 {
		fmt.Fprintln(w, out.Dim(runewidth.Truncate("0 or - in all rows: "+strings.Join(left, ", "), out.Width, "…")))
	}
}

// table is one that has to fit a terminal.
type table struct {
	rows           [][]string
	widths         []int
	heads, numbers int // rows and columns: see WriteTable
}

// secondLine is before what has no room on the first line of a row.
const secondLine = "    "

// leaveOut leaves out columns in which all rows have 0 or nothing, until the others have room, and returns their heads.
func (t *table) leaveOut(width int) (heads []string) {
	for i := 0; i < len(t.widths) && TableWidth(t.widths) > width; {
		if !t.saysNothing(i) {
			i++
			continue
		}
		heads = append(heads, t.rows[t.heads-1][i])
		for at := range t.rows {
			t.rows[at] = slices.Delete(t.rows[at], i, i+1)
		}
		if t.widths = slices.Delete(t.widths, i, i+1); i < t.numbers {
			t.numbers--
		}
	}
	return heads
}

func (t *table) saysNothing(column int) bool {
	for _, row := range t.rows[t.heads:] {
		if cell := row[column]; cell != "" && cell != "-" && cell != "0" {
			return false
		}
	}
	return len(t.rows) > t.heads
}

// fit makes columns of texts narrower, until a row has room on as few lines as it needs. It returns with which columns these
// begin, and the number of columns.
func (t *table) fit(width int) (lines []int) {
	narrow := slices.Clone(t.widths)
	Shrink(narrow, t.isText, width)
	lines, end := []int{0}, 0
	for i, wide := range narrow {
		if i > lines[len(lines)-1] {
			end += len(columnGap)
		}
		if end += wide; end > width && i > lines[len(lines)-1] {
			lines, end = append(lines, i), len(secondLine)+wide
		}
	}
	lines = append(lines, len(narrow))
	for n, to := range lines[1:] {
		from, room := lines[n], width
		if n > 0 {
			room -= len(secondLine)
		}
		Shrink(t.widths[from:to], func(i int) bool { return t.isText(from + i) }, room)
	}
	return lines
}

// Heads of columns that are cut in no terminal.
const (
	whenHead  = "when"
	sinceHead = "since"
)

// isText reports whether a column can be cut: half a number or half a time says nothing.
func (t *table) isText(column int) bool {
	head := t.rows[t.heads-1][column]
	return column >= t.numbers && head != whenHead && head != sinceHead
}

const columnGap = "  "

// TableWidth is how wide a table with columns of these widths is.
func TableWidth(widths []int) (all int) {
	for _, wide := range widths {
		all += wide + len(columnGap)
	}
	return all - len(columnGap)
}

// leastText is the least width that a text is cut to.
const leastText = 16

// Shrink makes the widest columns of texts narrower, until all columns of a table have room in a width.
func Shrink(widths []int, text func(column int) bool, width int) {
	for over := TableWidth(widths) - width; over > 0; over-- {
		widest := -1
		for i, wide := range widths {
			if text(i) && wide > leastText && (widest < 0 || wide > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// Line is a row of a table: cells in columns of these widths, of which numbers stand at the right. What is wider is cut in its
// middle.
func Line(cells []string, widths []int, number func(column int) bool) string {
	var b strings.Builder
	for i, cell := range cells {
		cell = cutMiddle(cell, widths[i])
		space := strings.Repeat(" ", max(0, widths[i]-runewidth.StringWidth(cell)))
		switch {
		case number(i):
			b.WriteString(space + cell)
		case i == len(cells)-1:
			b.WriteString(cell)
		default:
			b.WriteString(cell + space)
		}
		if i < len(cells)-1 {
			b.WriteString(columnGap)
		}
	}
	return b.String()
}

// cutMiddle is a text of at most so many columns. Names and keys that begin alike often end differently.
func cutMiddle(text string, width int) string {
	wide := runewidth.StringWidth(text)
	if wide <= width {
		return text
	}
	end := (width - 1) / 2
	return runewidth.Truncate(text, width-1-end, "") + "…" + runewidth.TruncateLeft(text, wide-end, "")
}

// list is a table of what a server has listed, a row for each.
type list[T any] struct {
	none    string // what is said if there are none; without it there is the head alone
	head    []string
	numbers int // how many columns at the left are numbers
	row     func(*T) []string
}

func (l *list[T]) write(w io.Writer, out terminal.Output, all *[]T) {
	if len(*all) == 0 && l.none != "" {
		fmt.Fprintln(w, l.none)
		return
	}
	rows := append(make([][]string, 0, 1+len(*all)), slices.Clone(l.head))
	for i := range *all {
		rows = append(rows, l.row(&(*all)[i]))
	}
	WriteTable(w, out, rows, 1, l.numbers)
}

// ShownKey is a key as it is shown.
func ShownKey(key string) string {
	if key == "" {
		return "(none)"
	}
	return terminal.Printable(key)
}

// Rate is how many there are in a second, with three digits at least.
func Rate(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "0"
	case perSecond < 10:
		return strconv.FormatFloat(perSecond, 'f', 2, 64)
	case perSecond < 100:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	default:
		return terminal.Number(int64(perSecond + 0.5))
	}
}

// Duration is so many seconds, to the nanosecond, and 100 years at most.
func Duration(seconds float64) time.Duration {
	const longest = 100 * 366 * 24 * 3600
	return time.Duration(math.Round(min(seconds, longest) * float64(time.Second)))
}

// Seconds is a duration in seconds, rounded up to what matters, "never" if it is negative.
func Seconds(seconds float64) string {
	switch {
	case seconds < 0:
		return "never"
	case seconds == 0:
		return "0s"
	}
	d := Duration(seconds)
	unit := time.Second
	switch {
	case d < 10*time.Microsecond:
		unit = 10 * time.Nanosecond
	case d < 10*time.Millisecond:
		unit = 10 * time.Microsecond
	case d < time.Second:
		unit = time.Millisecond
	case d < 10*time.Second:
		unit = 100 * time.Millisecond
	case d > 48*time.Hour:
		unit = time.Hour
	}
	if rest := d % unit; rest > 0 {
		d += unit - rest
	}
	if d >= 48*time.Hour {
		days := d / (24 * time.Hour)
		if hours := d % (24 * time.Hour) / time.Hour; hours > 0 {
			return fmt.Sprintf("%dd%dh", days, hours)
		}
		return fmt.Sprintf("%dd", days)
	}
	return inwords.Short(d)
}

// Time is a moment in UTC, "-" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}
