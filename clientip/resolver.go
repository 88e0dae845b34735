package clientip

import (
	"fmt"
	"net/netip"
)

// OptionError is an option that cannot be used, and why.
type OptionError struct {
	// Option is the field, such as "Options.TrustedProxies[1]", and Value what it was.
	Option, Value string
	// Accepted is what it may be.
	Accepted string
}

// Error names the option, its value, and what it may be.
func (e *OptionError) Error() string {
	return fmt.Sprintf("weir: clientip.%s is %s: must be %s", e.Option, e.Value, e.Accepted)
}

// Options are which proxies are believed, and how many bits of an address make a client. With the zero value no proxy is
// believed: the client is the peer.
type Options struct {
	// Prefixes are how many bits of an address make a client, for Key.
	Prefixes

	// TrustedProxies are the networks of the proxies in front of the server. Only what they write is believed. A list of
	// addresses is read from its right end, where each proxy has added the address that it was reached from, up to the first
	// address outside of these networks. What is to its left was written by the client.
	//
	// Do not list a network that has clients in it: each of them could write what it likes. Networks of IPv4-mapped addresses are
	// those of IPv4. It excludes TrustedHops. Default: none.
	TrustedProxies []netip.Prefix
	// TrustedHops is how many proxies are in front of the server, from 0 to 100, where their addresses are not known. The client
	// is the address at this place from the right; the leftmost where there are fewer. The peer is the first of the proxies, and
	// has added the rightmost address.
	//
	// Use it only if the server can be reached only through all of these proxies, and each adds one address. A client that comes
	// by a shorter way can write its own address. It excludes TrustedProxies and TrustUnixSocket. Default: 0.
	TrustedHops int
	// TrustUnixSocket makes a proxy of a peer without an IP address, which is one that connects by a Unix socket. Every program
	// that may open the socket is believed. Default: false.
	TrustUnixSocket bool
}

const maxHops = 100

// Resolver finds the client of a request. It is safe for concurrent use. The zero Resolver is not usable: call [New].
type Resolver struct {
	prefixes        Prefixes
	trusted         []netip.Prefix
	hops            int
	trustUnixSocket bool
}

// New returns a Resolver, or an [OptionError] that names the option that cannot be used.
func New(o Options) (*Resolver, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	r := &Resolver{prefixes: o.Prefixes, hops: o.TrustedHops, trustUnixSocket: o.TrustUnixSocket}
	switch {
	case o.TrustedHops < 0 || o.TrustedHops > maxHops:
		return nil, &OptionError{"Options.TrustedHops", fmt.Sprint(o.TrustedHops), fmt.Sprintf("from 0 to %d", maxHops)}
	case o.TrustedHops > 0 && len(o.TrustedProxies) > 0:
		return nil, &OptionError{"Options.TrustedHops", fmt.Sprint(o.TrustedHops), "0 beside TrustedProxies, which it excludes"}
	case o.TrustedHops > 0 && o.TrustUnixSocket:
		return nil, &OptionError{
			"Options.TrustedHops", fmt.Sprint(o.TrustedHops),
			"0 beside TrustUnixSocket, as every peer is trusted with it",
		}
	}
	for i, prefix := range o.TrustedProxies {
		folded := foldPrefix(prefix)
		if !folded.IsValid() {
			return nil, &OptionError{
				fmt.Sprintf("Options.TrustedProxies[%d]", i), prefix.String(),
				"a network such as 10.0.0.0/8 or 2001:db8::/32",
			}
		}
		r.trusted = append(r.trusted, folded)
	}
	return r, nil
}

// foldPrefix turns a network of IPv4-mapped addresses into one of IPv4. Addresses are compared after [Fold], so the network
// would contain none of them. One with fewer bits than all of them have is the zero Prefix: ::ffff:10.0.0.0/8 would be ::/8.
func foldPrefix(p netip.Prefix) netip.Prefix {
	const mapped = 128 - 32
	if p.Addr().Is4In6() {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped) // which is not valid with fewer
	}
	return p.Masked()
}

// Prefixes are how many bits of an address make a client.
func (r *Resolver) Prefixes() Prefixes { return r.prefixes }

// Key is the client of an address as text, see [Prefixes.Key].
func (r *Resolver) Key(a netip.Addr) string { return r.prefixes.Key(a) }

// Trusts reports whether a peer with the address a is believed: one in TrustedProxies; every one with TrustedHops; and with
// TrustUnixSocket the zero Addr, which is a peer without an address.
func (r *Resolver) Trusts(a netip.Addr) bool {
	if r.hops > 0 {
		return true
	}
	if !a.IsValid() {
		return r.trustUnixSocket
	}
	return r.contains(Fold(a))
}

// contains reports whether a, which is folded, is in a trusted network.
func (r *Resolver) contains(a netip.Addr) bool {
	for _, p := range r.trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
