package accesslog

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

const (
	// keptErrors is how many malformed lines are described.
	keptErrors = 5

	// maxErrorText is the length limit of LineError.Text, in bytes.
	maxErrorText = 120

	// maxErrorValue is the length limit of a value quoted in LineError.Reason.
	maxErrorValue = 40

	ellipsis = "..."
)

// LineError says why a line is not a record.
type LineError struct {
	// Line is the number of the line in the stream, from 1.
	Line int

	// Reason names the field, its value and what was expected. It is printable.
	Reason string

	// Text is the beginning of the line, at most 120 bytes, safe to print on a
	// terminal: control characters, bytes that are not UTF-8 and other
	// characters that do not print are written as escapes such as \n, \x1b or
	// \u202e. Text that was cut ends in "...".
	Text string
}

// Error returns the line number, the reason and the text in one line.
func (e LineError) Error() string {
	return fmt.Sprintf("weir: access log line %d: %s: %s", e.Line, e.Reason, e.Text)
}

// Errors returns the first five malformed lines read so far, or nil. The slice
// belongs to the caller.
func (r *Reader) Errors() []LineError {
	return append([]LineError(nil), r.errors...)
}

// fault is why a line was refused. Turning it into words is left to reject,
// which does so for the first few only.
type fault struct {
	field string
	value []byte // nil when there is none to show
	at    int    // place in the line, from 1, or 0
	want  string
}

var (
	tooLong = fault{field: "line", want: "longer than 1 MiB"}
	isUTF16 = fault{field: "line", want: "in UTF-16: make it UTF-8, as with iconv -f UTF-16 -t UTF-8"}
)

func (f fault) String() string {
	if f.at > 0 {
		return f.field + " at byte " + strconv.Itoa(f.at) + ": " + f.want
	}
	if f.value == nil {
		return f.field + ": " + f.want
	}
	return f.field + ` "` + Printable(f.value, maxErrorValue) + `": ` + f.want
}

// reject counts a malformed line and keeps the first few.
func (r *Reader) reject(line []byte, f fault) {
	r.malformed++
	if len(r.errors) < keptErrors {
		r.errors = append(r.errors, LineError{
			Line:   r.line,
			Reason: f.String(),
			Text:   Printable(line, maxErrorText),
		})
	}
}

// Printable returns b with everything that does not print escaped, in at most
// limit bytes. It never cuts inside a character or an escape.
func Printable(b []byte, limit int) string {
	out := make([]byte, 0, min(limit, len(b)))
	cut := 0 // where the text ends if the ellipsis has to follow
	for len(b) > 0 {
		c, n := utf8.DecodeRune(b)
		switch {
		case c == utf8.RuneError && n == 1:
			out = append(out, '\\', 'x', hexDigits[b[0]>>4], hexDigits[b[0]&15])
		case strconv.IsPrint(c):
			out = append(out, b[:n]...)
		default:
			quoted := strconv.AppendQuoteRune(nil, c)
			out = append(out, quoted[1:len(quoted)-1]...)
		}
		if len(out) > limit {
			return string(out[:cut]) + ellipsis
		}
		if len(out) <= limit-len(ellipsis) {
			cut = len(out)
		}
		b = b[n:]
	}
	return string(out)
}

const hexDigits = "0123456789abcdef"
