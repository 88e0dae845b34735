package limitflags

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/internal/keytext"
)

// FromRequest returns the key of r, whose client has the given address: not necessarily that of the connection. The
// parts of a key are joined by commas; a comma or a backslash within one of several parts is escaped by a backslash, so
// that different parts never make the same key. Of a part longer than 128 bytes the first 60 and a SHA-256 hash stand
// for it: keys are bounded however long a header is. A zero address is "-".
//
// A key that is a single header, path, method or host is not copied and needs no allocation; others need one.
func (k Key) FromRequest(r *http.Request, address netip.Addr) string {
	return k.fromRequest(r, address, "")
}

// OtherKeys are the keys of r beside FromRequest, where the path is a part of the key and servers read it in several ways: a
// permit of each of them is needed. They are nil for nearly all requests.
func (k Key) OtherKeys(r *http.Request, address netip.Addr) []string {
	if !slices.ContainsFunc(k.parts, func(p part) bool { return p.attribute == path }) {
		return nil
	}
	paths := keytext.Readings(r.URL.Path, r.URL.RawPath)
	for i := range paths {
		paths[i] = k.fromRequest(r, address, paths[i])
	}
	return paths
}

// fromRequest is the key of r under a reading of its path; "" is the usual one.
func (k Key) fromRequest(r *http.Request, address netip.Addr, reading string) string {
	if len(k.parts) == 0 {
		return ""
	}
	if p := k.parts[0]; len(k.parts) == 1 && !p.isClient() {
		if s := p.ofRequest(r, reading); len(s) <= keytext.MaxPart {
			return s
		}
	}
	var space [keytext.MaxPart]byte
	b := space[:0]
	for i, p := range k.parts {
		if i > 0 {
			b = append(b, keytext.Separator)
		}
		start := len(b)
		switch p.attribute {
		case client, clientIP, clientNet:
			b = p.appendClient(b, address, nil)
		default:
			b = keytext.AppendPart(b, p.ofRequest(r, reading))
		}
		b = k.escape(b, start)
	}
	return string(b)
}

// ofRequest is a part other than the client, in full length.
func (p part) ofRequest(r *http.Request, reading string) string {
	switch p.attribute {
	case header:
		if values := r.Header[p.header]; len(values) > 0 {
			return values[0]
		}
		return ""
	case path:
		if reading != "" {
			return reading
		}
		return keytext.CleanPath(r.URL.Path)
	case method:
		if r.Method == "" { // of a request that was made to be sent
			return http.MethodGet
		}
		return r.Method
	default:
		return keytext.CleanHost(r.Host)
	}
}

// isClient reports whether the part is made of the address of the client.
func (p part) isClient() bool { return p.attribute <= clientNet }

func (p part) appendClient(b []byte, address netip.Addr, name []byte) []byte {
	if !address.IsValid() {
		if len(name) == 0 {
			return append(b, keytext.Missing...)
		}
		return keytext.AppendPart(b, name)
	}
	folded := clientip.Fold(address)
	if p.attribute == clientIP || p.attribute == client && folded.Is4() {
		return folded.AppendTo(b)
	}
	return clientip.Prefixes{IPv4: p.v4, IPv6: p.v6}.Mask(folded).AppendTo(b) // their default is that of client
}

// escape escapes the last part of b, which starts at start, if k has several.
func (k Key) escape(b []byte, start int) []byte {
	if len(k.parts) == 1 {
		return b
	}
	return keytext.Escape(b, start)
}
