package store

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/heap"
)

const (
	nearShards   = 64 // as many as a [nearLocks] has bits
	keysPerShard = 64 // from how many keys on a table is cut into shards

	copyBits = 3 // of a shard, so many bits tell where the copy of a key is
	// nearPatience is how many decisions about a key are made under the lock before a copy of it is published: few of them
	// allocate.
	nearPatience = 64
)

// near is a table of keys of an inner store about which memory decides: that of [Leased] and of [Optimistic], whose spending
// rules differ. K is what is kept for a key, and has a nearKey.
type near[K any] struct {
	inner  Home
	clock  weir.Clock
	start  time.Time
	seed   maphash.Seed
	shards []nearShard[K]
	rule   nearRule[K]

	patience int // how many decisions about a key are made under the lock before a copy of it is published

	every int64        // how long a tick is
	tick  atomic.Int64 // when the next one is
	next  atomic.Int64 // when the sweeper looks next
	wake  chan struct{}
	swept sync.WaitGroup // the sweeper
	runs  atomic.Bool    // it was started

	ctx    context.Context // of calls that are made for no request alone
	cancel context.CancelFunc
	calls  sync.WaitGroup // of the inner store
	closed atomic.Bool
	stop   chan struct{} // Close has begun
	ended  chan struct{} // and has ended
}

// nearRule is what a near must know of the rule by which its permits are spent.
type nearRule[K any] interface {
	// idle reports whether nothing but knowledge is lost if the key is forgotten, and stale whether that is of no use any more.
	idle(k *K) bool
	stale(k *K, now int64) bool
	// due does what is due for the keys that are queued until now. It returns from when on it can do more.
	due(now int64) (next int64)
	// withdrawn takes in what was done by the copy of a key since it was published. The shard is locked.
	withdrawn(k *K)
}

// nearShard is a part of the keys, and the lock of all that is kept for them.
type nearShard[K any] struct {
	copies [1 << copyBits]atomic.Pointer[nearCopy[K]] // written under the lock

	_ [64]byte // a caller that only reads copies does not wait for the cache line of the lock

	lock   sync.Mutex
	closed bool
	most   int
	// evicted is when keys that are forgotten were used last.
	evicted int64
	keys    map[uint64]*nearKey[K] // by hash; those of equal hashes form a chain
	ring    []*nearKey[K]          // all keys
	hand    int                    // where in the ring the next look is
	queue   heap.Heap[nearLook[K]]

	_ [64]byte // neighbors do not share a cache line
}

// nearKey is under what something is kept. It belongs to its shard, whose lock guards it.
type nearKey[K any] struct {
	recordKey

	hash   uint64
	next   *nearKey[K] // of the same hash
	slot   int         // its place in the ring
	kept   *K          // of which this is a part
	used   int64       // when permits were taken last
	due    int64       // when the sweeper will look at it; never if it will not
	pins   int         // requests on their way that come back to it: it is not forgotten
	copied *nearCopy[K]
	calls  int // decisions that could have been made by a copy
}

// nearCopy is a copy of what is kept for a key, by which decisions are made without the lock as long as nothing changes. All that
// find the key under the lock withdraw it. A call that has loaded it before may still decide by it: as if at that moment.
type nearCopy[K any] struct {
	recordKey

	of   *nearKey[K] // only for calls that have the lock
	hash uint64
	kept K
}

// open makes the table, for maxKeys keys and with ticks of every.
func (n *near[K]) open(inner Home, clock weir.Clock, maxKeys int, every time.Duration, rule nearRule[K]) {
	count := nearShards
	for count > 1 && maxKeys/count < keysPerShard {
		count /= 2
	}
	n.inner, n.clock, n.start, n.seed, n.rule, n.every = inner, clock, time.Now(), maphash.MakeSeed(), rule, int64(every)
	n.patience = nearPatience
	n.wake, n.stop, n.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	n.ctx, n.cancel = context.WithCancel(context.Background()) //nolint:gosec // shut calls it
	n.shards = make([]nearShard[K], count)
	for i := range n.shards {
		n.shards[i].most = maxKeys / count
		n.shards[i].evicted = -never
		n.shards[i].keys = make(map[uint64]*nearKey[K])
	}
}

