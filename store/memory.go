package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// MemoryOptions configure a [Memory].
type MemoryOptions struct {
	// Clock replaces the wall clock: its Now is in Unix nanoseconds. Its AfterFunc is not used. Default: nil.
	Clock weir.Clock
	// MaxKeys is how many keys of policies are kept at a time: from 1 to 10^9. Where there is no room, those are forgotten
	// first that have all their permits and no reservation. If there is none of these, charges of new keys are refused with
	// ReasonTableFull, and RetryAfter is until the first can be forgotten. Default: 1,000,000.
	MaxKeys int
}

const defaultMaxKeys = 1_000_000

// Memory is a [Store] in the memory of this process: for a single node, for tests, and as the reference for every other one. It
// is exact, and a request is one step whatever it charges. It starts no goroutine.
//
// A reservation that has expired is canceled when its key is used next, as of the time at which it expired. Until then it only
// takes memory. A key that is not used is forgotten when room is needed or other keys are added.
//
// A clock that is set back neither gives permits back nor keeps them from coming back: time goes on from where it was, a
// sixteenth slower than the clock until the two agree again.
type Memory struct {
	maxKeys int
	clock   weir.Clock

	lock    sync.Mutex
	closed  bool
	keys    map[memoryKey]*memoryEntry
	queue   []*memoryEntry // a heap by due
	last    int64          // what the clock showed last
	ahead   int64          // how far the time of the store is ahead of it
	spare   record         // for what is asked of keys that are not kept
	found   []*memoryEntry
	cleared []int64
}

type memoryKey struct{ policy, key string }

// memoryEntry is what is kept for a key.
type memoryEntry struct {
	record

	key  memoryKey
	due  int64 // the entry is not fresh before; it may be later
	slot int   // its place in the queue
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store, or an *[weir.OptionError].
func NewMemory(o MemoryOptions) (*Memory, error) {
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.MaxKeys < 1 || o.MaxKeys > 1e9 {
		return nil, &weir.OptionError{Option: "MemoryOptions.MaxKeys", Value: fmt.Sprint(o.MaxKeys), Accepted: "from 1 to 10^9"}
	}
	return &Memory{
		maxKeys: o.MaxKeys, clock: o.Clock, keys: make(map[memoryKey]*memoryEntry), last: math.MinInt64,
		cleared: make([]int64, 1+algo.MaxSegments),
	}, nil
}

// now is the time of the store, which never goes back. The store must be locked.
func (m *Memory) now() int64 {
	shown := clockNow(m.clock)
	const slower = 16
	switch {
	case m.last == math.MinInt64:
	case shown < m.last:
		m.ahead += m.last - shown
	case m.ahead > 0:
		m.ahead -= min(m.ahead, (shown-m.last)/slower)
	}
	m.last = shown
	return shown + m.ahead
}

// time is now for those who have not locked the store.
func (m *Memory) time() int64 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.now()
}

// clockNow is what a clock shows, which is the wall clock if it is nil.
func clockNow(c weir.Clock) int64 {
	if c == nil {
		return time.Now().UnixNano()
	}
	return c.Now()
}

// enter locks the store for a call about charges, or returns why it cannot.
func (m *Memory) enter(ctx context.Context, charges []Charge) error {
	if err := checkNames(charges); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return notTaken(err)
	}
	m.lock.Lock()
	if m.closed {
		m.lock.Unlock()
		return ErrClosed
	}
	return nil
}

// notTaken is the error of a call that has ended, for the reason err, before it did anything.
func notTaken(err error) error { return fmt.Errorf("weir: the store was not asked: %w", err) }

// Take implements [Store].
func (m *Memory) Take(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if err := CheckTaken(charges); err != nil {
		return err
	}
	_, _, err := m.decide(ctx, charges, decisions, 0)
	return err
}

