package bench

import (
	"context"
	"errors"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"
)

// The short names of the peers that limit in Redis. Each is measured over both ways of its client to send commands.
const (
	byRedisRate = "redis_rate"
	pipelined   = ", pipelined"
)

// RedisPeers are the libraries that limits in Redis are measured beside.
func RedisPeers() []Peer {
	return []Peer{
		{
			byRedisRate, "github.com/go-redis/redis_rate/v10",
			"Limiter.Allow. A generic cell rate algorithm in floating point, one script for each decision, by the clock of the " +
				"server.",
		},
		{
			byThrottled, "github.com/throttled/throttled/v2",
			"GCRARateLimiterCtx.RateLimitCtx over goredisstore.v9. The decision is made by the program: it reads the clock of " +
				"the server and the key in one round trip, and writes the new state in another one, by a script that compares " +
				"it with what was read, which is sent in full each time. It tries again if another caller was faster. A call " +
				"fails after 10 attempts; here it may try any number of times (SetMaxCASAttemptsLimit), so that no call fails.",
		},
		{
			byUlule, "github.com/ulule/limiter/v3",
			"Limiter.Get over drivers/store/redis. A counter with an expiry, one script for each decision: a window of fixed " +
				"length that begins with the first request, so that up to twice the limit passes around its end. It is given " +
				"the burst as its limit, and the time in which that comes back as its window.",
		},
	}
}

// goredisModule is the client of all of them.
const goredisModule = "github.com/redis/go-redis/v9"

// goredisClient is a client of go-redis, which sends commands through a pool of connections or, pipelined, gathers those of all
// callers.
//
//nolint:ireturn // both ways have only that type in common
func goredisClient(address string, together bool) (client goredis.UniversalClient, end func() error, err error) {
	c := goredis.NewClient(&goredis.Options{Addr: address})
	if !together {
		return c, c.Close, nil
	}
	p, err := c.AutoPipeline()
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return p, func() error { return errors.Join(p.Close(), c.Close()) }, nil
}

// redisPeers are the peers, each over a pool and pipelined.
func redisPeers() (all []redisSubject) {
	type peer struct {
		by, call string
		limiter  func(ctx context.Context, client goredis.UniversalClient, l redisLoad) (redisDecide, error)
	}
	for _, p := range []peer{
		{byRedisRate, "Limiter.Allow(ctx, key, limit)", redisRate},
		{byUlule, "Limiter.Get(ctx, key)", redisUlule},
		{byThrottled, "RateLimitCtx(ctx, key, 1)", redisThrottled},
	} {
		for _, together := range []bool{false, true} {
			by := p.by
			if together {
				by += pipelined
			}
			all = append(all, redisSubject{
				By: by, Call: p.call, kind: redisPeer, together: together,
				open: func(ctx context.Context, address string, l redisLoad) (redisLimiter, error) {
					client, end, err := goredisClient(address, together)
					if err != nil {
						return redisLimiter{}, err
					}
					decide, err := p.limiter(ctx, client, l)
					if err != nil {
						return redisLimiter{}, errors.Join(err, end())
					}
					return redisLimiter{caller: func() redisDecide { return decide }, close: end}, nil
				},
			})
		}
	}
	return all
}

func redisRate(ctx context.Context, client goredis.UniversalClient, l redisLoad) (redisDecide, error) {
	r := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: int(l.budget.permits), Burst: int(l.budget.burst), Period: l.budget.period}
	return func(key string) (bool, error) {
		res, err := r.Allow(ctx, key, limit)
		return err == nil && res.Allowed == 1, err
	}, nil
}

func redisUlule(ctx context.Context, client goredis.UniversalClient, l redisLoad) (redisDecide, error) {
	s, err := ululestore.NewStore(client)
	if err != nil {
		return nil, err
	}
	r := limiter.New(s, limiter.Rate{Period: l.budget.refill(), Limit: l.budget.burst})
	return func(key string) (bool, error) {
		c, err := r.Get(ctx, key)
		return err == nil && !c.Reached, err
	}, nil
}

func redisThrottled(ctx context.Context, client goredis.UniversalClient, l redisLoad) (redisDecide, error) {
	s, err := throttledstore.NewCtx(client, "throttled:")
	if err != nil {
		return nil, err
	}
	r, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{
		MaxRate: throttled.PerDuration(int(l.budget.permits), l.budget.period), MaxBurst: int(l.budget.burst) - 1,
	})
	if err != nil {
		return nil, err
	}
	r.SetMaxCASAttemptsLimit(1 << 30)
	return func(key string) (bool, error) {
		limited, _, err := r.RateLimitCtx(ctx, key, 1)
		return err == nil && !limited, err
	}, nil
}