// maxKeysOf is how many keys are kept, given what an option says.
func maxKeysOf(option string, n int) (int, error) {
	if n == 0 {
		return defaultMaxKeys, nil
	}
	if n < 1 || n > 1e9 {
		return n, &weir.OptionError{Option: option, Value: fmt.Sprint(n), Accepted: "from 1 to 10^9"}
	}
	return n, nil
}

// now is the time on the clock of the process.
func (n *near[K]) now() int64 {
	if n.clock == nil {
		return int64(time.Since(n.start))
	}
	return n.clock.Now()
}

// hashOf is the hash of the policy and key of a charge, whatever its algorithm.
func (n *near[K]) hashOf(c *Charge) uint64 {
	const odd = 0x9e3779b97f4a7c15
	return maphash.String(n.seed, c.Key) ^ maphash.String(n.seed, c.Policy)*odd
}

// shardAt is the place of the shard of a hash.
func (n *near[K]) shardAt(hash uint64) int { return int(hash>>32) & (len(n.shards) - 1) }

func (n *near[K]) shard(hash uint64) *nearShard[K] { return &n.shards[n.shardAt(hash)] }

// nearLocks is a set of shards. They are locked in one order.
type nearLocks uint64

func (n *near[K]) lock(shards nearLocks) {
	for ; shards != 0; shards &= shards - 1 {
		lock(&n.shards[bits.TrailingZeros64(uint64(shards))].lock)
	}
}

// lock locks a shard, which is held for less time than a goroutine takes to go to sleep and wake up. A mutex has goroutines sleep
// at once while others wait to run, as they do where many ask for a hot key. Between two tries the processor that holds the
// shard, and has it in its cache, makes several decisions.
func lock(m *sync.Mutex) {
	const tries, pause = 16, 1000
	for range tries {
		if m.TryLock() {
			return
		}
		for range pause { // a third of a microsecond
		}
	}
	m.Lock()
}

func (n *near[K]) unlock(shards nearLocks) {
	for ; shards != 0; shards &= shards - 1 {
		n.shards[bits.TrailingZeros64(uint64(shards))].lock.Unlock()
	}
}

// find is what is kept for a charge, or nil. The shard must be locked.
func (n *near[K]) find(hash uint64, c *Charge) *K {
	for k := n.shard(hash).keys[hash]; k != nil; k = k.next {
		if k.key == c.Key && k.policy == c.Policy && k.algorithm == c.Limit.Algorithm() {
			n.withdraw(k)
			return k.kept
		}
	}
	return nil
}

// copyAt is where the copy of a key with this hash is published.
func (n *near[K]) copyAt(hash uint64) *atomic.Pointer[nearCopy[K]] {
	return &n.shard(hash).copies[hash>>(64-copyBits)]
}

// published is the copy of what is kept for the policy and key of a charge, maybe under another limit, or nil. No lock is needed.
func (n *near[K]) published(hash uint64, of *Charge) *K {
	if c := n.copyAt(hash).Load(); c != nil && c.hash == hash && c.key == of.Key && c.policy == of.Policy {
		return &c.kept
	}
	return nil
}

// publish has the next decisions about a key made by a copy of what is kept for it. The shard must be locked, and open.
func (n *near[K]) publish(k *nearKey[K], kept *K) {
	at := n.copyAt(k.hash)
	if other := at.Load(); other != nil {
		n.withdraw(other.of)
	}
	k.copied = &nearCopy[K]{recordKey: k.recordKey, of: k, hash: k.hash, kept: *kept}
	at.Store(k.copied)
}

// withdraw has the next decisions about a key made under the lock. The shard must be locked.
func (n *near[K]) withdraw(k *nearKey[K]) {
	if k.copied != nil {
		n.copyAt(k.hash).Store(nil)
		k.copied, k.calls = nil, 0
		n.rule.withdrawn(k.kept)
	}
}

// with calls f with what is kept for a charge, if anything is. Its shard is locked meanwhile.
func (n *near[K]) with(c *Charge, f func(k *K)) {
	hash := n.hashOf(c)
	s := n.shard(hash)
	s.lock.Lock()
	defer s.lock.Unlock()
	if k := n.find(hash, c); k != nil {
		f(k)
	}
}

