package weir

import (
	"context"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

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
	moves     moveCounts
	resets    resetLog
	fastest   atomic.Pointer[terms] // of all limits that there have ever been
	mixed     atomic.Bool           // whether there have been windows of several lengths
	closed    atomic.Bool
	returned  atomic.Int64 // what the Returned of new buckets begins with: no less than that of any that was forgotten
	mostDebt  atomic.Int64 // the largest debt, in permits, that any limit has allowed: it stays owed when the limit changes

	allowed             tally.Tally
	untracked, forgiven atomic.Int64 // in no line of the cache that calls for known keys read
	refused             tally.Tally
}

// shardsFor is into how many shards a table is divided.
func shardsFor(maxKeys int) int {
	shards := 1
	for shards < mostShards && shards*keysPerShard < maxKeys {
		shards *= 2
	}
	return shards
}

func (k *keyed) setUp(limit Limit, o KeyedOptions, chosen bool) error {
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
		k.plans.begin(k.base, k.alike)
	}
	shards := shardsFor(o.MaxKeys)
	k.busy = make([]map[table.Hash]*keyGate, shards)
	k.states = table.New(table.Options{
		Words: k.base.law.Words(), MaxKeys: int64(o.MaxKeys), Shards: shards, Linger: linger,
		FreshAt: k.freshAt, Forgotten: k.forgotten,
	})
	return nil
}

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
	if k.base.limit.Algorithm() == AlgorithmTokenBucket {
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

func (k *keyed) count(allowed bool) {
	if allowed {
		k.allowed.Add()
	} else {
		k.refused.Add()
	}
}

// compile checks a limit for keys.
func (k *keyed) compile(of string, l Limit, narrow bool) (*terms, error) {
	t, err := l.compile(of, k.origin, narrow, k.clock != nil)
	if err == nil && l.Algorithm() == AlgorithmTokenBucket {
		debt := k.debt(t)
		k.raiseMostDebt(debt)
		t.most = t.lacks(debt)
	}
	if err == nil && l.Algorithm() != AlgorithmConcurrency {
		k.learn(t)
	}
	return t, err
}

func (k *keyed) raiseMostDebt(debt int64) {
	for old := k.mostDebt.Load(); old < debt && !k.mostDebt.CompareAndSwap(old, debt); {
		old = k.mostDebt.Load()
	}
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

// returns reports whether permits come back on release, not with time.
func (k *keyed) returns() bool { return k.base.limit.Algorithm() == AlgorithmConcurrency }

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

// moveCounts counts how often states of keys were carried to another limit. A few keys share a count: a call that finds it moved
// does not know whether its own key was, and gives back what is right in either case.
type moveCounts [256]atomic.Uint32

func (k *keyed) movesOf(h table.Hash) *atomic.Uint32 {
	return &k.moves[h.Fingerprint()%uint64(len(k.moves))]
}

// under is what permits that are taken now are taken under. The state of the key must be locked.
func (k *keyed) under(h table.Hash, t *terms) under {
	return under{h, t, k.movesOf(h).Load(), k.resets.count.Load()}
}

// mostResets is how many resets are remembered at least.
const mostResets = 1 << 15

// resetLog remembers which keys were reset lately: permits that were taken before must not come back once more.
type resetLog struct {
	count atomic.Uint64
	mu    sync.Mutex
	// Which of all resets was the last one of a key: of those since the first that is remembered, and of those since another one.
	earlier, later map[table.Hash]uint64
	first, second  uint64
}

// note is called for a key that is reset, under the lock of its state.
func (r *resetLog) note(h table.Hash) {
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
func (r *resetLog) since(h table.Hash, count uint64) bool {
	if r.count.Load() == count { // nearly always
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return count+1 < r.first || r.earlier[h] > count || r.later[h] > count
}

// learn keeps what all limits that there have ever been have in common.
func (k *keyed) learn(t *terms) {
	for {
		old := k.fastest.Load()
		if old != nil && !faster(t.limit.Rate(), old.limit.Rate()) || k.fastest.CompareAndSwap(old, t) {
			break
		}
	}
	if k.base == nil {
		return
	}
	one, base := t.limit.in(), k.base.limit.in()
	if one.rate.Period != base.rate.Period || one.calendar != base.calendar {
		k.mixed.Store(true)
	}
}

// giveBack cancels n permits, of a claim, in a state that is held to t.
//
// If the state was held to another limit meanwhile, it is not known how many of them have been regained. A bucket then
// gives back what is missing even if they were regained at the fastest rate that there has ever been. Windows give
// them back if all limits have the same windows, or if the one that they were taken under has those of t.
//
// What was taken before the key was reset has come back then.
func (k *keyed) giveBack(state []uint64, t *terms, now, n int64, c *claim) {
	if k.resets.since(c.under.key, c.under.resets) {
		return
	}
	moved := k.movesOf(c.under.key).Load() - c.under.moves
	same := moved == 0 && c.under.terms == t
	switch {
	case same || k.returns():
		t.law.Cancel(state, now, n, c.mark)
	case k.base.limit.Algorithm() == AlgorithmTokenBucket:
		t.law.CancelAcross(k.fastest.Load().law, state, now, n, c.mark)
	case !k.mixed.Load() || moved <= 1 && c.under.terms != t:
		t.law.CancelAcross(c.under.terms.law, state, now, n, c.mark)
	}
}

// limiterIDs orders the locks of limiters.
var limiterIDs atomic.Uint64

func (k *keyed) setBounds(b *KeyedOptions) {
	k.bounding.Lock()
	defer k.bounding.Unlock()
	old := k.bounds.Swap(b)
	if b.MaxKeys != old.MaxKeys {
		k.highest.Store(max(k.highest.Load(), int64(b.MaxKeys)))
		k.states.Bound(int64(b.MaxKeys))
	}
	if b.MaxDebt != old.MaxDebt {
		k.raiseMostDebt(k.debt(k.base))
		for i := range k.plans.byTag {
			page := k.plans.byTag[i].Load()
			for j := 0; page != nil && j < len(page); j++ {
				if t := page[j].Load(); t != nil {
					k.raiseMostDebt(k.debt(t))
				}
			}
		}
	}
	for _, g := range k.gates() {
		g.lock()
		g.queueLimit = b.QueueLimit
		if g.terms != nil {
			g.maxDebt = k.debt(g.terms)
		}
		g.unlock()
	}
}

// mostReclaims is how often a new key makes room that another caller takes.
const mostReclaims = 4

// intern is that of the plans. If keys have too many other limits, it forgets keys that are fresh until one of them was the last
// that had its limit.
func (k *keyed) intern(l Limit) (t *terms, why Reason) {
	t, why = k.plans.intern(l)
	for range mostReclaims {
		if why != ReasonTableFull {
			break
		}
		forgotten := 0
		for now := k.now(); forgotten < keysAtATime && k.states.Reclaim(now); {
			forgotten++
		}
		if forgotten == 0 {
			break
		}
		t, why = k.plans.intern(l)
	}
	return t, why
}

// keysAtATime is how many keys give way for another limit, so that the next ones need not look at all limits again.
const keysAtATime = 64

// renew returns terms that can be used in place of t, which may have been evicted since they were interned.
func (k *keyed) renew(t *terms) *terms {
	if t.users.Load() < 0 {
		if again, why := k.plans.intern(t.limit); why == ReasonNone {
			return again
		}
	}
	return t
}

// alike compiles a limit that states of base can be carried to.
func (k *keyed) alike(of string, l Limit) (*terms, error) {
	t, err := k.compile(of, l, false)
	if err != nil {
		return nil, err
	}
	base := k.base.limit
	if l.Algorithm() != base.Algorithm() {
		return nil, &OptionError{
			of + ".Algorithm", l.Algorithm().String(), base.Algorithm().String() + ", as for all keys",
		}
	}
	if l.Algorithm() == AlgorithmSlidingWindow && l.Segments() != base.Segments() {
		return nil, &OptionError{
			of + ".Segments", strconv.Itoa(l.Segments()), strconv.Itoa(base.Segments()) + ", as for all keys",
		}
	}
	return t, nil
}

// mostSuccessions is how many limits, one after the other, a key that is not used is led through.
const mostSuccessions = 8

// carry makes a state that is held to old one that is held to t.
func (k *keyed) carry(state []uint64, old, t *terms, now int64) {
	var path [mostSuccessions]*succession
	n, from, last := 0, old, int64(math.MinInt64)
	for from != t && n < len(path) {
		s := from.next.Load()
		if s == nil || s.at > now || s.at < last {
			break
		}
		path[n], from, last = s, s.by, s.at
		n++
	}
	if from != t {
		t.law.Carry(state, old.law, state, now) // a caller has chosen another limit for this key
		return
	}
	for _, s := range path[:n] {
		s.by.law.Carry(state, old.law, state, s.at)
		old = s.by
	}
}
