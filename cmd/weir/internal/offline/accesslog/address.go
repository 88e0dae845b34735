package accesslog

import (
	"bytes"
	"net/netip"
	"unsafe"
)

// setClient stores what the log calls the client: an address, an address with a
// port, or a name.
func setClient(rec *Record, b []byte) {
	if b = present(b); b == nil {
		return
	}
	b = withoutPort(b)
	if addr, ok := parseAddr(b); ok {
		rec.Client = addr
		return
	}
	rec.ClientName = b
}

// maxAddr is the length limit of an address with a zone; names of network
// interfaces are much shorter.
const maxAddr = 128

// parseAddr reads an IPv4 or IPv6 address without port and brackets, as
// netip.ParseAddr does. IPv4-mapped addresses become IPv4 addresses. Most names
// are told apart by their beginning, without an error being made.
func parseAddr(b []byte) (netip.Addr, bool) {
	digits := 0
	for digits < min(len(b), 4) && isHexDigit(b[digits]) {
		digits++
	}
	if len(b) > maxAddr || digits == len(b) || b[digits] != '.' && b[digits] != ':' {
		return netip.Addr{}, false
	}
	// No copy is made: neither the address nor anything else that is kept refers to the text, as netip clones zones.
	addr, err := netip.ParseAddr(unsafe.String(unsafe.SliceData(b), len(b))) //nolint:gosec // see above
	return addr.Unmap(), err == nil
}

func isHexDigit(c byte) bool {
	_, ok := hexDigit(c)
	return ok
}

func hexDigit(c byte) (int, bool) {
	switch {
	case isDigit(c):
		return int(c - '0'), true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10, true
	}
	return 0, false
}

// withoutPort removes ":port" from a host, and the brackets around an IPv6
// address. A bare IPv6 address stays as it is.
func withoutPort(b []byte) []byte {
	if len(b) > 1 && b[0] == '[' {
		if i := bytes.IndexByte(b, ']'); i > 1 && (i == len(b)-1 || isPort(b[i+1:])) {
			return b[1:i]
		}
		return b
	}
	if i := bytes.LastIndexByte(b, ':'); i > 0 && isPort(b[i:]) && bytes.IndexByte(b[:i], ':') < 0 {
		return b[:i]
	}
	return b
}

// isPort reports whether b is a colon and a port number.
func isPort(b []byte) bool {
	return len(b) >= 2 && len(b) <= 6 && b[0] == ':' && uint(number(b[1:])) <= 65535
}
