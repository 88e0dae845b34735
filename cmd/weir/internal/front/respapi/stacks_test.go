//go:build !race

package respapi_test

import (
	"runtime"
	"strings"
	"testing"
)

// TestSilentConnectionsHaveSmallStacks: whatever was asked on them before, some of which needs a large one.
func TestSilentConnectionsHaveSmallStacks(t *testing.T) {
	const (
		connections = 1000
		most        = 3 << 10
	)
	s := start(t, nil)
	stacks := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.StackInuse)
	}
	runtime.GC() // those of goroutines that have ended
	before := stacks()
	for range connections {
		c := s.dial()
		c.expect("+PONG", "PING")
		c.expect("+OK", "CLIENT", "SETNAME", "one")
		c.send("*3\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n$1\r\nx\r\n*3\r\n$4\r\nWEIR\r\n$1\r\nx\r\n$1\r\nx\r\n")
		for range 2 {
			if reply := c.receive(); !strings.HasPrefix(reply, "-ERR") {
				t.Fatal(reply)
			}
		}
	}
	used := (stacks() - before) / connections
	eventually(t, "all stacks are small", func() bool { return (stacks()-before)/connections <= most })
	t.Logf("%d bytes of stacks for each connection, %d when it was used", (stacks()-before)/connections, used)
	s.dial().expect("+PONG", "PING")
}
