// Package redisrate moves from github.com/go-redis/redis_rate to weir.
package redisrate

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// Before is a limit that several processes share by github.com/go-redis/redis_rate.
type Before struct {
	client  *redis.Client
	limiter *redis_rate.Limiter
}

// NewBefore returns one that keeps its keys in a server of Redis.
func NewBefore(address string) *Before {
	client := redis.NewClient(&redis.Options{Addr: address})
	return &Before{client, redis_rate.NewLimiter(client)}
}

// Allow takes a permit of a client: 10 a second, 20 at once. It tells when to come back if there is none.
func (b *Before) Allow(ctx context.Context, client string) (ok bool, retryAfter time.Duration, err error) {
	result, err := b.limiter.Allow(ctx, client, redis_rate.Limit{Rate: 10, Period: time.Second, Burst: 20})
	if err != nil {
		return false, 0, err
	}
	return result.Allowed > 0, result.RetryAfter, nil
}

// Close ends the connections.
func (b *Before) Close() error { return b.client.Close() }
