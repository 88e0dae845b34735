package weir

import (
	"context"
	"math"
	"math/bits"
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

// under is what permits of a key were taken under: a limit, and how often states have moved to another one, and keys have been
// reset, by then.
type under struct {
	terms  *terms
	moves  uint32
	resets uint64
}

// moves counts how often states of keys were carried to another limit. A few keys share a count: who finds that it has moved
// does not know whether it was for the own key, and gives back what is right in either case.
type moves [256]atomic.Uint32

func (k *keyed) movesOf(h table.Hash) *atomic.Uint32 {
	return &k.moves[h.Fingerprint()%uint64(len(k.moves))]
}

// under is what permits that are taken now are taken under. The state of the key must be locked.
func (k *keyed) under(h table.Hash, t *terms) under {
	return under{t, k.movesOf(h).Load(), k.resets.count.Load()}
}

// mostResets is how many resets are remembered at least.
const mostResets = 1 << 15

// resets remembers which keys were reset lately: permits that were taken before must not come back once more.
type resets struct {
	count atomic.Uint64
	mu    sync.Mutex
	// Which of all resets was the last one of a key: of those since the first that is remembered, and of those since another one.
	earlier, later map[table.Hash]uint64
	first, second  uint64
}

// note is called for a key that is reset, under the lock of its state.
func (r *resets) note(h table.Hash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.count.Load() + 1
	if r.later == nil || len(r.later) >= mostResets {
		r.earlier, r.first = r.later, r.second
		r.later, r.second = make(map[table.Hash]uint64), n
	}
	r.later[h] = n
	r.count.Store(n)
}

// since reports whether a key was reset after so many resets of all keys, or may have been, as that is not remembered any more.
func (r *resets) since(h table.Hash, count uint64) bool {
	if r.count.Load() == count { // nearly always
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return count+1 < r.first || r.earlier[h] > count || r.later[h] > count
}

func (g *gate) under() under {
	if g.keyed == nil {
		return under{}
	}
	return g.keyed.under(g.key, g.terms)
}

// learn keeps what all limits that there have ever been have in common.
func (k *keyed) learn(t *terms) {
	for {
		old := k.fastest.Load()
		if old != nil && !faster(t.limit.rate, old.limit.rate) || k.fastest.CompareAndSwap(old, t) {
			break
		}
	}
	if base := k.base; base != nil && (t.limit.rate.Period != base.limit.rate.Period || t.limit.calendar != base.limit.calendar) {
		k.mixed.Store(true)
	}
}

func faster(a, b Rate) bool {
	hiA, loA := bits.Mul64(uint64(a.Permits), uint64(b.Period))
	hiB, loB := bits.Mul64(uint64(b.Permits), uint64(a.Period))
	return hiA > hiB || hiA == hiB && loA > loB
}

// giveBack cancels n permits, of a claim, in a state that is held to t.
//
// If the state was held to another limit meanwhile, it is not known how many of them have been regained. A bucket then
// gives back what is missing even if they were regained at the fastest rate that there has ever been. Windows give
// them back if all limits have the same windows, or if the one that they were taken under has those of t.
//
// What was taken before the key was reset has come back then.
func (k *keyed) giveBack(state []uint64, t *terms, now, n int64, c *claim) {
	if k.resets.since(c.key, c.under.resets) {
		return
	}
	moved := k.movesOf(c.key).Load() - c.under.moves
	same := moved == 0 && c.under.terms == t
	switch {
	case same || k.returns():
		t.law.Cancel(state, now, n, c.mark)
	case k.base.limit.algorithm == AlgorithmTokenBucket:
		t.law.CancelAcross(k.fastest.Load().law, state, now, n, c.mark)
	case !k.mixed.Load() || moved <= 1 && c.under.terms != t:
		t.law.CancelAcross(c.under.terms.law, state, now, n, c.mark)
	}
}
