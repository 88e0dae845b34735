package load

import (
	"errors"
	"time"
)

// work sends requests until the run is over. A connection that the server ends is made again; if that fails for as long as
// --timeout says, the error is answered.
func (c *connection) work() error {
	loop := c.closedLoop
	if c.run.schedule != nil {
		c.alarm = c.run.newAlarm()
		defer c.alarm.close()
		loop = c.openLoop
	}
	for {
		err := loop()
		if err == nil {
			_ = c.nc.Close() // nothing is owed
			c.run.skip(c.due)
			return nil
		}
		c.abandon(err)
		if err = c.reopen(); err != nil || c.run.isOver() {
			_ = c.nc.Close() // it may be a new one, on which nothing was asked
			c.run.skip(c.due)
			return err
		}
		c.run.reconnects.Add(1)
	}
}

// pause is between two attempts to connect.
const pause = 50 * time.Millisecond

// reopen connects again. If the run is over before that was possible, the server has gone away, too.
func (c *connection) reopen() (err error) {
	for until := c.run.now() + c.run.o.timeout; ; {
		if c.run.isOver() {
			return err
		}
		if err = c.open(); err == nil || c.run.now() > until {
			return err
		}
		select {
		case <-time.After(pause):
		case <-c.run.over:
		}
	}
}

// closedLoop sends a request when another one was answered. With batches it waits for the answers to all, as redis-benchmark
// does.
func (c *connection) closedLoop() error {
	for ended := false; ; {
		room := 0
		if !ended && (!c.run.batches || c.inFlight == 0) {
			room = c.room()
		}
		if room > 0 {
			n := c.run.claim(room)
			ended = n == 0
			if n > 0 {
				if err := c.send(n, nil); err != nil {
					return err
				}
			}
		}
		if ended && c.inFlight == 0 {
			return nil
		}
		if err := c.receive(); err != nil {
			return err
		}
	}
}

// openLoop sends requests when they are due, and reads answers meanwhile.
func (c *connection) openLoop() error {
	broken := make(chan struct{})
	var failure error
	go func() {
		defer close(broken)
		failure = c.readAll()
	}()
	sent := c.sendDue(broken)
	c.mu.Lock()
	c.drained = sent == nil
	if sent != nil || c.inFlight == 0 {
		_ = c.nc.SetReadDeadline(longAgo) // it ends the reader, if nothing else has
	}
	c.mu.Unlock()
	<-broken
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drained && c.inFlight == 0 {
		return nil
	}
	c.drained = false
	if failure != nil && !errors.Is(failure, errBroken) && (sent == nil || errors.Is(sent, errBroken)) {
		return failure
	}
	return sent
}

// readAll reads answers until there are no more, or the connection fails.
func (c *connection) readAll() error {
	for {
		if err := c.receive(); err != nil {
			return err
		}
		c.mu.Lock()
		done := c.drained && c.inFlight == 0
		c.mu.Unlock()
		if done {
			return nil
		}
	}
}

// errBroken is about a connection of which the other half tells why it has failed.
var errBroken = errors.New("weir: the connection has failed")

const (
	mostDue = 1024
	// longestWait is after how much time of waiting for the next request a sender looks whether the run is over.
	longestWait = 20 * time.Millisecond
	// together is how much time of a schedule a connection sends at once, if requests would be due on it more often: a program
	// that sleeps between any two of 100,000 a second measures itself. What is sent late for that counts as late.
	together = 100 * time.Microsecond
	// heldUp is how long a write takes that waits for the server.
	heldUp = time.Millisecond
)

// sendDue sends what is due until there is no more.
func (c *connection) sendDue(broken <-chan struct{}) error {
	var shortestWait time.Duration
	if float64(c.run.o.connections)/float64(c.run.o.rate) < together.Seconds() {
		shortestWait = together
	}
	for {
		room := min(c.room(), mostDue)
		if room == 0 {
			select {
			case <-c.roomy:
			case <-broken:
				return errBroken
			case <-c.run.over:
				return nil
			}
			c.readyAt = c.run.now()
			continue
		}
		c.due = c.run.schedule.take(c.run.now(), room, c.due)
		if len(c.due) == 0 {
			return nil
		}
		for wait := c.due[0] - c.run.now(); wait > 0; wait = c.due[0] - c.run.now() {
			if shortestWait < c.run.end-c.due[0] { // what is due before the end is sent before it
				wait = max(wait, shortestWait)
			}
			c.alarm.wait(min(wait, longestWait))
			select {
			case <-broken:
				return errBroken
			case <-c.run.over:
				return nil
			default:
			}
		}
		if c.run.isOver() {
			return nil
		}
		c.due = c.run.schedule.take(c.run.now(), room, c.due)
		n := min(len(c.due), room)
		start := c.run.now()
		err := c.send(n, c.due[:n])
		if end := c.run.now(); end-start > heldUp {
			c.readyAt = end
		}
		c.due = c.due[:copy(c.due, c.due[n:])]
		if err != nil {
			return err
		}
	}
}
