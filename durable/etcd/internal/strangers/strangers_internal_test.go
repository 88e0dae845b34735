package strangers

import (
	"net"
	"net/http"
	"testing"
)

// fake is a connection of an address.
type fake struct {
	net.Conn

	from   net.Addr
	closed bool
}

func (c *fake) RemoteAddr() net.Addr { return c.from }

func (c *fake) Close() error {
	c.closed = true
	return nil
}

func at(text string) *fake { return &fake{from: &net.TCPAddr{IP: net.ParseIP(text)}} }

// TestACrowdMakesRoomForOthers: the connection that makes room is the first of the network that has most, so that no other client
// suffers from a crowd, and one that has left makes none.
func TestACrowdMakesRoomForOthers(t *testing.T) {
	var s Strangers
	other, node, first := at("10.0.0.9"), at("10.0.0.2"), at("2001:db8::1")
	for _, c := range []*fake{other, node, first} {
		s.Changed(c, http.StateNew)
	}
	s.Changed(node, http.StateActive)
	all := []*fake{first}
	for range 2 * Most {
		c := at("2001:db8::2")
		s.Changed(c, http.StateNew)
		all = append(all, c)
	}
	if other.closed || node.closed {
		t.Error("a client of another network made room")
	}
	for i, c := range all {
		if left := len(all) - i; c.closed != (left >= Most) {
			t.Errorf("the connection before %d others is closed: %v", left-1, c.closed)
		}
	}
	for _, c := range append(all, other, node) {
		s.Changed(c, http.StateClosed)
	}
	if len(s.places) != 0 || s.all.Len() != 0 || len(s.counts) != 0 {
		t.Errorf("%d places, %d in order, %d networks are left", len(s.places), s.all.Len(), len(s.counts))
	}
}
