//go:build !unix

package respapi

import "net"

// newSocket is nil: all connections are streams.
func newSocket(*conn, net.Conn) transport { return nil }
