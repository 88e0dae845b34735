//go:build linux

// Package servers starts the programs of a soak, stops them, freezes them, and cuts the connections between them.
package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// process is a program that runs. It is killed when this one ends, however that happens.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error
}

// start starts a program, which writes to log.
func start(ctx context.Context, log *Log, stdout *os.File, path string, args ...string) (*process, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, args...) //nolint:gosec // a program that was asked for
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = log
	cmd.Stdout = log
	if stdout != nil {
		cmd.Stdout = stdout
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// signal sends a signal. A process that has ended needs none.
func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v: %w", s, err)
	}
	return nil
}

// kill is kill -9. It returns when the process has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// mostLogged is how many bytes of what a program writes are kept: the last ones.
const mostLogged = 256 << 10

// Log keeps the last part of what programs write.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() > 2*mostLogged {
		l.text.Next(l.text.Len() - mostLogged)
	}
	return l.text.Write(p)
}

// String is what was written last.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// FreePorts are ports of the loopback interface that are free, and that the system gives to no connection: servers are started
// again on the same ones.
func FreePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close() // it had no connection
		}
	}()
	for range 100 * n {
		if len(ports) == n {
			break
		}
		port := 21_000 + rand.IntN(11_000) //nolint:gosec // any will do
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			continue
		}
		listeners = append(listeners, l)
		ports = append(ports, port)
	}
	if len(ports) < n {
		return nil, errors.New("no port is free from 21000 to 32000 of 127.0.0.1")
	}
	return ports, nil
}