// withAll calls f with all that is kept for the policy and key of a charge, whatever the algorithm. Their shard is locked
// meanwhile.
func (n *near[K]) withAll(c *Charge, f func(k *K)) {
	hash := n.hashOf(c)
	s := n.shard(hash)
	s.lock.Lock()
	defer s.lock.Unlock()
	for k := s.keys[hash]; k != nil; k = k.next {
		if k.key == c.Key && k.policy == c.Policy {
			n.withdraw(k)
			f(k.kept)
		}
	}
}

// each calls f for all keys, and locks one shard at a time.
func (n *near[K]) each(f func(k *K)) {
	for i := range n.shards {
		s := &n.shards[i]
		s.lock.Lock()
		for _, k := range s.ring {
			n.withdraw(k)
			f(k.kept)
		}
		s.lock.Unlock()
	}
}

// add keeps kept, of which k is a part, for a key for which nothing is kept yet. Its shard must be locked, and have room.
func (n *near[K]) add(k *nearKey[K], kept *K, hash uint64, c *Charge, now int64) {
	s := n.shard(hash)
	*k = nearKey[K]{recordKey: c.recordKey().clone(), hash: hash, next: s.keys[hash], kept: kept, used: now, due: never}
	s.keys[hash], s.ring = k, append(s.ring, k)
	s.swap(min(s.hand, len(s.ring)-1), len(s.ring)-1) // behind the hand, which comes there last
	s.hand = k.slot + 1
	n.run(now)
}

// room reports whether a shard, which must be locked, has room for another key. If it is full, it forgets one of the next few
// keys in the ring: that which was not used for longest.
func (n *near[K]) room(s *nearShard[K]) bool {
	if s.closed {
		return false
	}
	if len(s.ring) < s.most {
		return true
	}
	const looks = 16
	var oldest *nearKey[K]
	for range min(looks, len(s.ring)) {
		k := s.turn()
		if k.copied != nil { // it is in use, of which its copy takes no note
			n.withdraw(k)
			continue
		}
		if k.pins == 0 && n.rule.idle(k.kept) && (oldest == nil || k.used < oldest.used) {
			oldest = k
		}
	}
	if oldest == nil {
		return false
	}
	s.hand = oldest.slot
	n.forget(s, oldest)
	return true
}

// swap swaps two keys of the ring.
func (s *nearShard[K]) swap(i, j int) {
	s.ring[i], s.ring[j] = s.ring[j], s.ring[i]
	s.ring[i].slot, s.ring[j].slot = i, j
}

// turn is the next key in the ring.
func (s *nearShard[K]) turn() *nearKey[K] {
	if s.hand >= len(s.ring) {
		s.hand = 0
	}
	s.hand++
	return s.ring[s.hand-1]
}

// forgetStale forgets keys that were not used for two rounds of the sweeper, and of which nothing is of use any more. It looks at
// a bounded number of them.
func (n *near[K]) forgetStale(s *nearShard[K], now int64) {
	const looks = 1024
	before := now - 2*n.every*int64(len(n.shards))
	s.lock.Lock()
	defer s.lock.Unlock()
	for range min(looks, len(s.ring)) {
		if len(s.ring) == 0 {
			return
		}
		if k := s.turn(); k.used < before && k.pins == 0 && n.rule.idle(k.kept) && n.rule.stale(k.kept, now) {
			n.forget(s, k)
			s.hand-- // where another one is now
		}
	}
}

// forget drops a key of a shard, which must be locked.
func (n *near[K]) forget(s *nearShard[K], k *nearKey[K]) {
	n.withdraw(k)
	last := len(s.ring) - 1
	s.swap(k.slot, last)
	s.ring[last] = nil
	s.ring = s.ring[:last]
	if s.keys[k.hash] == k {
		if s.keys[k.hash] = k.next; k.next == nil {
			delete(s.keys, k.hash)
		}
	} else {
		at := s.keys[k.hash]
		for at.next != k {
			at = at.next
		}
		at.next = k.next
	}
	s.evicted = max(s.evicted, k.used)
}

