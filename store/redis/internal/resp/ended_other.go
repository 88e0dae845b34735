//go:build !unix

package resp

import "net"

// readable reports whether there is something to be read of a connection, or its end, where the system can be asked.
func readable(net.Conn) bool { return false }
