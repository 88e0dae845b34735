package flagvalue

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/misuse"
)

// CIDRs are networks.
type CIDRs struct {
	p     *[]netip.Prefix
	given bool
}

// Networks returns a flag value that stores into p, whose value is the default, networks and addresses that are joined by
// commas. The first use of the flag replaces the default, each further one adds to it.
func Networks(p *[]netip.Prefix) *CIDRs { return &CIDRs{p: p} }

// String is the current value.
func (v *CIDRs) String() string {
	if v.p == nil {
		return ""
	}
	words := make([]string, len(*v.p))
	for i, n := range *v.p {
		words[i] = n.String()
		if n.IsSingleIP() {
			words[i] = n.Addr().String()
		}
	}
	return strings.Join(words, ",")
}

// Set parses and adds s.
func (v *CIDRs) Set(s string) error {
	var all []netip.Prefix
	for word := range strings.SplitSeq(s, ",") {
		n, ok := network(strings.TrimSpace(word))
		if !ok {
			return fmt.Errorf("must be addresses or networks such as 10.0.0.0/8, joined by commas; %s is neither",
				misuse.Quote(strings.TrimSpace(word)))
		}
		all = append(all, n)
	}
	if !v.given {
		*v.p, v.given = nil, true
	}
	*v.p = append(*v.p, all...)
	return nil
}

// network reads an address or a network. IPv4-mapped ones are those of IPv4.
func network(word string) (netip.Prefix, bool) {
	n, err := netip.ParsePrefix(word)
	if err != nil {
		addr, err := netip.ParseAddr(word)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, false
		}
		n = netip.PrefixFrom(addr, addr.BitLen())
	}
	if addr := n.Addr(); addr.Is4In6() {
		const mapped = 128 - 32
		if n.Bits() < mapped {
			return netip.Prefix{}, false
		}
		n = netip.PrefixFrom(addr.Unmap(), n.Bits()-mapped)
	}
	return n.Masked(), true
}

// Type is what help shows in place of a value.
func (*CIDRs) Type() string { return "CIDR[,CIDR]" }