// shut ends the use of the table: it calls each with all shards, locked, to which nothing is added afterwards, ends the sweeper,
// and calls finish. After a time it ends the calls that are made for no request alone. If it was called before, it waits for that
// to end.
func (n *near[K]) shut(after time.Duration, each func(s *nearShard[K]), finish func() error) error {
	if n.closed.Swap(true) {
		<-n.ended
		return nil
	}
	defer close(n.ended)
	defer n.cancel()
	defer time.AfterFunc(after, n.cancel).Stop()
	for i := range n.shards {
		s := &n.shards[i]
		s.lock.Lock()
		s.closed = true
		for _, k := range s.ring {
			n.withdraw(k)
		}
		each(s)
		s.lock.Unlock()
	}
	close(n.stop)
	n.swept.Wait()
	return finish()
}

// nearLook says when the sweeper looks at a key.
type nearLook[K any] struct {
	at  int64
	key *nearKey[K]
}

// Before implements [heap.Item]: the earlier look comes first.
func (l nearLook[K]) Before(other nearLook[K]) bool { return l.at < other.at }

// Placed implements [heap.Item].
func (nearLook[K]) Placed(int) {}

// watch has the sweeper look at a key at a time, unless it does so earlier. Its shard must be locked.
func (n *near[K]) watch(k *nearKey[K], at int64) {
	if k.due <= at {
		return
	}
	k.due = at
	n.shard(k.hash).queue.Push(nearLook[K]{at, k})
	if at < n.next.Load() {
		n.hurry()
	}
}

// hurry has the sweeper look now.
func (n *near[K]) hurry() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// pop takes a key out of the queue of a shard that is due, or returns nil. The shard must be locked.
func (n *near[K]) pop(s *nearShard[K], now int64) *K {
	for len(s.queue) > 0 && s.queue[0].at <= now {
		look := s.queue.Pop()
		if look.at == look.key.due { // otherwise it was looked at earlier
			look.key.due = never
			n.withdraw(look.key)
			return look.key.kept
		}
	}
	return nil
}

// earliest is when the first key is due.
func (n *near[K]) earliest() int64 {
	at := int64(never)
	for i := range n.shards {
		s := &n.shards[i]
		s.lock.Lock()
		if len(s.queue) > 0 {
			at = min(at, s.queue[0].at)
		}
		s.lock.Unlock()
	}
	return at
}

// run starts the sweeper, which runs until Close.
func (n *near[K]) run(now int64) {
	if !n.runs.Load() && n.runs.CompareAndSwap(false, true) {
		n.tick.Store(now + n.every)
		n.swept.Go(n.sweep)
	}
}

// sweep has done what is due when it is, and forgets keys in one shard after the other, one in each tick.
func (n *near[K]) sweep() {
	for at, last := 0, n.now(); ; {
		n.next.Store(never) // what is queued from now on wakes it
		now := n.now()
		if now < last {
			n.shift(last - now)
		}
		last = now
		if now >= n.tick.Load() {
			n.tick.Store(now + n.every)
			n.forgetStale(&n.shards[at%len(n.shards)], now)
			at++
		}
		next := min(max(n.rule.due(now), n.earliest()), n.tick.Load())
		n.next.Store(next)
		due, stop := n.after(next - now)
		select {
		case <-n.stop:
			stop()
			return
		case <-n.wake:
			stop()
		case <-due:
		}
	}
}

// shift has everything looked at earlier, by as much as the clock was set back.
func (n *near[K]) shift(back int64) {
	n.tick.Add(-back)
	for i := range n.shards {
		s := &n.shards[i]
		s.lock.Lock()
		for i := range s.queue {
			look := &s.queue[i]
			if look.key.due == look.at {
				look.key.due -= back
			}
			look.at -= back
		}
		s.lock.Unlock()
	}
}

// nextTick is when the tick after now is.
func (n *near[K]) nextTick(now int64) int64 {
	at := n.tick.Load()
	if at <= now { // it is under way
		at += n.every
	}
	return at
}

// after is a channel on which something comes once d has passed.
func (n *near[K]) after(d int64) (passed <-chan time.Time, stop func() bool) {
	if n.clock == nil {
		t := time.NewTimer(time.Duration(d))
		return t.C, t.Stop
	}
	c := make(chan time.Time, 1)
	return c, n.clock.AfterFunc(time.Duration(d), func() { c <- time.Time{} })
}