// Reserve implements [Store].
func (m *Memory) Reserve(
	ctx context.Context, charges []Charge, decisions []weir.Decision, expiry time.Duration,
) (Reservation, error) {
	if err := CheckExpiry(expiry); err != nil {
		return Reservation{}, err
	}
	id, expires, err := m.decide(ctx, charges, decisions, expiry)
	if err != nil || id == "" {
		return Reservation{}, err
	}
	return newReservation(id, charges, expires), nil
}

// newReservation keeps nothing of the caller's.
func newReservation(id string, charges []Charge, expires int64) Reservation {
	r := Reservation{ID: id, Charges: make([]Charge, len(charges)), Expires: expires}
	for i, c := range charges {
		c.Policy, c.Key = strings.Clone(c.Policy), strings.Clone(c.Key)
		r.Charges[i] = c
	}
	return r
}

// decide takes the permits of all charges or none. If expiry is not 0, they are reserved.
func (m *Memory) decide(
	ctx context.Context, charges []Charge, decisions []weir.Decision, expiry time.Duration,
) (id string, expires int64, err error) {
	if err := CheckDecisions(charges, decisions); err != nil {
		return "", 0, err
	}
	if expiry != 0 {
		id = rand.Text()
	}
	if err := m.enter(ctx, charges); err != nil {
		return "", 0, err
	}
	defer m.lock.Unlock()
	now := m.now()
	if len(charges) == 1 && expiry == 0 { // one look is enough
		if e, t := m.find(&charges[0]); e != nil && e.settled(now, t) {
			e.ready(now, nil)
			decisions[0] = DecisionOf(charges[0], t.most, e.take(charges[0].N))
			return "", 0, nil
		}
	}
	if allowed, err := m.judge(charges, decisions, now, expiry != 0); !allowed || err != nil {
		if err == nil {
			m.adopt(charges, now)
		}
		return "", 0, err
	}
	added := 0
	for i := range charges {
		c := &charges[i]
		e := m.found[i]
		t, _ := e.termsOf(c) // which was checked
		if e == nil {
			if c.N == 0 && expiry == 0 {
				continue
			}
			e = m.add(c, t, now)
			m.found[i] = e
			added++
		}
		e.ready(now, t)
		expires = max(expires, e.at+int64(expiry))
		decisions[i] = DecisionOf(*c, t.most, e.take(c.N))
	}
	for i, e := range m.found {
		if expiry != 0 {
			e.hold(id, charges[i].N, expires, "")
		}
		if e != nil {
			m.due(e)
		}
	}
	for range added { // two for each that was added, so that what is kept does not grow for long
		m.reclaim(now, m.maxKeys)
	}
	return id, expires, nil
}

// adopt makes what is kept for charges that were refused held to their limits from now on.
func (m *Memory) adopt(charges []Charge, now int64) {
	for i, e := range m.found {
		if e == nil {
			continue
		}
		if t, _ := e.termsOf(&charges[i]); e.terms != t { // it was checked
			e.ready(now, t)
			m.due(e)
		}
	}
}

// judge decides on each of the charges without taking anything, and reports whether all are allowed. What is kept for them
// is in m.found afterwards.
func (m *Memory) judge(charges []Charge, decisions []weir.Decision, now int64, reserve bool) (allowed bool, err error) {
	if most := m.maxKeys - len(charges); len(m.keys) > most {
		m.reclaim(now, most)
	}
	room := m.maxKeys - len(m.keys)
	m.found = m.found[:0]
	allowed = true
	for i := range charges {
		c := &charges[i]
		e := m.keys[memoryKey{c.Policy, c.Key}]
		t, err := e.termsOf(c)
		if err != nil {
			return false, err
		}
		m.found = append(m.found, e)
		r := m.view(e, t, now)
		d := &decisions[i]
		*d = DecisionOf(*c, t.most, r.peek(c.N))
		if e == nil && (c.N > 0 || reserve) {
			room--
			if room < 0 && d.Allowed {
				wait := int64(never) // more keys than there is ever room for
				if len(m.queue) > 0 {
					wait = m.queue[0].due - now
				}
				m.refuseFull(d, wait)
			}
		}
		if reserve && d.Allowed && r.full() {
			m.refuseFull(d, r.held[0].expires-now)
		}
		allowed = allowed && d.Allowed
	}
	return allowed, nil
}

