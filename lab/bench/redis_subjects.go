package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/redis"
)

// redisDecide decides on one permit of a key.
type redisDecide func(key string) (granted bool, err error)

// redisLimiter is a limiter that shares its limits through Redis.
type redisLimiter struct {
	// caller makes what one goroutine asks.
	caller func() redisDecide
	close  func() error
}

// redisSubject is one of those that the rows of Redis compare.
type redisSubject struct {
	By, Call string
	kind     redisKind
	// local tells that decisions are made in memory, most of them.
	local bool
	// together tells that the client of a peer gathers the commands of all callers.
	together bool
	open     func(ctx context.Context, address string, l redisLoad) (redisLimiter, error)
}

// commands is how many commands Redis runs at least for decisions that are not made in memory: one for each, except where weir
// has 32 of a key decided by one script.
func (s redisSubject) commands(decided int64) float64 {
	if s.kind == redisOurs {
		return float64(decided) / 32
	}
	return float64(decided)
}

// redisKind says how a subject is compared.
type redisKind string

const (
	redisOurs  redisKind = "weir"
	redisPeer  redisKind = "peer"
	redisFloor redisKind = "floor"
)

// The names of weir's ways.
const (
	byCoherent   = "weir coherent"
	byLeased     = "weir leased"
	byOptimistic = "weir optimistic"
	byGCRA       = "GCRA script"
)

// redisTimeout is how long a call may take: what go-redis waits for an answer by default.
const redisTimeout = 5 * time.Second

// benchPolicy is the name of the policy whose limits are measured, in Redis and durable.
const benchPolicy = "bench"

func redisSubjects() []redisSubject {
	return append([]redisSubject{
		redisWeir(byCoherent, store.ConsistencyCoherent), redisWeir(byLeased, store.ConsistencyLeased),
		redisWeir(byOptimistic, store.ConsistencyOptimistic), redisGCRA(),
	}, redisPeers()...)
}

// redisWeir is a fleet over a store in Redis, as programs use it.
func redisWeir(by string, c store.Consistency) redisSubject {
	return redisSubject{
		By: by, Call: "store.Fleet.Take(ctx, charges, decisions)", kind: redisOurs, local: c != store.ConsistencyCoherent,
		open: func(ctx context.Context, address string, l redisLoad) (redisLimiter, error) {
			s, err := redis.Open(redis.Options{Addresses: []string{address}, Timeout: redisTimeout})
			if err != nil {
				return redisLimiter{}, err
			}
			f, err := store.NewFleet(s, store.FleetOptions{})
			if err != nil {
				return redisLimiter{}, err
			}
			limit := l.budget.ruleLimit()
			return redisLimiter{
				caller: func() redisDecide {
					charges := []store.Charge{{Policy: benchPolicy, Limit: limit, N: 1, Consistency: c}}
					decisions := make([]weir.Decision, 1)
					return func(key string) (bool, error) {
						charges[0].Key = key
						if err := store.Take(ctx, f, charges, decisions); err != nil {
							return false, err
						}
						d := &decisions[0]
						if !d.Allowed && d.Reason != weir.ReasonLimited {
							return false, fmt.Errorf("refused for another reason: %v", d.Reason)
						}
						return d.Allowed, nil
					}
				},
				close: f.Close,
			}, nil
		},
	}
}

// gcraScript is the least that a limit can be in Redis: a generic cell rate algorithm in floating point with the server's clock,
// and nothing else. Its arguments are the time of a permit and that of the burst in microseconds, and that of the burst in
// milliseconds.
const gcraScript = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1])) or now
if tat < now then tat = now end
local next = tat + ARGV[1]
if next - now > ARGV[2] * 1 then return 0 end
redis.call('SET', KEYS[1], next, 'PX', ARGV[3])
return 1`

// redisGCRA is the floor: the script alone, sent by a client that pipelines.
func redisGCRA() redisSubject {
	return redisSubject{
		By: byGCRA, Call: "rueidis.Lua.Exec(ctx, client, keys, args)", kind: redisFloor,
		open: func(ctx context.Context, address string, l redisLoad) (redisLimiter, error) {
			client, err := rueidis.NewClient(rueidis.ClientOption{
				InitAddress: []string{address}, DisableCache: true, DisableRetry: true, ConnWriteTimeout: redisTimeout,
			})
			if err != nil {
				return redisLimiter{}, err
			}
			full := l.budget.refill()
			script, args := rueidis.NewLuaScript(gcraScript), []string{
				strconv.FormatInt(l.budget.period.Microseconds()/l.budget.permits, 10),
				strconv.FormatInt(full.Microseconds(), 10), strconv.FormatInt(full.Milliseconds()+1, 10),
			}
			return redisLimiter{
				caller: func() redisDecide {
					return func(key string) (bool, error) {
						n, err := script.Exec(ctx, client, []string{key}, args).AsInt64()
						return n == 1, err
					}
				},
				close: func() error { client.Close(); return nil },
			}, nil
		},
	}
}
