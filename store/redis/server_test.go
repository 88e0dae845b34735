package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/programtest"
	"github.com/weirhq/weir/internal/respclient"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/redis/internal/resp"
)

// server is a redis-server of this test alone.
type server struct {
	tb   testing.TB
	port int
	dir  string
	args []string
	cmd  *exec.Cmd
	// config is the file of a sentinel, which writes there.
	config string

	guard *exec.Cmd // kills the server if this process ends without doing so
	leash io.WriteCloser

	lock   sync.Mutex
	client *resp.Conn // of the test itself
}

// startServer starts a server on a free port of the loopback interface, and stops it when the test ends.
func startServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	s := newServer(tb, args...)
	s.start()
	return s
}

// newServer is a server that has not been started. It is killed when the test ends.
func newServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	s := &server{tb: tb, port: programtest.FreePort(tb), dir: tb.TempDir(), args: args}
	tb.Cleanup(func() {
		if s.client != nil {
			s.client.Close()
		}
		s.kill()
	})
	return s
}

func (s *server) start() {
	s.tb.Helper()
	s.launch()
	until(s.tb, "redis-server answers", s.answers)
}

// launch starts the server without waiting for it.
func (s *server) launch() {
	s.tb.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatal("redis-server is missing: `make deps` installs it on Debian")
	}
	args := s.args
	if s.config == "" {
		args = append([]string{
			"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
			"--logfile", filepath.Join(s.dir, "log"), "--daemonize", "no",
		}, args...)
	} else {
		args = append([]string{s.config}, args...)
	}
	s.cmd = exec.CommandContext(context.Background(), program, args...)
	if err = s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	s.guard = exec.CommandContext(context.Background(), "sh", "-c", `read -r _ || kill -9 "$0"`, strconv.Itoa(s.cmd.Process.Pid))
	if s.leash, err = s.guard.StdinPipe(); err != nil {
		s.tb.Fatal(err)
	}
	if err := s.guard.Start(); err != nil {
		s.tb.Fatal(err)
	}
}

// answers reports whether the server answers a PING and has loaded its data.
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

// stop is SIGSTOP: connections stay, and nothing is answered.
func (s *server) stop() {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		s.tb.Fatal(err)
	}
}

// resume is SIGCONT.
func (s *server) resume() {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		s.tb.Fatal(err)
	}
}

// ask sends a command of the test itself, which must succeed.
func (s *server) ask(command ...string) string {
	s.tb.Helper()
	text, err := s.try(command...)
	if err != nil {
		s.tb.Fatal(command, err)
	}
	return text
}

// try is ask for a command that may fail. Elements of a list are put on lines of their own.
func (s *server) try(command ...string) (string, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.client != nil && s.client.Ended() {
		s.client.Close()
		s.client = nil
	}
	if s.client == nil {
		client, err := (&resp.Login{Old: true}).Dial(context.Background(), s.address(), time.Now().Add(time.Minute)) // the machine may be busy
		if err != nil {
			return "", err
		}
		s.client = client
	}
	reply, err := s.client.Ask(time.Now().Add(time.Minute), command...)
	var e respclient.Error
	if err != nil && !errors.As(err, &e) {
		s.client.Close()
		s.client = nil
	}
	return plain(reply), err
}

func plain(reply respclient.Reply) string {
	if list, err := reply.List(); err == nil {
		lines := make([]string, len(list))
		for i := range list {
			lines[i] = plain(list[i])
		}
		return strings.Join(lines, "\n")
	}
	text, _ := reply.Text()
	return text
}

// info is a number in the answer to INFO.
func (s *server) info(section, name string) string {
	s.tb.Helper()
	text := s.ask("INFO", section)
	_, after, _ := strings.Cut("\r\n"+text, "\r\n"+name+":")
	value, _, _ := strings.Cut(after, "\r\n")
	return value
}

// calls is how often the server has run a command.
func (s *server) calls(command string) int64 {
	s.tb.Helper()
	_, after, _ := strings.Cut(s.info("commandstats", "cmdstat_"+command), "calls=")
	text, _, _ := strings.Cut(after, ",")
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
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
	return open(tb, o)
}

// open is a store that is closed when the test ends. The first call may take longer than a timeout allows.
func open(tb testing.TB, o Options) *Store {
	tb.Helper()
	if o.Timeout == 0 {
		o.Timeout = time.Minute // the machine may be busy
	}
	var st *Store
	until(tb, "a store is open", func() bool {
		s, err := Open(o)
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			tb.Fatal(err)
		}
		st = s
		return err == nil
	})
	tb.Cleanup(func() { _ = st.Close() })
	return st
}

// do sends a command of its own.
func (s *Store) do(tb testing.TB, command ...string) string {
	tb.Helper()
	servers := s.dispatch.servers
	conn, err := servers.login.Dial(context.Background(), s.dispatch.lanes.one.address, time.Now().Add(time.Minute))
	if err != nil {
		tb.Fatal(command, err)
	}
	defer conn.Close()
	reply, err := conn.Ask(time.Now().Add(time.Minute), command...)
	if err != nil {
		tb.Fatal(command, err)
	}
	return plain(reply)
}
