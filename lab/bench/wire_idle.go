package bench

import (
	"context"
	"fmt"
)

// WireIdle is what connections cost a server over which nothing is asked.
type WireIdle struct {
	By          string `json:"by"`
	Connections int    `json:"connections"`
	// Opened is how many bytes of memory the server has for each of them, of all that it has more than before, and Asked that
	// after each was used once.
	Opened float64 `json:"bytes_opened"`
	Asked  float64 `json:"bytes_asked"`
}

// idleSubjects are the servers of RESP, one of Redis alone.
func idleSubjects() (some []wireSubject) {
	for _, s := range respSubjects() {
		if s.By != byGCRA {
			some = append(some, s)
		}
	}
	return some
}

// idle opens connections and leaves them alone, uses each once, and leaves them alone again.
func (f *wireFleet) idle(ctx context.Context, s wireSubject, connections int) (idle WireIdle, err error) {
	server, err := f.server(ctx, s)
	if err != nil {
		return idle, err
	}
	idle = WireIdle{By: s.By, Connections: connections}
	all := make([]*respClient, 0, connections)
	defer func() {
		for _, c := range all {
			c.close()
		}
	}()
	ping := appendCommand(nil, "PING")
	use := func(c *respClient) error {
		return c.send(ping, 1, func([]byte) error { return nil })
	}
	// What the first connections need is not the price of one.
	for range min(connections, 10) { //nolint:mnd // a few
		var c *respClient
		if c, err = dialRESP(ctx, s.address(server)); err != nil {
			return idle, err
		}
		err = use(c)
		c.close()
		if err != nil {
			return idle, err
		}
	}
	before, err := residentOf(server.pid())
	if err != nil {
		return idle, err
	}
	for len(all) < connections {
		if ctx.Err() != nil {
			return idle, ctx.Err()
		}
		var c *respClient
		if c, err = dialRESP(ctx, s.address(server)); err != nil {
			return idle, fmt.Errorf("connection %d of %d to %s: %w", len(all)+1, connections, s.By, err)
		}
		all = append(all, c)
	}
	// The kernel has accepted them; the server has when it has answered the last one, which comes last in its queue.
	if wrong := use(all[connections-1]); wrong != nil {
		return idle, wrong
	}
	each := func() (float64, error) {
		now, wrong := residentOf(server.pid())
		return float64(now-before) / float64(connections), wrong
	}
	if idle.Opened, err = each(); err != nil {
		return idle, err
	}
	for _, c := range all {
		if err = use(c); err != nil {
			return idle, fmt.Errorf("a connection to %s that was idle: %w", s.By, err)
		}
	}
	idle.Asked, err = each()
	return idle, err
}
