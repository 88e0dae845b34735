package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// quotaOf is a configuration with a quota of a year.
func quotaOf(permits int) string {
	return fmt.Sprintf(`version: 1
policies:
  year:
    limits: [{algorithm: calendar-window, permits: %d, every: year}]
    key: client.ip
`, permits)
}

const hourly = `version: 1
policies:
  hour:
    limits: [{algorithm: calendar-window, permits: 3, every: hour}]
`

// restart starts a server with the same flags once more, after a signal.
func (s *server) restart(sig os.Signal) *server {
	s.t.Helper()
	s.signal(sig)
	s.wait()
	next := startServer(s.t, s.cmd.Args[4:]...)
	next.logged("msg=serving")
	return next
}

// spend takes permits of the quota until a request is refused, or so many are taken, and returns how many were.
func (s *server) spend(most int) (granted int) {
	s.t.Helper()
	for granted < most {
		a, body := s.check(`{"policy":"year","key":"a"}`)
		switch a.status {
		case http.StatusOK:
			granted++
		case http.StatusTooManyRequests:
			return granted
		default:
			s.t.Fatal(a.status, body)
		}
	}
	return granted
}

// TestQuotaSurvivesARestart: a calendar window goes on where it was after a restart, without any option; with --state none, and in a
// window of an hour, it begins anew.
func TestQuotaSurvivesARestart(t *testing.T) {
	s, _ := startConfigured(t, quotaOf(10))
	if n := s.spend(6); n != 6 {
		t.Errorf("%d granted", n)
	}
	s = s.restart(syscall.SIGTERM)
	if n := s.spend(100); n != 4 {
		t.Errorf("%d granted after a restart, want 4", n)
	}
	s = s.restart(syscall.SIGKILL)
	if n := s.spend(100); n != 0 {
		t.Errorf("%d granted after a crash, want 0", n)
	}
	if a, body := s.do(http.MethodGet, "/readyz", ""); a.status != http.StatusOK {
		t.Error(a.status, body)
	}
	if text := weir(t, nil, "quota", "show", "--server", "http://"+s.address, "--policy", "year", "--key", "a"); text.status != 0 ||
		!strings.Contains(text.stdout, "10") {
		t.Errorf("%+v", text)
	}

	s, _ = startConfigured(t, quotaOf(10), "--state", "none")
	if n := s.spend(6); n != 6 {
		t.Errorf("%d granted", n)
	}
	if n := s.restart(syscall.SIGTERM).spend(6); n != 6 {
		t.Errorf("%d granted, and nothing is kept", n)
	}
}

// TestKilledServerIsNeverAboveTheQuota: a server is killed at random moments while many clients take permits of a quota. They get at most
// as many as there are, and lose less than a tenth by each kill.
func TestKilledServerIsNeverAboveTheQuota(t *testing.T) {
	const permits, clients = 600, 8
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 17))
	s, _ := startConfigured(t, quotaOf(permits), "--state", t.TempDir())
	var granted atomic.Int64
	kills := 0
	for done := false; !done; {
		var work sync.WaitGroup
		var refused atomic.Bool
		killing := granted.Load() + 1 + r.Int64N(200)
		kill := sync.OnceFunc(func() {
			kills++
			s.signal(syscall.SIGKILL)
		})
		for range clients {
			work.Go(func() {
				for {
					status, err := takeOne(t.Context(), s.address)
					if err != nil {
						return // it was killed
					}
					switch status {
					case http.StatusOK:
						if granted.Add(1) >= killing {
							kill()
						}
					case http.StatusTooManyRequests:
						refused.Store(true)
						return
					default:
						t.Errorf("seed %d: %d", seed, status)
						return
					}
				}
			})
		}
		work.Wait()
		if done = refused.Load(); !done {
			s = s.restart(syscall.SIGKILL)
		}
	}
	t.Logf("seed %d: %d of %d were granted, with %d kills", seed, granted.Load(), permits, kills)
	if least := int64(permits - kills*(permits/10-1+clients)); granted.Load() > permits || granted.Load() < least {
		t.Errorf("seed %d: %d were granted, want from %d to %d", seed, granted.Load(), least, permits)
	}
}

