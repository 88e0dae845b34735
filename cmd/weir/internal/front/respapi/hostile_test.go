package respapi_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
	"github.com/weirhq/weir/internal/respclient"
)

// eventually waits until something is true of what other goroutines do.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 2 minutes: %s", what)
		}
	}
}

func TestProtocolErrorsEndTheConnection(t *testing.T) {
	s := start(t, nil)
	for stream, want := range map[string]string{
		"*1\r\n$99999999999\r\n":             "-ERR Protocol error: invalid bulk length",
		"*1\r\n$-5\r\n":                      "-ERR Protocol error: invalid bulk length",
		"*2147483647\r\n":                    "-ERR Protocol error: invalid multibulk length",
		"*1\r\n:1\r\n":                       "-ERR Protocol error: expected '$', got ':'",
		"echo \"\r\n":                        "-ERR Protocol error: unbalanced quotes in request",
		strings.Repeat("x", 64<<10):          "-ERR Protocol error: too big inline request",
		"\x16\x03\x01\x02\x00\x01\x00\x01":   "-ERR Protocol error: TLS is not spoken here",
		"*" + strings.Repeat("1", 1000) + "": "-ERR Protocol error: too big mbulk count string",
	} {
		c := s.dial()
		c.send("PING\r\n" + stream + "\r\nPING\r\n")
		if got := c.receive(); got != "+PONG" {
			t.Error(got)
		}
		if got := c.receive(); got != want {
			t.Errorf("%.50q: %s, want %s", stream, got, want)
		}
		c.expectEnd()
	}
	// A form in a web page can be sent here, but its second line is not a command.
	c := s.dial()
	c.send("POST / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n")
	c.expectEnd()
	if got := s.Status()["protocol_errors"]; got != int64(9) {
		t.Errorf("%v protocol errors", got)
	}
}

func TestLongPipeline(t *testing.T) {
	c := start(t, nil).dial()
	const commands = 100_000
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(bytes.Repeat([]byte("*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n"), commands))
		sent <- err
	}()
	for i := range commands {
		if r, err := c.replies.Read(); err != nil || r.Value != "0123456789" {
			t.Fatalf("reply %d: %s, error %v", i, show(r), err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	c.expect("+PONG", "PING")
}

// TestCommandsInPieces: commands longer than the buffer, in whatever pieces they arrive.
func TestCommandsInPieces(t *testing.T) {
	c := start(t, nil).dial()
	long := strings.Repeat("0123456789abcdef", 4096)
	for _, size := range []int{0, 1, 16383, 16384, 16385, 40_000, len(long)} {
		c.expect("$"+long[:size], "ECHO", long[:size])
	}
	var stream []byte
	for range 10 {
		stream = respclient.AppendCommand(stream, "ECHO", long)
		stream = respclient.AppendCommand(stream, "ECHO", "short")
	}
	go func() {
		for piece := 1; len(stream) > 0; piece = piece*7%40_009 + 1 {
			n, err := c.Write(stream[:min(piece, len(stream))])
			if err != nil {
				return // the reader tells
			}
			stream = stream[n:]
		}
	}()
	for range 10 {
		if got := c.receive(); got != "$"+long {
			t.Fatalf("%.100s", got)
		}
		if got := c.receive(); got != "$short" {
			t.Fatalf("%.100s", got)
		}
	}
}

func TestHalfCommandsEndInTime(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.ReadTimeout = 50 * time.Millisecond })
	idle := s.dial()
	idle.expect("+PONG", "PING")
	half := s.dial()
	half.send("*1\r\n$4\r\nPI")
	half.expectEnd()
	half = s.dial()
	half.send("PING\r\nPIN")
	if got := half.receive(); got != "+PONG" {
		t.Error(got)
	}
	half.expectEnd()
	// One that trickles has no more time.
	half = s.dial()
	if _, err := io.Copy(half, &trickle{}); err == nil {
		t.Error("a client that never ends its command goes on and on")
	}
	eventually(t, "three have timed out", func() bool { return s.Status()["timeouts"] == int64(3) })
	// A client that is silent between two commands has all the time there is.
	idle.expect("+PONG", "PING")
}

// trickle is a command that never ends.
type trickle struct{}

func (*trickle) Read(b []byte) (int, error) {
	time.Sleep(5 * time.Millisecond)
	b[0] = 'x'
	return 1, nil
}

