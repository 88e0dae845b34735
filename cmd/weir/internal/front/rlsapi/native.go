package rlsapi

import (
	"net/netip"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
)

// protocol is that of requests that descriptors stand for.
const protocol = "rls"

// native makes r the request that a descriptor stands for where rules decide. Its attributes are made anew in those of r.
func native(r *policy.Request, domain string, entries []ratelimitconfig.Entry, hits int64, path *strings.Builder) {
	attributes := r.Attributes
	if attributes == nil {
		attributes = make(map[string]string, len(entries))
	}
	clear(attributes)
	*r = policy.Request{Protocol: protocol, Host: domain, Attributes: attributes, Cost: hits}
	for _, e := range entries {
		path.WriteByte('/')
		path.WriteString(e.Key)
		if _, twice := attributes[e.Key]; !twice {
			attributes[e.Key] = e.Value
		}
		if !r.Client.IsValid() {
			r.Client = clientOf(e)
		}
	}
}

// clientOf is the address of the client, if an entry tells it.
func clientOf(e ratelimitconfig.Entry) netip.Addr {
	switch e.Key {
	case "remote_address", "client_ip":
		if a, err := netip.ParseAddr(e.Value); err == nil {
			return a.Unmap()
		}
	case "masked_remote_address":
		if p, err := netip.ParsePrefix(e.Value); err == nil {
			return p.Addr().Unmap()
		}
	}
	return netip.Addr{}
}
