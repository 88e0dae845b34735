package proxy

import (
	"net/netip"
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