// answered reports whether the server answers all commands of a client so, before it has enough of it.
func (c *client) answered(want string, times int, command ...string) bool {
	for range times {
		if _, err := c.Write(respclient.AppendCommand(nil, command...)); err != nil {
			return false
		}
		if r, err := c.replies.Read(); err != nil || show(r) != want {
			return false
		}
	}
	return true
}

// TestIdleTimeout has clients on sockets. Those may be too late for the timeout if the machine stands still: they try again.
func TestIdleTimeout(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.IdleTimeout = 200 * time.Millisecond })
	var c *client
	eventually(t, "a client is answered", func() bool {
		c = s.dial()
		return c.answered("+PONG", 10, "PING")
	})
	c.expectEnd()
}

// TestIdleTimeoutIsExact: it begins anew with each command.
func TestIdleTimeoutIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 500 * time.Millisecond
		l := fronttest.Pipes()
		c := startOn(t, l, func(o *respapi.Options) { o.IdleTimeout = timeout }).dialPipe(l)
		for range 10 {
			time.Sleep(timeout - 1)
			c.expect("+PONG", "PING")
		}
		began := time.Now()
		c.expectEnd()
		if lasted := time.Since(began); lasted != timeout {
			t.Errorf("it ends after %v", lasted)
		}
	})
}

// TestStrangersMustHurry has clients on sockets, which try again if they are too late.
func TestStrangersMustHurry(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.Password, o.ReadTimeout = "secret", 200*time.Millisecond })
	var known, stranger *client
	eventually(t, "a client authenticates in time", func() bool {
		known = s.dial()
		return known.answered("+OK", 1, "AUTH", "secret")
	})
	s.dial().expectEnd()
	eventually(t, "a stranger is answered", func() bool {
		stranger = s.dial()
		return stranger.answered("-NOAUTH Authentication required.", 1, "PING")
	})
	stranger.expectEnd()
	known.expect("+PONG", "PING")
}

// TestStrangersHaveSoMuchTime: since they have connected, whatever they do meanwhile.
func TestStrangersHaveSoMuchTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 500 * time.Millisecond
		l := fronttest.Pipes()
		s := startOn(t, l, func(o *respapi.Options) { o.Password, o.ReadTimeout = "secret", timeout })
		began := time.Now()
		known, late, silent, stranger := s.dialPipe(l), s.dialPipe(l), s.dialPipe(l), s.dialPipe(l)
		known.expect("+OK", "AUTH", "secret")
		for range 4 {
			time.Sleep(timeout / 5)
			stranger.expect("-NOAUTH Authentication required.", "PING")
		}
		late.expect("+OK", "AUTH", "secret")
		for _, c := range []*client{silent, stranger} {
			c.expectEnd()
			if lasted := time.Since(began); lasted != timeout {
				t.Errorf("it ends after %v", lasted)
			}
		}
		time.Sleep(time.Minute)
		known.expect("+PONG", "PING")
		late.expect("+PONG", "PING")
	})
}

// TestWrongPasswordsAreTold: a client that guesses is seen in the log, which does not grow by it, and in the status.
func TestWrongPasswordsAreTold(t *testing.T) {
	var log bytes.Buffer
	s := start(t, func(o *respapi.Options) { o.Password, o.Logger = "secret", slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 {
		c := s.dial()
		for range 10 {
			c.expect("-WRONGPASS invalid username-password pair or user is disabled.", "AUTH", "guessed")
		}
		c.expectEnd()
	}
	if got := s.Status()["wrong_passwords"]; got != int64(30) {
		t.Errorf("%v wrong passwords", got)
	}
	s.stop()
	if text := log.String(); strings.Count(text, "wrong password") != 1 || strings.Contains(text, "guessed") {
		t.Error(text)
	}
}

// TestSlowReaders: a client that does not read its replies is cut off, and holds no other client up.
func TestSlowReaders(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.WriteTimeout = 50 * time.Millisecond })
	slow := s.dial()
	command := respclient.AppendCommand(nil, "ECHO", strings.Repeat("x", 60_000))
	for {
		if _, err := slow.Write(command); err != nil {
			break
		}
	}
	eventually(t, "it has timed out", func() bool { return s.Status()["timeouts"] == int64(1) })
	s.dial().expect("+PONG", "PING")
}

