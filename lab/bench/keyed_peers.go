package bench

import (
	"net/http"
	"time"

	tollbooth "github.com/didip/tollbooth/v7/limiter"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

// The short names of the peers that limit many keys.
const (
	byThrottled = "throttled"
	byUlule     = "ulule"
	byHTTPRate  = "httprate"
	byTollbooth = "tollbooth"
)

// never is the interval of sweeps that are not to happen while something else is measured.
const never = 24 * time.Hour

// KeyedPeers are the libraries that Keyed is measured beside.
func KeyedPeers() []Peer {
	return []Peer{
		{
			byGoLimiter, "github.com/sethvargo/go-limiter",
			"memorystore.Store.Take. A map of pointers to buckets of 56 bytes under a lock that " +
				"readers share. Each bucket has a " +
				"mutex. Its goroutine sweeps all keys under the exclusive lock. InitialAlloc is left as it is.",
		},
		{
			byThrottled, "github.com/throttled/throttled/v2",
			"GCRARateLimiterCtx.RateLimitCtx over memstore.NewCtx(0), the fastest of its stores: a map " +
				"of pointers to one word " +
				"under a lock that readers share, from which no key is ever removed. With a bound it is an " +
				"LRU cache that forgets " +
				"the key used least recently, whatever it owes. A call fails after 10 lost swaps; here it " +
				"may lose any number.",
		},
		{
			byUlule, "github.com/ulule/limiter/v3",
			"limiter.Get over the memory store. A sync.Map of counters, each with a lock, and fixed " +
				"windows. The key is put " +
				"together with a prefix for each call, which is left empty here. A goroutine looks at all " +
				"keys for expired ones.",
		},
		{
			byHTTPRate, "github.com/go-chi/httprate",
			"RateLimiter.OnLimit(w, r, key) with its local counter, which is the call behind its " +
				"middleware once the key is " +
				"known; the names of the response headers are set empty, so that none is written. One lock " +
				"for all keys, two maps " +
				"from a hash of the key to a count, one for each of two windows. The 64 bit hash has a " +
				"seed that is known to all, " +
				"so that a client can choose keys that share a count.",
		},
		{
			byTollbooth, "github.com/didip/tollbooth/v7",
			"Limiter.LimitReached(key), which is the call behind its middleware once the key is known. " +
				"One lock for all keys and " +
				"another in the cache behind it, which is a map of elements of a list, each with a copy of " +
				"x/time/rate. Expired " +
				"keys are removed by inserting others, one by each, or by DeleteExpiredTokenBuckets, which " +
				"the program has to call.",
		},
		{
			byMutexMap, xtimeModule,
			"The usual code without a library: sync.Mutex, map[string]*rate.Limiter, and a loop under " +
				"the lock that deletes the " +
				"limiters that are full again.",
		},
		{
			byRWMutexMap, xtimeModule,
			"The same with sync.RWMutex: the exclusive lock only for new keys and for cleaning.",
		},
		{
			bySyncMap, xtimeModule,
			"The same with sync.Map, Load and then LoadOrStore. Cleaning locks out no caller.",
		},
	}
}

func keyedPeers() []keyedSubject {
	return []keyedSubject{
		keyedGoLimiter(), keyedThrottled(), keyedUlule(), keyedHTTPRate(), keyedTollbooth(),
		keyedMutexMap(), keyedRWMutexMap(), keyedSyncMap(),
	}
}

func keyedGoLimiter() keyedSubject {
	return keyedSubject{
		By: byGoLimiter, Call: "Store.Take(ctx, key)", Cleaning: "a sweep under the lock of all keys",
		New: func(o keyedOptions) keyedLimiter {
			c := memorystore.Config{Tokens: uint64(o.budget.burst), Interval: o.budget.refill(), SweepInterval: never}
			if o.sweep > 0 {
				c.SweepInterval, c.SweepMinTTL = o.sweep, o.idle
			}
			s, ctx := must(memorystore.New(&c)), waitingContext
			return keyedLimiter{
				ask: func(keys []string) (granted int) {
					for _, key := range keys {
						if _, _, _, ok, err := s.Take(ctx, key); ok && err == nil {
							granted++
						}
					}
					return granted
				},
				allow: func(key string) bool {
					_, _, _, ok, err := s.Take(ctx, key)
					return ok && err == nil
				},
				stop: func() { _ = s.Close(ctx) },
			}
		},
	}
}

func keyedThrottled() keyedSubject {
	return keyedSubject{
		By: byThrottled, Call: "RateLimitCtx(ctx, key, 1)", Cleaning: "no caller",
		New: func(o keyedOptions) keyedLimiter {
			keys := 0
			if o.bounded {
				keys = o.keys
			}
			l := must(throttled.NewGCRARateLimiterCtx(must(memstore.NewCtx(keys)), throttled.RateQuota{
				MaxRate: throttled.PerDuration(int(o.budget.permits), o.budget.period), MaxBurst: int(o.budget.burst) - 1,
			}))
			l.SetMaxCASAttemptsLimit(1 << 30)
			ctx := waitingContext
			take := func(key string, n int) bool {
				limited, _, err := l.RateLimitCtx(ctx, key, n)
				return !limited && err == nil
			}
			return keyedLimiter{
				ask: func(keys []string) (granted int) {
					for _, key := range keys {
						if limited, _, err := l.RateLimitCtx(ctx, key, 1); !limited && err == nil {
							granted++
						}
					}
					return granted
				},
				allow: func(key string) bool { return take(key, 1) },
				takeN: take,
			}
		},
	}
}

func keyedUlule() keyedSubject {
	return keyedSubject{
		By: byUlule, Call: "Limiter.Get(ctx, key)", Cleaning: "a sweep beside the callers",
		New: func(o keyedOptions) keyedLimiter {
			interval := never
			if o.sweep > 0 {
				interval = o.sweep
			}
			store := memory.NewStoreWithOptions(limiter.StoreOptions{CleanUpInterval: interval})
			l, ctx := limiter.New(store, limiter.Rate{Period: o.budget.refill(), Limit: o.budget.burst}), waitingContext
			return keyedLimiter{
				ask: func(keys []string) (granted int) {
					for _, key := range keys {
						if c, err := l.Get(ctx, key); !c.Reached && err == nil {
							granted++
						}
					}
					return granted
				},
				allow: func(key string) bool {
					c, err := l.Get(ctx, key)
					return !c.Reached && err == nil
				},
			}
		},
	}
}

func keyedHTTPRate() keyedSubject {
	return keyedSubject{
		By: byHTTPRate, Call: "RateLimiter.OnLimit(w, r, key)", Cleaning: "the second window begun, of all of one window",
		New: func(o keyedOptions) keyedLimiter {
			l := httprate.NewRateLimiter(int(o.budget.burst), o.budget.refill(),
				httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
			var w http.ResponseWriter // not used without headers
			r := new(http.Request)
			return keyedLimiter{
				ask: func(keys []string) (granted int) {
					for _, key := range keys {
						if !l.OnLimit(w, r, key) {
							granted++
						}
					}
					return granted
				},
				allow: func(key string) bool { return !l.OnLimit(w, r, key) },
			}
		},
	}
}

func keyedTollbooth() keyedSubject {
	return keyedSubject{
		By: byTollbooth, Call: "Limiter.LimitReached(key)", Cleaning: "DeleteExpiredTokenBuckets, under the lock of all keys",
		New: func(o keyedOptions) keyedLimiter {
			l := tollbooth.New(&tollbooth.ExpirableOptions{DefaultExpirationTTL: o.idle}).
				SetMax(o.budget.perSecond()).SetBurst(int(o.budget.burst))
			return keyedLimiter{
				ask: func(keys []string) (granted int) {
					for _, key := range keys {
						if !l.LimitReached(key) {
							granted++
						}
					}
					return granted
				},
				allow: func(key string) bool { return !l.LimitReached(key) },
				clean: l.DeleteExpiredTokenBuckets,
			}
		},
	}
}
