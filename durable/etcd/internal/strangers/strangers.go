// Package strangers bounds the connections of clients that have not shown yet that they are nodes of a cluster.
package strangers

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"google.golang.org/grpc/credentials"

	"github.com/weirhq/weir/clientip"
)

// Most is how many there may be at a port. Each can have some 300 KiB in memory, of a handshake that does not end.
const Most = 256

// Strangers are the connections of a port, until their clients have shown a certificate. When there are as many as may be, the
// one that came first of the network that has most of them is closed for a new one: so a crowd that says nothing uses up neither
// the files nor the memory of the process, and a node gets in, whose handshake takes milliseconds. The zero value is ready for
// use. All methods are safe for concurrent use.
type Strangers struct {
	mu     sync.Mutex
	places map[net.Conn]*list.Element
	all    list.List // of *stranger, the one that came first in front
	counts map[netip.Prefix]int
}

type stranger struct {
	conn    net.Conn
	network netip.Prefix
}

// come counts a connection, until leave.
func (s *Strangers) come(c net.Conn) {
	if first := s.place(c); first != nil {
		if secure, ok := first.(*tls.Conn); ok {
			first = secure.NetConn() // nothing is to be said first
		}
		_ = first.Close() // the client has gone
	}
}

// place is come for all but the connection that makes room, which it returns, if one does.
func (s *Strangers) place(c net.Conn) (first net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places == nil {
		s.places, s.counts = make(map[net.Conn]*list.Element, Most), make(map[netip.Prefix]int)
	}
	network := networkOf(c.RemoteAddr())
	if len(s.places) >= Most {
		first = s.first().conn
		s.remove(first)
	}
	s.places[c] = s.all.PushBack(&stranger{c, network})
	s.counts[network]++
	return first
}

// first is the one that came first of the network that has most. s.mu is held, and there are some.
func (s *Strangers) first() *stranger {
	most := 0
	for _, n := range s.counts {
		most = max(most, n)
	}
	for e := s.all.Front(); ; e = e.Next() {
		if at, _ := e.Value.(*stranger); s.counts[at.network] == most {
			return at
		}
	}
}

// leave ends what come has begun, as its client is a node, or has gone.
func (s *Strangers) leave(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(c)
}

func (s *Strangers) remove(c net.Conn) {
	e := s.places[c]
	if e == nil {
		return
	}
	delete(s.places, c)
	at, _ := s.all.Remove(e).(*stranger)
	if s.counts[at.network]--; s.counts[at.network] == 0 {
		delete(s.counts, at.network)
	}
}

// networkOf is what an address counts as: itself, or a /64 of IPv6.
func networkOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return clientip.Prefixes{}.Mask(tcp.AddrPort().Addr())
}

// Changed is for [http.Server.ConnState]: a connection is one of a stranger until something was asked on it.
func (s *Strangers) Changed(c net.Conn, state http.ConnState) {
	if state == http.StateNew {
		s.come(c)
	} else {
		s.leave(c)
	}
}

// Credentials are those of a server, whose connections are of strangers until their handshakes are complete.
type Credentials struct {
	credentials.TransportCredentials

	Strangers Strangers
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c *Credentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) { //nolint:ireturn // as it must
	c.Strangers.come(raw)
	defer c.Strangers.leave(raw)
	return c.TransportCredentials.ServerHandshake(raw) //nolint:wrapcheck // gRPC says what it is
}
