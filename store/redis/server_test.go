package redis

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
)

// server is a redis-server of this test alone.
type server struct {
	tb   testing.TB
	port int
	dir  string
	args []string
	cmd  *exec.Cmd

	guard *exec.Cmd // kills the server if this process ends without doing so
	leash io.WriteCloser
}

// startServer starts a server on a free port of the loopback interface, and stops it when the test ends.
func startServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	s := &server{tb: tb, port: freePort(tb), dir: tb.TempDir(), args: args}
	s.start()
	tb.Cleanup(s.kill)
	return s
}

func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a listener for TCP
}

func (s *server) start() {
	s.tb.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatal("redis-server is missing: `make deps` installs it on Debian")
	}
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
		"--logfile", filepath.Join(s.dir, "log"), "--daemonize", "no",
	}, s.args...)
	s.cmd = exec.CommandContext(context.Background(), program, args...)
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	s.guard = exec.CommandContext(context.Background(), "sh", "-c", `read -r _ || kill -9 "$0"`, strconv.Itoa(s.cmd.Process.Pid))
	if s.leash, err = s.guard.StdinPipe(); err != nil {
		s.tb.Fatal(err)
	}
	if err := s.guard.Start(); err != nil {
		s.tb.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for !s.answers() {
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.tb.Fatalf("redis-server does not answer:\n%s", log)
		}
		time.Sleep(time.Millisecond)
	}
}

// answers tells whether the server answers a PING and has loaded its data.
func (s *server) answers() bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", s.address())
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	var buf [7]byte
	n, _ := conn.Read(buf[:])
	return string(buf[:n]) == "+PONG\r\n"
}

// kill is kill -9.
func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		_, _ = s.leash.Write([]byte("\n"))
		_ = s.guard.Wait()
		s.cmd = nil
	}
}

func (s *server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *server) url() string { return "redis://" + s.address() }

// open is a store of this server, closed when the test ends.
func (s *server) open(o Options) *Store {
	s.tb.Helper()
	return s.openIn(s.tb, o)
}

// openIn is open for a part of the test.
func (s *server) openIn(tb testing.TB, o Options) *Store {
	tb.Helper()
	o.URL = s.url()
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second // the machine may be busy
	}
	st, err := Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = st.Close() })
	return st
}

// do sends a command of its own.
func (s *Store) do(tb testing.TB, command ...string) string {
	tb.Helper()
	c := s.dispatch.client
	result := c.Do(context.Background(), c.B().Arbitrary(command...).Build())
	text, err := result.ToString()
	if err != nil {
		if n, failed := result.AsInt64(); failed == nil {
			return strconv.FormatInt(n, 10)
		}
		tb.Fatal(command, err)
	}
	return text
}
