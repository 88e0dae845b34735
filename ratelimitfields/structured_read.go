package ratelimitfields

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// itemKind is the type of a bare item of RFC 9651. Values of types that no limit is told in are read over, not kept.
type itemKind uint8

const (
	otherItem itemKind = iota
	integerItem
	decimalItem
	stringItem
	tokenItem
	bytesItem
)

// bareItem is a value of a structured field.
type bareItem struct {
	kind    itemKind
	integer int64
	text    string // of a String, a Token, or a Byte Sequence that was decoded
}

// parameter is a parameter of an item.
type parameter struct {
	name  string
	value bareItem
}

// fieldItem is an item with its parameters; in a dictionary it has a key.
type fieldItem struct {
	key        string
	value      bareItem
	parameters []parameter
}

// parameter returns the last one of this name.
func (f *fieldItem) parameter(name string) (v bareItem, ok bool) {
	for _, p := range slices.Backward(f.parameters) {
		if p.name == name {
			return p.value, true
		}
	}
	return bareItem{}, false
}

// What is read of a field at most: what is longer, or has more, is no field that tells limits.
const (
	longestField   = 8192
	mostItems      = 64
	mostParameters = 32
)

// fieldReader reads what is left of a structured field.
type fieldReader struct{ rest string }

// readList reads the values of a List of Items. It is not ok if any part of it is not as RFC 9651 wants it, or an item is an
// Inner List.
func readList(values []string) (items []fieldItem, ok bool) { return readMembers(values, false) }

// readDictionary reads the values of a Dictionary of Items. Of a key that occurs twice both members are there.
func readDictionary(values []string) (items []fieldItem, ok bool) { return readMembers(values, true) }

func readMembers(values []string, keyed bool) (items []fieldItem, ok bool) {
	length := -len(", ")
	for _, value := range values {
		if length += len(value) + len(", "); length > longestField {
			return nil, false
		}
	}
	r := fieldReader{strings.Trim(strings.Join(values, ", "), " ")}
	if r.rest == "" {
		return nil, false
	}
	for {
		item, ok := r.member(keyed)
		if !ok || len(items) == mostItems {
			return nil, false
		}
		items = append(items, item)
		r.space()
		if r.rest == "" {
			return items, true
		}
		if !r.accept(',') {
			return nil, false
		}
		r.space()
		if r.rest == "" {
			return nil, false
		}
	}
}

func (r *fieldReader) member(keyed bool) (item fieldItem, ok bool) {
	if keyed {
		if item.key, ok = r.key(); !ok {
			return item, false
		}
		if !r.accept('=') { // true, with parameters
			item.parameters, ok = r.parameters()
			return item, ok
		}
	}
	if item.value, ok = r.bare(); !ok {
		return item, false
	}
	item.parameters, ok = r.parameters()
	return item, ok
}

// space skips optional white space.
func (r *fieldReader) space() { r.rest = strings.TrimLeft(r.rest, " \t") }

func (r *fieldReader) peek() byte {
	if r.rest == "" {
		return 0
	}
	return r.rest[0]
}

func (r *fieldReader) accept(c byte) bool {
	if r.peek() != c || r.rest == "" {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// span cuts off what consists of characters that belong to it.
func (r *fieldReader) span(belongs func(c byte) bool) string {
	n := 0
	for n < len(r.rest) && belongs(r.rest[n]) {
		n++
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlpha(c byte) bool { return isLower(c) || c >= 'A' && c <= 'Z' }

func (r *fieldReader) key() (string, bool) {
	if c := r.peek(); !isLower(c) && c != '*' {
		return "", false
	}
	return r.span(func(c byte) bool { return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0 }), true
}

func (r *fieldReader) parameters() (all []parameter, ok bool) {
	for r.accept(';') {
		r.rest = strings.TrimLeft(r.rest, " ")
		var p parameter
		if p.name, ok = r.key(); !ok || len(all) == mostParameters {
			return nil, false
		}
		if r.accept('=') {
			if p.value, ok = r.bare(); !ok {
				return nil, false
			}
		}
		all = append(all, p)
	}
	return all, true
}

func (r *fieldReader) bare() (b bareItem, ok bool) {
	switch c := r.peek(); {
	case c == '-' || isDigit(c):
		return r.number()
	case c == '"':
		b.kind = stringItem
		b.text, ok = r.quoted()
		return b, ok
	case c == '*' || isAlpha(c):
		b.kind = tokenItem
		b.text = r.span(func(c byte) bool { return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0 })
		return b, true
	case c == ':':
		return r.bytes()
	case c == '?': // a Boolean
		r.rest = r.rest[1:]
		return b, r.accept('0') || r.accept('1')
	case c == '@': // a Date
		r.rest = r.rest[1:]
		n, ok := r.number()
		return b, ok && n.kind == integerItem
	case c == '%': // a Display String
		r.rest = r.rest[1:]
		return b, r.displayString()
	}
	return b, false
}

// number reads an Integer of at most 15 digits, or a Decimal of at most 12 and 3.
func (r *fieldReader) number() (b bareItem, ok bool) {
	negative := r.accept('-')
	digits := r.span(isDigit)
	if digits == "" || len(digits) > 15 {
		return b, false
	}
	if r.accept('.') {
		decimals := r.span(isDigit)
		return bareItem{kind: decimalItem}, len(digits) <= 12 && decimals != "" && len(decimals) <= 3
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if negative {
		n = -n
	}
	return bareItem{kind: integerItem, integer: n}, err == nil
}

func (r *fieldReader) quoted() (s string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(r.rest); i++ {
		c := r.rest[i]
		switch {
		case c == '"':
			r.rest = r.rest[i+1:]
			return b.String(), true
		case c == '\\':
			i++
			if i == len(r.rest) || r.rest[i] != '"' && r.rest[i] != '\\' {
				return "", false
			}
			c = r.rest[i]
		case c < 0x20 || c > 0x7e:
			return "", false
		}
		b.WriteByte(c)
	}
	return "", false
}

func (r *fieldReader) bytes() (b bareItem, ok bool) {
	text, rest, ok := strings.Cut(r.rest[1:], ":")
	if !ok {
		return b, false
	}
	r.rest = rest
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	return bareItem{kind: bytesItem, text: string(decoded)}, err == nil && !strings.ContainsAny(text, "\r\n")
}

// displayString reads over a text of which bytes beyond ASCII are written as "%c3", in lower case. All of it must be UTF-8.
func (r *fieldReader) displayString() bool {
	if r.peek() != '"' {
		return false
	}
	var text []byte
	for i := 1; i < len(r.rest); i++ {
		c := r.rest[i]
		switch {
		case c == '"':
			r.rest = r.rest[i+1:]
			return utf8.Valid(text)
		case c < 0x20 || c > 0x7e:
			return false
		case c == '%':
			if len(r.rest) < i+3 || !isLowerHex(r.rest[i+1]) || !isLowerHex(r.rest[i+2]) {
				return false
			}
			b, _ := strconv.ParseUint(r.rest[i+1:i+3], 16, 8) // it was checked
			c, i = byte(b), i+2
		}
		text = append(text, c)
	}
	return false
}

func isLowerHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' }
