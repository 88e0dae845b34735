package bench

import (
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// keyedLimiter is a limiter of many keys.
type keyedLimiter struct {
	// ask asks for one permit of each key, one after the other, and returns how many it took. Several goroutines may call it at
	// once. It names its limiter's type, so that the compiler sees the same call as it would in a program.
	ask func(keys []string) (granted int)
	// allow asks for one permit of one key.
	allow func(key string) bool
	// takeN asks for n permits of one key at once, where the limiter can.
	takeN func(key string, n int) bool
	// clean removes the keys that have expired, for those limiters that leave it to their user to call it.
	clean func()
	// tracked is how many keys are kept, where the limiter tells.
	tracked func() int
	// stop ends what the limiter has started.
	stop func()
}

// keyedOptions are what a limiter of many keys is made for.
type keyedOptions struct {
	budget budget
	// keys is how many keys there will be. It bounds those limiters that must have a bound.
	keys int
	// bounded tells to bound also those that need not have one.
	bounded bool
	// idle is after which time without a request a key may be removed, and sweep how often keys are removed that may be; 0
	// leaves both as they are.
	idle, sweep time.Duration
}

// keyedSubject is one of those that keyed measurements compare.
type keyedSubject struct {
	By, Call string
	New      func(o keyedOptions) keyedLimiter
	// Cleaning is what removes keys, and when.
	Cleaning string
	// NoLimit tells that it is a floor, which limits nothing.
	NoLimit bool
}

// drainedSlowly has a burst that outlasts any measurement and regains one permit in 30 seconds, so that no key of a
// measurement is full again, and may be forgotten, before it ends.
var drainedSlowly = budget{10_000_000, 10_000_000 * 30 * time.Second, 10_000_000}

// keyedWeir is what all others are compared with.
func keyedWeir() keyedSubject {
	return keyedSubject{
		By: byWeir, Call: "Keyed[string].Allow(key)", Cleaning: "each new key, of one or a segment of old ones",
		New: func(o keyedOptions) keyedLimiter {
			k := must(weir.NewKeyed[string](o.budget.limit(), weir.KeyedOptions{
				MaxKeys: o.keys,
			}))
			return keyedLimiter{
				ask: func(keys []string) (granted int) {
					for _, key := range keys {
						if k.Allow(key) {
							granted++
						}
					}
					return granted
				},
				allow:   func(key string) bool { return k.Allow(key) },
				takeN:   func(key string, n int) bool { return k.Take(key, int64(n)).Allowed },
				tracked: func() int { return int(k.Stats().Keys) },
				stop:    func() { _ = k.Close() },
			}
		},
	}
}

const batchCall = "keyset.Batch: Add(plan, key, 1, &decision) of each key; Take()"

// keysTogether is memory that is used again for the keys of a batch.
type keysTogether struct {
	batch     keyset.Batch
	decisions [keyedBatch]weir.Decision
}

// keyedPlanned is weir as servers have it, whose clients bring their limits: a batch is of plans.
func keyedPlanned() keyedSubject {
	return keyedSubject{By: byWeir, Call: batchCall, New: func(o keyedOptions) keyedLimiter {
		limit := o.budget.limit()
		k := must(weir.NewKeyedFunc(limit, weir.KeyedOptions{MaxKeys: o.keys}, func(string) weir.Limit { return limit }))
		ask := askBatches(must(keyset.Of(k).Plan(limit)))
		return keyedLimiter{ask: ask, allow: func(key string) bool { return k.Allow(key) }, stop: func() { _ = k.Close() }}
	}}
}

// askBatches asks for several keys at once.
func askBatches(plan *keyset.Plan) func(keys []string) int {
	hands := sync.Pool{New: func() any { return new(keysTogether) }}
	return func(keys []string) (granted int) {
		h := hands.Get().(*keysTogether) // there is nothing else in it
		defer hands.Put(h)
		for some := range slices.Chunk(keys, keyedBatch) {
			for i, key := range some {
				text := unsafe.Slice(unsafe.StringData(key), len(key)) //nolint:gosec // it is only read
				h.batch.Add(plan, text, 1, &h.decisions[i])
			}
			h.batch.Take()
			for i := range some {
				if h.decisions[i].Allowed {
					granted++
				}
			}
		}
		return granted
	}
}

func keyedTable() keyedSubject {
	return keyedSubject{
		By: byTable, Call: tableCall, NoLimit: true, Cleaning: "no caller",
		New: func(o keyedOptions) keyedLimiter { return newBareTable(o.keys).limiter() },
	}
}

// keyedSubjects are weir, the floor and the peers.
func keyedSubjects() []keyedSubject {
	return append([]keyedSubject{keyedWeir(), keyedTable()}, keyedPeers()...)
}
