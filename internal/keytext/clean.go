package keytext

import (
	"net/netip"
	"path"
	"strings"
	"unicode/utf8"
)

// CleanPath resolves empty and dot segments, so that a path has one spelling. A slash at the end stays, and so do the empty path
// and "*", which OPTIONS asks for. It allocates only if there is something to resolve.
func CleanPath(p string) string {
	if IsCleanPath(p) {
		return p
	}
	clean := path.Clean("/" + p)
	if clean != "/" && (strings.HasSuffix(p, "/") || strings.HasSuffix(p, "/.") || strings.HasSuffix(p, "/..")) {
		clean += "/"
	}
	return clean
}

// IsCleanPath reports whether CleanPath has nothing to resolve.
func IsCleanPath[S string | []byte](p S) bool {
	if len(p) > 0 && p[0] != '/' {
		return len(p) == 1 && p[0] == '*'
	}
	if last := len(p) - wordSize - 1; last >= 0 {
		some := uint64(0) // pairs of a slash and a slash or a dot, whose codes differ in the lowest bit alone
		for i := 0; i < last; i += wordSize {
			some |= pairs(p, i)
		}
		if some|pairs(p, last) == 0 {
			return true
		}
	}
	for i := 1; i < len(p); i++ {
		if p[i-1] == '/' && (p[i] == '/' || p[i] == '.' && isDots(p[i:])) {
			return false
		}
	}
	return true
}

func pairs[S string | []byte](p S, i int) uint64 {
	return equal(word(p, i), '/') & equal(word(p, i+1)|each, '/')
}

// isDots reports whether the segment that p begins with is "." or "..". Its first byte is a dot.
func isDots[S string | []byte](p S) bool {
	end := 1
	if len(p) > 1 && p[1] == '.' {
		end = 2
	}
	return len(p) == end || p[end] == '/'
}

// CleanMethod is a method in upper case: methods are told apart by case, but many services (Django, Werkzeug) run the handler of
// POST for post. One that is not UTF-8 stays as it is. It allocates only if the method is not in upper case.
func CleanMethod(m string) string {
	if isUpper(m) {
		return m
	}
	upper := strings.ToUpper(m)
	if upper != m && !utf8.ValidString(m) {
		return m
	}
	return upper
}

// isUpper reports whether a method is one of ASCII without letters in lower case, as nearly all are.
func isUpper(m string) bool {
	for i := range len(m) {
		if c := m[i]; c >= 'a' && c <= 'z' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// CleanHost is a host in lower case without port, brackets and dots at its end, and without percent-encoding, which services
// decode that take it for the host of a URL. It allocates only if it is not in lower case, or encoded.
func CleanHost(h string) string {
	if isCleanHost(h) {
		return h
	}
	switch {
	case strings.HasPrefix(h, "["):
		if end := strings.IndexByte(h, ']'); end > 0 {
			h = h[1:end]
		}
	case hasSeveralPorts(h):
		h, _, _ = strings.Cut(h, ":") // some services take a:80:80 for a
	default:
		h = withoutPort(h)
	}
	if strings.IndexByte(h, ':') < 0 && hasEscape(h) { // otherwise a percent sign begins a zone
		h = withoutPort(decodeOnce(strings.TrimRight(h, ".")))
	}
	return strings.ToLower(strings.TrimRight(h, "."))
}

// withoutPort cuts a single port off a host that is not in brackets.
func withoutPort(h string) string {
	if i := strings.IndexByte(h, ':'); i >= 0 && i == strings.LastIndexByte(h, ':') {
		return h[:i]
	}
	return h
}

// WholeHost is CleanHost of a host that [HasSeveralNames], as services read it that decode nothing, and cut nothing off but a
// single port and dots at the end.
func WholeHost(h string) string { return strings.ToLower(strings.TrimRight(withoutPort(h), ".")) }

// HasSeveralNames reports whether services differ about what a host is: it is encoded, or has several ports.
func HasSeveralNames(h string) bool {
	if strings.IndexByte(h, '%') >= 0 && !strings.HasPrefix(h, "[") && hasEscape(h) {
		_, err := netip.ParseAddr(h)
		return err != nil
	}
	return hasSeveralPorts(h)
}

// hasSeveralPorts reports whether a host has several colons and is no IPv6 address.
func hasSeveralPorts(h string) bool {
	i := strings.IndexByte(h, ':')
	if i < 0 || h[0] == '[' || i == strings.LastIndexByte(h, ':') {
		return false
	}
	_, err := netip.ParseAddr(h)
	return err != nil
}

// isCleanHost reports whether a host has nothing that CleanHost might change, which it tells by its bytes.
func isCleanHost(h string) bool {
	if last := len(h) - wordSize; last >= 0 {
		some := mayChange(word(h, last))
		for i := 0; i < last; i += wordSize {
			some |= mayChange(word(h, i))
		}
		return some == 0 && h[len(h)-1] != '.'
	}
	for i := range len(h) {
		if c := h[i]; c >= 'A' && c <= '[' || c == ':' || c == '%' || c >= 0x80 {
			return false
		}
	}
	return h == "" || h[len(h)-1] != '.'
}

// mayChange marks the bytes of a word that isCleanHost looks for.
func mayChange(w uint64) uint64 {
	low := w &^ high
	letters := (low + (0x80-'A')*each) &^ (low + (0x80-'['-1)*each)
	return (letters|w)&high | equal(w, ':') | equal(w, '%')
}

// HasSeveralReadings reports whether a clean path has what servers read differently: see [Readings].
func HasSeveralReadings(clean string) bool {
	if last := len(clean) - wordSize; last >= 0 {
		some := readOtherwise(word(clean, last))
		for i := 0; i < last; i += wordSize {
			some |= readOtherwise(word(clean, i))
		}
		return some != 0
	}
	for i := range len(clean) {
		if c := clean[i]; c == '%' || c == '\\' || c == ';' {
			return true
		}
	}
	return false
}

func readOtherwise(w uint64) uint64 { return equal(w, '%') | equal(w, '\\') | equal(w, ';') }

// Most hosts and paths are too short for searches by [strings.IndexByte] to pay, and are read by words.
const (
	wordSize = 8
	each     = 0x0101010101010101 // a one in each byte
	high     = each << 7
)

// word is 8 bytes of s.
func word[S string | []byte](s S, at int) uint64 {
	s = s[at : at+wordSize]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// equal marks the bytes of a word that are c, by their highest bits.
func equal(w uint64, c byte) uint64 {
	w ^= each * uint64(c)
	return ^((w&^high + ^uint64(high)) | w) & high
}
