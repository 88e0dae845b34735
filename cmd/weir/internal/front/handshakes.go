package front

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/room"
)

// TLS is that of a server. It bounds what clients can make the server keep of handshakes that are not complete: 64 KiB of a first
// message, and 256 KiB of certificates where it asks for them, of clients that need not have one.
type TLS struct {
	// Config is that of the server.
	Config *tls.Config

	own  int64     // bytes that each handshake may have whatever there is of others
	room room.Room // of what handshakes have beyond that
}

// NewTLS makes one of the configuration of a server.
func NewTLS(config *tls.Config) *TLS {
	t := &TLS{Config: config.Clone(), own: 16 << 10, room: room.Room{Max: 64 << 20}}
	choose := config.GetConfigForClient
	t.Config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if c, ok := hello.Conn.(*handshakeConn); ok {
			c.complete = hello.Context().Done()
		}
		if choose == nil {
			return nil, nil //nolint:nilnil // so it goes on with its own
		}
		return choose(hello)
	}
	return t
}

// Handshake is the handshake of the server of a connection. If it fails the connection is still open, and is to be closed.
func (t *TLS) Handshake(ctx context.Context, c net.Conn) (*tls.Conn, error) {
	counted := t.count(c)
	secure := tls.Server(counted, t.Config)
	err := secure.HandshakeContext(ctx)
	if err != nil {
		counted.free() // the caller closes the connection below
		return nil, err
	}
	return secure, nil
}

// count counts what comes until a handshake by Config is complete. A connection that has too much of it fails.
func (t *TLS) count(c net.Conn) *handshakeConn { return &handshakeConn{Conn: c, of: t} }

// handshakeListener is a listener whose connections are counted.
type handshakeListener struct {
	net.Listener

	of *TLS
}

// Accept implements net.Listener.
func (l handshakeListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.of.count(c), nil
}

// handshakeConn is a connection on which a client greets. TLS responds by itself to some of what it reads, such as a request for
// new keys: a write without a deadline of its own ends by that of reads, or in a second if that has passed. Otherwise a client
// that takes no such responses would keep a read waiting for ever.
type handshakeConn struct {
	net.Conn

	of *TLS
	// Of the goroutine that reads.
	bytes    int64           // what has come
	complete <-chan struct{} // closed when the handshake is; nil before its first message is
	greeted  bool            // it was complete

	taken  atomic.Int64 // of the room
	closed atomic.Bool

	mu            sync.Mutex
	reads, writes time.Time // the deadlines, zero if there are none
	armed         time.Time // the deadline of writes that the connection below has
}

// leastWrite is how long a write may take that ends by the deadline of reads.
const leastWrite = time.Second

var errHandshake = errors.New("weir: there is no room for the handshake: it is long, and so are those of others")

// Read implements net.Conn.
func (c *handshakeConn) Read(b []byte) (int, error) {
	if !c.greeted {
		select {
		case <-c.complete:
			c.greeted = true
			c.free()
		default:
		}
	}
	n, err := c.Conn.Read(b)
	if c.greeted || n == 0 {
		return n, err //nolint:wrapcheck // it is that of the connection
	}
	c.bytes += int64(n)
	if more := min(int64(n), c.bytes-c.of.own); more > 0 {
		if !c.share().Take(more) {
			return 0, errHandshake
		}
		c.taken.Add(more)
		if c.closed.Load() { // meanwhile
			c.free()
		}
	}
	return n, err //nolint:wrapcheck // it is that of the connection
}

// SetDeadline implements net.Conn.
func (c *handshakeConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetWriteDeadline(t), c.SetReadDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *handshakeConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = t
	return errors.Join(c.Conn.SetReadDeadline(t), c.arm())
}

// SetWriteDeadline implements net.Conn.
func (c *handshakeConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = t
	return c.arm()
}

// arm hands the deadline of writes to the connection below. c.mu is held.
func (c *handshakeConn) arm() error {
	by := c.writes
	if by.IsZero() {
		by = c.reads
	}
	if by.Equal(c.armed) {
		return nil
	}
	c.armed = by
	return c.Conn.SetWriteDeadline(by) //nolint:wrapcheck // it is that of the connection
}

// Write implements net.Conn.
func (c *handshakeConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	if c.writes.IsZero() && !c.reads.IsZero() {
		if least := time.Now().Add(leastWrite); least.After(c.armed) {
			c.armed = least
			_ = c.Conn.SetWriteDeadline(least) // the write tells if it has failed
		}
	}
	c.mu.Unlock()
	return c.Conn.Write(b) //nolint:wrapcheck // it is that of the connection
}

// share is what its client has of the room.
func (c *handshakeConn) share() room.Share { return c.of.room.Of(addressOf(c.RemoteAddr())) }

// free gives back what was taken.
func (c *handshakeConn) free() {
	if n := c.taken.Swap(0); n > 0 {
		c.share().Free(n)
	}
}

// Close implements net.Conn.
func (c *handshakeConn) Close() error {
	c.closed.Store(true)
	c.free()
	return c.Conn.Close()
}

// NetConn is the connection below.
func (c *handshakeConn) NetConn() net.Conn { return c.Conn }
