package weir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/keyhash"
	"github.com/weirhq/weir/internal/names"
	"github.com/weirhq/weir/internal/table"
)

// Keyed is one limit for each of millions of keys: addresses, users, tokens. It is made by [NewKeyed]. Every key has a state of
// its own. The limit is the same for all keys, or a function chooses it for each: see [NewKeyedFunc]. All methods are safe for
// concurrent use. See [Limiter] for n.
//
// Memory is bounded by MaxKeys, and clients cannot escape a limit by making up keys: only a key that behaves like a new one,
// because all its permits are back, is forgotten when another one needs its place. No call moves more than 2048 keys
// (TestSegmentsStaySmall).
//
// A key costs 43 to 50 bytes with a token bucket, however long it is (TestBytesPerKey): it is not kept, only 111 bits of two
// seeded hashes of it. For ten million keys the chance that any two share a state is 1 in 10^19 (TestTenMillionKeysShareNothing).
// docs/keyed.md has the figures of the other limits. Up to MaxNames keys of at most 256 bytes are kept by name as well
// (TestLongKeysAreNotKept). Keys that are not equal to themselves, because there is a NaN in them, share one state
// (TestKeysWithNaNAreLimited).
//
// A key that a caller waits for has a queue of its own, some 700 bytes, until no caller waits. It is strict, like that of a
// [Limiter].
type Keyed[K comparable] struct{ keys[K] }

// keys are what Keyed and KeyedConcurrency have in common.
type keys[K comparable] struct {
	keyed

	limitOf func(K) Limit
	names   *names.Names[K]
}

// NewKeyed returns a limiter without any key, or an *[OptionError] that names what cannot be used. A limit [AtOnce] is refused:
// its permits come back when they are released, see [NewKeyedConcurrency].
func NewKeyed[K comparable](limit Limit, o KeyedOptions) (*Keyed[K], error) {
	if !limit.in().returnsByTime() {
		return nil, byRelease("NewKeyed limit", limit)
	}
	return newKeyed[K](limit, o, nil)
}

// NewKeyedFunc is NewKeyed with a function that chooses the limit of each key, such as that of its plan. The zero Limit stands
// for limit. The function is called at most once in each call, must be quick and safe for concurrent use, and must not call the
// limiter; a lookup in a map is fine. It is not called any more once Close has returned.
//
// What it returns takes effect at once, and the key keeps its state: permits that are available stay so, up to the new limit, and
// are never multiplied; permits that were taken in a window stay taken. The algorithm, and the segments of a sliding window, must
// be those of limit. A Limit that cannot be used refuses the request with ReasonInvalid. The error of Acquire, Reserve and Wait
// then wraps an *[OptionError] with what is wrong with it. Keys may have up to 65,534 different limits at a time; a key that
// would have another one is treated like a new key that finds the table full.
//
// Callers that wait for a key are under what the function returned in the last call for that key. When its plan changes, call
// Peek(key, 0): the new limit then applies to them at once (TestPeekTellsThoseWhoWaitTheNewLimit).
//
// A key is forgotten when all permits of its limit are back. One that has a small limit for a while, and is not used until it is
// forgotten, comes back with all permits of the large one.
//
// A token bucket costs some 10 bytes a key more than with NewKeyed.
func NewKeyedFunc[K comparable](limit Limit, o KeyedOptions, limitOf func(key K) Limit) (*Keyed[K], error) {
	if limitOf == nil {
		return nil, &OptionError{"NewKeyedFunc.limitOf", "nil", "a function"}
	}
	if !limit.in().returnsByTime() {
		return nil, byRelease("NewKeyedFunc limit", limit)
	}
	return newKeyed(limit, o, limitOf)
}

func (k *Keyed[K]) inner() *keys[K] {
	if k == nil {
		return nil
	}
	return &k.keys
}

