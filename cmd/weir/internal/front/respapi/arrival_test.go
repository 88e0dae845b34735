package respapi_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/internal/respclient"
)

// session is commands of one client, and what they are answered with.
type session struct {
	random *rand.Rand
	sent   []byte
	want   []byte
}

// more adds a few commands: those that may be answered while the socket is held, those that may not, and lines.
func (s *session) more() {
	for range 1 + s.random.IntN(20) {
		text := strconv.Itoa(s.random.IntN(1_000_000))
		switch s.random.IntN(10) {
		case 0:
			s.sent, s.want = fmt.Appendf(s.sent, "ECHO \"a %s\"\r\n", text), fmt.Appendf(s.want, "$%d\r\na %s\r\n", 2+len(text), text)
		case 1:
			s.sent = respclient.AppendCommand(s.sent, "NOTHING")
			s.want = append(s.want, "-ERR unknown command 'NOTHING', with args beginning with: \r\n"...)
		case 2:
			s.sent = respclient.AppendCommand(s.sent, "CLIENT", "REPLY", "SKIP")
			s.sent = respclient.AppendCommand(s.sent, "WEIR.TAKE", "default", text, "1", "WAIT", "1")
		case 3:
			s.sent = respclient.AppendCommand(s.sent, "CLIENT", "REPLY", "SKIP")
			s.sent = respclient.AppendCommand(s.sent, "ECHO", text)
		default:
			s.sent = respclient.AppendCommand(s.sent, "ECHO", text)
			s.want = fmt.Appendf(s.want, "$%d\r\n%s\r\n", len(text), text)
		}
	}
}

// TestNothingIsLost has many clients send commands in pieces that begin and end anywhere. Now and then they wait until all that
// they have sent in full is answered: a server that was not told of a piece would wait, too.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	sessions := 8
	if race.Enabled {
		sessions = 2
	}
	for name, change := range map[string]func(o *respapi.Options){
		"for as long as it takes": nil,
		"for a while":             func(o *respapi.Options) { o.IdleTimeout = time.Minute },
		"with new stacks":         func(o *respapi.Options) { o.Renew(20 * time.Microsecond) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, change)
			var wg sync.WaitGroup
			for i := range uint64(64) {
				random := rand.New(rand.NewPCG(i, 5))
				wg.Go(func() {
					for range sessions {
						c := s.dial()
						if err := talk(c.Conn, &session{random: random}); err != nil {
							t.Error(err)
						}
						_ = c.Close()
					}
				})
			}
			wg.Wait()
		})
	}
}

// talk is what one client of TestNothingIsLost does, up to its end, of which the server has to be told, too.
func talk(c net.Conn, s *session) error {
	got := make([]byte, 64<<10)
	for range 40 {
		s.sent, s.want = s.sent[:0], s.want[:0]
		s.more()
		for left := s.sent; len(left) > 0; {
			n := len(left)
			if s.random.IntN(3) == 0 {
				n = 1 + s.random.IntN(n)
			}
			if _, err := c.Write(left[:n]); err != nil {
				return fmt.Errorf("send: %w", err)
			}
			left = left[n:]
		}
		if _, err := io.ReadFull(c, got[:len(s.want)]); err != nil {
			return fmt.Errorf("%q: %w", s.sent, err)
		}
		if !bytes.Equal(got[:len(s.want)], s.want) {
			return fmt.Errorf("%q: the replies are %q, want %q", s.sent, got[:len(s.want)], s.want)
		}
	}
	return ends(c, s.random.IntN(2) == 0)
}

// ends sends last commands, with which the stream ends, and expects that the server closes the connection. The one before the last
// may wait, and need not.
func ends(c net.Conn, muted bool) error {
	last, want := respclient.AppendCommand(nil, "PING"), "+PONG\r\n"
	if muted {
		last, want = append(respclient.AppendCommand(nil, "CLIENT", "REPLY", "OFF"), last...), ""
	}
	waits := respclient.AppendCommand(nil, "CLIENT", "REPLY", "SKIP")
	waits = respclient.AppendCommand(waits, "WEIR.TAKE", "default", c.LocalAddr().String(), "1", "WAIT", "1000")
	if _, err := c.Write(append(waits, last...)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); err != nil {
			return fmt.Errorf("end: %w", err)
		}
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != want {
		return fmt.Errorf("at the end there is %q, want %q: %w", got, want, err)
	}
	return nil
}

// TestEndsThatComeWithCommands has clients end before the server has read the first byte of them, so that it is told of both at
// once: by the end of their stream, or by a reset, with commands that have replies and without.
func TestEndsThatComeWithCommands(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all []net.Conn
	for i := range 64 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err = c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		if i%4 < 2 {
			all = append(all, c)
			continue
		}
		commands := respclient.AppendCommand(nil, "PING")
		if i%4 == 2 {
			commands = append(respclient.AppendCommand(nil, "CLIENT", "REPLY", "OFF"), commands...)
		}
		if _, err = c.Write(commands); err != nil {
			t.Fatal(err)
		}
		if err = c.(*net.TCPConn).SetLinger(0); err != nil { //nolint:forcetypeassert // a reset
			t.Fatal(err)
		}
		_ = c.Close()
	}
	var wg, begun sync.WaitGroup
	for i, c := range all {
		begun.Add(1)
		wg.Go(func() {
			begun.Done()
			if err := ends(c, i%2 == 0); err != nil {
				t.Error(err)
			}
			_ = c.Close()
		})
	}
	begun.Wait()
	s := startOn(t, l, nil)
	wg.Wait()
	eventually(t, "no connection is left", func() bool { return s.Open() == 0 })
}
