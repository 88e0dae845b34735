package accesslog

import (
	"bytes"
	"net/netip"
)

// setClient stores what the log calls the client: an address, an address with a
// port, or a name.
func setClient(rec *Record, b []byte) {
	if b = present(b); b == nil {
		return
	}
	if addr, ok := parseAddr(b); ok {
		rec.Client = addr
		return
	}
	b = withoutPort(b)
	if addr, ok := parseAddr(b); ok {
		rec.Client = addr
		return
	}
	rec.ClientName = b
}

// parseAddr reads an IPv4 or IPv6 address without port and brackets. IPv4-mapped
// addresses become IPv4 addresses. It accepts what netip.ParseAddr accepts and
// allocates only for an address with a zone.
func parseAddr(b []byte) (netip.Addr, bool) {
	if addr, ok := parseIPv4(b); ok {
		return netip.AddrFrom4(addr), true
	}
	if len(b) < 2 || bytes.IndexByte(b[:min(len(b), 5)], ':') < 0 {
		return netip.Addr{}, false
	}
	if len(b) <= maxZonedAddr && bytes.IndexByte(b, '%') > 0 {
		addr, err := netip.ParseAddr(string(b))
		return addr.Unmap(), err == nil
	}
	addr, ok := parseIPv6(b)
	if !ok {
		return netip.Addr{}, false
	}
	return netip.AddrFrom16(addr).Unmap(), true
}

// maxZonedAddr is the length limit of an address with a zone; names of network
// interfaces are much shorter.
const maxZonedAddr = 128

func parseIPv4(b []byte) (addr [4]byte, ok bool) {
	if len(b) < len("0.0.0.0") || len(b) > len("255.255.255.255") {
		return addr, false
	}
	octet, digits, value := 0, 0, 0
	for _, c := range b {
		switch {
		case isDigit(c):
			if digits > 0 && value == 0 {
				return addr, false // leading zero
			}
			value = value*10 + int(c-'0')
			if digits++; value > 255 {
				return addr, false
			}
		case c == '.' && digits > 0 && octet < 3:
			addr[octet] = byte(value)
			octet++
			digits, value = 0, 0
		default:
			return addr, false
		}
	}
	addr[octet] = byte(value)
	return addr, octet == 3 && digits > 0
}

func parseIPv6(b []byte) (addr [16]byte, ok bool) {
	n := 0       // bytes of addr filled
	elided := -1 // where in addr the "::" stands
	if len(b) >= 2 && b[0] == ':' && b[1] == ':' {
		elided = 0
		b = b[2:]
	}
	for len(b) > 0 {
		if n == len(addr) {
			return addr, false
		}
		value, digits := hexGroup(b)
		if digits == 0 {
			return addr, false
		}
		if digits < len(b) && b[digits] == '.' {
			tail, ok := parseIPv4(b)
			if !ok || n > 12 || n < 12 && elided < 0 {
				return addr, false
			}
			n += copy(addr[n:], tail[:])
			break
		}
		addr[n], addr[n+1] = byte(value>>8), byte(value)
		n += 2
		if b = b[digits:]; len(b) == 0 {
			break
		}
		if b[0] != ':' || len(b) == 1 {
			return addr, false
		}
		if b = b[1:]; b[0] == ':' {
			if elided >= 0 {
				return addr, false
			}
			elided = n
			b = b[1:]
		}
	}
	if elided < 0 {
		return addr, n == len(addr)
	}
	if n == len(addr) {
		return addr, false // "::" stands for one group at least
	}
	moved := copy(addr[len(addr)-(n-elided):], addr[elided:n])
	clear(addr[elided : len(addr)-moved])
	return addr, true
}

// hexGroup reads at most four hexadecimal digits and reports how many there are.
func hexGroup(b []byte) (value, digits int) {
	for digits < len(b) && digits < 4 {
		d, ok := hexDigit(b[digits])
		if !ok {
			break
		}
		value = value<<4 | d
		digits++
	}
	return value, digits
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
	if len(b) < 2 || len(b) > 6 || b[0] != ':' {
		return false
	}
	n := 0
	for _, c := range b[1:] {
		if !isDigit(c) {
			return false
		}
		n = n*10 + int(c-'0')
	}
	return n <= 65535
}
