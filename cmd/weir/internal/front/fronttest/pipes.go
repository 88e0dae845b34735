package fronttest

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Listener is a [net.Listener] whose connections have both ends in this process. They have no buffer: a write ends when the other
// side has read all of it. All methods are safe for concurrent use.
type Listener struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

// Pipes returns a listener that must be closed. It belongs to the bubble that it is made in.
func Pipes() *Listener {
	return &Listener{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept waits for the next client. It returns [net.ErrClosed] once the listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the listener, and none of its connections. It may be called again.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is an address that no one can connect to.
func (*Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Dial connects: it returns when the server has accepted the connection. It returns [net.ErrClosed] once the listener is closed,
// and the error of ctx when that ends first.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.accepted <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Client is one of HTTP whose connections all are of this listener, whatever the host of the URL.
func (l *Listener) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) },
	}}
}
