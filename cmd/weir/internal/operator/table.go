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

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// WriteTable writes rows, the first of which are heads, to w, with what out can do. The first columns are numbers, and stand at
// the right. In a terminal the last column is cut where the line ends. What would move the cursor is replaced.
func WriteTable(w io.Writer, out terminal.Output, rows [][]string, heads, numbers int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			row[i] = terminal.Printable(row[i])
			widths[i] = max(widths[i], runewidth.StringWidth(row[i]))
		}
	}
	for at, row := range rows {
		line := Line(row, widths, func(i int) bool { return i < numbers })
		if out.Interactive {
			line = runewidth.Truncate(line, out.Width, "…")
		}
		if at < heads {
			line = out.Bold(strings.TrimRight(line, " "))
		}
		fmt.Fprintln(w, line)
	}
}

// Line is a row of a table: cells in columns of these widths, of which numbers stand at the right.
func Line(cells []string, widths []int, number func(column int) bool) string {
	var b strings.Builder
	for i, cell := range cells {
		space := strings.Repeat(" ", widths[i]-runewidth.StringWidth(cell))
		switch {
		case number(i):
			b.WriteString(space + cell)
		case i == len(cells)-1:
			b.WriteString(cell)
		default:
			b.WriteString(cell + space)
		}
		if i < len(cells)-1 {
			b.WriteString("  ")
		}
	}
	return b.String()
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
	return flags.Short(d)
}

// Time is a moment in UTC, "-" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}
