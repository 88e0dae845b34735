// Package resp speaks the protocol of Redis with one server: connections and logins.
package resp

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"time"

	"github.com/weirhq/weir/internal/respclient"
)

// ErrUnasked is the error for a reply to no command.
var ErrUnasked = errors.New("it sends what it was not asked for")

// Conn is a connection to a server, for one goroutine at a time. It keeps the order of commands and replies: those of a command
// whose reply did not come in time may be read later.
type Conn struct {
	conn net.Conn
	out  []byte
	in   []byte // what was read
	from int    // where in it begins what was not taken
	scan respclient.Scanner
	owed int       // commands whose replies have not been read
	used time.Time // when it was last about to be used
	err  error     // why it can no longer be used

	poller poller
	soon   bool // the reply is polled for
}

const (
	firstBuffer = 4 << 10
	// keptBuffer is how large a buffer may be that is kept for the next command or reply.
	keptBuffer = 64 << 10
)

func newConn(conn net.Conn) *Conn {
	c := &Conn{conn: conn, in: make([]byte, 0, firstBuffer), used: time.Now()}
	if min(runtime.GOMAXPROCS(0), runtime.NumCPU()) > 1 { // or the server could not run while a reply is polled for
		c.poller.of(conn)
	}
	return c
}

// Begin begins a command of so many arguments, its name included, which follow by Arg.
func (c *Conn) Begin(args int) {
	c.owed++
	c.out = respclient.AppendBegin(c.out, args)
}

// Arg adds an argument of a command.
func (c *Conn) Arg(text string) { c.out = respclient.AppendArg(c.out, text) }

// Command adds a command.
func (c *Conn) Command(args ...string) {
	c.owed++
	c.out = respclient.AppendCommand(c.out, args...)
}

// Send sends the commands that were added, and begins a time until which they are to be sent and their replies to be read.
// After an error they may have been received.
func (c *Conn) Send(until time.Time) error {
	if c.err == nil {
		c.err = c.conn.SetDeadline(until)
	}
	if c.err == nil {
		_, c.err = c.conn.Write(c.out)
	}
	if c.out = c.out[:0]; cap(c.out) > keptBuffer {
		c.out = nil
	}
	return c.err
}

// Wait sets another time until which replies are to be read.
func (c *Conn) Wait(until time.Time) { _ = c.conn.SetReadDeadline(until) }

// Owed is how many commands have been added whose replies have not been read.
func (c *Conn) Owed() int { return c.owed }

// ReceiveSoon is Receive for a caller that does nothing else meanwhile: a reply that may come within microseconds is polled for.
func (c *Conn) ReceiveSoon() (respclient.Reply, error) {
	c.soon = true
	r, err := c.Receive()
	c.soon = false
	return r, err
}

// Receive reads the reply to the first command whose reply has not been read. If it does not come in time, the error is a
// timeout, and it may be read later. After another error the connection can no longer be used.
func (c *Conn) Receive() (respclient.Reply, error) {
	for c.err == nil {
		r, n, err := c.scan.Next(c.in[c.from:])
		switch c.from += n; {
		case err != nil:
			c.err = err
		case n == 0:
			if err := c.read(); err != nil {
				return respclient.Reply{}, err
			}
		case r.Kind != respclient.Push:
			c.owed--
			if !c.unasked() {
				return r, nil
			}
		}
	}
	return respclient.Reply{}, c.err
}

// unasked reports whether there is a reply to no command, in which case the one before it may be wrong as well.
func (c *Conn) unasked() bool {
	if c.owed == 0 && c.from < len(c.in) && c.in[c.from] != '>' && c.in[c.from] != '|' {
		c.err = ErrUnasked
		return true
	}
	return false
}

// read reads more of a reply.
func (c *Conn) read() error {
	switch {
	case c.from == len(c.in):
		c.in, c.from = c.in[:0], 0
		if cap(c.in) > keptBuffer {
			c.in = make([]byte, 0, firstBuffer)
		}
	case len(c.in) < cap(c.in):
	case c.from > 0:
		c.in, c.from = c.in[:copy(c.in, c.in[c.from:])], 0
	default:
		c.in = append(make([]byte, 0, 2*cap(c.in)), c.in...)
	}
	n, err := c.next(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	if n > 0 {
		return nil
	}
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // of a connection itself
		return err
	}
	if err == nil || err == io.EOF { //nolint:errorlint // of a connection itself
		err = io.ErrUnexpectedEOF
	}
	c.err = err
	return err
}

// next reads what comes next, which it may poll for.
func (c *Conn) next(buf []byte) (int, error) {
	if c.soon {
		c.soon = false
		if n, done, err := c.poller.read(buf); done {
			return n, err
		}
	}
	return c.conn.Read(buf)
}

// Ended reports, to a caller that is about to use the connection, whether the server has ended it, or has sent what was not
// asked for, while it was not used.
func (c *Conn) Ended() bool {
	const recent = time.Millisecond
	if c.err != nil || c.unasked() {
		return true
	}
	now := time.Now()
	if now.Sub(c.used) >= recent {
		conn := c.conn
		if t, ok := conn.(*tls.Conn); ok {
			conn = t.NetConn()
		}
		if conn.SetReadDeadline(time.Time{}) != nil || readable(conn) {
			return true
		}
	}
	c.used = now
	return false
}

// Close ends the connection.
func (c *Conn) Close() { _ = c.conn.Close() }