// newKeyed makes a limiter of any limit.
func newKeyed[K comparable](limit Limit, o KeyedOptions, limitOf func(K) Limit) (*Keyed[K], error) {
	k := new(Keyed[K])
	if err := k.make(limit, o, limitOf); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *keys[K]) make(limit Limit, o KeyedOptions, limitOf func(K) Limit) error {
	if o.MaxNames == 0 {
		o.MaxNames = defaultNames
	}
	if o.MaxNames < 1 || o.MaxNames > mostNames {
		return &OptionError{"KeyedOptions.MaxNames", fmt.Sprint(o.MaxNames), "from 1 to 65536, or 0 for 1024"}
	}
	k.limitOf, k.names = limitOf, names.New[K](o.MaxNames)
	return k.setUp(limit, o, limitOf != nil)
}

const (
	defaultNames = 1024
	mostNames    = 1 << 16
)

func (*keys[K]) hash(key K) table.Hash {
	if s, ok := any(key).(string); ok {
		return hashOf(s)
	}
	if key != key { //nolint:gocritic // NaN, which maphash makes another key each time
		return hashOf("NaN")
	}
	return table.NewHash(keyhash.Comparable(key))
}

// hashOf is the hash of a key that is a string. It is the same in all limiters of the process, so that a key has the same ID in
// several limits of which it is one key.
func hashOf(key string) table.Hash {
	return table.NewHash(keyhash.String(key))
}

// choose returns the limit that is chosen for a key, or a zero Limit for that of the options. A limiter that is closed does not
// choose any more.
func (k *keys[K]) choose(key K) Limit {
	if k.limitOf == nil || k.closed.Load() {
		return Limit{}
	}
	return k.limitOf(key)
}

// call makes c one on a key, and brings its limit.
func (k *keys[K]) call(c *call, key K) {
	c.k, c.hash, c.terms = &k.keyed, k.hash(key), k.base
	if k.limitOf != nil {
		c.bring(k.choose(key))
	}
}

// note remembers the name of a key that was refused.
func (k *keys[K]) note(h table.Hash, key K) { k.noteDrawn(h, key, rand.Uint64()) } //nolint:gosec // no secret

// noteDrawn is note with a number of this refusal: see names.Note.
func (k *keys[K]) noteDrawn(h table.Hash, key K, draw uint64) {
	if canBeName(key) {
		k.names.Note(h, key, ownKey[K], draw)
	}
}

// offer remembers the name of a key that is new, while there is room.
func (k *keys[K]) offer(h table.Hash, key K) {
	if canBeName(key) {
		k.names.Offer(h, key, ownKey[K])
	}
}

func canBeName[K comparable](key K) bool {
	s, ok := any(key).(string)
	return !ok || len(s) <= names.MaxLength
}

// ownKey is a key that shares no memory with what the caller may change or keep alive by it.
func ownKey[K comparable](key K) K {
	if s, ok := any(key).(string); ok {
		return any(strings.Clone(s)).(K) //nolint:errcheck,forcetypeassert // K is string
	}
	return key
}

// Limit is the limit of keys that have no other.
func (k *keys[K]) Limit() Limit { return k.base.limit }

// Allow takes one permit of key if it is available and no caller waits for it. It is TryAcquire(key, 1) where the decision
// does not matter.
func (k *Keyed[K]) Allow(key K) bool {
	c := call{k: &k.keyed, hash: k.hash(key), terms: k.base} // what call does, 2 ns sooner
	if k.limitOf != nil {
		c.bring(k.choose(key))
	}
	if c.isPlain(1) {
		c.spot = k.states.Touch(c.hash) // while the clock is read
		c.now = clock.Now()
		switch v, added := c.takeTouched(1, nil); v {
		case taken:
			if added {
				k.offer(c.hash, key)
			}
			return true
		case short:
			k.noteDrawn(c.hash, key, c.refused)
			return false
		case locked:
		}
	}
	return k.takeLocked(&c, key, 1).Allowed
}

// TryAcquire takes n permits of key if they are available and no caller waits for them, and never waits itself. See
// [Limiter] for n = 0, n above the limit, and negative n. The lease of a KeyedConcurrency must be released; releasing
// that of a Keyed does nothing.
func (k *keys[K]) TryAcquire(key K, n int64) Lease { return k.tryLease(key, n, false) }

