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
	if r.Attributes == nil {
		r.Attributes = make(map[string]string, len(entries))
	}
	clear(r.Attributes)
	r.Protocol, r.Host, r.Cost = protocol, c.q.domain, hits
	r.Client, r.Named, r.Context = netip.Addr{}, nil, nil // as a configuration may have been asked before; nothing else is ever set
	length := 0
	for i := range entries {
		length += len("/") + len(entries[i].Key)
	}
	t := &c.texts
	t.room(length)
	from := len(t.b)
	for i := range entries {
		e := &entries[i]
		t.b = append(append(t.b, '/'), e.Key...)
		if _, twice := r.Attributes[e.Key]; !twice {
			r.Attributes[e.Key] = e.Value
		}
		if !r.Client.IsValid() {
			r.Client = clientOf(e)
		}
	}
	r.Path = t.since(from)
}

// clientOf is the address of the client, if an entry tells it.
func clientOf(e *ratelimitconfig.Entry) netip.Addr {
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
