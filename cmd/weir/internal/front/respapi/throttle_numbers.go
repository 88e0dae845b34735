package respapi

import (
	"bytes"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir/algo"
)

// parseInt reads a decimal number with a sign or without, and nothing else.
func parseInt(text []byte) (n int64, ok bool) {
	digits, negative := text, false
	if len(digits) > 0 && (digits[0] == '-' || digits[0] == '+') {
		negative = digits[0] == '-'
		digits = digits[1:]
	}
	if len(digits) == 0 {
		return 0, false
	}
	var u uint64
	for _, c := range digits {
		c -= '0'
		if c > 9 || u > math.MaxInt64/10 { // with this digit it would be too large
			return 0, false
		}
		u = u*10 + uint64(c)
	}
	if negative {
		return -int64(u), u <= -math.MinInt64
	}
	return int64(u), u <= math.MaxInt64
}

// parseSeconds reads a number of seconds that is not negative, with up to 9 decimals, in nanoseconds.
func parseSeconds(text []byte) (ns int64, ok bool) {
	whole, decimals, point := bytes.Cut(text, []byte("."))
	s, ok := parseInt(whole)
	if !ok || s > mostSeconds || whole[0] == '-' || whole[0] == '+' || point && len(decimals) == 0 {
		return 0, false
	}
	part, unit := int64(0), int64(time.Second)
	for _, c := range decimals {
		if c < '0' || c > '9' {
			return 0, false
		}
		if unit /= 10; unit == 0 {
			if c != '0' {
				return 0, false
			}
			continue
		}
		part += int64(c-'0') * unit
	}
	ns = s*int64(time.Second) + part
	return ns, ns <= int64(algo.MaxPeriod)
}

// mostQuoted is how many bytes an error has of what a client has sent.
const mostQuoted = 64

// beginning is what an error has of what a client has sent, and what stands for the rest. No character is cut into parts.
func beginning(text []byte) (shown []byte, rest string) {
	if len(text) <= mostQuoted {
		return text, ""
	}
	end := mostQuoted - len("...")
	start := end
	for start > end-utf8.UTFMax && !utf8.RuneStart(text[start]) {
		start--
	}
	if r, _ := utf8.DecodeRune(text[start:]); r != utf8.RuneError {
		end = start
	}
	return text[:end], "..."
}

// quoted is the beginning of a name that a client has sent, for an error: between quotes, with escapes for what cannot be shown.
// It has less than 256 bytes.
func quoted(text []byte) string {
	shown, rest := beginning(text)
	return strconv.Quote(string(shown)) + rest
}

// excerpt is the beginning of what a client has sent, for an error: as it is, if all of it can be shown.
func excerpt(text []byte) string {
	shown, rest := beginning(text)
	if rest != "" {
		return excerpt(shown) + rest
	}
	if !utf8.Valid(text) {
		return strconv.QuoteToASCII(string(text))
	}
	for _, c := range text {
		if c < ' ' || c == 0x7f {
			return strconv.QuoteToASCII(string(text))
		}
	}
	return string(text)
}
