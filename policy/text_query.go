//nolint:ireturn // texts are of several types, which callers need not know
package policy

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/keytext"
)

// QueryText is the first value of a parameter of the query, percent-decoded, with a plus sign for a space; "" if there is none.
// Like [net/url.ParseQuery] it skips parameters that contain a semicolon or a percent sign without two hexadecimal digits. A long
// value is bounded: see [JoinText].
func QueryText(name string) Text {
	put := func(r *Request, word string) { r.Query = url.QueryEscape(name) + "=" + url.QueryEscape(word) }
	return &native{spelling: "queryParam(" + strconv.Quote(name) + ")", put: put, appendTo: func(b []byte, r *Request) []byte {
		start := len(b)
		for query := r.Query; query != ""; {
			var parameter string
			parameter, query, _ = strings.Cut(query, "&")
			key, value, _ := strings.Cut(parameter, "=")
			if parameter == "" || strings.IndexByte(parameter, ';') >= 0 || !decodesTo(key, name) {
				continue
			}
			var ok bool
			if b, ok = appendDecoded(b[:start], value); ok {
				return keytext.Bound(b, start)
			}
		}
		return b[:start]
	}}
}

// decodesTo reports whether s is an encoded form of want.
func decodesTo(s, want string) bool {
	for s != "" && want != "" {
		c, n, ok := decodeByte(s)
		if !ok || c != want[0] {
			return false
		}
		s, want = s[n:], want[1:]
	}
	return s == "" && want == ""
}

func appendDecoded(b []byte, s string) ([]byte, bool) {
	for s != "" {
		c, n, ok := decodeByte(s)
		if !ok {
			return b, false
		}
		b, s = append(b, c), s[n:]
	}
	return b, true
}

// decodeByte returns the byte that s begins with, and how many bytes of s stand for it.
func decodeByte(s string) (c byte, n int, ok bool) {
	switch s[0] {
	case '+':
		return ' ', 1, true
	case '%':
		if len(s) < 3 {
			return 0, 0, false
		}
		high, ok1 := hexDigit(s[1])
		low, ok2 := hexDigit(s[2])
		return high<<4 | low, 3, ok1 && ok2
	default:
		return s[0], 1, true
	}
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	default:
		return 0, false
	}
}
