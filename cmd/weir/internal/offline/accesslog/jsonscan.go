package accesslog

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep the objects and arrays of a line may be nested.
const maxDepth = 64

// Reasons for which a line is not JSON.
const (
	wantDepth   = "nested deeper than 64 levels"
	wantValue   = "want a value"
	wantString  = "want a quoted name"
	wantQuote   = "string without closing quote"
	wantEscape  = "invalid escape"
	wantControl = "control character in a string"
	wantNumber  = "invalid number"
	wantColon   = `want ":" after a name`
	wantComma   = `want "," or "}" after a value`
	wantEnd     = "want nothing after the end of the object"
	wantBracket = `want "," or "]" after a value`
)

// scanner walks over one JSON text and checks its syntax in full. Like
// encoding/json it does not mind bytes in strings that are not UTF-8.
type scanner struct {
	data    []byte
	pos     int
	refused string
}

// fail sets the reason and returns false.
func (s *scanner) fail(reason string) bool {
	s.refused = reason
	return false
}

func (s *scanner) skipSpace() {
	for s.pos < len(s.data) && s.data[s.pos] <= ' ' && (isBlank(s.data[s.pos]) || s.data[s.pos] == '\n') {
		s.pos++
	}
}

// at reports whether c is the next byte.
func (s *scanner) at(c byte) bool {
	return s.pos < len(s.data) && s.data[s.pos] == c
}

// take moves past the next byte if it is c.
func (s *scanner) take(c byte) bool {
	if s.at(c) {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) atNumber() bool {
	return s.pos < len(s.data) && (s.data[s.pos] == '-' || isDigit(s.data[s.pos]))
}

// scanString reads a string and returns what stands between its quotes, and
// whether there are escapes in it.
func (s *scanner) scanString() (raw []byte, escaped, ok bool) {
	if !s.take('"') {
		return nil, false, s.fail(wantString)
	}
	start := s.pos
	for i := start; ; {
		i += plainLength(s.data[i:])
		if i == len(s.data) {
			break
		}
		switch s.data[i] {
		case '"':
			s.pos = i + 1
			return s.data[start:i], escaped, true
		case '\\':
			escaped = true
			n := escapeLength(s.data[i:])
			if n == 0 {
				s.pos = i
				return nil, false, s.fail(wantEscape)
			}
			i += n
		default:
			s.pos = i
			return nil, false, s.fail(wantControl)
		}
	}
	s.pos = start - 1
	return nil, false, s.fail(wantQuote)
}

// plainLength returns the number of bytes before the first quote, backslash or
// control character. It looks at eight bytes at a time: for each byte b of a word,
// the top bit of (b^c)-1 &^ (b^c) is set if b is c, and that of b-' ' &^ b if b is
// below ' '. A borrow can set the bit of a higher byte too, never that of a lower
// one, so the lowest bit is right.
func plainLength(b []byte) int {
	const (
		ones = 0x0101010101010101
		tops = 0x8080808080808080
	)
	i := 0
	for ; i+8 <= len(b); i += 8 {
		word := binary.LittleEndian.Uint64(b[i:])
		quotes, slashes := word^ones*'"', word^ones*'\\'
		found := ((quotes-ones)&^quotes | (slashes-ones)&^slashes | (word-ones*' ')&^word) & tops
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// escapeLength returns the length of the escape at the start of b, or 0.
func escapeLength(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := codeUnit(b); ok {
			return 6
		}
	}
	return 0
}

// codeUnit returns the number in the escape \uXXXX at the start of b.
func codeUnit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	unit := 0
	for _, c := range b[2:6] {
		d, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		unit = unit<<4 | d
	}
	return rune(unit), true
}

// unescapeJSON undoes the escapes of a scanned string. Half a surrogate pair
// becomes U+FFFD.
func (p *parser) unescapeJSON(b []byte) []byte {
	start := len(p.scratch)
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			p.scratch = append(p.scratch, b...)
			return p.scratch[start:]
		}
		p.scratch = append(p.scratch, b[:i]...)
		b = b[i:]
		if unit, ok := codeUnit(b); ok {
			b = b[6:]
			if utf16.IsSurrogate(unit) {
				second, _ := codeUnit(b)
				if unit = utf16.DecodeRune(unit, second); unit != utf8.RuneError {
					b = b[6:]
				}
			}
			p.scratch = utf8.AppendRune(p.scratch, unit)
			continue
		}
		c := b[1] // one of "\/bfnrt
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		}
		p.scratch = append(p.scratch, c)
		b = b[2:]
	}
}

// scanNumber reads a number.
func (s *scanner) scanNumber() (raw []byte, ok bool) {
	start := s.pos
	s.take('-')
	if !s.take('0') && !s.takeDigits() {
		return nil, s.fail(wantNumber)
	}
	if s.take('.') && !s.takeDigits() {
		return nil, s.fail(wantNumber)
	}
	if s.take('e') || s.take('E') {
		if !s.take('-') {
			s.take('+')
		}
		if !s.takeDigits() {
			return nil, s.fail(wantNumber)
		}
	}
	return s.data[start:s.pos], true
}

// takeDigits moves past one digit or more.
func (s *scanner) takeDigits() bool {
	start := s.pos
	for s.pos < len(s.data) && isDigit(s.data[s.pos]) {
		s.pos++
	}
	return s.pos > start
}

// skipValue reads a value of any type. depth is that of the object or array
// around it.
func (p *parser) skipValue(s *scanner, depth int) bool {
	if s.pos >= len(s.data) {
		return s.fail(wantValue)
	}
	switch c := s.data[s.pos]; c {
	case '"':
		_, _, ok := s.scanString()
		return ok
	case '{':
		return p.scanObject(s, &unknown, depth+1)
	case '[':
		if depth++; depth > maxDepth {
			return s.fail(wantDepth)
		}
		s.pos++
		if s.skipSpace(); s.take(']') {
			return true
		}
		return p.skipValue(s, depth) && p.skipElements(s, depth)
	case 't':
		return s.skipWord("true")
	case 'f':
		return s.skipWord("false")
	case 'n':
		return s.skipWord("null")
	default:
		if !s.atNumber() {
			return s.fail(wantValue)
		}
		_, ok := s.scanNumber()
		return ok
	}
}

// skipElements reads the elements of an array behind the first one, and the
// bracket.
func (p *parser) skipElements(s *scanner, depth int) bool {
	for {
		s.skipSpace()
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return s.fail(wantBracket)
		}
		if s.skipSpace(); !p.skipValue(s, depth) {
			return false
		}
	}
}

func (s *scanner) skipWord(word string) bool {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		return s.fail(wantValue)
	}
	s.pos += len(word)
	return true
}
