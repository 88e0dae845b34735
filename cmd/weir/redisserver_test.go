package main_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/programtest"
)

// redisServer is a redis-server of this test alone.
type redisServer struct {
	t    *testing.T
	port int
	dir  string
	args []string
	cmd  *exec.Cmd

	guard *exec.Cmd // kills the server if this process ends without doing so
	leash io.WriteCloser
}

// startRedis starts a server on a free port of the loopback interface, and stops it when the test ends.
func startRedis(t *testing.T, args ...string) *redisServer {
	t.Helper()
	s := newRedis(t, args...)
	s.start()
	return s
}

// newRedis is a server that is not started yet.
func newRedis(t *testing.T, args ...string) *redisServer {
	t.Helper()
	s := &redisServer{t: t, port: programtest.FreePort(t), dir: t.TempDir(), args: args}
	t.Cleanup(s.kill)
	return s
}

func (s *redisServer) start() {
	s.t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatal("redis-server is missing: `make deps` installs it on Debian")
	}
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
		"--logfile", filepath.Join(s.dir, "log"), "--daemonize", "no",
	}, s.args...)
	s.cmd = exec.CommandContext(context.Background(), binary, args...)
	if err = s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.guard = exec.CommandContext(context.Background(), "sh", "-c", `read -r _ || kill -9 "$0"`, strconv.Itoa(s.cmd.Process.Pid))
	if s.leash, err = s.guard.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	if err = s.guard.Start(); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "redis-server answers", func() bool {
		conn, err := (&net.Dialer{Timeout: time.Minute}).DialContext(context.Background(), "tcp", s.address())
		if err != nil {
			if log, readErr := os.ReadFile(filepath.Join(s.dir, "log")); readErr == nil && s.cmd.ProcessState != nil {
				s.t.Fatalf("redis-server has ended:\n%s", log)
			}
			return false
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return false
		}
		var answer [7]byte
		_, _ = io.ReadFull(conn, answer[:])
		return string(answer[:]) == "+PONG\r\n" || string(answer[:]) == "-NOAUTH"
	})
}

// kill is kill -9.
func (s *redisServer) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		_, _ = s.leash.Write([]byte("\n"))
		_ = s.guard.Wait()
		s.cmd = nil
	}
}

func (s *redisServer) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *redisServer) url() string { return "redis://" + s.address() }

// eventually waits until something is true of processes that cannot be waited for otherwise.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 2 minutes: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