// TestMaxConnections: when there are as many clients as may be, one that has nothing to be answered makes room, and if there is
// none, the new one is refused.
func TestMaxConnections(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.MaxConnections, o.ReadTimeout = 2, time.Hour })
	first, second := s.dial(), s.dial()
	first.expect("+PONG", "PING")
	second.expect("+PONG", "PING")
	// A client has its reply before the server has noted that nothing more is asked.
	eventually(t, "both are silent", func() bool { return s.Idle() == 2 })
	first.expect("+PONG", "PING")
	eventually(t, "both are silent again", func() bool { return s.Idle() == 2 })
	third := s.dial()
	third.expect("+PONG", "PING")
	second.expectEnd() // it was silent for the longest time
	first.send("*2\r\n$4\r\nECHO\r\n$5\r\nhel")
	third.send("*2\r\n$4\r\nECHO\r\n$5\r\nhel")
	eventually(t, "they are in use", func() bool { return s.Idle() == 0 })
	fourth := s.dial()
	fourth.send("PING\r\n")
	if got := fourth.receive(); got != "-ERR max number of clients reached" {
		t.Error(got)
	}
	fourth.expectEnd()
	for _, c := range []*client{first, third} {
		c.send("lo\r\n")
		if got := c.receive(); got != "$hello" {
			t.Error(got)
		}
	}
	eventually(t, "who has made room has gone", func() bool { return s.Status()["connections"] == 2 })
	status := s.Status()
	for name, want := range map[string]any{
		"rejected": int64(1), "connections_refused": int64(1), "connections_evicted": int64(1),
	} {
		if status[name] != want {
			t.Errorf("%s: %v, want %v", name, status[name], want)
		}
	}
	first.expect("+OK", "QUIT")
	_ = first.Close()
	eventually(t, "there is room", func() bool { return s.Status()["connections"] == 1 })
	s.dial().expect("+PONG", "PING")
}

// TestStrangersMakeRoom: clients without the password can neither lock out those that have it, nor take their places, whatever
// they send.
func TestStrangersMakeRoom(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.MaxConnections, o.Password = 3, "open sesame" })
	customer := s.dial()
	customer.expect("+OK", "AUTH", "open sesame")
	customer.send("*2\r\n$4\r\nECHO\r\n$5\r\nhel")
	eventually(t, "it is in use", func() bool { return s.Idle() == 0 })
	strangers := make([]*client, 20)
	for i := range strangers {
		strangers[i] = s.dial()
		if i%2 == 0 {
			strangers[i].send("*2\r\n$4\r\nAUTH\r\n$5\r\nhel")
		} else {
			strangers[i].expect("-NOAUTH Authentication required.", "PING")
		}
	}
	for _, stranger := range strangers[:len(strangers)-2] {
		// What the server has not read yet makes it reset the connection.
		if r, err := stranger.replies.Read(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %s, error %v; want the end of the connection", show(r), err)
		}
	}
	for range 3 {
		other := s.dial()
		other.expect("+OK", "AUTH", "open sesame")
		other.expect("+PONG", "PING")
		_ = other.Close()
		eventually(t, "it has gone", func() bool { return s.Status()["connections"] == 2 })
	}
	customer.send("lo\r\n")
	if got := customer.receive(); got != "$hello" {
		t.Error(got)
	}
	if got := s.Status()["rejected"]; got != int64(0) {
		t.Errorf("%v were refused", got)
	}
}

// TestConnectionsOfOneAddress: an address cannot use up all places. All clients of this test have the same one.
func TestConnectionsOfOneAddress(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.ConnectionsPerAddress = 1 })
	first := s.dial()
	first.send("*2\r\n$4\r\nECHO\r\n$5\r\nhel")
	eventually(t, "it is in use", func() bool { return s.Status()["connections"] == 1 && s.Idle() == 0 })
	second := s.dial()
	second.send("PING\r\n")
	if got := second.receive(); got != "-ERR max number of clients reached" {
		t.Error(got)
	}
	first.send("lo\r\n")
	if got := first.receive(); got != "$hello" {
		t.Error(got)
	}
	eventually(t, "it is idle", func() bool { return s.Idle() == 1 })
	s.dial().expect("+PONG", "PING")
	first.expectEnd()
}

