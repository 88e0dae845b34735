package rlsapi

import (
	"net/netip"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
)

// protocol is that of requests that descriptors stand for.
const protocol = "rls"

// native makes r the request that a descriptor stands for where rules decide. Its attributes are made anew in those of r.
func (c *call) native(r *policy.Request, entries []ratelimitconfig.Entry, hits int64) {
	attributes := r.Attributes
	if attributes == nil {
		attributes = make(map[string]string, len(entries))
	}
	clear(attributes)
	*r = policy.Request{Protocol: protocol, Host: c.q.domain, Attributes: attributes, Cost: hits}
	length := 0
	for i := range entries {
		length += len("/") + len(entries[i].Key)
	}
	c.room(length)
	from := c.texts.Len()
	for _, e := range entries {
		c.texts.WriteByte('/')
		c.texts.WriteString(e.Key)
		if _, twice := attributes[e.Key]; !twice {
			attributes[e.Key] = e.Value
		}
		if !r.Client.IsValid() {
			r.Client = clientOf(e)
		}
	}
	r.Path = c.texts.String()[from:]
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
