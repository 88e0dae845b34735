package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

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

// PrintJSON writes v to w as a line of JSON, in which <, > and & stand as they are, and what does not print is escaped.
func PrintJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(PrintableJSON(text.Bytes()))
	return err
}

// PrintableJSON is a text of JSON in which what would move the cursor is escaped. It stays the same value: beside the spaces and
// the ends of lines, such characters are in strings alone.
func PrintableJSON(text []byte) []byte {
	prints := func(r rune, size int) bool {
		return r == '\n' || r == '\r' || r == '\t' || unicode.IsPrint(r) && (r != utf8.RuneError || size > 1)
	}
	var b []byte
	done := 0 // what of text is in b
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if !prints(r, size) {
			b = append(b, text[done:i]...)
			for _, unit := range utf16.AppendRune(nil, r) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
			done = i + size
		}
		i += size
	}
	if done == 0 {
		return text
	}
	return append(b, text[done:]...)
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
