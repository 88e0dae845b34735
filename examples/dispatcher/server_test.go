package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/manualclock"
)

const patience = 2 * time.Minute

// testServer is a server in a time that stands still, on a port of its own.
type testServer struct {
	addr  string
	clock *manualclock.Clock
	stop  func()
}

func start(t *testing.T) testServer {
	t.Helper()
	clock := new(manualclock.Clock)
	s, err := newServer(clock, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, listener) }()
	stop := func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.close()
		ended <- nil
	}
	t.Cleanup(stop)
	return testServer{listener.Addr().String(), clock, stop}
}

// dial connects from an address of this machine, and any port.
func (s testServer) dial(t *testing.T, from string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	c, err := d.DialContext(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		t.Fatalf("%T", c)
	}
	return tcp
}

// ask sends text over a connection of its own, and returns all that comes back until the server has nothing more to say,
// and the port it came from.
func (s testServer) ask(t *testing.T, from, text string) (answer string, port int) {
	t.Helper()
	c := s.dial(t, from)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	local, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		t.Fatal(c.LocalAddr())
	}
	return string(all), local.Port
}

func TestReconnectingFromNewPortsGainsNothing(t *testing.T) {
	const attempts = 50
	patient, rotating := start(t), start(t)
	answer, _ := patient.ask(t, "127.0.0.1", strings.Repeat("LOGIN eve\n", attempts))
	one := strings.Count(answer, "OK welcome eve\n")

	many, ports := 0, map[int]bool{}
	for range attempts {
		welcome, port := rotating.ask(t, "127.0.0.1", "LOGIN eve\n")
		many += strings.Count(welcome, "OK welcome eve\n")
		ports[port] = true
	}
	if one != 2 || many != one {
		t.Errorf("%d logins over one connection, %d over %d: want 2 both times", one, many, attempts)
	}
	if len(ports) < attempts/2 {
		t.Errorf("only %d ports were used", len(ports))
	}

	if answer, _ = rotating.ask(t, "127.0.0.2", "LOGIN bob\nLOGIN bob\nLOGIN bob\n"); strings.Count(answer, "OK welcome bob\n") != 2 {
		t.Errorf("another address is affected:\n%s", answer)
	}
	if answer, _ = rotating.ask(t, "127.0.0.1", "SEARCH lock\nPING\n"); answer != "OK 1 results: lock\nPONG\n" {
		t.Errorf("other commands are affected:\n%s", answer)
	}
	if answer, _ = rotating.ask(t, "127.0.0.1", "LOGIN eve\n"); answer != "REFUSED LOGIN: hard-lockout, retry after 10000 ms\n" {
		t.Errorf("%q", answer)
	}
	rotating.clock.Advance(10 * time.Second)
	if answer, _ = rotating.ask(t, "127.0.0.1", "LOGIN eve\n"); answer != "OK welcome eve\n" {
		t.Errorf("after the lockout: %q", answer)
	}
}

func TestCommandsWithoutALimitOfTheirOwnShareOne(t *testing.T) {
	s := start(t)
	pongs := 0
	for range 30 {
		answer, _ := s.ask(t, "127.0.0.1", "PING\nNONSENSE\n")
		pongs += strings.Count(answer, "PONG\n") + strings.Count(answer, "ERROR unknown command\n")
	}
	if pongs != 20 {
		t.Errorf("%d were answered, want 20", pongs)
	}
	if answer, _ := s.ask(t, "127.0.0.2", "PING\n"); answer != "PONG\n" {
		t.Errorf("another address is affected: %q", answer)
	}
}

func TestNoticesAreLimitedForEachConnection(t *testing.T) {
	s := start(t)
	c := s.dial(t, "127.0.0.1")
	answers := bufio.NewReader(c)
	// exchange answers what comes back before the PONG of a PING at the end.
	exchange := func(text string) (all string) {
		if _, err := io.WriteString(c, text+"PING\n"); err != nil {
			t.Fatal(err)
		}
		for {
			line, err := answers.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == "PONG\n" {
				return all
			}
			all += line
		}
	}
	const (
		welcome = "OK welcome eve\n"
		soft    = "REFUSED LOGIN: soft-throttle, retry after 1000 ms\n"
		hard    = "REFUSED LOGIN: hard-lockout, retry after %d ms\n"
	)
	flood := strings.Repeat("LOGIN eve\n", 40)
	for i, want := range []string{welcome + welcome + soft + fmt.Sprintf(hard, 10000), "", ""} {
		if got := exchange(flood); got != want {
			t.Errorf("flood %d: %q, want %q", i, got, want)
		}
	}
	s.clock.Advance(200*time.Millisecond - 1)
	if got := exchange(flood); got != "" {
		t.Errorf("within the cooldown: %q", got)
	}
	s.clock.Advance(1)
	if got, want := exchange(flood), fmt.Sprintf(hard, 9800); got != want {
		t.Errorf("after the cooldown: %q, want %q", got, want)
	}
	if got, _ := s.ask(t, "127.0.0.1", flood); got != fmt.Sprintf(hard, 9800) {
		t.Errorf("another connection: %q", got)
	}
}

