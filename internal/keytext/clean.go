package keytext

import (
	"path"
	"strings"
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
	for i := 1; i < len(p); i++ {
		if p[i-1] == '/' && (p[i] == '/' || p[i] == '.' && isDots(p[i:])) {
			return false
		}
	}
	return true
}

// isDots reports whether the segment that p begins with is "." or "..". Its first byte is a dot.
func isDots[S string | []byte](p S) bool {
	end := 1
	if len(p) > 1 && p[1] == '.' {
		end = 2
	}
	return len(p) == end || p[end] == '/'
}

// CleanHost is a host in lower case without port, brackets and the dot at its end. It allocates only if it is not in lower
// case.
func CleanHost(h string) string {
	if isCleanHost(h) {
		return h
	}
	if strings.HasPrefix(h, "[") {
		if end := strings.IndexByte(h, ']'); end > 0 {
			h = h[1:end]
		}
	} else if i := strings.IndexByte(h, ':'); i >= 0 && i == strings.LastIndexByte(h, ':') {
		h = h[:i] // several colons without brackets are an IPv6 address
	}
	return strings.ToLower(strings.TrimSuffix(h, "."))
}

// isCleanHost reports whether a host has nothing that CleanHost might change, which it tells by its bytes.
func isCleanHost(h string) bool {
	for i := range len(h) {
		if c := h[i]; c >= 'A' && c <= '[' || c == ':' || c >= 0x80 {
			return false
		}
	}
	return h == "" || h[len(h)-1] != '.'
}
