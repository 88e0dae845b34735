//go:build !unix

package grpcloop

import "net"

// socket is what no connection is here.
type socket struct{ receive func() error }

func socketOf(net.Conn, *conn) *socket { return nil }