// TryReserve is TryAcquire with a cost that is settled later: the lease must end in Commit with what it really cost, or
// Cancel. See [Lease.Commit]. If the limit of the key changes in between, Cancel gives back what is missing if it was
// regained at the fastest rate that any key has had, and nothing to windows where there are several lengths.
func (k *keys[K]) TryReserve(key K, n int64) Lease { return k.tryLease(key, n, true) }

func (k *keys[K]) tryLease(key K, n int64, reserve bool) (l Lease) {
	l.permits = n
	var c cell
	k.call(&c.call, key)
	if !reserve && k.takePlain(&c.call, key, n, &l.decision) != locked {
		return l
	}
	if k.try(&c, &l.decision, key, n, reserve); reserve || k.returns() {
		c.claim(&l)
	}
	return l
}

// Take is TryAcquire that returns the decision alone.
func (k *Keyed[K]) Take(key K, n int64) (d Decision) {
	if k.returns() {
		return k.invalid()
	}
	var c call
	k.call(&c, key)
	if k.takePlain(&c, key, n, &d) == locked {
		d = k.takeLocked(&c, key, n)
	}
	return d
}

// takePlain takes n permits that are plain, and fills d unless that is nil. A verdict of locked is none: something is rare.
func (k *keys[K]) takePlain(c *call, key K, n int64, d *Decision) verdict {
	if !c.isPlain(n) {
		return locked
	}
	c.touch()
	return k.takeTouched(c, key, n, d)
}

// takeTouched is takePlain of a key that was touched before the time of the call. It remembers its name if it is new or refused.
func (k *keys[K]) takeTouched(c *call, key K, n int64, d *Decision) verdict {
	v, added := c.takeTouched(n, d)
	switch {
	case added:
		k.offer(c.hash, key)
	case v == short:
		k.noteDrawn(c.hash, key, c.refused)
	}
	return v
}

// takeLocked takes what is not plain.
func (k *keys[K]) takeLocked(of *call, key K, n int64) (d Decision) {
	c := cell{call: *of}
	k.try(&c, &d, key, n, false)
	return d
}

// try is that of the cell of a key, whose name it remembers.
func (k *keys[K]) try(c *cell, d *Decision, key K, n int64, reserve bool) {
	k.noted(c, d, key, n, c.try(d, n, reserve))
}

// noted remembers the name of a key that n permits were asked of, if it was added or refused.
func (k *keys[K]) noted(c *cell, d *Decision, key K, n int64, added bool) {
	switch {
	case added:
		k.offer(c.hash, key)
	case !d.Allowed && n > 0 && d.Reason != ReasonInvalid:
		k.note(c.hash, key)
	}
}

// Acquire takes n permits of key, and waits for them in the queue of the key. See [Acquirer] for what is refused at once, and
// for the error: it is nil if and only if the permits were taken.
func (k *keys[K]) Acquire(ctx context.Context, key K, n int64) (Lease, error) {
	return k.acquireKey(ctx, key, n, false)
}

// Reserve is Acquire with a cost that is settled later, like TryReserve.
func (k *keys[K]) Reserve(ctx context.Context, key K, n int64) (Lease, error) {
	return k.acquireKey(ctx, key, n, true)
}

// Wait is Acquire that returns the error alone.
func (k *Keyed[K]) Wait(ctx context.Context, key K, n int64) error {
	mustContext(ctx)
	if k.returns() {
		return refusal(k.invalid(), n, errReleased)
	}
	return waited(k.Acquire(ctx, key, n))
}

