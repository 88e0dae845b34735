//go:build linux

package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Redis is a redis-server that keeps nothing on disk.
type Redis struct {
	Log  Log
	port int
	dir  string

	mu sync.Mutex
	at *process
}

// NewRedis is a server that is not started.
func NewRedis(dir string, port int) *Redis { return &Redis{port: port, dir: dir} }

// Address is where it listens.
func (r *Redis) Address() string { return fmt.Sprint("127.0.0.1:", r.port) }

// Start starts it, and waits until it answers.
func (r *Redis) Start(ctx context.Context) error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return errors.New("redis-server is missing: `make deps` installs it on Debian")
	}
	at, err := start(ctx, &r.Log, nil, program, "--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", r.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.at = at
	r.mu.Unlock()
	if err = Until(ctx, "redis-server answers", func() bool { return at.ended() || r.answers(ctx) }); err == nil && at.ended() {
		return fmt.Errorf("redis-server has ended: %s", r.Log.String())
	}
	return err
}

func (r *Redis) answers(ctx context.Context) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", r.Address())
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()               // nothing was written that matters
	_ = conn.SetDeadline(time.Now().Add(time.Second)) // a failure is one of what follows
	if _, err = conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	var answer [7]byte
	_, err = io.ReadFull(conn, answer[:])
	return err == nil && string(answer[:]) == "+PONG\r\n"
}

// Freeze stops it, and Thaw has it go on.
func (r *Redis) Freeze() error { return r.process().signal(syscall.SIGSTOP) }

// Thaw has a server go on.
func (r *Redis) Thaw() error { return r.process().signal(syscall.SIGCONT) }

// Kill is kill -9.
func (r *Redis) Kill() {
	if at := r.process(); at != nil {
		at.kill()
	}
}

// PID is that of the process.
func (r *Redis) PID() int { return r.process().pid() }

func (r *Redis) process() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// patience is how long a server may take for what it does in a second.
const patience = 3 * time.Minute

// Until waits until something is so of processes that cannot be waited for otherwise.
func Until(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v: %w", what, patience, context.Cause(ctx))
		}
	}
	return nil
}
