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
	"github.com/weirhq/weir/internal/heap"
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

// Memory is a [Home] in the memory of this process: for a single node, for tests, and as the reference for every other one. It
// is exact, and a request is one step whatever it charges. It starts no goroutine.
//
// A reservation that has expired is canceled when its key is used next, as of then. Until then it only takes memory.
// A key that is not used is forgotten when room is needed or other keys are added.
//
// A clock that is set back neither gives permits back nor keeps them from coming back: time goes on from where it was, a
// sixteenth slower than the clock until the two agree again. The zero Memory is not usable: call [NewMemory].
type Memory struct {
	maxKeys int
	clock   weir.Clock

	lock    sync.Mutex
	closed  bool
	keys    map[recordKey]*memoryEntry
	queue   heap.Heap[*memoryEntry]
	last    int64  // what the clock showed last
	ahead   int64  // how far the time of the store is ahead of it
	spare   record // for what is asked of keys that are not kept
	found   []*memoryEntry
	cleared []uint64
}

// memoryEntry is what is kept for a key.
type memoryEntry struct {
	record

	key  recordKey
	due  int64 // the entry is not fresh before; it may be later
	slot int   // its place in the queue
}

// Before implements [heap.Item]: the one that may be fresh first comes first.
func (e *memoryEntry) Before(other *memoryEntry) bool { return e.due < other.due }

// Placed implements [heap.Item].
func (e *memoryEntry) Placed(at int) { e.slot = at }

var _ Home = (*Memory)(nil)