func (k *keys[K]) acquireKey(ctx context.Context, key K, n int64, reserve bool) (Lease, error) {
	mustContext(ctx)
	limit := k.choose(key)
	c := cell{call: call{k: &k.keyed, hash: k.hash(key)}}
	c.bring(limit)
	l, err := c.acquire(ctx, nil, n, reserve)
	switch {
	case c.terms == nil && n >= 0:
		_, wrong := k.alike("limitOf(key)", limit)
		return l, refusal(l.decision, n, fmt.Errorf("%w: %w", errInvalidLimit, wrong))
	case !l.decision.Allowed && n > 0:
		k.note(c.hash, key)
	}
	return l, err
}

// Peek returns what TryAcquire would, and takes nothing. Remaining is what remains now. A new key that would find no room is
// refused with ReasonTableFull, unless that takes a search: then only TryAcquire can tell.
func (k *keys[K]) Peek(key K, n int64) (d Decision) {
	if n < 0 {
		return k.invalid() // and the limit of the key is not asked for: see package httplimit
	}
	var c cell
	k.call(&c.call, key)
	c.ask(&d, n)
	return d
}

// Refund gives key n permits back whatever their origin, at most until all are available, and serves callers that wait for
// them. It is for operators: to undo a request, reserve and Cancel, which cannot give back too much. An n below 1 is
// ignored.
func (k *Keyed[K]) Refund(key K, n int64) {
	if n <= 0 || k.returns() {
		return
	}
	c := cell{call: call{k: &k.keyed, hash: k.hash(key)}}
	c.enter()
	c.refund(n)
	c.unlock()
}

// Reset makes all permits of key available, as if it had never been seen, and serves callers that wait for them. Leases from
// before give nothing back any more, as their permits are back (TestCancelAfterResetGivesNothingBack).
func (k *Keyed[K]) Reset(key K) {
	if k.returns() {
		return
	}
	c := cell{call: call{k: &k.keyed, hash: k.hash(key)}}
	c.enter()
	c.reset()
	c.unlock()
}

// KeyedConcurrency is a number of permits at a time for each of millions of keys: addresses, users, tokens. They come back when
// their leases are released, as those of a [Concurrency]. See [Keyed] for what is kept of a key. All methods are safe for
// concurrent use.
type KeyedConcurrency[K comparable] struct{ keys[K] }

// NewKeyedConcurrency returns a limiter with n permits for each key, from 1 to 10^15, or an *[OptionError] that names what cannot
// be used. MaxDebt of the options has no meaning here, and must be 0.
func NewKeyedConcurrency[K comparable](n int64, o KeyedOptions) (*KeyedConcurrency[K], error) {
	return newKeyedConcurrency[K](n, o, nil)
}

// NewKeyedConcurrencyFunc is NewKeyedConcurrency with a number that is chosen for each key, as [NewKeyedFunc] has it. A number of
// 0 stands for n.
func NewKeyedConcurrencyFunc[K comparable](n int64, o KeyedOptions, numberOf func(key K) int64) (*KeyedConcurrency[K], error) {
	if numberOf == nil {
		return nil, &OptionError{"NewKeyedConcurrencyFunc.numberOf", "nil", "a function"}
	}
	return newKeyedConcurrency(n, o, func(key K) Limit {
		if n := numberOf(key); n != 0 {
			return AtOnce(n)
		}
		return Limit{}
	})
}

func newKeyedConcurrency[K comparable](n int64, o KeyedOptions, limitOf func(K) Limit) (*KeyedConcurrency[K], error) {
	if o.MaxDebt != 0 {
		return nil, noDebtAtOnce("KeyedOptions.MaxDebt", o.MaxDebt)
	}
	k := new(KeyedConcurrency[K])
	if err := k.make(AtOnce(n), o, limitOf); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *KeyedConcurrency[K]) inner() *keys[K] {
	if k == nil {
		return nil
	}
	return &k.keys
}

// Do calls f while it holds n permits of key, which come back when f returns or panics. It waits for them as Acquire does. The
// error is that of f, or, if the permits were not taken and f not called, that of Acquire. A nil f panics.
func (k *KeyedConcurrency[K]) Do(ctx context.Context, key K, n int64, f func() error) error {
	mustDo(f)
	l, err := k.Acquire(ctx, key, n)
	return l.during(err, f)
}
