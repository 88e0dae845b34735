package respapi

import (
	"net"
	"testing"
	"time"
)

// timed has the deadline of its writes.
type timed struct {
	net.Conn

	by time.Time
}

func (c *timed) SetWriteDeadline(t time.Time) error {
	c.by = t
	return nil
}

func (*timed) Write(b []byte) (int, error) { return len(b), nil }

// TestNoDeadlineIsLeft: what TLS writes by itself while the server waits for a command, as for new keys, does not fail by the deadline
// of a reply that was sent long ago: no later reply could be sent.
func TestNoDeadlineIsLeft(t *testing.T) {
	nc := &timed{by: time.Now()}
	c := &conn{s: &Server{o: Options{WriteTimeout: time.Minute}}, nc: nc}
	if err := new(stream).send(c, []byte("+OK\r\n")); err != nil || !nc.by.IsZero() {
		t.Errorf("%v, until %v", err, nc.by)
	}
}
