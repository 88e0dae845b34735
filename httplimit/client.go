package httplimit

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/clientip"
)

// ClientOptions are how the address of a client is found.
type ClientOptions struct {
	// TrustedProxies are the networks of the proxies in front of the server. Only what they write in X-Forwarded-For is believed.
	// The field is read from its right end, where each proxy has added the address that it was reached from, up to the first
	// address outside of these networks. What is to its left was written by the client, which can write anything. Default: none,
	// the field is ignored.
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

// ByClient keys requests by the network address of the client: "192.0.2.1" for IPv4, "2001:db8:1:2::/64" for IPv6. The port does
// not count, an IPv4-mapped IPv6 address is the IPv4 address, and a zone is ignored. All peers without an IP address, which
// connect by a Unix socket, share the key of their RemoteAddr. Package clientip has the attack that each of these rules prevents,
// and more options for proxies.
func ByClient(o ClientOptions) (KeyFunc, error) {
	resolver, err := clientip.New(clientip.Options{
		TrustedProxies: o.TrustedProxies, TrustUnixSocket: o.TrustUnixSocket,
		Prefixes: clientip.Prefixes{IPv4: o.IPv4Prefix, IPv6: o.IPv6Prefix},
	})
	if err != nil {
		return nil, clientOptionError(err)
	}
	return func(r *http.Request) (string, error) {
		client, ok := resolver.Client(r.RemoteAddr, r.Header["X-Forwarded-For"])
		if !ok {
			return r.RemoteAddr, nil
		}
		var scratch [64]byte
		key := resolver.Prefixes().AppendKey(scratch[:0], client)
		if text, isPeer := peerText(r.RemoteAddr, key); isPeer {
			return text, nil
		}
		return string(key), nil
	}, nil
}

// clientOptionError names the option of ClientOptions for one of clientip.
func clientOptionError(err error) error {
	option, ok := errors.AsType[*clientip.OptionError](err)
	if !ok {
		return err
	}
	name := option.Option
	switch name {
	case "Prefixes.IPv4", "Prefixes.IPv6":
		name = strings.TrimPrefix(name, "Prefixes.") + "Prefix"
	default:
		name = strings.TrimPrefix(name, "Options.")
	}
	return optionError("ClientOptions."+name, option.Value, option.Accepted)
}

// peerText is the part of remote that is key, if it begins with it: most peers are their own client, and the text needs no
// memory of its own.
func peerText(remote string, key []byte) (text string, ok bool) {
	if len(remote) < len(key) || remote[:len(key)] != string(key) {
		return "", false
	}
	return remote[:len(key)], len(remote) == len(key) || remote[len(key)] == ':'
}
