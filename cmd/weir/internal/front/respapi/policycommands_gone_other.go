//go:build !unix

package respapi

import "net"

// hasGone does not know: a client that goes away while it waits keeps its place in the queue.
func hasGone(net.Conn) (gone bool) { return false }
