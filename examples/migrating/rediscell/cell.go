// Package rediscell moves from redis-cell, a module of Redis, to weir.
package rediscell

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Clients limits clients by a server that knows CL.THROTTLE: Redis with redis-cell, or weir.
type Clients struct{ server *redis.Client }

// New connects to a server.
func New(address string) *Clients {
	return &Clients{redis.NewClient(&redis.Options{Addr: address, Protocol: 2})} // with 3 WEIR.TAKE replies a map
}

// Allow takes a permit of a client: 10 a second, 20 at once.
func (c *Clients) Allow(ctx context.Context, client string) (ok bool, retryAfter time.Duration, err error) {
	reply, err := c.server.Do(ctx, "CL.THROTTLE", client, 19, 10, 1).Int64Slice()
	if err != nil {
		return false, 0, err
	}
	return reply[0] == 0, time.Duration(max(0, reply[3])) * time.Second, nil
}

// Take takes a permit of a client from the policy "clients" of weir, which has the limit.
func (c *Clients) Take(ctx context.Context, client string) (ok bool, retryAfter time.Duration, err error) {
	reply, err := c.server.Do(ctx, "WEIR.TAKE", "clients", client).Slice()
	if err != nil {
		return false, 0, err
	}
	refused, known := reply[0].(int64)
	wait, _ := reply[3].(int64)
	return known && refused == 0, time.Duration(max(0, wait)) * time.Millisecond, nil
}

// Close ends the connections.
func (c *Clients) Close() error { return c.server.Close() }
