package load

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// connection sends requests to the server and reads what it answers. Times are since the start of the run.
type connection struct {
	run   *run
	shard *shard
	keys  *keySource
	alarm waiter // of an open loop

	mu       sync.Mutex // of all until the next blank line
	codec    codec
	nc       net.Conn
	slots    []slot
	free     []uint32
	inFlight int
	progress time.Duration // when the server has last answered, or was asked after it owed nothing
	timedOut bool
	drained  bool // nothing more will be sent

	out     []byte
	due     []time.Duration // that were taken from the schedule, and have not been sent
	readyAt time.Duration   // when there was room again, or a write had ended that the server had held up

	in      []byte // what was read and is not a whole reply
	replies []reply
	samples []sample
	roomy   chan struct{} // tells the sender that there is room
}

// slot is a request in flight.
type slot struct{ intended, sent, late time.Duration }

// sample is a request that was answered.
type sample struct {
	slot

	outcome outcome
	fault   *fault
}

const readBuffer = 64 << 10

func newConnection(r *run, number int) *connection {
	c := &connection{
		run: r, shard: r.shards[number%len(r.shards)], keys: newKeySource(r.o, number), codec: r.newCodec(),
		slots: make([]slot, r.o.inFlight), roomy: make(chan struct{}, 1), in: make([]byte, 0, readBuffer),
	}
	return c
}

// open connects, and begins anew.
func (c *connection) open() error {
	nc, err := c.run.dial()
	if err != nil {
		return err
	}
	_ = nc.SetDeadline(time.Now().Add(c.run.o.timeout)) // if it cannot be set nothing else will work
	rest, err := c.codec.open(nc)
	if err != nil {
		_ = nc.Close() // why it is closed is known
		return err
	}
	_ = nc.SetDeadline(time.Time{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nc, c.inFlight, c.timedOut, c.progress = nc, 0, false, c.run.now()
	c.in = append(c.in[:0], rest...)
	c.free = c.free[:0]
	for i := range c.slots {
		c.free = append(c.free, uint32(i))
	}
	return nil
}

// room is how many requests can be sent.
func (c *connection) room() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(len(c.free), c.codec.room())
}

// send sends n requests: now, or those whose times are given. There must be room for them.
func (c *connection) send(n int, times []time.Duration) error {
	now := c.run.now()
	c.mu.Lock()
	if c.inFlight == 0 {
		c.progress = now
	}
	b := c.out[:0]
	for i := range n {
		s := slot{intended: now, sent: now}
		if times != nil {
			s.intended = times[i]
			s.late = max(0, now-max(s.intended, c.readyAt))
		}
		number := c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
		c.slots[number] = s
		b = c.codec.request(b, c.keys.next(), number)
	}
	c.inFlight += n
	c.out = b
	nc := c.nc
	c.mu.Unlock()
	_, err := nc.Write(b)
	return err
}

// receive waits for replies, and counts them.
func (c *connection) receive() error {
	if len(c.in) == cap(c.in) {
		c.in = append(c.in, make([]byte, cap(c.in))...)[:len(c.in)]
	}
	n, err := c.nc.Read(c.in[len(c.in):cap(c.in)])
	if n == 0 && err != nil {
		return err
	}
	now := c.run.now()
	c.in = c.in[:len(c.in)+n]
	c.mu.Lock()
	used, replies, err := c.codec.replies(c.in, c.replies[:0])
	c.samples = c.samples[:0]
	for i := range replies {
		r := &replies[i]
		c.samples = append(c.samples, sample{c.slots[r.slot], r.outcome, r.fault})
		c.free = append(c.free, r.slot)
	}
	c.inFlight -= len(replies)
	c.progress = now
	control := c.codec.control()
	c.mu.Unlock()
	c.replies = replies
	c.in = c.in[:copy(c.in, c.in[used:])]
	c.shard.record(c.samples, now, c.run.from)
	select {
	case c.roomy <- struct{}{}:
	default:
	}
	if control != nil {
		if _, failure := c.nc.Write(control); err == nil {
			err = failure
		}
	}
	return err
}

// abandon closes a connection that has failed, and counts what the server owed as errors. It returns how many those were.
func (c *connection) abandon(err error) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.nc.Close() // why it is closed is known
	kind, text := connectionKind(err), err.Error()
	switch {
	case c.timedOut:
		kind, text = "timeout", "no answer within --timeout"
	case errors.Is(err, io.EOF):
		text = "the server has closed the connection"
	}
	c.samples = c.samples[:0]
	isFree := make([]bool, len(c.slots))
	for _, number := range c.free {
		isFree[number] = true
	}
	for number, s := range c.slots {
		if !isFree[number] {
			c.samples = append(c.samples, sample{s, failed, &fault{kind, text}})
		}
	}
	owed := c.inFlight
	c.inFlight = 0
	c.shard.record(c.samples, c.run.now(), c.run.from)
	return owed
}

// expire ends a connection on which the server has owed an answer for too long.
func (c *connection) expire(now, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight > 0 && now-c.progress > timeout {
		c.timedOut = true
		_ = c.nc.SetDeadline(longAgo) // that of a closed connection cannot be set, nor need it
	}
}

var longAgo = time.Unix(1, 0)

// connectionKind is in a few words why a connection has ended.
func connectionKind(err error) string {
	var (
		protocol *protocolError
		gone     *goneError
	)
	switch {
	case errors.As(err, &protocol):
		return "protocol"
	case errors.Is(err, io.EOF) || errors.As(err, &gone):
		return "connection closed"
	case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		return "connection reset"
	default:
		return "connection failed"
	}
}
