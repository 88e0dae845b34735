package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func asExit(err error, exit **exec.ExitError) bool { return errors.As(err, exit) }

// server is a running weir serve or weir proxy.
type server struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string
	log     *bufio.Scanner
	lines   []string
	waited  bool
}

// startServer starts weir serve on a free port, and ends it with the test.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	return start(t, append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...)
}

// startProxy starts weir proxy on a free port, and ends it with the test.
func startProxy(t *testing.T, args ...string) *server {
	t.Helper()
	return start(t, append([]string{"proxy", "--listen", "127.0.0.1:0"}, args...)...)
}

// start starts a command that listens on a free port and prints it, and ends it with the test.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	return startCommand(t, command(t, args...))
}

// startCommand is start for a command whose program or environment is another one.
func startCommand(t *testing.T, cmd *exec.Cmd) *server {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, cmd: cmd, log: bufio.NewScanner(stderr)}
	t.Cleanup(func() {
		if !s.waited {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		said, _ := io.ReadAll(stderr)
		t.Fatalf("no address: %v\n%s", err, said)
	}
	s.address = strings.TrimSpace(address)
	return s
}

// logged reads the log up to a line with text.
func (s *server) logged(text string) string {
	s.t.Helper()
	for s.log.Scan() {
		s.lines = append(s.lines, s.log.Text())
		if strings.Contains(s.log.Text(), text) {
			return s.log.Text()
		}
	}
	s.t.Fatalf("%q is not logged:\n%s", text, strings.Join(s.lines, "\n"))
	return ""
}

func (s *server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// wait waits for the end of the program, and reads the rest of its log before.
func (s *server) wait() (status *os.ProcessState) {
	s.t.Helper()
	for s.log.Scan() {
		s.lines = append(s.lines, s.log.Text())
	}
	s.waited = true
	if err := s.cmd.Wait(); err != nil {
		if exit := (*exec.ExitError)(nil); !asExit(err, &exit) {
			s.t.Fatal(err)
		}
	}
	return s.cmd.ProcessState
}

// answer is what came back, without the body.
type answer struct {
	status int
	header http.Header
}

// check asks the server, on a connection of its own.
func (s *server) check(body string) (a answer, text string) {
	s.t.Helper()
	return s.do(http.MethodPost, "/v1/check", body)
}

func (s *server) do(method, path, body string) (a answer, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.address+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header}, string(b)
}

func TestServeByDefault(t *testing.T) {
	s := startServer(t)
	s.logged(`msg=serving address=` + s.address + ` policy=default limit=10/s burst=20 max_keys=1000000`)
	try := s.logged("try: ")
	if want := `try: curl -i -d '{"key":"alice"}' http://` + s.address + `/v1/check`; try != want {
		t.Errorf("%s, want %s", try, want)
	}
	first, body := s.check(`{"key":"alice"}`)
	want := `{"allowed":true,"reason":"none","policy":"default","limit":20,"remaining":19,"retry_after":0,"reset_after":0.1}` + "\n"
	if first.status != 200 || body != want {
		t.Errorf("%d %s", first.status, body)
	}
	// The wire has the names in Go's spelling; names of fields are compared without case.
	for name, want := range map[string]string{
		"RateLimit": `"default";r=19;t=1`, "RateLimit-Policy": `"default";q=20;w=2`, "Content-Type": "application/json",
		"Content-Length": fmt.Sprint(len(want)), "Retry-After": "",
	} {
		if got := first.header.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	s.signal(os.Interrupt)
	if status := s.wait(); status.ExitCode() != 0 {
		t.Errorf("%v after SIGINT", status)
	}
}

// TestServeBurstThenRefused uses a rate so low that no permit comes back while the test runs.
func TestServeBurstThenRefused(t *testing.T) {
	s := startServer(t, "--limit", "1/h", "--burst", "3", "--log-format", "json")
	s.logged(`"msg":"serving"`)
	for remaining := 2; remaining >= 0; remaining-- {
		r, body := s.check(`{"policy":"default","key":"alice","cost":1}`)
		if want := fmt.Sprintf(`"remaining":%d,`, remaining); r.status != 200 || !strings.Contains(body, want) {
			t.Errorf("%d %s, want %s", r.status, body, want)
		}
	}
	r, body := s.check(`{"key":"alice"}`)
	if r.status != 429 || !strings.HasPrefix(body, `{"allowed":false,"reason":"limited","policy":"default","limit":3,"remaining":0,"retry_after":3`) {
		t.Errorf("%d %s", r.status, body)
	}
	if got := r.header.Get("Ratelimit-Policy"); got != `"default";q=3;w=10800` {
		t.Errorf("RateLimit-Policy: %s", got)
	}
	retry := r.header.Get("Retry-After")
	if got := r.header.Get("Ratelimit"); got != `"default";r=0;t=`+retry || len(retry) != 4 || retry > "3600" || retry < "3500" {
		t.Errorf("RateLimit: %s, Retry-After: %s", got, retry)
	}
	if r, body := s.check(`{"key":"alice","cost":4}`); r.status != 429 || r.header.Get("Retry-After") != "" ||
		!strings.Contains(body, `"reason":"never"`) || !strings.Contains(body, `"retry_after":null`) {
		t.Errorf("never: %d %s", r.status, body)
	}
	if r, _ := s.check(`{"key":"bob"}`); r.status != 200 {
		t.Errorf("another key: %d", r.status)
	}
	if r, body := s.check(`{"key":"alice","cost":-1}`); r.status != 400 || !strings.Contains(body, "cost -1: must be a whole number") {
		t.Errorf("misuse: %d %s", r.status, body)
	}
	s.signal(syscall.SIGTERM)
	stopped := s.logged(`"msg":"stopped"`)
	if !strings.Contains(stopped, `"requests":6,"refused":2,"rejected":1,`) {
		t.Error(stopped)
	}
	if status := s.wait(); status.ExitCode() != 0 {
		t.Errorf("%v after SIGTERM", status)
	}
}

// hold sends a check without the end of its body, and returns once the server reads it.
func (s *server) hold() (finish func() string) {
	s.t.Helper()
	conn, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	const body = `{"key":"held"}`
	fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	reader := bufio.NewReader(conn)
	// The server asks for the body when its handler reads it.
	if line, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		s.t.Fatalf("%q, %v", line, err)
	}
	if _, err := io.WriteString(conn, body[:5]); err != nil {
		s.t.Fatal(err)
	}
	return func() string {
		if _, err := io.WriteString(conn, body[5:]); err != nil {
			s.t.Fatal(err)
		}
		answer, err := io.ReadAll(reader)
		if err != nil {
			s.t.Fatal(err)
		}
		return strings.TrimPrefix(string(answer), "\r\n")
	}
}

func TestServeEndsGracefully(t *testing.T) {
	s := startServer(t)
	if r, body := s.do(http.MethodGet, "/healthz", ""); r.status != 200 || body != "ok\n" {
		t.Errorf("/healthz: %d %s", r.status, body)
	}
	finish := s.hold()
	s.signal(syscall.SIGTERM)
	s.logged("msg=stopping in_flight=1")
	if r, body := s.do(http.MethodGet, "/healthz", ""); r.status != 503 || body != "shutting down\n" {
		t.Errorf("/healthz while shutting down: %d %s", r.status, body)
	}
	answer := finish()
	if !strings.HasPrefix(answer, "HTTP/1.1 200 OK\r\n") || !strings.Contains(answer, `"allowed":true`) || !strings.Contains(answer, "Connection: close\r\n") {
		t.Errorf("the request in flight: %s", answer)
	}
	if status := s.wait(); status.ExitCode() != 0 {
		t.Errorf("%v", status)
	}
	if last := s.lines[len(s.lines)-1]; !strings.Contains(last, "msg=stopped requests=1 refused=0 rejected=0 reloads=0 reloads_refused=0 uptime=") {
		t.Errorf("the last line of the log: %s", last)
	}
}

func TestServeCutsOffWhatTakesTooLong(t *testing.T) {
	s := startServer(t, "--shutdown-timeout", "50ms")
	s.hold()
	s.signal(syscall.SIGTERM)
	status := s.wait()
	if last := s.lines[len(s.lines)-1]; status.ExitCode() != 1 || !strings.Contains(last, "weir: requests in flight were cut off") ||
		!strings.Contains(last, "--shutdown-timeout 50ms") {
		t.Errorf("%v: %s", status, last)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	s := startServer(t, "--shutdown-delay", "1h")
	s.signal(syscall.SIGTERM)
	s.logged("msg=stopping")
	if r, _ := s.do(http.MethodGet, "/healthz", ""); r.status != 503 {
		t.Errorf("/healthz during the delay: %d", r.status)
	}
	if r, _ := s.check(`{"key":"late"}`); r.status != 200 {
		t.Errorf("a check during the delay: %d", r.status)
	}
	s.signal(syscall.SIGTERM)
	status, ok := s.wait().Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("%v", status)
	}
}

func TestPortInUse(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for flag, args := range map[string][]string{
		"--http": {"serve"}, "--listen": {"proxy", "--upstream", "http://127.0.0.1:1"},
	} {
		got := weir(t, nil, append(args, flag, l.Addr().String())...)
		want := fmt.Sprintf("weir: %s %q: another program listens there: stop it, or use another port, "+
			"such as %s 127.0.0.1:0 for any that is free", flag, l.Addr(), flag)
		if got.status != 1 || !strings.HasPrefix(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%d: %s\nwant %s", got.status, got.stderr, want)
		}
		got = weir(t, nil, append(args, flag, "192.0.2.1:7070")...)
		if got.status != 1 || !strings.Contains(got.stderr, "this machine does not have that address") {
			t.Errorf("%d: %s", got.status, got.stderr)
		}
	}
}

func TestServeBoundsWhatClientsSend(t *testing.T) {
	s := startServer(t, "--log-level", "error")
	const large = 64<<10 + 1
	for want, request := range map[int]string{
		http.StatusRequestEntityTooLarge: fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
			large, strings.Repeat(" ", large)),
		http.StatusRequestHeaderFieldsTooLarge: "GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: " + strings.Repeat("x", large) + "\r\n\r\n",
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, request) // the server may answer, and read no more, before it has all
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		_ = conn.Close()
		if response.StatusCode != want {
			t.Errorf("%d, want %d", response.StatusCode, want)
		}
	}
	s.signal(syscall.SIGTERM)
	if status := s.wait(); status.ExitCode() != 0 || len(s.lines) != 0 {
		t.Errorf("%v, logged %q", status, s.lines)
	}
}
