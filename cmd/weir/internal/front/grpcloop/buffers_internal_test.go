package grpcloop

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMain fails if connections have ended and still have buffers.
func TestMain(m *testing.M) {
	status := m.Run()
	for end := time.Now().Add(5 * time.Second); lent.Load() > 0 && time.Now().Before(end); {
		runtime.Gosched() // a goroutine that only writes may be about to end
	}
	if n := lent.Load(); n != 0 {
		fmt.Fprintln(os.Stderr, n, "buffers were not given back")
		status = 1
	}
	os.Exit(status)
}

// LendAll lends all buffers to something else until the test ends.
func LendAll(t *testing.T) {
	var all []*buffer
	t.Cleanup(func() {
		for _, b := range all {
			giveBack(b)
		}
	})
	for {
		_, b := lend(0)
		if b == nil {
			return
		}
		all = append(all, b)
	}
}
