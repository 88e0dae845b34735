package policy

import (
	"net/netip"
	"strings"

	"github.com/weirhq/weir/clientip"
)

// textTable files rules by a text.
type textTable struct {
	places  map[string]slot
	longest int
}

func (t *textTable) get(s string) slot {
	if len(t.places) == 0 || len(s) > t.longest {
		return nowhere
	}
	if p, ok := t.places[s]; ok {
		return p
	}
	return nowhere
}

func (t *textTable) put(s string, p slot) {
	if t.places == nil {
		t.places = map[string]slot{}
	}
	t.places[s] = p
	t.longest = max(t.longest, len(s))
}

// headerTable files rules by the value of a field.
type headerTable struct {
	name   string
	values textTable
}

// hostTable files rules by the host.
type hostTable struct {
	exact   textTable
	below   textTable                  // by what hosts end with
	lengths [(maxHost+1)/64 + 1]uint64 // of the texts in below
}

func (t *hostTable) empty() bool { return len(t.exact.places) == 0 && len(t.below.places) == 0 }

func (t *hostTable) put(h hostPattern, p slot) {
	if !h.below {
		t.exact.put(h.text, p)
		return
	}
	t.below.put(h.text, p)
	t.lengths[len(h.text)/64] |= 1 << (len(h.text) % 64)
}

func (x *index) lookHost(n *node, r *Request, found []int32) []int32 {
	host := r.cleanHost()
	if p := n.hosts.exact.get(host); p != nowhere {
		found = x.open(p, r, n.known|onHost, found)
	}
	below := &n.hosts.below
	if len(below.places) == 0 {
		return found
	}
	// Nothing that is looked for begins before low, and something must stand before the dot.
	low := max(1, len(host)-below.longest)
	for end := len(host); end > low; {
		dot := strings.LastIndexByte(host[low:end], '.')
		if dot < 0 {
			break
		}
		end = low + dot
		size := len(host) - end
		if n.hosts.lengths[size/64]&(1<<(size%64)) == 0 {
			continue
		}
		if p := below.get(host[end:]); p != nowhere {
			found = x.open(p, r, n.known|onHost, found)
		}
	}
	return found
}

// networkTable files rules by networks with the same number of bits.
type networkTable struct {
	bits int
	v4   map[uint32]slot   // nil for networks of IPv6
	v6   map[[16]byte]slot // nil for networks of IPv4
}

func (t *networkTable) put(network netip.Prefix, p slot) {
	if t.v4 != nil {
		t.v4[number4(network.Addr())] = p
	} else {
		t.v6[network.Addr().As16()] = p
	}
}

// get answers the place of the network that an address is in. The address is folded and of the kind of the table.
func (t *networkTable) get(client netip.Addr) slot {
	p, ok := nowhere, false
	if t.v4 != nil {
		p, ok = t.v4[number4(client)>>(32-t.bits)<<(32-t.bits)]
	} else if network, err := client.Prefix(t.bits); err == nil {
		p, ok = t.v6[network.Addr().As16()]
	}
	if !ok {
		return nowhere
	}
	return p
}

func number4(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

func (x *index) lookClient(n *node, r *Request, found []int32) []int32 {
	client := clientip.Fold(r.Client)
	for i := range n.clients {
		t := &n.clients[i]
		if client.Is4() != (t.v4 != nil) {
			continue
		}
		if p := t.get(client); p != nowhere {
			found = x.open(p, r, n.known|onClient, found)
		}
	}
	return found
}
