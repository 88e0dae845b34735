package policy

import (
	"net/netip"
	"strings"

	"github.com/weirhq/weir/clientip"
)

// headerTable files rules by the value of a field.
type headerTable struct {
	name   string
	values textTable
}

// hostTable files rules by the host.
type hostTable struct {
	exact  textTable
	below  textTable                  // by what hosts end with
	labels [(maxHost+1)/64 + 1]uint64 // how many the texts in below have
}

func (t *hostTable) empty() bool { return t.exact.empty() && t.below.empty() }

func (t *hostTable) put(h hostPattern, p slot) {
	if !h.below {
		t.exact.put(h.text, p)
		return
	}
	t.below.put(h.text, p)
	labels := strings.Count(h.text, ".")
	t.labels[labels/64] |= 1 << (labels % 64)
}

func (x *index) lookHost(n *node, r *Request, found []int32) []int32 {
	host := r.cleanHost()
	if p := n.hosts.exact.get(host); p != nowhere {
		found = x.open(p, r, n.known|onHost, found)
	}
	below := &n.hosts.below
	if below.empty() {
		return found
	}
	// Nothing that is looked for begins before low, and something must stand before the dot.
	low := max(1, len(host)-below.longest)
	end := len(host)
	for labels := 1; end > low; labels++ {
		dot := strings.LastIndexByte(host[low:end], '.')
		if dot < 0 {
			break
		}
		end = low + dot
		if n.hosts.labels[labels/64]&(1<<(labels%64)) == 0 {
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

// get returns the place of the network that an address is in. The address is folded and of the kind of the table.
func (t *networkTable) get(client netip.Addr) slot {
	p, ok := slot(nowhere), false
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
