package limitflags

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	gopath "path"
	"strings"

	"github.com/weirhq/weir/clientip"
)

const (
	// maxPart is the length in bytes up to which a part of a key is kept as it is.
	maxPart = 128
	// keptOfLong is how much of a longer one is kept, before its hash.
	keptOfLong = 60
	// missing stands for a client that is not known.
	missing = "-"
)

// FromRequest answers the key of r, whose client has the given address: not necessarily that of the connection. The
// parts of a key are joined by commas; a comma or a backslash within one of several parts is escaped by a backslash, so
// that different parts never make the same key. Of a part longer than 128 bytes the first 60 and a SHA-256 hash stand
// for it: keys are bounded however long a header is. A zero address is "-".
//
// A key that is a single header, path, method or host is not copied and needs no allocation; others need one.
func (k Key) FromRequest(r *http.Request, client netip.Addr) string {
	if len(k.parts) == 0 {
		return ""
	}
	if p := k.parts[0]; len(k.parts) == 1 && p.attribute != clientIP && p.attribute != clientNet {
		if s := p.ofRequest(r); len(s) <= maxPart {
			return s
		}
	}
	var space [maxPart]byte
	b := space[:0]
	for i, p := range k.parts {
		if i > 0 {
			b = append(b, ',')
		}
		start := len(b)
		switch p.attribute {
		case clientIP, clientNet:
			b = p.appendClient(b, client, nil)
		default:
			b = appendPart(b, p.ofRequest(r))
		}
		b = k.escape(b, start)
	}
	return string(b)
}

// ofRequest is a part other than the client, in full length.
func (p part) ofRequest(r *http.Request) string {
	switch p.attribute {
	case header:
		if values := r.Header[p.header]; len(values) > 0 {
			return values[0]
		}
		return ""
	case path:
		return cleanPath(r.URL.Path)
	case method:
		if r.Method == "" { // of a request that was made to be sent
			return http.MethodGet
		}
		return r.Method
	default:
		return cleanHost(r.Host)
	}
}

func (p part) appendClient(b []byte, client netip.Addr, name []byte) []byte {
	if !client.IsValid() {
		if len(name) == 0 {
			return append(b, missing...)
		}
		return appendPart(b, name)
	}
	if p.attribute == clientIP {
		return clientip.Fold(client).AppendTo(b)
	}
	return clientip.Prefixes{IPv4: p.v4, IPv6: p.v6}.Mask(client).AppendTo(b)
}

// appendPart appends s, or what stands for it if it is long.
func appendPart[S string | []byte](b []byte, s S) []byte {
	if len(s) <= maxPart {
		return append(b, s...)
	}
	sum := sha256.Sum256([]byte(s))
	b = append(b, s[:keptOfLong]...)
	// Longer than maxPart together, so no part that is kept as it is looks like this.
	b = append(b, "...sha256:"...)
	return hex.AppendEncode(b, sum[:])
}

// escape escapes the last part of b, which starts at start, if k has several.
func (k Key) escape(b []byte, start int) []byte {
	if len(k.parts) == 1 {
		return b
	}
	special := 0
	for _, c := range b[start:] {
		if c == ',' || c == '\\' {
			special++
		}
	}
	if special == 0 {
		return b
	}
	from := len(b) - 1
	for range special {
		b = append(b, 0)
	}
	for to := len(b) - 1; from >= start; from, to = from-1, to-1 {
		b[to] = b[from]
		if c := b[from]; c == ',' || c == '\\' {
			to--
			b[to] = '\\'
		}
	}
	return b
}

// cleanPath resolves empty and dot segments. A slash at the end stays.
func cleanPath(p string) string {
	if isCleanPath(p) {
		return p
	}
	clean := gopath.Clean("/" + p)
	if clean != "/" && (strings.HasSuffix(p, "/") || strings.HasSuffix(p, "/.") || strings.HasSuffix(p, "/..")) {
		clean += "/"
	}
	return clean
}

// isCleanPath tells quickly that there is nothing to resolve; a path with a file such as /.well-known takes the slow way.
func isCleanPath[S string | []byte](p S) bool {
	if len(p) > 0 && p[0] != '/' {
		return len(p) == 1 && p[0] == '*' // OPTIONS *
	}
	for i := 1; i < len(p); i++ {
		if p[i-1] == '/' && (p[i] == '/' || p[i] == '.') {
			return false
		}
	}
	return true
}

// cleanHost is a host in lower case without port, brackets and the dot at its end.
func cleanHost(h string) string {
	if strings.HasPrefix(h, "[") {
		if end := strings.IndexByte(h, ']'); end > 0 {
			h = h[1:end]
		}
	} else if i := strings.IndexByte(h, ':'); i >= 0 && i == strings.LastIndexByte(h, ':') {
		h = h[:i] // several colons without brackets are an IPv6 address
	}
	return strings.ToLower(strings.TrimSuffix(h, "."))
}
