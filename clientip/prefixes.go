package clientip

import (
	"fmt"
	"net/netip"
)

// Prefixes are how many bits of an address make a client. The zero value is usual: a whole IPv4 address, and 64 bits of
// an IPv6 address.
type Prefixes struct {
	// IPv4 is how many bits of an IPv4 address make a client: from 1 to 32. Fewer than 32 make one client of a network, and so of
	// neighbors too. 24 suits clients that change their addresses often. Default: 32.
	IPv4 int
	// IPv6 is how many bits of an IPv6 address make a client: from 1 to 128. A client can use any address of its network, which
	// nearly always is a /64 or wider, often a /56 or /48. With more bits than its network has, it is a new client with each
	// address. Default: 64.
	IPv6 int
}

const defaultIPv4, defaultIPv6 = 32, 64

// Check returns an [OptionError] if a field is out of its range.
func (p Prefixes) Check() error {
	if p.IPv4 < 0 || p.IPv4 > 32 {
		return &OptionError{"Prefixes.IPv4", fmt.Sprint(p.IPv4), "from 1 to 32, or 0 for 32"}
	}
	if p.IPv6 < 0 || p.IPv6 > 128 {
		return &OptionError{"Prefixes.IPv6", fmt.Sprint(p.IPv6), "from 1 to 128, or 0 for 64"}
	}
	return nil
}

// Mask is the network that makes a client of a, after [Fold]. Two addresses are one client exactly if their networks are equal.
// It is the zero Prefix for an invalid address, and for bits that Check refuses: all of these are one client.
func (p Prefixes) Mask(a netip.Addr) netip.Prefix {
	a = Fold(a)
	bits := p.bits(a)
	if !a.IsValid() || bits < 0 || bits > a.BitLen() { // asked before, as the error of Prefix takes memory
		return netip.Prefix{}
	}
	masked, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return masked
}

func (p Prefixes) bits(a netip.Addr) int {
	bits, usual := p.IPv6, defaultIPv6
	if a.Is4() {
		bits, usual = p.IPv4, defaultIPv4
	}
	if bits == 0 {
		return usual
	}
	return bits
}

// Key is the client of a as text: "192.0.2.1" and "2001:db8::1" if all bits count, otherwise the network,
// "192.0.2.0/24" and "2001:db8:1:2::/64". It is one text for each [Prefixes.Mask], and "" for the zero Prefix.
func (p Prefixes) Key(a netip.Addr) string {
	var scratch [64]byte
	return string(p.AppendKey(scratch[:0], a))
}

// AppendKey appends Key to dst, and needs no memory of its own.
func (p Prefixes) AppendKey(dst []byte, a netip.Addr) []byte {
	masked := p.Mask(a)
	switch {
	case !masked.IsValid():
		return dst
	case masked.IsSingleIP():
		return masked.Addr().AppendTo(dst)
	}
	return masked.AppendTo(dst)
}
