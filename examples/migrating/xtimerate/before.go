// Package xtimerate moves from golang.org/x/time/rate to weir.
package xtimerate

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

// Before is what a server with a limit for each client looks like with golang.org/x/time/rate.
type Before struct {
	mu      sync.Mutex
	clients map[string]*rate.Limiter // one for every client that ever came
}

// NewBefore returns one that has seen no client yet.
func NewBefore() *Before { return &Before{clients: map[string]*rate.Limiter{}} }

// Allow takes a permit of a client: 10 a second, 20 at once.
func (b *Before) Allow(client string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.clients[client]
	if !ok {
		l = rate.NewLimiter(10, 20)
		b.clients[client] = l
	}
	return l.Allow()
}

// CallerBefore is a client that calls something at most so often, and waits for its turn.
type CallerBefore struct {
	Limiter *rate.Limiter // rate.NewLimiter(10, 5)
}

// Call waits for a permit and calls.
func (c *CallerBefore) Call(ctx context.Context, call func()) error {
	if err := c.Limiter.Wait(ctx); err != nil {
		return err // ctx has ended, or its deadline comes before the permit
	}
	call()
	return nil
}
