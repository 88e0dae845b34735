package checkapi

import (
	"fmt"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
)

// scanner reads JSON text from left to right.
type scanner struct {
	text []byte
	at   int
}

// next is the byte that comes next, 0 at the end.
func (s *scanner) next() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// take steps over c if it comes next.
func (s *scanner) take(c byte) bool {
	if s.at >= len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// member reads the name of the next member of an object, the first of which comes with its {. It is nil behind the last one.
func (s *scanner) member(first bool) (name []byte, err error) {
	if first {
		s.at++
	}
	s.space()
	if s.take('}') {
		return nil, nil
	}
	if !first && !s.take(',') {
		return nil, s.fault("expected , or }")
	}
	s.space()
	if name, err = s.string(); err != nil {
		return nil, err
	}
	s.space()
	if !s.take(':') {
		return nil, s.fault("expected : after a name")
	}
	s.space()
	return name, nil
}

// item reports whether another item of an array comes next. The first one comes with its [.
func (s *scanner) item(first bool) (bool, error) {
	if first {
		s.at++
	}
	s.space()
	if s.take(']') {
		return false, nil
	}
	if !first && !s.take(',') {
		return false, s.fault("expected , or ]")
	}
	s.space()
	return true, nil
}

// fault says what was expected at this place.
func (s *scanner) fault(expected string) *fault {
	if s.at >= len(s.text) {
		return &fault{wrong: fmt.Sprintf("not JSON: %s, but the body ends at byte %d", expected, len(s.text))}
	}
	return &fault{wrong: fmt.Sprintf("not JSON: %s at byte %d, not %s", expected, s.at, s.excerpt())}
}

// excerpt is the value that comes next, as far as it can be shown.
func (s *scanner) excerpt() string {
	rest := s.text[s.at:]
	end := 0
	switch {
	case len(rest) == 0:
		return "nothing"
	case rest[0] == '{':
		return "an object"
	case rest[0] == '[':
		return "an array"
	case rest[0] == '"':
		end = 1
		for end < len(rest) && rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		return excerpt(rest[1:min(end, len(rest))])
	default:
		for end < len(rest) && end <= maxExcerpt && isBare(rest[end]) {
			end++
		}
		if end == 0 {
			end = 1
		} else {
			if end > maxExcerpt {
				return string(rest[:maxExcerpt]) + "..."
			}
			return string(rest[:end])
		}
	}
	return excerpt(rest[:end])
}

// isBare reports whether c can be part of a number or a word.
func isBare(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.' || c == '_'
}

// string reads a string and undoes its escapes in place.
func (s *scanner) string() ([]byte, error) {
	if !s.take('"') {
		return nil, s.fault("expected a string in quotes")
	}
	start := s.at
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[start : s.at-1], nil
		case c == '\\' || c < ' ' || c >= utf8.RuneSelf:
			return s.rareString(start)
		}
		s.at++
	}
	return nil, s.fault(`expected " at the end of a string`)
}

// rareString reads the rest of a string that has escapes or characters other than ASCII.
func (s *scanner) rareString(start int) ([]byte, error) {
	to := s.at
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == '"':
			s.at++
			return s.text[start:to], nil
		case c < ' ':
			return nil, s.fault("control characters must be escaped")
		case c == '\\':
			r, ok := s.escape()
			if !ok {
				return nil, s.fault("expected an escape of JSON")
			}
			to += utf8.EncodeRune(s.text[to:s.at], r)
		default:
			r, size := utf8.DecodeRune(s.text[s.at:])
			if r == utf8.RuneError && size == 1 {
				return nil, s.fault("expected UTF-8")
			}
			to += copy(s.text[to:], s.text[s.at:s.at+size])
			s.at += size
		}
	}
	return nil, s.fault(`expected " at the end of a string`)
}

// escape reads an escape. If it is wrong, it stays where it begins. Half a surrogate pair is wrong: it stands for no
// character, and all of them would become the same one.
func (s *scanner) escape() (r rune, ok bool) {
	rest := s.text[s.at:]
	if len(rest) < 2 {
		return 0, false
	}
	switch rest[1] {
	case '"', '\\', '/':
		r = rune(rest[1])
	case 'b':
		r = '\b'
	case 'f':
		r = '\f'
	case 'n':
		r = '\n'
	case 'r':
		r = '\r'
	case 't':
		r = '\t'
	case 'u':
		return s.unicodeEscape(rest)
	default:
		return 0, false
	}
	s.at += 2
	return r, true
}

const escapeLen = len(`\u0000`)

func (s *scanner) unicodeEscape(rest []byte) (r rune, ok bool) {
	high, ok := hexEscape(rest)
	if !ok {
		return 0, false
	}
	if !utf16.IsSurrogate(high) {
		s.at += escapeLen
		return high, true
	}
	low, ok := hexEscape(rest[escapeLen:])
	if r = utf16.DecodeRune(high, low); !ok || r == utf8.RuneError {
		return 0, false
	}
	s.at += 2 * escapeLen
	return r, true
}

// hexEscape reads \uXXXX.
func hexEscape(b []byte) (r rune, ok bool) {
	if len(b) < escapeLen || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:escapeLen] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// cost reads an integer from 0 to maxCost.
func (s *scanner) cost() (int64, error) {
	wrong := &fault{field: costName, value: s.excerpt(), accepted: acceptedCost}
	start := s.at
	var n int64
	for ; s.at < len(s.text) && isDigit(s.text[s.at]); s.at++ {
		n = n*10 + int64(s.text[s.at]-'0')
		if n > maxCost {
			return 0, wrong
		}
	}
	digits := s.text[start:s.at]
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return 0, wrong
	}
	switch s.next() {
	case ',', '}', ' ', '\t', '\r', '\n', 0:
		return n, nil
	}
	return 0, wrong
}

// wait reads for how long a client is ready to wait.
func (s *scanner) wait() (time.Duration, error) {
	return s.seconds(&fault{field: waitName, value: s.excerpt(), accepted: acceptedWait})
}

// expiry reads when a reservation expires.
func (s *scanner) expiry() (time.Duration, error) {
	wrong := &fault{field: expiresName, value: s.excerpt(), accepted: acceptedExpiry}
	d, err := s.seconds(wrong)
	if err == nil && d < holds.LeastExpiry {
		return 0, wrong
	}
	return d, err
}

// seconds reads a number of seconds from 0 to mostWait, to the nanosecond.
func (s *scanner) seconds(wrong *fault) (time.Duration, error) {
	var d time.Duration
	start := s.at
	for ; s.at < len(s.text) && isDigit(s.text[s.at]); s.at++ {
		if d = d*10 + time.Duration(s.text[s.at]-'0')*time.Second; d > mostWait*time.Second {
			return 0, wrong
		}
	}
	digits := s.text[start:s.at]
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return 0, wrong
	}
	if s.take('.') {
		first := s.at
		for unit := time.Second / 10; s.at < len(s.text) && isDigit(s.text[s.at]); s.at++ {
			d += time.Duration(s.text[s.at]-'0') * unit
			unit /= 10
		}
		if s.at == first || d > mostWait*time.Second {
			return 0, wrong
		}
	}
	switch s.next() {
	case ',', '}', ' ', '\t', '\r', '\n', 0:
		return d, nil
	}
	return 0, wrong
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