// TestErrorsOfOddNames: what a client has sent as the name of a policy or a reservation is shown to it once between quotes.
func TestErrorsOfOddNames(t *testing.T) {
	c := start(t, nil).dial()
	for name, want := range map[string]string{
		"no\xffbody":                 `"no\xffbody"`,
		`no "body"`:                  `"no \"body\""`,
		"no\r\nbody":                 `"no\r\nbody"`,
		strings.Repeat("\xff", 4096): `"` + strings.Repeat(`\xff`, 61) + `"...`,
	} {
		for wrong, args := range map[string][]string{
			"-NOPOLICY there is no policy ":    {"WEIR.TAKE", name, "k"},
			"-NOHOLD there is no reservation ": {"WEIR.CANCEL", name},
		} {
			if got := c.ask(args...); !strings.HasPrefix(got, wrong+want+": ") || len(got) > 4096 {
				t.Errorf("%q: %s, want %s%s", name, got, wrong, want)
			}
		}
	}
}

// TestLongRepliesAreBounded: a short command cannot make the server keep a reply of any length for a client that does not read.
func TestLongRepliesAreBounded(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.MaxLarge = 100 << 10 })
	many := func(command string, n int) []string {
		args := strings.Fields(command)
		for range n {
			args = append(args, "client")
		}
		return args
	}
	const tooLong = "-ERR the reply would have more than 131072 bytes: ask for fewer commands"
	c := s.dial()
	for _, command := range []string{"COMMAND INFO", "COMMAND DOCS"} {
		c.expect(tooLong, many(command, 1000)...)
		if got := c.ask(many(command, 3)...); strings.HasPrefix(got, "-") {
			t.Errorf("%s of three: %s", command, got)
		}
		if got := c.ask(strings.Fields(command)...); strings.HasPrefix(got, "-") {
			t.Errorf("%s of all: %s", command, got)
		}
	}
	name := strings.Repeat("n", 256)
	var others []*client
	for i := range 120 {
		o := s.dial()
		o.expect("+OK", "CLIENT", "SETNAME", name)
		o.expect("+OK", "CLIENT", "SETINFO", "lib-name", name)
		others = append(others, o)
		if i == 100 { // so long as the list is not too long it can be had again and again, read or not
			for range 5 {
				if got := c.ask("CLIENT", "LIST"); strings.Count(got, name) != 2*len(others) {
					t.Fatalf("%.200s", got)
				}
				c.send("CLIENT REPLY SKIP\r\nCLIENT LIST\r\n")
				c.expect("+PONG", "PING")
			}
		}
	}
	for range 30 {
		o := s.dial()
		o.expect("+OK", "CLIENT", "SETNAME", name)
		others = append(others, o)
	}
	c.expect("-ERR the reply would be too long while others are read: ask again, or for less", "CLIENT", "LIST")
	if got := others[0].ask("CLIENT", "INFO"); !strings.Contains(got, name) {
		t.Error(got)
	}
}

func TestManyLongCommandsAreRefused(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.MaxLarge = 80 << 10 }) // 72 for one address: of both 32 and, for one of them, 32 more
	long := strings.Repeat("x", 60_000)
	command := "*2\r\n$4\r\nECHO\r\n$60000\r\n" + long
	both := []*client{s.dial(), s.dial()}
	for _, c := range both {
		c.send(command)
	}
	eventually(t, "one is refused", func() bool { return s.Status()["rejected"] == int64(1) })
	answers := make(map[string]int)
	for _, c := range both {
		_, _ = io.WriteString(c, "\r\n") // one is closed
		answers[c.receive()]++
		_ = c.Close()
	}
	if answers["$"+long] != 1 || answers["-ERR too many long commands are arriving at the same time"] != 1 {
		t.Errorf("%d different answers", len(answers))
	}
	third := s.dial()
	third.expect("+PONG", "PING")
	eventually(t, "there is room again", func() bool { return s.Status()["connections"] == 1 })
	third.expect("$"+long, "ECHO", long)
}

// TestRefusedCommandLeavesItsRoom: what a long command had is there for others as soon as it is refused, though its client stays.
func TestRefusedCommandLeavesItsRoom(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.MaxLarge = 50 << 10 }) // 45 for one address
	refused := s.dial()
	refused.send("*2\r\n$4\r\nECHO\r\n$40000\r\n" + strings.Repeat("x", 40_000)) // 16 and 32
	if got := refused.receive(); got != "-ERR too many long commands are arriving at the same time" {
		t.Fatal(got)
	}
	refused.expectEnd()
	long := strings.Repeat("x", 20_000)
	both := []*client{s.dial(), s.dial()} // 16 each
	for _, c := range both {
		c.send("*2\r\n$4\r\nECHO\r\n$20000\r\n" + long)
	}
	for _, c := range both {
		c.send("\r\n")
		if got := c.receive(); got != "$"+long {
			t.Errorf("%.80s", got)
		}
	}
}

