package programtest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Command is how a program is run.
type Command struct {
	// Path is that of the program. Required.
	Path string
	Args []string
	// Env is what its environment has more than that of the test; its home is an empty directory.
	Env []string
	// Dir is where it works. Default: where the test does.
	Dir string
}

// Process is a program that runs until the end of the test, or until it is stopped.
type Process struct {
	tb   testing.TB
	name string
	cmd  *exec.Cmd
	log  output
	done chan struct{}
}

// output is what a program writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Start starts a program, and shows what it has written if the test fails.
func (c Command) Start(tb testing.TB) *Process {
	tb.Helper()
	cmd := exec.CommandContext(context.Background(), c.Path, c.Args...) //nolint:gosec // what a test has named
	p := &Process{tb: tb, name: filepath.Base(c.Path), cmd: cmd, done: make(chan struct{})}
	home := tb.TempDir()
	cmd.Env = append(append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home), c.Env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.Dir, &p.log, &p.log
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // how it ends does not matter: it is killed
		close(p.done)
	}()
	tb.Cleanup(func() {
		p.Stop()
		if tb.Failed() {
			tb.Logf("%s said:\n%s", p.name, &p.log)
		}
	})
	return p
}

// Stop kills the program, and waits until it is gone. It may have been stopped before.
func (p *Process) Stop() {
	_ = p.cmd.Process.Kill() // it may be gone
	<-p.done
}

// Signal sends a signal to the program.
func (p *Process) Signal(s os.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.tb.Error(err)
	}
}

// Listens waits until the process accepts connections at address.
func (p *Process) Listens(address string) {
	p.tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(3 * time.Minute); ; {
		conn, err := new(net.Dialer).DialContext(p.tb.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close() // nothing was written
			return
		}
		if time.Now().After(deadline) {
			p.tb.Fatalf("%s does not listen on %s: %v", p.name, address, err)
		}
		select {
		case <-p.done:
			p.tb.Fatalf("%s has ended, and did not listen on %s", p.name, address)
		case <-tick.C:
		}
	}
}

// lastPort is the last port that was given away, in an order that differs from that of other processes.
var lastPort = func() *atomic.Int64 {
	n := new(atomic.Int64)
	n.Store(rand.Int64N(mostPorts)) //nolint:gosec // any will do
	return n
}()

const (
	firstPort = 21_000
	mostPorts = 11_000
)

// FreeAddress is an address of this machine with a FreePort.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	return fmt.Sprint("127.0.0.1:", FreePort(tb))
}

// FreePort is a port of this machine that is free, and stays free until the program that is started next listens there, also if
// that is started again: the system does not give it to connections, nor to listeners that want any port. No cluster of package
// main has it, and browsers do not refuse it, as they do 10080.
func FreePort(tb testing.TB) int {
	tb.Helper()
	for range mostPorts {
		port := firstPort + int(lastPort.Add(1)%mostPorts)
		l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			_ = l.Close() // it had no connection
			return port
		}
	}
	tb.Fatalf("no port is free from %d to %d of 127.0.0.1", firstPort, firstPort+mostPorts)
	return 0
}

// Write writes a file of the test, and returns its path.
func Write(tb testing.TB, dir, name, text string) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}
