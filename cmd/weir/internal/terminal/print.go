package terminal

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"math/big"
	"strings"
	"unicode"

	"github.com/dustin/go-humanize"
)

// Report is what a command found: its fields are for programs, as JSON.
type Report interface {
	// Print writes it for people.
	Print(w io.Writer, out Output)
}

// Print writes r to w at once, as a line of JSON or for people.
func Print(w io.Writer, r Report, asJSON bool) error {
	if asJSON {
		return PrintJSON(w, r)
	}
	var text bytes.Buffer
	r.Print(&text, Of(w))
	_, err := w.Write(text.Bytes())
	return err
}

// PrintJSON writes v to w as a line of JSON, in which <, > and & stand as they are.
func PrintJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// Printable is text without what would move the cursor.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// PrintableLines is Printable that leaves the ends of lines.
func PrintableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Printable(line)
	}
	return strings.Join(lines, "\n")
}

// Number is n with a comma between thousands.
func Number[T int | int64 | uint64](n T) string {
	if n > 0 && uint64(n) > math.MaxInt64 {
		return humanize.BigComma(new(big.Int).SetUint64(uint64(n)))
	}
	return humanize.Comma(int64(n))
}

// Plural is "1 key" or "3 keys": n with the word for one, or for any other number.
func Plural[T int | int64 | uint64](n T, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + more
}
