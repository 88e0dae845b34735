package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// listen listens on the address of a flag. Its errors say what to do.
func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err == nil {
		return l, nil
	}
	var advice, example string
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "another program listens there: stop it, or use another port, such as"
		example = "127.0.0.1:0 for any that is free"
	case errors.Is(err, syscall.EACCES):
		advice = "not permitted: ports below 1024 may need privileges; use a higher one, such as"
		example = "127.0.0.1:7070"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "this machine does not have that address; use one that it has, such as"
		example = "127.0.0.1:7070"
	default:
		return nil, fmt.Errorf("weir: --%s %q: %w", flag, address, err)
	}
	return nil, fmt.Errorf("weir: --%s %q: %s --%s %s (%w)", flag, address, advice, flag, example, innermost(err))
}

// innermost is what the operating system said.
func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// reachable is the address under which a client on this machine reaches a listener: one that listens on all addresses is
// reached on the loopback address.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// isAnyPort tells whether the system is asked to choose the port.
func isAnyPort(address string) bool { return strings.HasSuffix(address, ":0") }
