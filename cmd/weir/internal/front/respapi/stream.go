package respapi

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"
)

// open prepares the connection, over which a client may have to agree on keys first.
func (c *conn) open() error {
	if c.s.tls == nil {
		if !openSocket(c) {
			c.via = &stream{}
		}
		return nil
	}
	plain := c.nc
	if err := plain.SetDeadline(time.Now().Add(c.s.o.ReadTimeout)); err != nil {
		return err
	}
	if c.s.conns.Ending() {
		return net.ErrClosed
	}
	secure, err := c.s.tls.Handshake(c.s.ctx, plain)
	if err != nil {
		if header, ok := errors.AsType[tls.RecordHeaderError](err); ok && header.Conn != nil {
			// The client does not speak TLS at all. One that speaks RESP can read this.
			c.s.protocolErrors.Add(1)
			if _, failed := plain.Write([]byte("-ERR Protocol error: this port wants TLS\r\n")); failed == nil {
				c.linger()
			}
		}
		return err
	}
	if err := plain.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	c.nc = secure
	c.via = &stream{}
	c.asked = true // the handshake has made the stack grow
	return c.rearm(time.Time{})
}

// errLost says that the connection is lost, which was noted.
var errLost = errors.New("weir: the connection is lost")

// stream reads and writes a connection over TLS, or one that is no socket. To wait it needs one byte of its own.
type stream struct{ first [1]byte }

func (s *stream) receive(c *conn) error {
	if c.owes() && !c.flush() {
		return errLost
	}
	if err := c.arm(c.waitBy()); err != nil {
		return err
	}
	if c.idle() {
		c.rest()
		n, err := c.nc.Read(s.first[:])
		if n == 0 {
			return err
		}
		c.begin()
		c.in = append(c.in, s.first[0])
		if err := c.arm(c.waitBy()); err != nil {
			return err
		}
	}
	n, err := c.nc.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	if n > 0 {
		return nil
	}
	return err
}

// moment is how long it may take to see that nothing more has arrived.
const moment = 20 * time.Millisecond

func (*stream) arrived(c *conn) (int, error) {
	if err := c.nc.SetReadDeadline(time.Now().Add(moment)); err != nil {
		return 0, err
	}
	c.begin()
	n, err := c.nc.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

func (*stream) send(c *conn, b []byte) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.s.o.WriteTimeout)); err != nil {
		return err
	}
	if _, err := c.nc.Write(b); err != nil {
		return err
	}
	// TLS writes by itself while it reads. If that failed by a time that has passed, nothing could be written any more.
	return c.nc.SetWriteDeadline(time.Time{})
}
