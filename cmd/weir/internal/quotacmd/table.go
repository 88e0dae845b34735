package quotacmd

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// table prints rows, the first of which is the head. The first columns are numbers, and stand at the right. In a terminal the
// last column is cut where the line ends.
func table(w io.Writer, rows [][]string, numbers int) {
	inner := w
	if s, ok := w.(*sticky); ok {
		inner = s.w
	}
	out := terminal.Of(inner)
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			row[i] = printable(row[i])
			widths[i] = max(widths[i], runewidth.StringWidth(row[i]))
		}
	}
	for at, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-runewidth.StringWidth(cell))
			switch {
			case i < numbers:
				b.WriteString(space + cell)
			case i == len(row)-1:
				b.WriteString(cell)
			default:
				b.WriteString(cell + space)
			}
			if i < len(row)-1 {
				b.WriteString("  ")
			}
		}
		line := b.String()
		if out.Interactive {
			line = runewidth.Truncate(line, out.Width, "…")
		}
		if at == 0 {
			line = out.Bold(line)
		}
		fmt.Fprintln(w, line)
	}
}

// printable is text without what would move the cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// keyText is a key as it is shown.
func keyText(key string) string {
	if key == "" {
		return "(none)"
	}
	return printable(key)
}

// number is n with a comma between thousands.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	const group = 3
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%group == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(digits[i])
	}
	return sign + b.String()
}
