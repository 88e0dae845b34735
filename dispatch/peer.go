package dispatch

import (
	"math"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
)

// Peer is what a [Dispatcher] knows of a connection: where it comes from, and when it was last told of a refusal. Make
// one for each connection and keep it there: it is of a fixed size and goes with the connection. It must not be copied.
// The zero Peer has no address.
type Peer struct {
	addr netip.Addr
	name string // of a peer without an address
	told [kinds]atomic.Int64
}

// NewPeer returns the peer of a connection with this remote address, usually net.Conn.RemoteAddr. The port and the zone are
// dropped; an IPv4-mapped IPv6 address is the IPv4 address. Behind a proxy this is the proxy: if you trust the proxy, give the
// address that it sends to [PeerOf].
func NewPeer(remote net.Addr) *Peer {
	var addr netip.Addr
	switch a := remote.(type) {
	case nil:
		return new(Peer)
	case *net.TCPAddr:
		addr = a.AddrPort().Addr()
	case *net.UDPAddr:
		addr = a.AddrPort().Addr()
	default:
		addr, _ = clientip.Parse(remote.String())
	}
	p := PeerOf(addr)
	if !addr.IsValid() {
		p.name = remote.Network() + ":" + remote.String()
	}
	return p
}

// PeerOf returns the peer of a connection from addr.
func PeerOf(addr netip.Addr) *Peer { return &Peer{addr: clientip.Fold(addr)} }

// Addr is the address of the peer, which is not valid if it has none.
func (p *Peer) Addr() netip.Addr { return p.addr }

// kind is what refusals are told apart by when they are told: a connection that was told to slow down is still told that
// it is locked out.
type kind int

const (
	soft kind = iota
	hard

	kinds
)

func kindOf(r weir.Reason) kind {
	if r.Hard() {
		return hard
	}
	return soft
}

// tell reports whether a refusal of a kind is to be told at now: the first one, and then the first after each cooldown.
// If several ask at once, it returns true to one of them.
func (p *Peer) tell(k kind, now int64, cooldown time.Duration) bool {
	told := &p.told[k]
	old := told.Load()
	// Times are kept with their sign bit flipped, so that 0 is a time that no clock shows.
	if old != 0 {
		since := time.Duration(now - (old ^ math.MinInt64))
		if since < 0 && since > -cooldown || since >= 0 && since < cooldown {
			return false
		}
		// A clock that was set back by more must not silence notices until it has caught up.
	}
	return told.CompareAndSwap(old, now^math.MinInt64)
}
