//go:build !unix

package resp

import "net"

// readable reports whether there is something to be read of a connection, or its end, where the system can be asked.
func readable(net.Conn) bool { return false }

// poller reads from a connection without waiting, where the system lets it.
type poller struct{}

func (*poller) of(net.Conn) {}

func (*poller) read([]byte) (n int, done bool, err error) { return 0, false, nil }