// takeOne takes a permit of the quota from a server that may be killed.
func takeOne(ctx context.Context, address string) (status int, err error) {
	body := strings.NewReader(`{"policy":"year","key":"a"}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/check", body)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// TestStateIsOfOneServer: a second server with the same configuration does not start, and says what to do.
func TestStateIsOfOneServer(t *testing.T) {
	s, path := startConfigured(t, quotaOf(10))
	got := weir(t, nil, "serve", "--http", "127.0.0.1:0", "--config", path)
	if got.status != 2 || !strings.Contains(got.stderr, "another process uses the file of limits") || !strings.Contains(got.stderr, "--state") {
		t.Errorf("%+v", got)
	}
	within := filepath.Join(path, "state") // a file cannot have a directory in it
	got = weir(t, nil, "serve", "--http", "127.0.0.1:0", "--config", path, "--state", within)
	if got.status != 2 || !strings.Contains(got.stderr, "cannot be made") || !strings.Contains(got.stderr, "name another place by --state") {
		t.Errorf("%+v", got)
	}
	other := startServer(t, "--config", path, "--state", t.TempDir())
	other.logged("msg=serving")
	if a, b := s.spend(100), other.spend(100); a != 10 || b != 10 {
		t.Errorf("%d and %d were granted", a, b)
	}
}

// TestDamagedStateIsRefused: a server does not start with a file of which a byte has changed, and names it.
func TestDamagedStateIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, path := startConfigured(t, quotaOf(10), "--state", dir)
	s.spend(5)
	s.signal(syscall.SIGKILL)
	s.wait()
	file := filepath.Join(dir, "limits")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 4
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	got := weir(t, nil, "serve", "--http", "127.0.0.1:0", "--config", path, "--state", dir)
	if got.status != 2 || !strings.Contains(got.stderr, file) || !strings.Contains(got.stderr, "is damaged at byte") ||
		!strings.Contains(got.stderr, "restore it, or remove it") {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	again := startServer(t, "--config", path, "--state", dir)
	again.logged("msg=serving")
	if n := again.spend(100); n != 10 {
		t.Errorf("%d were granted without the file", n)
	}
}

// TestFullDiskGrantsNothing: where the file cannot grow, requests that need it to are answered 503, and what was granted before is known
// after a restart.
func TestFullDiskGrantsNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "weir.yaml")
	writeConfig(t, path, quotaOf(1))
	serve := command(t, "serve", "--http", "127.0.0.1:0", "--config", path, "--state", dir)
	limited := command(t)
	limited.Path, limited.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -f 16 && exec "$@"`, "sh", serve.Path}, serve.Args[1:]...)
	s := startCommand(t, limited)
	s.logged("msg=serving")
	granted := 0
	for ; ; granted++ {
		a, body := s.check(fmt.Sprintf(`{"policy":"year","key":"client-%d"}`, granted))
		if a.status == http.StatusServiceUnavailable {
			break
		}
		if a.status != http.StatusOK || granted > 1000 {
			t.Fatal(granted, a.status, body)
		}
	}
	s.logged("cannot be written")
	s.signal(syscall.SIGKILL)
	s.wait()
	again := startServer(t, "--config", path, "--state", dir)
	again.logged("msg=serving")
	for i := range granted {
		if a, body := again.check(fmt.Sprintf(`{"policy":"year","key":"client-%d"}`, i)); a.status != http.StatusTooManyRequests {
			t.Fatal(i, a.status, body)
		}
	}
	t.Logf("%d were granted", granted)
}

// TestStateDirectory: the directory is that of --state, or that of systemd. One that was named must be usable; one that was not is left
// out with a warning. It is made when it is needed.
func TestStateDirectory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "weir.yaml")
	writeConfig(t, path, quotaOf(10))
	blocked := filepath.Join(dir, "a file")
	writeConfig(t, blocked, "nothing")
	run := func(environment string, args ...string) *server {
		cmd := command(t, append([]string{"serve", "--http", "127.0.0.1:0", "--config", path}, args...)...)
		cmd.Env = append(cmd.Env, environment)
		return startCommand(t, cmd)
	}
	s := run("STATE_DIRECTORY=" + filepath.Join(dir, "systemd") + ":" + blocked)
	s.logged("msg=serving")
	s.spend(3)
	if _, err := os.Stat(filepath.Join(dir, "systemd", "limits")); err != nil {
		t.Error(err)
	}
	s = run("XDG_STATE_HOME=" + blocked)
	s.logged("calendar windows begin anew when this server is restarted")
	s.logged("msg=serving")
	if n := s.spend(100); n != 10 {
		t.Errorf("%d were granted", n)
	}
	got := weir(t, nil, "serve", "--http", "127.0.0.1:0", "--config", path, "--state", blocked)
	if got.status != 2 || !strings.Contains(got.stderr, blocked) {
		t.Errorf("%+v", got)
	}
	if got = weir(t, nil, "serve", "--http", "127.0.0.1:0", "--state", dir); got.status != 2 || !strings.Contains(got.stderr, "--state needs --config") {
		t.Errorf("%+v", got)
	}
	unused := filepath.Join(dir, "unused")
	startConfigured(t, hourly, "--state", unused)
	if _, err := os.Stat(unused); err == nil {
		t.Error("a directory was made that is not needed")
	}
}

// TestNoStateDirectory: where nothing names a directory, the log says that calendar windows begin anew, once there is one.
func TestNoStateDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, hourly)
	cmd := command(t, "serve", "--http", "127.0.0.1:0", "--config", path)
	cmd.Env = append(cmd.Env, "STATE_DIRECTORY=", "XDG_STATE_HOME=relative", "HOME=")
	s := startCommand(t, cmd)
	s.logged("msg=serving")
	if before := strings.Join(s.lines, "\n"); strings.Contains(before, "begin anew") {
		t.Error(before)
	}
	writeConfig(t, path, quotaOf(10))
	line := s.logged("calendar windows begin anew when this server is restarted")
	for _, want := range []string{"level=WARN", "--state", "STATE_DIRECTORY", "XDG_STATE_HOME", "HOME"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q lacks %q", line, want)
		}
	}
	s.logged("configuration loaded")
	if n := s.spend(100); n != 10 {
		t.Errorf("%d were granted", n)
	}
}

// TestStateIsNeededLater: a reload that brings the first calendar window begins to keep it, and one that cannot be kept is refused.
func TestStateIsNeededLater(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	s, path := startConfigured(t, hourly, "--state", dir)
	if a, body := s.do(http.MethodGet, "/readyz", ""); a.status != http.StatusOK {
		t.Error(a.status, body)
	}
	writeConfig(t, path, quotaOf(10))
	s.logged("configuration loaded")
	if n := s.spend(6); n != 6 {
		t.Errorf("%d were granted", n)
	}
	if n := s.restart(syscall.SIGKILL).spend(100); n != 4 {
		t.Errorf("%d were granted after a crash, want 4", n)
	}

	taken, _ := startConfigured(t, quotaOf(10), "--state", t.TempDir())
	taken.spend(1)
	s, path = startConfigured(t, hourly, "--state", taken.cmd.Args[len(taken.cmd.Args)-1])
	writeConfig(t, path, quotaOf(10))
	s.logged("configuration refused")
	s.logged("another process uses the file of limits")
}
