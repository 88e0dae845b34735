package respapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/internal/respclient"
	"github.com/weirhq/weir/policy"
)

// options are those of a server with one policy, "default".
func options(t testing.TB) respapi.Options {
	t.Helper()
	set := &policy.Set{Policies: []policy.Policy{{
		Name: "default", Key: policy.NamedKey(),
		Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(10), 20)}},
	}}}
	limits, err := live.Fixed(set, policy.EngineOptions{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	kept := holds.New(holds.Options{})
	t.Cleanup(func() {
		kept.Close()
		if err := limits.Engine().Close(); err != nil {
			t.Error(err)
		}
	})
	return respapi.Options{Limits: limits, Holds: kept}
}

// server is one that listens.
type server struct {
	*respapi.Server

	t       testing.TB
	address string
	ended   chan error
}

// start starts a server, which ends with the test.
func start(t testing.TB, change func(o *respapi.Options)) *server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, l, change)
}

// startOn is start with a listener.
func startOn(t testing.TB, l net.Listener, change func(o *respapi.Options)) *server {
	t.Helper()
	o := options(t)
	if change != nil {
		change(&o)
	}
	s, err := respapi.New(o)
	if err != nil {
		t.Fatal(err)
	}
	running := &server{Server: s, t: t, address: l.Addr().String(), ended: make(chan error, 1)}
	go func() { running.ended <- s.Serve(l) }()
	t.Cleanup(running.stop)
	return running
}

// stop shuts the server down, unless that was done.
func (s *server) stop() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		s.t.Error(err)
	}
	if err := <-s.ended; err != nil {
		s.t.Error(err)
	}
	s.ended <- nil
}

// client is a connection on which a test says what it likes.
type client struct {
	net.Conn

	t       testing.TB
	replies *respclient.Reader
}

// dial connects. All that the client does has to be done within a generous time.
func (s *server) dial() *client {
	s.t.Helper()
	c, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.speak(c)
}

// dialPipe is dial where connections are in memory.
func (s *server) dialPipe(l *fronttest.Listener) *client {
	s.t.Helper()
	c, err := l.Dial(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return s.speak(c)
}

func (s *server) speak(nc net.Conn) *client {
	s.t.Helper()
	s.t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	return &client{Conn: nc, t: s.t, replies: respclient.NewReader(nc)}
}

// dialTLS connects over TLS.
func (s *server) dialTLS(config *tls.Config) *client {
	s.t.Helper()
	d := tls.Dialer{Config: config}
	c, err := d.DialContext(s.t.Context(), "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.speak(c)
}

// send sends bytes as they are.
func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// receive returns the next reply as text.
func (c *client) receive() string {
	c.t.Helper()
	r, err := c.replies.Read()
	if err != nil {
		c.t.Fatal(err)
	}
	return show(r)
}

// ask sends a command and returns its reply as text.
func (c *client) ask(args ...string) string {
	c.t.Helper()
	c.send(string(respclient.AppendCommand(nil, args...)))
	return c.receive()
}

// expect asks, and wants this reply.
func (c *client) expect(want string, args ...string) {
	c.t.Helper()
	if got := c.ask(args...); got != want {
		c.t.Errorf("%.200q:\n got %s\nwant %s", args, got, want)
	}
}

// expectEnd wants the server to close the connection without another reply.
func (c *client) expectEnd() {
	c.t.Helper()
	if r, err := c.replies.Read(); !errors.Is(err, io.EOF) {
		c.t.Errorf("got %s, error %v; want the end of the connection", show(r), err)
	}
}

// show is a reply as text.
func show(r respclient.Reply) string {
	var b bytes.Buffer
	showTo(&b, r)
	return b.String()
}
