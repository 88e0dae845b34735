package resp

import (
	"math"
	"slices"
	"strconv"
)

// Versions of the protocol.
const (
	RESP2 = 2
	RESP3 = 3
)

// Writer appends replies to a buffer. What version 2 of the protocol cannot say is said as Redis says it to clients that speak
// version 2: a map is an array of keys and values, a boolean is 1 or 0, a floating-point number is text. An aggregate is its
// header followed by as many replies as it has elements, twice as many for a map.
//
// The zero value writes version 2. A Writer is not safe for concurrent use.
type Writer struct {
	// Proto is [RESP2] or [RESP3]. Anything but RESP3 is RESP2.
	Proto int

	b     []byte
	start beginning
}

// Bytes is what was written since the last [Writer.Reset]. It is valid until the next call.
func (w *Writer) Bytes() []byte { return w.b }

// Len is how many bytes were written since the last [Writer.Reset].
func (w *Writer) Len() int { return len(w.b) }

// Reset makes w write to b from its start. b may be nil.
func (w *Writer) Reset(b []byte) { w.b = b[:0] }

// Truncate forgets what was written after the first n bytes.
func (w *Writer) Truncate(n int) { w.b = w.b[:n] }

// Array begins an array of n elements.
func (w *Writer) Array(n int) { w.header('*', int64(n)) }

// Set begins a set of n elements.
func (w *Writer) Set(n int) {
	if w.Proto == RESP3 {
		w.header('~', int64(n))
		return
	}
	w.header('*', int64(n))
}

// Map begins a map of n pairs: a key and a value each.
func (w *Writer) Map(n int) {
	if w.Proto == RESP3 {
		w.header('%', int64(n))
		return
	}
	w.header('*', 2*int64(n))
}

// Int writes an integer.
func (w *Writer) Int(i int64) { w.header(':', i) }

// Bulk writes any bytes.
func (w *Writer) Bulk(p []byte) {
	w.header('$', int64(len(p)))
	w.b = append(w.b, p...)
	w.b = append(w.b, '\r', '\n')
}

// BulkString writes any text.
func (w *Writer) BulkString(s string) {
	w.header('$', int64(len(s)))
	w.b = append(w.b, s...)
	w.b = append(w.b, '\r', '\n')
}

// Text writes text for people to read, several lines of it if need be.
func (w *Writer) Text(s string) {
	if w.Proto != RESP3 {
		w.BulkString(s)
		return
	}
	w.header('=', int64(len(s))+4)
	w.b = append(w.b, "txt:"...)
	w.b = append(w.b, s...)
	w.b = append(w.b, '\r', '\n')
}

// Simple writes a status, such as OK. Ends of lines in it become spaces.
func (w *Writer) Simple(s string) { w.line('+', s) }

// OK writes the status OK.
func (w *Writer) OK() { w.b = append(w.b, "+OK\r\n"...) }

// Error writes an error, which by custom begins with a word in capitals, such as ERR. Ends of lines in it become spaces.
func (w *Writer) Error(s string) { w.line('-', s) }

// Null writes that there is no value.
func (w *Writer) Null() {
	if w.Proto == RESP3 {
		w.b = append(w.b, "_\r\n"...)
		return
	}
	w.b = append(w.b, "$-1\r\n"...)
}

// NullArray writes that there is no array. In version 3 it is the same as [Writer.Null].
func (w *Writer) NullArray() {
	if w.Proto == RESP3 {
		w.b = append(w.b, "_\r\n"...)
		return
	}
	w.b = append(w.b, "*-1\r\n"...)
}

// Bool writes a boolean.
func (w *Writer) Bool(v bool) {
	s := ":0\r\n"
	switch {
	case w.Proto == RESP3 && v:
		s = "#t\r\n"
	case w.Proto == RESP3:
		s = "#f\r\n"
	case v:
		s = ":1\r\n"
	}
	w.b = append(w.b, s...)
}

// Double writes a floating-point number.
func (w *Writer) Double(f float64) {
	var text [32]byte
	b := text[:0]
	switch {
	case math.IsNaN(f):
		b = append(b, "nan"...)
	case math.IsInf(f, 1):
		b = append(b, "inf"...)
	case math.IsInf(f, -1):
		b = append(b, "-inf"...)
	default:
		b = strconv.AppendFloat(b, f, 'g', -1, 64)
	}
	if w.Proto != RESP3 {
		w.Bulk(b)
		return
	}
	w.b = append(w.b, ',')
	w.b = append(w.b, b...)
	w.b = append(w.b, '\r', '\n')
}

// Pairs is a map: names, each followed by its value.
type Pairs []any

// Names is a set of simple strings.
type Names []string

// Any writes a value that was built in memory: a string, an int, [Pairs], [Names], a list of such values, or nil, which is the
// null of a list. It is for what is asked for rarely.
func (w *Writer) Any(value any) {
	switch v := value.(type) {
	case nil:
		w.NullArray()
	case string:
		w.BulkString(v)
	case int:
		w.Int(int64(v))
	case Names:
		w.Set(len(v))
		for _, name := range v {
			w.Simple(name)
		}
	case Pairs:
		w.Map(len(v) / 2)
		for _, one := range v {
			w.Any(one)
		}
	case []any:
		w.Array(len(v))
		for _, one := range v {
			w.Any(one)
		}
	}
}

// Fields begins n values that have names in version 3 of the protocol, each by [Writer.Field].
func (w *Writer) Fields(n int) {
	if w.Proto == RESP3 {
		w.Map(n)
		return
	}
	w.Array(n)
}

// Field is the name of the value that is written next. Version 2 has the values alone.
func (w *Writer) Field(name string) {
	if w.Proto == RESP3 {
		w.BulkString(name)
	}
}

func (w *Writer) line(kind byte, s string) {
	w.b = append(w.b, kind)
	start := len(w.b)
	w.b = append(w.b, s...)
	for i := start; i < len(w.b); i++ {
		if w.b[i] == '\r' || w.b[i] == '\n' {
			w.b[i] = ' '
		}
	}
	w.b = append(w.b, '\r', '\n')
}

func (w *Writer) header(kind byte, n int64) {
	w.b = appendHeader(w.b, kind, n)
}

// appendHeader appends a kind, a number and the end of the line.
func appendHeader(b []byte, kind byte, n int64) []byte {
	b = slices.Grow(b, longestInt)
	return b[:putInt(b[:cap(b)], len(b), kind, n)]
}
