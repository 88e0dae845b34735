package proxy

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// proxies are the networks of the proxies whose X-Forwarded headers are believed.
type proxies []netip.Prefix

// parseProxies reads addresses and networks that are separated by commas. The error is the one that is wrong.
func parseProxies(s string) (proxies, *wrongNetwork) {
	var list proxies
	for word := range strings.SplitSeq(s, ",") {
		word = strings.TrimSpace(word)
		prefix, err := netip.ParsePrefix(word)
		if err != nil {
			addr, addrErr := netip.ParseAddr(word)
			if addrErr != nil || addr.Zone() != "" {
				return nil, &wrongNetwork{word}
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		if addr := prefix.Addr(); addr.Is4In6() {
			const mapped = 128 - 32
			if prefix.Bits() < mapped {
				return nil, &wrongNetwork{word}
			}
			prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-mapped)
		}
		list = append(list, prefix.Masked())
	}
	return list, nil
}

type wrongNetwork struct{ word string }

func (p proxies) contain(a netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(a) {
			return true
		}
	}
	return false
}

// client answers whom a request comes from: peer, unless that is one of p. Then it is the last address in
// X-Forwarded-For that is not one of p. Where the header says no address, or ends, the hop before it is the client: it
// is the farthest that is known, and what stands left of it may have been made up.
func (p proxies) client(peer netip.Addr, forwardedFor []string) netip.Addr {
	client := peer
	for _, line := range slices.Backward(forwardedFor) {
		for rest, more := line, true; more; {
			if !p.contain(client) {
				return client
			}
			var last string
			comma := strings.LastIndexByte(rest, ',')
			more = comma >= 0
			last, rest = strings.TrimSpace(rest[comma+1:]), rest[:max(comma, 0)]
			if last == "" {
				continue
			}
			addr, ok := parseHop(last)
			if !ok {
				return client
			}
			client = addr
		}
	}
	return client
}

// parseHop reads an element of X-Forwarded-For: an address, with a port or not.
func parseHop(s string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return plain(addr), true
	}
	if addrPort, err := netip.ParseAddrPort(s); err == nil {
		return plain(addrPort.Addr()), true
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			addr, err := netip.ParseAddr(inner)
			return plain(addr), err == nil
		}
	}
	return netip.Addr{}, false
}

// peerOf is the address of the connection, the zero Addr if there is none.
func peerOf(r *http.Request) netip.Addr {
	addrPort, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return plain(addrPort.Addr())
}

// plain is an address in its only form: networks contain no address with a zone, and no mapped one.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
