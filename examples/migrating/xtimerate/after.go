package xtimerate

import (
	"context"

	"github.com/weirhq/weir"
)

// NewAfter is what takes the place of [Before]: it has the method Allow, for at most a million clients in 50 MB.
func NewAfter() (*weir.Keyed[string], error) {
	return weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), 20), weir.KeyedOptions{})
}

// CallerAfter is what takes the place of [CallerBefore].
type CallerAfter struct {
	Limiter *weir.Limiter // weir.New(weir.TokenBucket(weir.PerSecond(10), 5), weir.Options{QueueLimit: 1000})
}

// Call waits for a permit and calls.
func (c *CallerAfter) Call(ctx context.Context, call func()) error {
	if err := c.Limiter.Wait(ctx, 1); err != nil {
		return err // ctx has ended, its deadline comes before the permit, or 1000 wait already
	}
	call()
	return nil
}
