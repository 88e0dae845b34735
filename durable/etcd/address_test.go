package etcd

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
)

// Loopback is an address of this machine that no other process uses, where there are several. So a port of it that is free now
// is free until a server listens there.
var Loopback = loopback()

func loopback() net.IP {
	if runtime.GOOS != "linux" {
		return net.IPv4(127, 0, 0, 1)
	}
	id := os.Getpid()
	return net.IPv4(127, byte(192+id>>16%32), byte(id), byte(1+id>>8%254))
}

// lastPort is the last one of Loopback that was given away, of those that no connection is given by the system.
var lastPort atomic.Int64

// FreeAddresses are addresses that are free now, and that no other test is given.
func FreeAddresses(t *testing.T, n int) (all []string) {
	t.Helper()
	for len(all) < n {
		port := 10_000 + lastPort.Add(1)
		if port > 32_000 {
			t.Fatalf("no port of %v is free", Loopback)
		}
		at := net.JoinHostPort(Loopback.String(), fmt.Sprint(port))
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		all = append(all, at)
	}
	return all
}
