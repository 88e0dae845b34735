package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// redisServer is a redis-server of this process, on a port of the loopback interface, that keeps nothing on disk.
type redisServer struct {
	address string
	version string
	cmd     *exec.Cmd
	dir     string
	control rueidis.Client

	guard *exec.Cmd // kills the server if this process ends without doing so
	leash io.WriteCloser

	start func(cmd *exec.Cmd) error // starts the program
	args  []string                  // more of them
}

const (
	// serverPatience is how long a server may take to answer.
	serverPatience = 2 * time.Minute
	// redisPatience is how long Redis may take to answer for the first time, at a port at which another one may listen.
	redisPatience = 20 * time.Second
)

// startRedis starts a server; stop must be called.
func startRedis(ctx context.Context) (*redisServer, error) {
	return startRedisBy(ctx, (*exec.Cmd).Start)
}

// startRedisBy starts a server with more arguments, in the way that is given.
func startRedisBy(ctx context.Context, start func(cmd *exec.Cmd) error, args ...string) (s *redisServer, err error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("bench: the rows of Redis need the program redis-server: install it (Debian: apt-get install "+
			"redis-server, or make deps), or leave them out with --rows: %w", err)
	}
	s = &redisServer{start: start, args: args}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "weir-bench-redis-"); err != nil {
		return s, fmt.Errorf("bench: a directory for redis-server: %w", err)
	}
	// Another process may take the port between the look for a free one and the start of the server. Then another port is tried.
	for range 5 {
		if err = s.launch(ctx, program); err == nil {
			return s, nil
		}
		s.kill()
	}
	return s, err
}

// launch starts the program on a free port, and waits until it answers.
func (s *redisServer) launch(ctx context.Context, program string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("bench: a port for redis-server: %w", err)
	}
	s.address = l.Addr().String()
	_, port, _ := net.SplitHostPort(s.address)
	_ = l.Close()
	// Interrupts of the terminal do not reach it: stop ends it, which needs its answers until then.
	//nolint:gosec,contextcheck // the program is the one of that name; it outlives the context, as stop ends it
	s.cmd = exec.CommandContext(context.Background(), program, append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no", "--logfile", "redis.log",
		"--daemonize", "no",
	}, s.args...)...)
	ownGroup(s.cmd)
	if err = s.start(s.cmd); err != nil {
		s.cmd = nil
		return fmt.Errorf("bench: start redis-server: %w", err)
	}
	//nolint:gosec,contextcheck // the argument is the number of a process
	s.guard = exec.CommandContext(context.Background(), "sh", "-c", `read -r _ || kill -9 "$0"`, strconv.Itoa(s.cmd.Process.Pid))
	ownGroup(s.guard)
	if s.leash, err = s.guard.StdinPipe(); err == nil {
		err = s.guard.Start()
	}
	if err != nil {
		s.guard = nil
		return fmt.Errorf("bench: start what guards redis-server: %w", err)
	}
	return s.connect(ctx)
}

// connect makes the connection that the server is asked on what it did.
func (s *redisServer) connect(ctx context.Context) (err error) {
	deadline := time.Now().Add(redisPatience)
	for {
		s.control, err = rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{s.address}, DisableCache: true, DisableRetry: true, ForceSingleClient: true,
		})
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("bench: redis-server does not answer within %v: %w", redisPatience, err)
		}
		if pause(ctx, 10*time.Millisecond); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	info, err := s.info(ctx, "server")
	if err != nil {
		return err
	}
	if info["process_id"] != strconv.Itoa(s.cmd.Process.Pid) {
		return fmt.Errorf("bench: another server answers at %s", s.address)
	}
	s.version = info["redis_version"]
	return nil
}

// info is what the server says of a section of INFO.
func (s *redisServer) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.control.Do(ctx, s.control.B().Info().Section(section).Build()).ToString()
	if err != nil {
		return nil, fmt.Errorf("bench: ask redis-server for INFO %s: %w", section, err)
	}
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	return all, nil
}

// redisUse is what the server has done since it started.
type redisUse struct {
	commands, scripts float64 // those that scripts call are commands too
	cpu               time.Duration
}

func (u redisUse) since(before redisUse) redisUse {
	return redisUse{u.commands - before.commands, u.scripts - before.scripts, u.cpu - before.cpu}
}

// use asks the server what it has done for others than this connection.
func (s *redisServer) use(ctx context.Context) (redisUse, error) {
	var u redisUse
	stats, err := s.info(ctx, "commandstats")
	if err != nil {
		return u, err
	}
	for name, value := range stats {
		if !strings.HasPrefix(name, "cmdstat_") {
			continue
		}
		calls, wrong := strconv.ParseFloat(between(value, "calls=", ","), 64)
		if wrong != nil {
			return u, fmt.Errorf("bench: redis-server says %q of %s: %w", value, name, wrong)
		}
		switch name {
		case "cmdstat_info", "cmdstat_flushall":
			continue
		case "cmdstat_eval", "cmdstat_evalsha":
			u.scripts += calls
		}
		u.commands += calls
	}
	cpu, err := s.info(ctx, "cpu")
	if err != nil {
		return u, err
	}
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, wrong := strconv.ParseFloat(cpu[name], 64)
		if wrong != nil {
			return u, fmt.Errorf("bench: redis-server says that %s is %q: %w", name, cpu[name], wrong)
		}
		u.cpu += time.Duration(seconds * float64(time.Second))
	}
	return u, nil
}

// between is the part of a text after one mark and before the next.
func between(text, after, before string) string {
	_, text, _ = strings.Cut(text, after)
	text, _, _ = strings.Cut(text, before)
	return text
}

// forget removes all keys.
func (s *redisServer) forget(ctx context.Context) error {
	if err := s.control.Do(ctx, s.control.B().Flushall().Sync().Build()).Error(); err != nil {
		return fmt.Errorf("bench: have redis-server remove all keys: %w", err)
	}
	return nil
}

// kill ends the server, if it runs.
func (s *redisServer) kill() {
	if s.control != nil {
		s.control.Close()
		s.control = nil
	}
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
	if s.guard != nil {
		_, _ = s.leash.Write([]byte("\n"))
		_ = s.guard.Wait()
		s.guard = nil
	}
}

// stop ends the server and removes its directory.
func (s *redisServer) stop() {
	if s == nil {
		return
	}
	s.kill()
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
