package redis

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// link is the network between a client and a server: it hands bytes on, unless it is cut.
type link struct {
	listener net.Listener
	wait     sync.WaitGroup

	lock     sync.Mutex
	target   string
	how      cut
	pairs    map[*linked]struct{}
	accepted int
	closed   bool
}

// cut is how a link is cut.
type cut int

const (
	whole   cut = iota
	refused     // connections end, and new ones too
	silent      // connections stay, and new ones are made, but nothing comes through, and what was sent meanwhile is lost
	deaf        // the server hears what is sent, but its answers are lost
)

// linked is a connection through a link.
type linked struct {
	client, server net.Conn
	lost           bool // bytes were lost: what follows must not be handed on
}

func startLink(tb testing.TB, target string) *link {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &link{listener: listener, target: target, pairs: make(map[*linked]struct{})}
	l.wait.Go(l.accept)
	tb.Cleanup(l.close)
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) port() int { return l.listener.Addr().(*net.TCPAddr).Port } //nolint:forcetypeassert // of a listener for TCP

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.lock.Lock()
		l.accepted++
		ended := l.closed || l.how == refused
		l.lock.Unlock()
		if ended {
			reset(client)
			continue
		}
		l.lock.Lock()
		target := l.target
		l.lock.Unlock()
		server, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", target)
		if err != nil {
			reset(client)
			continue
		}
		p := &linked{client: client, server: server}
		l.lock.Lock()
		l.pairs[p] = struct{}{}
		ended = l.closed || l.how == refused
		l.lock.Unlock()
		if ended {
			l.end(p)
		}
		l.wait.Go(func() { l.pass(p, server, client, silent) })
		l.wait.Go(func() { l.pass(p, client, server, silent, deaf) })
	}
}

// pass hands on what comes from one side, unless the link is cut in one of the ways.
func (l *link) pass(p *linked, to io.Writer, from io.Reader, ways ...cut) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		l.lock.Lock()
		for _, way := range ways {
			if l.how == way && n > 0 {
				p.lost = true
			}
		}
		lost := p.lost
		l.lock.Unlock()
		if n > 0 && !lost {
			if _, failed := to.Write(buf[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			l.end(p)
			return
		}
	}
}

func (l *link) end(p *linked) {
	l.lock.Lock()
	delete(l.pairs, p)
	l.lock.Unlock()
	reset(p.client)
	reset(p.server)
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// set cuts the link, or mends it. Connections that have lost bytes stay silent.
func (l *link) set(how cut) {
	l.lock.Lock()
	l.how = how
	var ended []*linked
	if how == refused {
		for p := range l.pairs {
			ended = append(ended, p)
		}
	}
	l.lock.Unlock()
	for _, p := range ended {
		l.end(p)
	}
}

// move has new connections lead to another server. Those that there are stay.
func (l *link) move(target string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.target = target
}

// attempts is how many connections were made or tried.
func (l *link) attempts() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.accepted
}

func (l *link) close() {
	_ = l.listener.Close()
	l.lock.Lock()
	l.closed = true
	l.lock.Unlock()
	l.set(refused)
	l.wait.Wait()
}
