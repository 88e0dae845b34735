package weir

import (
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
	word      bucketWord
	clock     *clock.Steady
	origin    int64
	states    *table.Table
	id        uint64 // orders the locks of several
	bounds    atomic.Pointer[bounds]
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
	bounds := o.bounds()
	if err := bounds.check(of); err != nil {
		return err
	}
	k.policy, k.id = o.Name, limiterIDs.Add(1)
	k.bounds.Store(&bounds)
	k.highest.Store(int64(bounds.MaxKeys))
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
	k.word.init(k.base)
	shards := shardsFor(bounds.MaxKeys)
	k.busy = make([]map[table.Hash]*keyGate, shards)
	k.states = table.New(table.Options{
		Words: k.base.packed.words(), MaxKeys: int64(bounds.MaxKeys), Shards: shards, Linger: linger,
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
	return k.termsWith(tag).packed.freshAt(state)
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
	t, err := l.compile(of, k.origin, narrow)
	if err == nil && k.clock != nil {
		t.follow(k.origin)
	}
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

// refuse is the answer for a reason that has nothing to do with the state of a key.
func (k *keyed) refuse(why Reason, n int64) Lease {
	if n > 0 && why != ReasonInvalid {
		k.refused.Add()
	}
	return Lease{decision: Decision{Reason: why, Limit: k.base.permits, RetryAfter: Never, Policy: k.policy}, permits: n}
}

func (k *keyed) decision(t *terms, r algo.Result) Decision {
	return Decision{
		Allowed: r.Allowed, Reason: reasonOf(r), Limit: t.permits, Remaining: r.Remaining,
		RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter, Policy: k.policy,
	}
}

// fresh is what the algorithm says of a key that has never been seen. More than 0 permits are not taken.
func (t *terms) fresh(n int64) algo.Result {
	r := algo.Result{Allowed: n <= t.permits, Remaining: t.permits}
	if !r.Allowed {
		r.RetryAfter = Never
	}
	return r
}

// try decides on n permits of a key without waiting.
func (k *keyed) try(h table.Hash, t *terms, n int64, reserve bool) (l Lease, added bool) {
	if n < 0 {
		return k.refuse(ReasonInvalid, n), false
	}
	now := k.now()
	for attempt := 0; ; attempt++ {
		shard := k.states.Lock(h)
		if k.closed.Load() {
			shard.Unlock()
			return k.refuseClosed(h, t, n), false
		}
		slot := shard.Find(h)
		if slot != nil && slot.Tag() == raisedTag {
			g := k.busy[shard.Index()][h]
			shard.Unlock()
			if l, alive := g.try(t, n, reserve); alive {
				return l, false
			}
			continue
		}
		if slot != nil && !reserve && k.word.fits(slot, t, now, n) {
			r := k.word.take(slot, now, n)
			if !r.Allowed {
				now = k.now() // see allowWord
				r = k.word.take(slot, now, n)
			}
			shard.Tally[tallied(r.Allowed)]++
			shard.Unlock()
			return Lease{decision: k.decision(t, r), permits: n}, false
		}
		now = k.now()
		d, m, ok := k.decide(shard, slot, h, t, now, n, reserve)
		shard.Unlock()
		switch {
		case ok:
			return k.lease(h, d, m, n, reserve), slot == nil && n > 0
		case !k.makeRoom(&t, now, attempt):
			return k.full(t, now, n), false
		}
	}
}

// makeRoom prepares another attempt to add a key that is held to t, or returns false.
func (k *keyed) makeRoom(t **terms, now int64, attempt int) bool {
	if attempt >= mostReclaims {
		return false
	}
	if again := k.renew(*t); again != *t {
		*t = again
		return true
	}
	return k.states.Reclaim(now)
}

// lease counts a decision and makes it a lease.
func (k *keyed) lease(h table.Hash, d Decision, m taking, n int64, reserve bool) Lease {
	l := Lease{decision: d, permits: n}
	if n == 0 {
		return l
	}
	k.count(d.Allowed)
	if d.Allowed && (reserve || k.returns()) {
		l.claim, l.generation = newClaim(k, n, m.mark)
		l.claim.key, l.claim.under = h, m.under
	}
	return l
}

// returns reports whether permits come back on release, not with time.
func (k *keyed) returns() bool { return k.base.limit.algorithm == AlgorithmConcurrency }

// full is the answer to a new key for which there is no room.
func (k *keyed) full(t *terms, now, n int64) Lease {
	d := k.fullDecision(t, now, n)
	if d.Allowed {
		k.untracked.Add(1)
	}
	k.count(d.Allowed)
	return Lease{decision: d, permits: n}
}

// fullDecision is what full answers, uncounted.
func (k *keyed) fullDecision(t *terms, now, n int64) Decision {
	if k.bounds.Load().AdmitWhenFull {
		return Decision{Allowed: true, Limit: t.permits, Remaining: t.permits - n, Policy: k.policy}
	}
	d := Decision{Reason: ReasonTableFull, Limit: t.permits, RetryAfter: time.Second, Policy: k.policy}
	// Then, at the earliest, a key can be forgotten. If no time makes one fresh, that is not known.
	if next := k.states.NextFresh(); next != table.NotByItself {
		d.RetryAfter = time.Duration(max(next, now+int64(time.Millisecond)) - now)
	}
	return d
}

// mostReclaims is how often a new key makes room that another caller takes.
const mostReclaims = 4

// decide takes n permits of a key whose state is in its slot, or that has none. It is not ok if there is no room. There is a
// mark only if they are reserved.
func (k *keyed) decide(
	shard *table.Shard, slot table.Slot, h table.Hash, t *terms, now, n int64, reserve bool,
) (d Decision, m taking, ok bool) {
	var r algo.Result
	switch {
	case slot != nil:
		if !k.adopt(shard, slot, h, t, now) {
			return d, m, false
		}
		if !reserve && t.wide.fits(n) {
			r = t.wide.take(slot.State(), now, n)
		} else {
			r = t.packed.take(slot.State(), now, n)
		}
	case n == 0 || n > t.permits:
		r = t.fresh(n)
	default:
		if slot = k.add(shard, h, t, now); slot == nil {
			return d, m, false
		}
		r = t.packed.take(slot.State(), now, n)
		shard.Due(h, t.packed.freshAt(slot.State()))
	}
	return k.decision(t, r), taking{r.Mark, k.under(h, t)}, true
}

// add makes room for a key that has none, and returns nil if there is none.
func (k *keyed) add(shard *table.Shard, h table.Hash, t *terms, now int64) table.Slot {
	if !t.enter() {
		return nil
	}
	slot := shard.Add(h, t.tag, now)
	if slot == nil {
		t.leave()
		return nil
	}
	t.packed.begin(slot.State(), now, k.returned.Load())
	return slot
}

// adopt makes the state of a slot one that is held to t, and returns false if t cannot be used any more.
func (k *keyed) adopt(shard *table.Shard, slot table.Slot, h table.Hash, t *terms, now int64) bool {
	old := k.termsWith(slot.Tag()) // not t if that was retired and its tag given to others
	if old == t && t.wide.most > 0 && int64(slot.State()[0])-now < t.most {
		return true
	}
	if old.most > 0 {
		if at := old.packed.freshAt(slot.State()); at-now > old.most && at-now > old.lacks(k.mostDebt.Load()) {
			// No key lacks so much: the process clock stands elsewhere in a bubble of testing/synctest.
			old.packed.begin(slot.State(), now, int64(slot.State()[len(slot.State())-1]))
			old.packed.charge(slot.State(), now, old.permits, 0)
		}
	}
	if old == t {
		return true
	}
	if !t.enter() {
		return false
	}
	k.carry(slot.State(), old, t, now)
	slot.SetTag(t.tag)
	old.leave()
	k.movesOf(h).Add(1)
	shard.Due(h, t.packed.freshAt(slot.State()))
	return true
}
