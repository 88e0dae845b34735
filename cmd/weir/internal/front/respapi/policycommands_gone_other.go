//go:build !unix

package respapi

import (
	"net"
	"time"
)

// hasGone does not know: a client that goes away while it waits keeps its place in the queue.
func hasGone(net.Conn) (gone bool) { return false }

// disarm makes a transport set its deadline anew, which was removed meanwhile.
func disarm(via transport) {
	if t, ok := via.(*stream); ok {
		t.armed = time.Time{}
	}
}
