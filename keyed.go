package weir

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/table"
)

// KeyedOptions configure a [Keyed].
type KeyedOptions struct {
	// Name is the Policy of the decisions. Default: "".
	Name string
	// Rate is how fast the permits of each key come back. Required.
	Rate Rate
	// Burst is how many permits each key holds: from 1 to 10^15. Default: the permits of Rate.
	Burst int64
	// MaxKeys is how many keys are tracked at a time: from 1 to 2^31. Keys whose bucket is full again are forgotten
	// to make room, as they behave like new ones; no other key ever is. A new key that finds the table full looks at
	// some forty others, further on each time, for one that can be forgotten. Default: 1,000,000.
	MaxKeys int
	// WhenFull is what a new key is told when MaxKeys are tracked and it has found none that can be forgotten. Default:
	// Deny.
	WhenFull WhenFull
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock Clock
}

// WhenFull is what happens to a new key when a table holds as many keys as it may.
type WhenFull uint8

const (
	// Deny refuses new keys with ReasonTableFull, so that nobody gets past the limit by inventing keys.
	Deny WhenFull = iota
	// Admit grants new keys their permits without tracking them: they are not limited until there is room.
	Admit
)

// String is "deny" or "admit".
func (w WhenFull) String() string {
	switch w {
	case Deny:
		return "deny"
	case Admit:
		return "admit"
	}
	return fmt.Sprintf("WhenFull(%d)", uint8(w))
}

// Keyed is one token bucket for each key: addresses, users, tokens. All keys have the same rate and burst.
//
// Keys are not kept, only 112 bits of two seeded hashes of them, so a key of any length costs the same: 37 to 49 bytes,
// without a pointer for the collector to follow. See the package internal/table for the chance that two keys share a
// state: 1 in 10^20 for ten million keys.
//
// Memory is bounded by MaxKeys, and an attacker who rotates keys cannot make the limiter forget anybody's state: only
// buckets that are full again are forgotten, one by one as new keys need their places. There is no sweep that would
// stop callers.
type Keyed[K comparable] struct {
	algorithm algo.TokenBucket
	policy    string
	fill      time.Duration // in which an empty bucket is full again
	maxKeys   int64
	whenFull  WhenFull
	clock     *steadyClock
	seeds     [2]maphash.Seed
	states    *table.Table
	closed    atomic.Bool
	untracked atomic.Int64
	granted   tally
	refused   tally
}

// The state of a key is the time at which its bucket is full, in nanoseconds and parts of one.
const (
	fullAt = iota
	fullPart
	bucketWords
)

func bucketFullAt(state []uint64, _ uint16) int64 {
	at := int64(state[fullAt])
	if state[fullPart] > 0 {
		at++
	}
	return at
}

const (
	defaultMaxKeys = 1_000_000
	mostShards     = 64
	keysPerShard   = 1024
	linger         = int64(10 * time.Second)
)

// shardsFor is into how many shards a table is divided: a new key makes room in its own, so that one must hold some keys.
func shardsFor(maxKeys int) int {
	shards := 1
	for shards < mostShards && shards*keysPerShard < maxKeys {
		shards *= 2
	}
	return shards
}

