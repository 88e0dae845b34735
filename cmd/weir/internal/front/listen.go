package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// Listen listens on the TCP address of a flag. Its errors name the flag and say what to do; usual is the address that they
// give as an example of one that works, such as the default of the flag.
func Listen(ctx context.Context, flag, address, usual string) (net.Listener, error) {
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
		example = usual
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "this machine does not have that address; use one that it has, such as"
		example = usual
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

// Reachable is the address under which a client on this machine reaches a listener: one that listens on all addresses is
// reached on the loopback address.
func Reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// IsAnyPort reports whether the system is asked to choose the port.
func IsAnyPort(address string) bool { return strings.HasSuffix(address, ":0") }
