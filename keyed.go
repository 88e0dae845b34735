package weir

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/algo"
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
	// to make room, as they behave like new ones; no other key ever is. Default: 1,000,000.
	MaxKeys int
	// WhenFull is what a new key is told when MaxKeys are tracked and none can be forgotten. Default: Deny.
	WhenFull WhenFull
	// MaxDebt is how many permits commits may charge beyond those available: from 1 to 10^15, or NoDebt. Default:
	// Burst.
	MaxDebt int64
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

// Keyed is one token bucket for each key: addresses, users, tokens. All keys have the same rate and burst.
//
// Memory is bounded by MaxKeys, and an attacker who rotates keys cannot make the limiter forget anybody's state: only
// buckets that are full again are forgotten. Keys are spread over shards with a seeded hash; calls for different shards
// do not meet.
type Keyed[K comparable] struct {
	algorithm algo.TokenBucket
	policy    string
	maxDebt   int64
	maxKeys   int64
	whenFull  WhenFull
	clock     Clock
	seed      maphash.Seed
	keys      atomic.Int64
	untracked atomic.Int64
	closed    atomic.Bool
	shards    [64]keyedShard[K]
}

type keyedShard[K comparable] struct {
	mu               sync.Mutex
	states           map[K]algo.TokenBucketState
	granted, refused int64
	_                [24]byte
}

const (
	defaultMaxKeys = 1_000_000
	// tidyOnInsert is how many entries of the shard each new key looks at, to forget those that are full again. Two
	// would keep up with any rate of new keys; four catch up.
	tidyOnInsert = 4
	// tidyWhenFull is how many it looks at when there is no room.
	tidyWhenFull = 64
)

// NewKeyed answers a limiter without any key, or an error that names the option that cannot be used.
func NewKeyed[K comparable](o KeyedOptions) (*Keyed[K], error) {
	const of = "KeyedOptions"
	if err := o.Rate.Check(); err != nil {
		return nil, fmt.Errorf("weir: %s.Rate: %w", of, err)
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
		return nil, &OptionError{of + ".WhenFull", fmt.Sprint(o.WhenFull), "Deny or Admit"}
	}
	a, err := algo.NewTokenBucket(o.Rate.Permits, o.Rate.Period, o.Burst)
	if err != nil {
		return nil, optionError(of, err)
	}
	debt, err := maxDebt(of, o.MaxDebt, o.Burst)
	if err != nil {
		return nil, err
	}
	k := &Keyed[K]{
		algorithm: a, policy: o.Name, maxDebt: debt, maxKeys: int64(o.MaxKeys),
		whenFull: o.WhenFull, clock: o.Clock, seed: maphash.MakeSeed(),
	}
	for i := range k.shards {
		k.shards[i].states = make(map[K]algo.TokenBucketState)
	}
	return k, nil
}

func (k *Keyed[K]) now() int64 {
	if k.clock == nil {
		return processNow()
	}
	return k.clock.Now()
}

func (k *Keyed[K]) shard(key K) *keyedShard[K] {
	return &k.shards[maphash.Comparable(k.seed, key)%uint64(len(k.shards))]
}

// Allow takes one permit of key if it is available.
func (k *Keyed[K]) Allow(key K) bool { return k.TryAcquire(key, 1).Allowed }

// TryAcquire takes n permits of key if they are available. It never waits. See [Limiter] for n = 0, n above the burst,
// and negative n.
func (k *Keyed[K]) TryAcquire(key K, n int64) Decision {
	if n < 0 {
		return Decision{Reason: ReasonInvalid, Limit: k.algorithm.Limit(), RetryAfter: Never, Policy: k.policy}
	}
	if k.closed.Load() {
		return Decision{Reason: ReasonClosed, Limit: k.algorithm.Limit(), RetryAfter: Never, Policy: k.policy}
	}
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := k.now()
	state, known := s.states[key]
	next, r := k.algorithm.Take(state, now, n)
	d := k.decision(r)
	switch {
	case n == 0:
		return d
	case known:
		s.states[key] = next
	case r.Allowed && !k.insert(s, key, next, now):
		if k.whenFull == Admit {
			k.untracked.Add(1)
			break
		}
		// A slot is free at the latest when a bucket that is empty now is full again.
		d = k.decision(k.algorithm.Peek(state, now, n))
		d.Allowed, d.Reason, d.RetryAfter = false, ReasonTableFull, r.ResetAfter
	}
	if d.Allowed {
		s.granted++
	} else {
		s.refused++
	}
	return d
}

// insert tracks a new key; not ok if there is no room.
func (k *Keyed[K]) insert(s *keyedShard[K], key K, state algo.TokenBucketState, now int64) bool {
	look := tidyOnInsert
	if k.keys.Load() >= k.maxKeys {
		look = tidyWhenFull
	}
	for other, old := range s.states {
		if look--; look < 0 {
			break
		}
		if k.algorithm.Fresh(old, now) {
			delete(s.states, other)
			k.keys.Add(-1)
		}
	}
	if k.keys.Add(1) > k.maxKeys {
		k.keys.Add(-1)
		return false
	}
	s.states[key] = state
	return true
}

func (k *Keyed[K]) decision(r algo.Result) Decision {
	return Decision{
		Allowed: r.Allowed, Reason: reasonOf(r), Limit: k.algorithm.Limit(), Remaining: r.Remaining,
		RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter, Policy: k.policy,
	}
}

// Peek answers what TryAcquire would, and takes nothing. Remaining is what is left now.
func (k *Keyed[K]) Peek(key K, n int64) Decision {
	if n < 0 {
		return k.TryAcquire(key, n)
	}
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return k.decision(k.algorithm.Peek(s.states[key], k.now(), n))
}

// Refund gives key n permits back, at most until its bucket is full. An n below 1 is ignored.
func (k *Keyed[K]) Refund(key K, n int64) {
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if state, ok := s.states[key]; ok && n > 0 {
		s.states[key] = k.algorithm.Refund(state, k.now(), n)
	}
}

// Reset forgets key, whose bucket is then full.
func (k *Keyed[K]) Reset(key K) {
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.states[key]; ok {
		delete(s.states, key)
		k.keys.Add(-1)
	}
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
	st := KeyedStats{Keys: k.keys.Load(), MaxKeys: k.maxKeys, Untracked: k.untracked.Load()}
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		st.Granted += s.granted
		st.Refused += s.refused
		s.mu.Unlock()
	}
	return st
}

// Close refuses everybody who comes later, with ReasonClosed. The error is always nil.
func (k *Keyed[K]) Close() error {
	k.closed.Store(true)
	return nil
}
