package xtimerate

import (
	"context"
	"fmt"

	"github.com/weirhq/weir"
)

// NewAfter is what takes the place of [Before]: it has the method Allow, for at most a million clients in 50 MB.
func NewAfter() (*weir.Keyed[string], error) {
	return weir.NewKeyed[string](weir.KeyedOptions{Rate: weir.PerSecond(10), Burst: 20})
}

// CallerAfter is what takes the place of [CallerBefore].
type CallerAfter struct {
	Limiter weir.Limiter // weir.NewTokenBucket with Rate: weir.PerSecond(10), Burst: 5, QueueLimit: 1000
}

// Call waits for a permit and calls.
func (c *CallerAfter) Call(ctx context.Context, call func()) error {
	lease, err := c.Limiter.Acquire(ctx, 1)
	if err != nil {
		return err // ctx has ended
	}
	if d := lease.Decision(); !d.Allowed { // its deadline comes before the permit, or 1000 wait already
		return fmt.Errorf("not called: %v, come back in %v", d.Reason, d.RetryAfter)
	}
	defer lease.Release()
	call()
	return nil
}