// termsOf are the terms of a charge for the key of e, which may be nil.
func (e *memoryEntry) termsOf(c *Charge) (*terms, error) {
	if e != nil && e.terms.limit == c.Limit {
		return e.terms, nil
	}
	return compiled.terms(c.Limit)
}

// find is what is kept for the charge, if it is held to the limit of the charge, which is t.
func (m *Memory) find(c *Charge) (e *memoryEntry, t *terms) {
	e = m.keys[memoryKey{c.Policy, c.Key}]
	if e == nil || e.terms.limit != c.Limit {
		return nil, nil
	}
	return e, e.terms
}

// view is the record of e, which may be nil, as of now and under t. It must not be changed. Reservations
// that have expired are canceled in either case.
func (m *Memory) view(e *memoryEntry, t *terms, now int64) *record {
	if e == nil {
		m.spare = record{terms: t, at: now, state: m.cleared[:t.law.words()]}
		clear(m.spare.state)
		if t.limit.Algorithm() == weir.AlgorithmTokenBucket {
			m.spare.state[0] = now
		}
		return &m.spare
	}
	e.ready(now, nil)
	if e.terms == t {
		return &e.record
	}
	r := e.clone()
	r.carry(t)
	return r
}

// refuseFull makes d a refusal for want of room, which there will be after wait.
func (m *Memory) refuseFull(d *weir.Decision, wait int64) {
	d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonTableFull, time.Duration(max(wait, 1))
}

// Peek implements [Store].
func (m *Memory) Peek(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if err := CheckDecisions(charges, decisions); err != nil {
		return err
	}
	if err := m.enter(ctx, charges); err != nil {
		return err
	}
	defer m.lock.Unlock()
	_, err := m.judge(charges, decisions, m.now(), false)
	return err
}

// Reset implements [Store].
func (m *Memory) Reset(ctx context.Context, policy, key string) error {
	if err := checkName(policy, key); err != nil {
		return err
	}
	if err := m.enter(ctx, nil); err != nil {
		return err
	}
	defer m.lock.Unlock()
	if e := m.keys[memoryKey{policy, key}]; e != nil {
		m.forget(e)
	}
	return nil
}

// Inspect implements [Store].
func (m *Memory) Inspect(ctx context.Context, c Charge) (State, error) {
	c.N = 0
	t, err := compiled.terms(c.Limit)
	if err != nil {
		return State{}, err
	}
	if err := m.enter(ctx, []Charge{c}); err != nil {
		return State{}, err
	}
	defer m.lock.Unlock()
	e := m.keys[memoryKey{c.Policy, c.Key}]
	return m.view(e, t, m.now()).inspect(c, e != nil, 0), nil
}

// inspect is what the record, which must be ready, says to a charge, if it is known and is kept for margin longer than it
// must be.
func (r *record) inspect(c Charge, known bool, margin time.Duration) State {
	s := State{Decision: DecisionOf(c, r.terms.most, r.peek(0))}
	if known && !r.fresh() {
		s.Known = true
		s.Forgotten = after(r.freshAt(), margin)
		s.Reserved, s.Reservations = r.reserved()
	}
	return s
}

// after is t + d, or the last time there is.
func after(t int64, d time.Duration) int64 {
	if sum := t + int64(d); sum >= t {
		return sum
	}
	return never
}

// Len is how many keys are kept, some of which may have all their permits.
func (m *Memory) Len() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return len(m.keys)
}

// Close implements [Store]. The states are lost.
func (m *Memory) Close() error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.closed, m.keys, m.queue, m.found = true, nil, nil, nil
	return nil
}