// NewKeyed answers a limiter without any key, or an error that names the option that cannot be used.
func NewKeyed[K comparable](o KeyedOptions) (*Keyed[K], error) {
	const of = "KeyedOptions"
	if err := o.Rate.option(of + ".Rate"); err != nil {
		return nil, err
	}
	if o.Burst == 0 {
		o.Burst = o.Rate.Permits
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.MaxKeys < 1 || int64(o.MaxKeys) > 1<<31 {
		return nil, &OptionError{of + ".MaxKeys", fmt.Sprint(o.MaxKeys), "from 1 to 2147483648"}
	}
	if o.WhenFull > Admit {
		return nil, &OptionError{of + ".WhenFull", o.WhenFull.String(), "Deny or Admit"}
	}
	a, err := algo.NewTokenBucket(o.Rate.Permits, o.Rate.Period, o.Burst)
	if err != nil {
		return nil, optionError(of, err)
	}
	_, fill := bucketQuota(a)
	return &Keyed[K]{
		algorithm: a, fill: fill, policy: o.Name, maxKeys: int64(o.MaxKeys), whenFull: o.WhenFull,
		clock: steady(o.Clock), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		states: table.New(table.Options{
			Words: bucketWords, MaxKeys: int64(o.MaxKeys), Shards: shardsFor(o.MaxKeys), Linger: linger, FreshAt: bucketFullAt,
		}),
	}, nil
}

func (k *Keyed[K]) now() int64 {
	if k.clock == nil {
		return processNow()
	}
	return k.clock.now()
}

func (k *Keyed[K]) hash(key K) table.Hash {
	if s, ok := any(key).(string); ok {
		return table.NewHash(maphash.String(k.seeds[0], s), maphash.String(k.seeds[1], s))
	}
	return table.NewHash(maphash.Comparable(k.seeds[0], key), maphash.Comparable(k.seeds[1], key))
}

// bucketOf reads the state of a key; slot is nil for a key that is not tracked.
func (k *Keyed[K]) bucketOf(slot table.Slot, now int64) algo.TokenBucketState {
	if slot == nil || bucketFullAt(slot.State(), 0) <= now {
		return algo.TokenBucketState{Last: now}
	}
	ahead := int64(slot.State()[fullAt]) - now
	if ahead <= int64(k.fill) {
		return algo.TokenBucketState{Ahead: ahead, Part: int64(slot.State()[fullPart]), Last: now}
	}
	// No key lacks so much: the process clock stands elsewhere in a bubble of testing/synctest.
	empty := algo.TokenBucketState{Ahead: int64(k.fill), Last: now}
	keepBucket(slot, empty)
	return empty
}

func keepBucket(slot table.Slot, s algo.TokenBucketState) {
	slot.State()[fullAt], slot.State()[fullPart] = uint64(s.Last+s.Ahead), uint64(s.Part)
}

// Allow takes one permit of key if it is available. It is TryAcquire(key, 1) where the decision does not matter.
func (k *Keyed[K]) Allow(key K) bool {
	if k.closed.Load() {
		return k.TryAcquire(key, 1).Allowed
	}
	h := k.hash(key)
	shard := k.states.Lock(h)
	slot := shard.Find(h)
	if slot == nil {
		shard.Unlock()
		return k.TryAcquire(key, 1).Allowed
	}
	now := k.now()
	state := k.bucketOf(slot, now)
	allowed := k.algorithm.Grant(&state, now, 1)
	if allowed {
		keepBucket(slot, state)
	}
	shard.Unlock()
	k.count(allowed)
	return allowed
}

func (k *Keyed[K]) count(allowed bool) {
	if allowed {
		k.granted.add()
	} else {
		k.refused.add()
	}
}

// TryAcquire takes n permits of key if they are available. It never waits. See [Limiter] for n = 0, n above the burst,
// and negative n.
func (k *Keyed[K]) TryAcquire(key K, n int64) Decision {
	switch {
	case n < 0:
		return k.refusal(ReasonInvalid)
	case k.closed.Load():
		if n > 0 {
			k.refused.add()
		}
		return k.refusal(ReasonClosed)
	}
	h := k.hash(key)
	shard := k.states.Lock(h)
	now := k.now()
	slot := shard.Find(h)
	state, r := k.algorithm.Take(k.bucketOf(slot, now), now, n)
	d := k.decision(r)
	if n > 0 && r.Allowed {
		if slot == nil {
			slot = shard.Add(h, 0, now)
		}
		switch {
		case slot != nil:
			keepBucket(slot, state)
			shard.Due(h, bucketFullAt(slot.State(), 0))
		case k.whenFull == Admit:
			k.untracked.Add(1)
		default:
			d = k.refusal(ReasonTableFull)
			d.RetryAfter = k.fill // by then every key that is tracked now can be forgotten, if it is not used again
		}
	}
	shard.Unlock()
	if n > 0 {
		k.count(d.Allowed)
	}
	return d
}

func (k *Keyed[K]) refusal(reason Reason) Decision {
	return Decision{Reason: reason, Limit: k.algorithm.Limit(), RetryAfter: Never, Policy: k.policy}
}

func (k *Keyed[K]) decision(r algo.Result) Decision {
	return Decision{
		Allowed: r.Allowed, Reason: reasonOf(r), Limit: k.algorithm.Limit(), Remaining: r.Remaining,
		RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter, Policy: k.policy,
	}
}

// Peek answers what TryAcquire would, and takes nothing. Remaining is what is left now. It does not tell whether a new
// key would find room.
func (k *Keyed[K]) Peek(key K, n int64) Decision {
	switch {
	case n < 0:
		return k.refusal(ReasonInvalid)
	case k.closed.Load():
		return k.refusal(ReasonClosed)
	}
	h := k.hash(key)
	shard := k.states.Lock(h)
	defer shard.Unlock()
	now := k.now()
	return k.decision(k.algorithm.Peek(k.bucketOf(shard.Find(h), now), now, n))
}

// Refund gives key n permits back, at most until its bucket is full. An n below 1 is ignored.
func (k *Keyed[K]) Refund(key K, n int64) {
	h := k.hash(key)
	shard := k.states.Lock(h)
	defer shard.Unlock()
	if slot := shard.Find(h); slot != nil && n > 0 {
		now := k.now()
		keepBucket(slot, k.algorithm.Refund(k.bucketOf(slot, now), now, n))
		shard.Due(h, bucketFullAt(slot.State(), 0))
	}
}

// Reset forgets key, whose bucket is then full.
func (k *Keyed[K]) Reset(key K) {
	h := k.hash(key)
	shard := k.states.Lock(h)
	defer shard.Unlock()
	shard.Remove(h)
}

// KeyedStats are the counts of a [Keyed].
type KeyedStats struct {
	// Keys is how many keys are tracked, and MaxKeys how many may be.
	Keys, MaxKeys int64
	// Granted and Refused count the requests that were answered so far, probes and misuse left out.
	Granted, Refused int64
	// Untracked counts the requests that were granted because the table was full and WhenFull is Admit.
	Untracked int64
}

// Stats answers the counts of all keys together.
func (k *Keyed[K]) Stats() KeyedStats {
	return KeyedStats{
		Keys: k.states.Len(), MaxKeys: k.maxKeys, Untracked: k.untracked.Load(),
		Granted: k.granted.sum(), Refused: k.refused.sum(),
	}
}

// Close refuses everybody who comes later, with ReasonClosed. The error is always nil.
func (k *Keyed[K]) Close() error {
	k.closed.Store(true)
	return nil
}