// TestIdleConnectionsAreCheap: a silent connection has no buffers. The race detector takes its part of what is allowed.
func TestIdleConnectionsAreCheap(t *testing.T) {
	const connections, most = 2000, 8 << 10
	s := start(t, nil)
	memory := func() int64 {
		runtime.GC() // the first takes what pools hold out of use
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := memory()
	clients := make([]net.Conn, connections)
	for i := range clients {
		nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		clients[i] = nc
		if _, err := nc.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	var pong [7]byte
	for _, nc := range clients {
		if _, err := io.ReadFull(nc, pong[:]); err != nil || string(pong[:]) != "+PONG\r\n" {
			t.Fatal(string(pong[:]), err)
		}
	}
	eventually(t, "all are silent", func() bool { return s.Idle() == connections })
	each := (memory() - before) / connections
	t.Logf("%d bytes for each idle connection, those of its client in this test included", each)
	if each > most {
		t.Errorf("an idle connection takes %d bytes, more than %d", each, most)
	}
	if _, err := clients[connections-1].Write([]byte("PING\r\n")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(clients[connections-1], pong[:]); err != nil {
		t.Error(err)
	}
}

func TestShutdownAnswersWhatItHasReceived(t *testing.T) {
	t.Run("with the same stacks", func(t *testing.T) { shutdownAnswers(t, nil) })
	t.Run("with new stacks", func(t *testing.T) {
		shutdownAnswers(t, func(o *respapi.Options) { o.Renew(20 * time.Microsecond) })
	})
}

func shutdownAnswers(t *testing.T, change func(o *respapi.Options)) {
	t.Helper()
	s := start(t, change)
	idle := s.dial()
	idle.expect("+PONG", "PING")
	const clients = 8
	var wg sync.WaitGroup
	var started sync.WaitGroup
	started.Add(clients)
	for range clients {
		c := s.dial()
		wg.Go(func() {
			// A batch is sent only when the one before is answered, so that all of it has been received or none.
			batch := bytes.Repeat([]byte("*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n"), 100)
			for round := 0; ; round++ {
				if _, err := c.Write(batch); err != nil {
					return
				}
				if round == 10 {
					started.Done()
				}
				for i := range 100 {
					_, err := c.replies.Read()
					switch {
					case err == nil:
					case i == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
						return // it came too late
					default:
						t.Errorf("%d replies of 100, then %v", i, err)
						return
					}
				}
			}
		})
	}
	started.Wait()
	s.stop()
	wg.Wait()
	idle.expectEnd()
	if got := s.Status()["connections"]; got != 0 {
		t.Errorf("%v connections after Shutdown", got)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l); err != nil {
		t.Error(err)
	}
}

// TestGoroutinesEnd: nothing goes on after Shutdown, whatever the clients are at.
func TestGoroutinesEnd(t *testing.T) {
	s := start(t, nil)
	before := runtime.NumGoroutine() // with that of Serve
	for i := range 30 {
		c := s.dial()
		switch i % 3 {
		case 0:
			c.expect("+PONG", "PING")
		case 1:
			c.send("*1\r\n$4\r\nPI")
		default:
			c.expect("+OK", "QUIT")
		}
	}
	s.stop()
	eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() < before })
}

// TestShutdownCutsOff: a client that does not read what it has asked for does not keep the server from ending.
func TestShutdownCutsOff(t *testing.T) {
	command := respclient.AppendCommand(nil, "ECHO", strings.Repeat("x", 60_000))
	// Only when nothing moves for a while can the network hold no more: on a machine that stands still it may mean nothing.
	eventually(t, "a client that does not read is cut off", func() bool {
		s := start(t, nil)
		slow := s.dial()
		if err := slow.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := slow.Write(command); err != nil {
				break
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := s.Shutdown(ctx)
		if got := s.Status()["connections"]; got != 0 {
			t.Errorf("%v connections after Shutdown", got)
		}
		if err != nil && (!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 RESP connection was cut off")) {
			t.Error(err)
		}
		return err != nil
	})
}
