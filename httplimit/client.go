package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientOptions say whose address is the address of a client.
type ClientOptions struct {
	// TrustedProxies are the networks of the proxies in front of the server. Only what they say in X-Forwarded-For is
	// believed: the field is read from its right end, where each proxy has added the address that it was reached from, up to
	// the first address that is not in these networks. What stands left of it was written by the client, who can
	// write anything. Default: none, the field is ignored.
	TrustedProxies []netip.Prefix
	// TrustUnixSocket makes a proxy of a peer without an IP address, which is one that connects by a Unix socket.
	// Default: false.
	TrustUnixSocket bool
	// IPv6Prefix is how many bits of an IPv6 address make a client: from 1 to 128. A client with a network of its own
	// can use any address in it, which is nearly always 64 bits wide or wider. Default: 64.
	IPv6Prefix int
	// IPv4Prefix is how many bits of an IPv4 address make a client: from 1 to 32. Default: 32.
	IPv4Prefix int
}

// ByClient keys requests by the network address of the client: "192.0.2.1" for IPv4, "2001:db8:1:2::/64" for IPv6. The port
// does not count, an IPv4-mapped IPv6 address is the IPv4 address, and a zone is ignored. All peers without an IP address,
// which connect by a Unix socket, share the key of their RemoteAddr.
func ByClient(o ClientOptions) (KeyFunc, error) {
	c := client{v4: 32, v6: 64, trustUnixSocket: o.TrustUnixSocket}
	if o.IPv4Prefix < 0 || o.IPv4Prefix > 32 {
		return nil, optionError("ClientOptions.IPv4Prefix", fmt.Sprint(o.IPv4Prefix), "from 1 to 32, or 0 for 32")
	}
	if o.IPv6Prefix < 0 || o.IPv6Prefix > 128 {
		return nil, optionError("ClientOptions.IPv6Prefix", fmt.Sprint(o.IPv6Prefix), "from 1 to 128, or 0 for 64")
	}
	if o.IPv4Prefix > 0 {
		c.v4 = o.IPv4Prefix
	}
	if o.IPv6Prefix > 0 {
		c.v6 = o.IPv6Prefix
	}
	for i, prefix := range o.TrustedProxies {
		folded, ok := unmapPrefix(prefix)
		if !ok {
			return nil, optionError(fmt.Sprintf("ClientOptions.TrustedProxies[%d]", i), prefix.String(),
				"a network such as 10.0.0.0/8 or 2001:db8::/32")
		}
		c.trusted = append(c.trusted, folded)
	}
	return c.key, nil
}

// unmapPrefix turns a network of IPv4-mapped addresses into one of IPv4.
func unmapPrefix(p netip.Prefix) (netip.Prefix, bool) {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), p.IsValid()
}

type client struct {
	trusted         []netip.Prefix
	trustUnixSocket bool
	v4, v6          int
}

func (c client) key(r *http.Request) (string, error) {
	addr, host, ok := peer(r.RemoteAddr)
	if !ok && !c.trustUnixSocket {
		return r.RemoteAddr, nil
	}
	if !ok || c.isTrusted(addr) {
		forwarded, found := c.forwarded(r.Header["X-Forwarded-For"])
		switch {
		case found:
			addr, host = forwarded, ""
		case !ok:
			return r.RemoteAddr, nil
		}
	}
	return c.name(addr, host), nil
}

// peer reads a RemoteAddr: an address with a port, or without one if somebody has set it. host is its text.
func peer(remote string) (addr netip.Addr, host string, ok bool) {
	if withPort, err := netip.ParseAddrPort(remote); err == nil {
		if i := strings.LastIndexByte(remote, ':'); remote[0] != '[' {
			host = remote[:i]
		}
		return fold(withPort.Addr()), host, true
	}
	addr, err := netip.ParseAddr(remote)
	return fold(addr), remote, err == nil
}

func fold(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func (c client) isTrusted(a netip.Addr) bool {
	for _, p := range c.trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// forwarded is the address of the client that the trusted proxies saw: reading from the right, the first that is not
// trusted, or the last that can be read. It is not ok if there is none.
func (c client) forwarded(fields []string) (client netip.Addr, ok bool) {
	for _, field := range slices.Backward(fields) {
		rest, more := field, true
		for more {
			entry := rest
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, entry = rest[:comma], rest[comma+1:]
			} else {
				more = false
			}
			addr, valid := hop(strings.Trim(entry, " \t"))
			if !valid {
				return client, ok
			}
			client, ok = addr, true
			if !c.isTrusted(addr) {
				return client, true
			}
		}
	}
	return client, ok
}

// hop reads an entry of X-Forwarded-For: an address, with or without a port, or with brackets only.
func hop(entry string) (netip.Addr, bool) {
	if strings.IndexByte(entry, '%') >= 0 { // the zone of another machine means nothing here
		return netip.Addr{}, false
	}
	if withPort, err := netip.ParseAddrPort(entry); err == nil {
		return fold(withPort.Addr()), true
	}
	if len(entry) > 2 && entry[0] == '[' && entry[len(entry)-1] == ']' {
		entry = entry[1 : len(entry)-1]
	}
	addr, err := netip.ParseAddr(entry)
	return fold(addr), err == nil
}

// name is the key of an address. Where host is its text in canonical form it is used as it is, which needs no memory.
func (c client) name(a netip.Addr, host string) string {
	bits := c.v6
	if a.Is4() {
		if bits = c.v4; bits == 32 && host != "" && host[0] != '[' && strings.IndexByte(host, ':') < 0 {
			return host
		}
	}
	if bits == a.BitLen() {
		return a.String()
	}
	prefix, err := a.Prefix(bits)
	if err != nil { // the bits were checked against the length of the address
		return a.String()
	}
	var scratch [64]byte
	return string(prefix.AppendTo(scratch[:0]))
}
