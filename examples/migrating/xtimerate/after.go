package xtimerate

import (
	"context"

	"github.com/weirhq/weir"
)

// NewAfter is what takes the place of [Before]: it has the method Allow, for at most a million clients in 50 MB.
func NewAfter() (*weir.Keyed[string], error) {
	return weir.NewKeyed[string](weir.KeyedOptions{Rate: weir.PerSecond(10), Burst: 20})
}

// CallerAfter is what takes the place of [CallerBefore].
type CallerAfter struct {
	Limiter *weir.TokenBucket // weir.NewTokenBucket with Rate: weir.PerSecond(10), Burst: 5, QueueLimit: 1000
}

// Call waits for a permit and calls.
func (c *CallerAfter) Call(ctx context.Context, call func()) error {
	if err := c.Limiter.Wait(ctx, 1); err != nil {
		return err // ctx has ended, its deadline comes before the permit, or 1000 wait already
	}
	call()
	return nil
}
