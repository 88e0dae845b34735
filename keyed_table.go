package weir

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/table"
	"github.com/weirhq/weir/internal/tally"
)

// keyed is a Keyed without its keys: it knows their hashes only.
type keyed struct {
	policy    string
	base      *terms // the limit of those that have no other
	plans     plans
	clock     *clock.Steady
	origin    int64
	states    *table.Table
	id        uint64 // orders the locks of several
	bounds    atomic.Pointer[KeyedOptions]
	bounding  sync.Mutex                // while the bounds are changed
	highest   atomic.Int64              // the most that MaxKeys has been
	busy      []map[table.Hash]*keyGate // of each shard, under its lock: the keys whose state is in a gate
	overrides atomic.Int64
	moves     moves
	resets    resets
	fastest   atomic.Pointer[terms] // of all limits that there have ever been
	mixed     atomic.Bool           // whether there have been windows of several lengths
	closed    atomic.Bool
	returned  atomic.Int64 // what the Returned of new buckets begins with: no less than that of any that was forgotten
	mostDebt  atomic.Int64 // the largest debt, in permits, that any limit has allowed: it stays owed when the limit changes

	granted, refused    tally.Tally
	untracked, forgiven atomic.Int64
}

const (
	defaultMaxKeys = 1_000_000
	mostShards     = 256
	keysPerShard   = 1024
	linger         = int64(10 * time.Second)
)

// shardsFor is into how many shards a table is divided.
func shardsFor(maxKeys int) int {
	shards := 1
	for shards < mostShards && shards*keysPerShard < maxKeys {
		shards *= 2
	}
	return shards
}

func (k *keyed) init(limit Limit, o KeyedOptions, chosen bool) error {
	const of = "KeyedOptions"
	if err := o.checkBounds(of); err != nil {
		return err
	}
	k.policy, k.id = o.Name, limiterIDs.Add(1)
	k.bounds.Store(&o)
	k.highest.Store(int64(o.MaxKeys))
	k.clock = steady(o.Clock)
	k.origin = k.now()
	var err error
	// Where limits differ, a bucket needs the words for any rate; and a clock that was given may show any time.
	if k.base, err = k.compile("Limit", limit, !chosen && o.Clock == nil); err != nil {
		return err
	}
	if chosen {
		k.plans.init(k)
	}
	shards := shardsFor(o.MaxKeys)
	k.busy = make([]map[table.Hash]*keyGate, shards)
	k.states = table.New(table.Options{
		Words: k.base.law.Words(), MaxKeys: int64(o.MaxKeys), Shards: shards, Linger: linger,
		FreshAt: k.freshAt, Forgotten: k.forgotten,
	})
	return nil
}

// The tag of a key says which terms its state is held to, or that the state is in a gate.
const (
	baseTag   = 0
	raisedTag = math.MaxUint16
)

func (k *keyed) termsWith(tag uint16) *terms {
	if tag == baseTag {
		return k.base
	}
	return k.plans.byTag[tag>>pageBits].Load()[tag%(1<<pageBits)].Load()
}

func (k *keyed) freshAt(state []uint64, tag uint16) int64 {
	if tag == raisedTag {
		return table.NotByItself
	}
	return k.termsWith(tag).law.FreshAt(state)
}

// forgotten keeps what must outlive the state of a key: a Mark of it is worth nothing in the state that comes after.
func (k *keyed) forgotten(state []uint64, tag uint16) {
	t := k.termsWith(tag)
	if k.base.limit.algorithm == AlgorithmTokenBucket {
		returned := int64(state[len(state)-1])
		for {
			old := k.returned.Load()
			if returned-old <= 0 || k.returned.CompareAndSwap(old, returned) {
				break
			}
		}
	}
	t.leave()
}

func (k *keyed) now() int64 { return k.clock.Now() }

func (k *keyed) count(granted bool) {
	if granted {
		k.granted.Add()
	} else {
		k.refused.Add()
	}
}

// compile checks a limit for keys.
func (k *keyed) compile(of string, l Limit, narrow bool) (*terms, error) {
	t, err := l.compile(of, k.origin, narrow, k.clock != nil)
	if err == nil && l.algorithm == AlgorithmTokenBucket {
		debt := k.debt(t)
		k.raiseMostDebt(debt)
		t.most = t.lacks(debt)
	}
	if err == nil && l.algorithm != AlgorithmConcurrency {
		k.learn(t)
	}
	return t, err
}

func (k *keyed) raiseMostDebt(debt int64) {
	for old := k.mostDebt.Load(); old < debt && !k.mostDebt.CompareAndSwap(old, debt); {
		old = k.mostDebt.Load()
	}
}

// lacks is how many nanoseconds a bucket lacks that owes debt permits.
func (t *terms) lacks(debt int64) int64 {
	owed := t.bucket.Wait(algo.TokenBucketState{}, 0, t.permits+debt)
	return int64(t.refill + min(owed, algo.MaxFill) + 1)
}

// debt is the largest debt of a key with this limit.
func (k *keyed) debt(t *terms) int64 {
	most, _ := maxDebt("", k.bounds.Load().MaxDebt, t.permits)
	return most
}

// invalid is the decision on a call that cannot be decided.
func (k *keyed) invalid() Decision {
	return Decision{Reason: ReasonInvalid, Limit: k.base.permits, RetryAfter: Never, Policy: k.policy}
}

// fresh is what the algorithm says of a key that has never been seen. More than 0 permits are not taken.
func (t *terms) fresh(n int64) algo.Result {
	r := algo.Result{Allowed: n <= t.permits, Remaining: t.permits}
	if !r.Allowed {
		r.RetryAfter = Never
	}
	return r
}

// returns reports whether permits come back on release, not with time.
func (k *keyed) returns() bool { return k.base.limit.algorithm == AlgorithmConcurrency }

// mayWait reports whether a caller may wait in a queue that does not exist yet: ReasonLimited if it may, otherwise why not.
func (k *keyed) mayWait(ctx context.Context, retryAfter time.Duration, n int64) Reason {
	if n > k.bounds.Load().QueueLimit {
		return ReasonQueueFull
	}
	if until, ok := ctx.Deadline(); ok && k.clock == nil && retryAfter > time.Until(until) {
		return ReasonDeadline
	}
	return ReasonLimited
}

// forgive counts permits that were not charged, up to the largest int64.
func (k *keyed) forgive(n int64) {
	for n > 0 {
		old := k.forgiven.Load()
		if k.forgiven.CompareAndSwap(old, old+min(n, math.MaxInt64-old)) {
			return
		}
	}
}

// shut implements Keyed.Close.
func (k *keyed) shut() {
	if k.closed.Swap(true) {
		return
	}
	for _, g := range k.gates() {
		g.lock()
		if g.normal != nil {
			g.end()
		}
		g.unlock()
		_ = g.Close()
	}
}

// gates are the gates of all keys that have one.
func (k *keyed) gates() (gates []*keyGate) {
	for i := range k.busy {
		shard := k.states.LockShard(i)
		for _, g := range k.busy[i] {
			gates = append(gates, g)
		}
		shard.Unlock()
	}
	return gates
}
