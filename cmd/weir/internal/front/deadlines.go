package front

import (
	"errors"
	"math"
	"net"
	"os"
	"sync"
	"time"
)

// deadlineListener is a listener whose connections are a [deadlineConn].
type deadlineListener struct{ net.Listener }

// Accept implements net.Listener.
func (l deadlineListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newDeadlineConn(c), nil
}

// deadlineConn is a connection whose deadlines cost little. net/http sets eight for each request, and nearly all of them are
// replaced by a later one before anything waits for them. So a deadline is only noted. It is handed to the connection below when
// a call would wait for longer than it, and what ends too early by one that was replaced goes on. Each call ends at the very time
// at which it would end on the connection below. Deadlines must have a monotonic reading, or be before the connection was made.
type deadlineConn struct {
	net.Conn

	reads, writes deadline
}

func newDeadlineConn(c net.Conn) *deadlineConn {
	begun := time.Now()
	return &deadlineConn{
		Conn:   c,
		reads:  deadline{begun: begun, set: c.SetReadDeadline, wanted: never, armed: never},
		writes: deadline{begun: begun, set: c.SetWriteDeadline, wanted: never, armed: never},
	}
}

// deadline is that of one direction. Its times are nanoseconds since the connection was made: all below 0 are past.
type deadline struct {
	begun time.Time
	set   func(time.Time) error // of the connection below

	mu     sync.Mutex
	wanted int64 // what was set last
	armed  int64 // what the connection below has
	calls  int   // how many are going on
}

// never is when a call ends that has no deadline.
const never = math.MaxInt64

// Read implements net.Conn.
func (c *deadlineConn) Read(b []byte) (int, error) {
	if !c.reads.begin() {
		return 0, os.ErrDeadlineExceeded
	}
	defer c.reads.end()
	for {
		n, err := c.Conn.Read(b)
		if n > 0 || !c.reads.early(err) {
			return n, err //nolint:wrapcheck // it is that of the connection
		}
	}
}

// Write implements net.Conn.
func (c *deadlineConn) Write(b []byte) (int, error) {
	if !c.writes.begin() {
		return 0, os.ErrDeadlineExceeded
	}
	defer c.writes.end()
	for written := 0; ; {
		n, err := c.Conn.Write(b[written:])
		if written += n; !c.writes.early(err) {
			return written, err //nolint:wrapcheck // it is that of the connection
		}
	}
}

// SetDeadline implements net.Conn.
func (c *deadlineConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn. It does not tell whether the connection is closed.
func (c *deadlineConn) SetReadDeadline(t time.Time) error { return c.reads.want(t) }

// SetWriteDeadline implements net.Conn. It does not tell whether the connection is closed.
func (c *deadlineConn) SetWriteDeadline(t time.Time) error { return c.writes.want(t) }

// want notes a deadline. A call that is going on, and would wait for longer, gets it at once.
func (d *deadline) want(t time.Time) error {
	wanted := int64(never)
	if !t.IsZero() {
		wanted = int64(t.Sub(d.begun))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = wanted
	if d.calls > 0 && wanted < d.armed {
		return d.arm()
	}
	return nil
}

// begin begins a call, which would not wait for longer than is wanted. It is false if there is nothing to wait for.
func (d *deadline) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wanted < 0 {
		return false
	}
	if d.wanted < d.armed || d.armed < 0 {
		_ = d.arm() // the call has the same error
	}
	d.calls++
	return true
}

// end ends a call.
func (d *deadline) end() {
	d.mu.Lock()
	d.calls--
	d.mu.Unlock()
}

// early reports whether a call has ended by a deadline that was replaced, so that it has to go on.
func (d *deadline) early(err error) bool {
	if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wanted <= int64(time.Since(d.begun)) {
		return false
	}
	return d.arm() == nil
}

// arm hands what is wanted to the connection below. d.mu is held.
func (d *deadline) arm() error {
	d.armed = d.wanted
	if d.wanted == never {
		return d.set(time.Time{})
	}
	return d.set(d.begun.Add(time.Duration(d.wanted)))
}
