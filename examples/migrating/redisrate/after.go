package redisrate

import (
	"context"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/redis"
)

// After is what takes the place of [Before].
type After struct{ store *redis.Store }

// NewAfter returns one that keeps its keys in a server of Redis, from 6.2 on, or Valkey.
func NewAfter(address string) (*After, error) {
	s, err := redis.Open(redis.Options{URL: "redis://" + address})
	if err != nil {
		return nil, err
	}
	return &After{s}, nil
}

// Allow takes a permit of a client: 10 a second, 20 at once. It tells when to come back if there is none.
func (a *After) Allow(ctx context.Context, client string) (ok bool, retryAfter time.Duration, err error) {
	charge := store.Charge{
		Policy: "clients", Key: client, N: 1,
		Limit: weir.TokenBucket(weir.PerSecond(10), 20),
	}
	var decision [1]weir.Decision
	if err := store.Take(ctx, a.store, []store.Charge{charge}, decision[:]); err != nil {
		return false, 0, err
	}
	return decision[0].Allowed, decision[0].RetryAfter, nil
}

// Close ends the connections.
func (a *After) Close() error { return a.store.Close() }