// NewMemory returns an empty store, or an *[weir.OptionError].
func NewMemory(o MemoryOptions) (*Memory, error) {
	maxKeys, err := maxKeysOf("MemoryOptions.MaxKeys", o.MaxKeys)
	if err != nil {
		return nil, err
	}
	return &Memory{
		maxKeys: maxKeys, clock: o.Clock, keys: make(map[recordKey]*memoryEntry), last: math.MinInt64,
		cleared: make([]uint64, 1+algo.MaxSegments),
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

// time is now, for calls that have not locked the store.
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

// enter locks the store for a call, or returns why it cannot.
func (m *Memory) enter(ctx context.Context) error {
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

// Do implements [Home].
func (m *Memory) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	var err error
	if ask.Mode == ModeTake || ask.Mode == ModePeek { // which look for the limit at the key first
		if err = check(&ask, charges, decisions); err == nil && ask.Wait != 0 {
			err = errNoQueue(ask.Wait)
		}
	} else {
		err = Check(ask, charges, decisions)
	}
	if err != nil {
		return Hold{}, err
	}
	id := ""
	if ask.Hold != 0 {
		id = rand.Text()
	}
	if err := m.enter(ctx); err != nil {
		return Hold{}, err
	}
	defer m.lock.Unlock()
	now := m.now()
	switch ask.Mode {
	case ModeTake:
		return m.take(charges, decisions, now, id, ask.Hold)
	case ModePeek:
		return Hold{}, m.peek(charges, decisions, ask.States, now)
	case ModeDebit:
		m.debit(charges, decisions, now)
	case ModeRefund:
		m.refund(charges, now)
	case ModeLend:
		return m.lend(charges[0], &decisions[0], ask.Least, now), nil
	default:
		for _, key := range recordKeys(charges) {
			if e := m.keys[key]; e != nil {
				m.forget(e)
			}
		}
	}
	return Hold{}, nil
}

// newReservation keeps nothing of the caller's.
func newReservation(id string, charges []Charge, expires int64) Hold {
	r := Hold{ID: id, Charges: make([]Charge, len(charges)), Expires: expires}
	for i, c := range charges {
		c.Policy, c.Key = strings.Clone(c.Policy), strings.Clone(c.Key)
		r.Charges[i] = c
	}
	return r
}

// take takes the permits of all charges or none. If id is not "", they are reserved.
func (m *Memory) take(charges []Charge, decisions []weir.Decision, now int64, id string, expiry time.Duration) (Hold, error) {
	reserve := id != ""
	if len(charges) == 1 && !reserve { // one look is enough
		if e, t := m.find(&charges[0]); e != nil && e.settled(now, t) {
			e.ready(now, nil)
			decisions[0] = DecisionOf(charges[0], t.most, e.take(charges[0].N))
			return Hold{}, nil
		}
	}
	if allowed, err := m.judge(charges, decisions, now, reserve); !allowed || err != nil {
		if err == nil {
			m.adopt(charges, now)
		}
		return Hold{}, err
	}
	added, expires := 0, int64(0)
	for i := range charges {
		c := &charges[i]
		e := m.found[i]
		t, _ := e.termsOf(c) // which was checked
		if e == nil {
			if c.N == 0 && !reserve {
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
		if reserve {
			e.hold(id, charges[i].N, expires, "")
		}
		if e != nil {
			m.due(e)
		}
	}
	for range added { // two for each that was added, so that what is kept does not grow for long
		m.reclaim(now, m.maxKeys)
	}
	if !reserve {
		return Hold{}, nil
	}
	return newReservation(id, charges, expires), nil
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
		e := m.keys[c.recordKey()]
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
	return termsOf(c.Limit)
}

// find is what is kept for the charge, if it is held to the limit of the charge, which is t.
func (m *Memory) find(c *Charge) (e *memoryEntry, t *terms) {
	e = m.keys[c.recordKey()]
	if e == nil || e.terms.limit != c.Limit {
		return nil, nil
	}
	return e, e.terms
}

// view is the record of e, which may be nil, as of now and under t. It must not be changed. Reservations
// that have expired are canceled in either case.
func (m *Memory) view(e *memoryEntry, t *terms, now int64) *record {
	if e == nil {
		m.spare = record{terms: t, at: now, state: m.cleared[:t.law.Words()]}
		t.law.Begin(m.spare.state, now, 0)
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

// peek decides on the charges without taking anything, and fills states if there are any.
func (m *Memory) peek(charges []Charge, decisions []weir.Decision, states []State, now int64) error {
	if _, err := m.judge(charges, decisions, now, false); err != nil || states == nil {
		return err
	}
	for i, e := range m.found {
		t, _ := e.termsOf(&charges[i]) // which was checked
		states[i] = m.view(e, t, now).inspect(charges[i], e != nil, 0)
	}
	return nil
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

// refund gives permits back.
func (m *Memory) refund(charges []Charge, now int64) {
	for i := range charges {
		if e := m.keys[charges[i].recordKey()]; e != nil {
			t, _ := termsOf(charges[i].Limit) // which was checked
			e.ready(now, t)
			e.refund(charges[i].N)
			m.due(e)
		}
	}
}

// debit takes permits whether they are there or not.
func (m *Memory) debit(charges []Charge, decisions []weir.Decision, now int64) {
	for i := range charges {
		c := &charges[i]
		probe := Charge{Policy: c.Policy}
		e, t, ok := m.entry(c, now)
		if !ok { // what was taken elsewhere cannot be kept
			decisions[i] = DecisionOf(probe, t.most, m.view(nil, t, now).peek(0))
			m.refuseFull(&decisions[i], m.untilRoom(now))
			continue
		}
		e.ready(now, t)
		decisions[i] = DecisionOf(probe, t.most, e.debit(c.N))
		m.due(e)
	}
}

// lend takes what there is of the permits of a charge, and least at least.
func (m *Memory) lend(c Charge, d *weir.Decision, least, now int64) Hold {
	asked := Charge{Policy: c.Policy, N: least}
	if t, _ := termsOf(c.Limit); least > t.most { // nothing is kept for that
		*d = DecisionOf(asked, t.most, m.view(m.keys[c.recordKey()], t, now).peek(least))
		return Hold{}
	}
	e, t, ok := m.entry(&c, now)
	if !ok {
		*d = DecisionOf(asked, t.most, m.view(nil, t, now).peek(least))
		m.refuseFull(d, m.untilRoom(now))
		return Hold{}
	}
	e.ready(now, t)
	lent, r := e.lend(least, c.N)
	m.due(e)
	if *d = DecisionOf(asked, t.most, r); !d.Allowed {
		return Hold{}
	}
	c.N, c.Policy, c.Key = lent, strings.Clone(c.Policy), strings.Clone(c.Key)
	return Hold{Charges: []Charge{c}, Taken: e.at}
}

// entry is what is kept for a charge, made if there is room, and its terms.
func (m *Memory) entry(c *Charge, now int64) (e *memoryEntry, t *terms, ok bool) {
	e = m.keys[c.recordKey()]
	t, _ = e.termsOf(c) // which was checked
	if e != nil {
		return e, t, true
	}
	if m.reclaim(now, m.maxKeys-1); len(m.keys) >= m.maxKeys {
		return nil, t, false
	}
	return m.add(c, t, now), t, true
}

// untilRoom is how long it takes at least until there is room for one more key.
func (m *Memory) untilRoom(now int64) int64 {
	if len(m.queue) == 0 {
		return never
	}
	return m.queue[0].due - now
}

// Settle implements [Home].
func (m *Memory) Settle(ctx context.Context, h Hold, actual []int64) error {
	if err := CheckSettle(h, actual); err != nil {
		return err
	}
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.lock.Unlock()
	now := m.now()
	known := len(h.Charges) == 0
	for i := range h.Charges {
		c := &h.Charges[i]
		e := m.keys[c.recordKey()]
		if e == nil {
			continue
		}
		if h.lent() {
			if t, _ := e.termsOf(c); e.terms.text == t.text {
				e.ready(now, nil)
				e.takeBack(h.unspent(actual), h.Taken)
				m.due(e)
			}
			continue
		}
		e.ready(now, nil)
		if at := e.find(h.ID, h.Expires); at >= 0 {
			known = true
			if actual == nil {
				e.cancel(at)
			} else {
				e.commit(at, actual[i])
			}
		}
		m.due(e)
	}
	if !known && !h.lent() {
		return ErrNotReserved
	}
	return nil
}

// Len is how many keys are kept, some of which may have all their permits.
func (m *Memory) Len() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return len(m.keys)
}

// Close implements [Home]. The states are lost.
func (m *Memory) Close() error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.closed, m.keys, m.queue, m.found = true, nil, nil, nil
	return nil
}

// The entries of a Memory are queued by when they may be fresh. An entry is moved only when it leads the queue, so that a
// charge costs nothing here: what it is queued by is a time before which it is not fresh.

// add makes an entry for a charge that has none.
func (m *Memory) add(c *Charge, t *terms, now int64) *memoryEntry {
	e := &memoryEntry{record: *newRecord(t, now), key: c.recordKey().clone(), due: now}
	m.keys[e.key] = e
	m.queue.Push(e)
	return e
}

// due moves an entry that was changed to where it may be fresh earlier than it is queued for. One that is fresh is not dropped
// at once, as it is often asked for again.
func (m *Memory) due(e *memoryEntry) {
	if at := e.freshAt(); e.due <= e.at || at < e.due {
		e.due = at
		m.queue.Fix(e.slot)
	}
}

// forget drops an entry.
func (m *Memory) forget(e *memoryEntry) {
	delete(m.keys, e.key)
	m.queue.Remove(e.slot)
}

// reclaim forgets fresh entries: two, or as many as are needed to keep no more than most.
func (m *Memory) reclaim(now int64, most int) {
	for few := 2; len(m.queue) > 0 && m.queue[0].due <= now && (few > 0 || len(m.keys) > most); few-- {
		e := m.queue[0]
		e.ready(now, nil)
		if e.fresh() {
			m.forget(e)
			continue
		}
		e.due = max(e.freshAt(), now+1)
		m.queue.Fix(0)
	}
}
