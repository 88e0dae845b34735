package clientip

import (
	"net/netip"
	"strings"
)

// Parse reads an address with or without a port, with or without brackets: "192.0.2.1", "192.0.2.1:443", "2001:db8::1",
// "[2001:db8::1]", "[2001:db8::1]:443". An IPv6 address with a port needs the brackets, as the port could be a part of it. A port
// is a number up to 65535, with any number of zeros before it; it is checked and dropped.
//
// It returns one form of each address: an IPv4-mapped IPv6 address becomes the IPv4 address, and a zone is dropped. Everything
// else is refused: names of hosts, empty text, spaces, and IPv4 addresses with leading zeros, which some programs read as octal.
//
// Parse allocates nothing.
func Parse(endpoint string) (netip.Addr, bool) {
	if addr, ok := parseEndpoint(endpoint); ok {
		return addr, true
	}
	return netip.Addr{}, false
}

// parseEndpoint returns some address where it is not ok.
func parseEndpoint(endpoint string) (netip.Addr, bool) {
	if endpoint == "" {
		return netip.Addr{}, false
	}
	if endpoint[0] == '[' {
		end := strings.LastIndexByte(endpoint, ']')
		if end < 0 || !isPortOrNothing(endpoint[end+1:]) {
			return netip.Addr{}, false
		}
		return parseAddr(endpoint[1:end])
	}
	colon := strings.IndexByte(endpoint, ':')
	if colon < 0 || strings.IndexByte(endpoint[colon+1:], ':') >= 0 { // no port, or an IPv6 address
		return parseAddr(endpoint)
	}
	addr, ok := parse4(endpoint[:colon])
	return addr, ok && isPortOrNothing(endpoint[colon:])
}

// Fold is an address in the form in which it is compared and counted. An IPv4-mapped IPv6 address becomes the IPv4 address, and a
// zone is dropped. So a peer of a socket for both families and the same peer in a header are one client.
func Fold(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// isPortOrNothing reports whether s is "", or a colon and a port.
func isPortOrNothing(s string) bool {
	if s == "" {
		return true
	}
	if s[0] != ':' || len(s) < 2 {
		return false
	}
	port := 0
	for i := 1; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		if port = 10*port + int(s[i]-'0'); port > 65535 {
			return false
		}
	}
	return true
}

// parseAddr reads an address without a port. The parser of the standard library makes an error of memory for each text that
// is none, and keeps zones, so that hostile text would cost more than honest text.
func parseAddr(s string) (netip.Addr, bool) {
	if strings.IndexByte(s, ':') < 0 {
		return parse4(s)
	}
	if percent := strings.IndexByte(s, '%'); percent >= 0 {
		if percent == len(s)-1 {
			return netip.Addr{}, false
		}
		s = s[:percent]
	}
	addr, ok := parse6(s)
	return addr.Unmap(), ok
}

// parse4 reads four numbers up to 255 without leading zeros, separated by dots.
func parse4(s string) (netip.Addr, bool) {
	bytes, ok := parseDotted(s)
	return netip.AddrFrom4(bytes), ok
}

func parseDotted(s string) (bytes [4]byte, ok bool) {
	field, digits, value := 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.':
			if digits == 0 || field == len(bytes)-1 {
				return bytes, false
			}
			bytes[field] = byte(value)
			field, digits, value = field+1, 0, 0
		case c < '0' || c > '9' || digits > 0 && value == 0:
			return bytes, false
		default:
			if value = 10*value + int(c-'0'); value > 255 {
				return bytes, false
			}
			digits++
		}
	}
	bytes[field] = byte(value)
	return bytes, digits > 0 && field == len(bytes)-1
}

// parse6 reads groups of up to four hexadecimal digits, separated by colons: eight, or fewer around one "::" that stands
// for at least one group of zeros. The last two may be written as an IPv4 address.
func parse6(s string) (netip.Addr, bool) {
	var (
		bytes [16]byte
		at    int // bytes that are filled
		gap   = -1
	)
	if strings.HasPrefix(s, "::") {
		gap, s = 0, s[2:]
	}
	for s != "" {
		value, n := parseGroup(s)
		switch {
		case at == len(bytes) || n == 0:
			return netip.Addr{}, false
		case n < len(s) && s[n] == '.':
			last, ok := parseDotted(s)
			if !ok || at > len(bytes)-len(last) {
				return netip.Addr{}, false
			}
			at += copy(bytes[at:], last[:])
			return fillGap(bytes, at, gap)
		}
		bytes[at], bytes[at+1] = byte(value>>8), byte(value)
		at += 2
		if s = s[n:]; s == "" {
			break
		}
		if s[0] != ':' || len(s) == 1 {
			return netip.Addr{}, false
		}
		if s = s[1:]; s[0] == ':' {
			if gap >= 0 {
				return netip.Addr{}, false
			}
			gap, s = at, s[1:]
		}
	}
	return fillGap(bytes, at, gap)
}

// fillGap moves what stands behind the gap to the end. Without a gap all bytes must be there, with one some must not.
func fillGap(bytes [16]byte, at, gap int) (netip.Addr, bool) {
	if gap < 0 {
		return netip.AddrFrom16(bytes), at == len(bytes)
	}
	tail := at - gap
	copy(bytes[len(bytes)-tail:], bytes[gap:at])
	clear(bytes[gap : len(bytes)-tail])
	return netip.AddrFrom16(bytes), at < len(bytes)
}

// parseGroup reads up to four hexadecimal digits. n is how many there are, and 0 if there are more.
func parseGroup(s string) (value, n int) {
	for ; n < len(s); n++ {
		c := s[n]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return value, n
		}
		if n == 4 {
			return 0, 0
		}
		value = value<<4 | int(c)
	}
	return value, n
}
