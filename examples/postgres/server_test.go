package postgres_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/weirhq/weir/examples/postgres"
)

// server is a PostgreSQL server of these tests alone. It listens at a socket in its directory, and at no port.
type server struct {
	dir   string
	args  []string
	as    *syscall.SysProcAttr // whose processes they are
	admin *sql.DB
	end   func() // closes admin
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended; nil if it was not started

	guard *exec.Cmd // stops the server if this process ends without doing so
	leash io.WriteCloser
}

// newServer makes a server with an empty database, and starts it. Its directory is not one of testing, which other users may not
// enter: PostgreSQL does not run as root.
func newServer(args ...string) (*server, error) {
	dir, err := os.MkdirTemp("", "weir-postgres-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, args: args}
	if s.admin, s.end, err = s.open(); err != nil {
		return nil, err
	}
	if err = errors.Join(s.ownDirectory(), s.initialize(), s.start()); err != nil {
		s.stop()
		return nil, err
	}
	_, err = s.admin.ExecContext(context.Background(), postgres.Schema)
	return s, err
}

// ownDirectory gives the directory to the user "postgres" if this process is that of root.
func (s *server) ownDirectory() error {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return errors.Join(err1, err2, os.Chown(s.dir, uid, gid))
}

// command is a command of PostgreSQL, of the newest version that is installed.
func (s *server) command(name string, args ...string) (*exec.Cmd, error) {
	program, err := exec.LookPath(name)
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if len(found) == 0 {
			return nil, fmt.Errorf("%s is missing: `make deps` installs PostgreSQL on Debian", name)
		}
		program = found[len(found)-1]
	}
	cmd := exec.CommandContext(context.Background(), program, args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.as
	return cmd, nil
}

func (s *server) initialize() error {
	cmd, err := s.command("initdb", "--pgdata", "data", "--username", "weir", "--auth", "trust", "--no-sync", "--locale", "C",
		"--encoding", "UTF8")
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// start starts the server, and waits until it answers. After a kill it may refuse to start until the last of its processes has gone.
func (s *server) start() error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if s.ended == nil {
			if failure := s.run(log); failure != nil {
				return failure
			}
		}
		if err = s.ping(); err == nil {
			return nil
		}
		select {
		case <-s.ended:
			s.bury()
		default:
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, text)
		}
	}
}

// run runs the server and its guard.
func (s *server) run(log *os.File) (err error) {
	s.cmd, err = s.command("postgres", append([]string{
		"-D", "data", "-k", s.dir, "-c", "listen_addresses=", "-c", "max_connections=150",
	}, s.args...)...)
	if err != nil {
		return err
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if failure := s.cmd.Start(); failure != nil {
		return failure
	}
	s.guard = exec.CommandContext(context.Background(), "sh", "-c",
		`read -r _ || { kill -QUIT "$0"; kill -CONT "$0"; rm -rf "$1"; }`, strconv.Itoa(s.cmd.Process.Pid), s.dir)
	if s.leash, err = s.guard.StdinPipe(); err == nil {
		err = s.guard.Start()
	}
	if err != nil {
		return errors.Join(err, s.cmd.Process.Kill(), s.cmd.Wait())
	}
	ended := make(chan struct{})
	s.ended = ended
	go func() {
		_ = s.cmd.Wait()
		close(ended)
	}()
	return nil
}

// bury waits until the server has ended, and lets its guard go.
func (s *server) bury() {
	<-s.ended
	s.ended = nil
	_, _ = s.leash.Write([]byte("\n"))
	_ = s.guard.Wait()
}

func (s *server) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.admin.PingContext(ctx)
}

// url is what the tests open.
func (s *server) url() string { return "host=" + s.dir + " user=weir dbname=postgres" }

// open is a handle to the database, as a process has it: over a pool, as README.md says.
func (s *server) open() (db *sql.DB, end func(), err error) {
	pool, err := pgxpool.New(context.Background(), s.url()+" pool_max_conns=32")
	if err != nil {
		return nil, nil, err
	}
	db = stdlib.OpenDBFromPool(pool)
	return db, func() { _ = db.Close(); pool.Close() }, nil
}

// locks are locks over a handle of their own.
func (s *server) locks(tb testing.TB) postgres.Locks {
	tb.Helper()
	db, end, err := s.open()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(end)
	return postgres.Locks{DB: db}
}

// stat is the state of a process, and the process that has made it, as Linux tells them.
func stat(pid int) (state string, parent int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, err
	}
	_, fields, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ") // its name may have anything in it
	_, err = fmt.Sscan(fields, &state, &parent)
	return state, parent, err
}

// stopped stops a process, and waits until it does nothing any more.
func stopped(pid int) error {
	err := syscall.Kill(pid, syscall.SIGSTOP)
	for deadline := time.Now().Add(2 * time.Minute); err == nil; time.Sleep(time.Millisecond) {
		state, _, failure := stat(pid)
		switch {
		case state == "T" || state == "Z":
			return nil
		case failure != nil || time.Now().After(deadline):
			err = fmt.Errorf("process %d is in state %q, and does not stop: %w", pid, state, failure)
		}
	}
	return err
}

// processes stops the first process of the server, which makes the others, and answers those others: also those that have just been
// made, of which the server does not know yet.
func (s *server) processes() (pids []int, err error) {
	if failure := stopped(s.cmd.Process.Pid); failure != nil {
		return nil, failure
	}
	found, err := filepath.Glob("/proc/[0-9]*")
	for _, path := range found {
		pid, failure := strconv.Atoi(filepath.Base(path))
		if failure != nil {
			continue
		}
		if _, parent, gone := stat(pid); gone == nil && parent == s.cmd.Process.Pid {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// freeze stops all processes of the server until thaw is called.
func (s *server) freeze() (thaw func() error, err error) {
	pids, err := s.processes()
	for _, pid := range pids {
		err = errors.Join(err, stopped(pid))
	}
	return func() (err error) {
		for _, pid := range append(pids, s.cmd.Process.Pid) {
			err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
		}
		return err
	}, err
}

// kill is kill -9 of all processes of the server, without any warning.
func (s *server) kill() error {
	pids, err := s.processes()
	for _, pid := range append(pids, s.cmd.Process.Pid) {
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
	}
	s.bury()
	return err
}

// stop ends the server at once, whatever state it is in, and removes all that it has written.
func (s *server) stop() {
	s.end()
	if s.ended != nil {
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
		s.bury()
	}
	_ = os.RemoveAll(s.dir)
}

// shared is the server of all tests that do no harm to it. It does not wait for the disk.
var shared *server

func TestMain(m *testing.M) {
	var err error
	if shared, err = newServer("-c", "fsync=off"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	shared.stop()
	os.Exit(code)
}