func TestProtocol(t *testing.T) {
	s := start(t)
	for _, c := range []struct{ send, want string }{
		{"", ""},
		{"ping\r\n", "PONG\n"},
		{"PING", "PONG\n"}, // the last line needs no end
		{"PING\nQUIT\nPING\n", "PONG\n"},
		{"LOGIN\n", "ERROR LOGIN needs a name\n"},
		{"SEARCH  RIV \n", "OK 1 results: river\n"},
		{"\nunknown\n", "ERROR unknown command\nERROR unknown command\n"},
		{strings.Repeat("x", 511) + "\n", "ERROR unknown command\n"},
	} {
		if got, _ := s.ask(t, "127.0.0.1", c.send); got != c.want {
			t.Errorf("%.20q: %q, want %q", c.send, got, c.want)
		}
	}
	// The server closes with a part of the line unread, which may reset the connection, but not before its answer.
	c := s.dial(t, "127.0.0.1")
	if _, err := io.WriteString(c, strings.Repeat("x", 512)); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "ERROR a line has at most 512 bytes\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestShutdownEndsIdleConnections(t *testing.T) {
	s := start(t)
	c := s.dial(t, "127.0.0.1")
	if _, err := io.WriteString(c, "PING\n"); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(c)
	if line, err := answers.ReadString('\n'); err != nil || line != "PONG\n" {
		t.Fatal(line, err)
	}
	s.stop()
	if line, err := answers.ReadString('\n'); line != "" || err != io.EOF {
		t.Errorf("%q, %v", line, err)
	}
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.addr); err == nil {
		c.Close()
		t.Error("it still listens")
	}
}

// TestSession plays the session of the help text, and holds the page about it to the same text.
func TestSession(t *testing.T) {
	var lines []string
	for line := range strings.Lines(help) {
		if shown, ok := strings.CutPrefix(line, "  "); ok && (strings.HasPrefix(shown, "$ ") || len(lines) > 0) {
			lines = append(lines, shown)
		} else if len(lines) > 0 {
			break
		}
	}
	if len(lines) < 4 {
		t.Fatalf("found no session in the help text: %q", lines)
	}
	_, send, _ := strings.Cut(lines[0], "printf '")
	send, rest, ok := strings.Cut(send, "'")
	if !ok || strings.TrimSpace(rest) != "| nc -N 127.0.0.1 7171" {
		t.Fatalf("%q", lines[0])
	}
	got, _ := start(t).ask(t, "127.0.0.1", strings.ReplaceAll(send, `\n`, "\n"))
	if want := strings.Join(lines[1:], ""); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}

	page, err := os.ReadFile("../../docs/dispatcher.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), strings.Join(lines, "")) {
		t.Error("docs/dispatcher.md has another session")
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"-help"}, 0, help, ""},
		{[]string{"-port", "1"}, 2, "", "dispatcher: flag provided but not defined: -port\nTry dispatcher -help.\n"},
		{[]string{"serve"}, 2, "", "dispatcher: argument \"serve\": must be none\nTry dispatcher -help.\n"},
		{[]string{"-listen", "127.0.0.1:port"}, 1, "", "dispatcher: listen tcp: lookup tcp/port: unknown port\n"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), c.args, &stdout, &stderr)
		if code != c.code || stdout.String() != c.stdout || stderr.String() != c.stderr {
			t.Errorf("%q: %d\n%s\n%s", c.args, code, stdout.String(), stderr.String())
		}
	}
}

// TestRun runs the whole program until it is interrupted.
func TestRun(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	reader, writer := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"-listen", "127.0.0.1:0"}, writer, io.Discard)
		writer.Close()
	}()
	output := bufio.NewReader(reader)
	line, err := output.ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("%q, %v", line, err)
	}
	answer, _ := testServer{addr: addr}.ask(t, "127.0.0.1", "LOGIN ada\nSEARCH dam\nPING\nWHAT\n")
	if answer != "OK welcome ada\nOK 1 results: dam\nPONG\nERROR unknown command\n" {
		t.Errorf("%q", answer)
	}
	interrupt()
	rest, err := io.ReadAll(output)
	if err != nil || <-code != 0 {
		t.Error(err)
	}
	for _, want := range []string{
		"PING     1 passed, 0 throttled, 0 locked out\n", "LOGIN    1 passed,", "unknown  1 passed,",
		"0 notices, 0 dropped in silence\n", "Active policies: 2 of 64\n",
	} {
		if !strings.Contains(string(rest), want) {
			t.Errorf("no %q in\n%s", want, rest)
		}
	}
}
