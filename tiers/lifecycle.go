package tiers

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/guard"
)

// entry is a limiter and how many ask it at the moment.
type entry struct {
	pair

	settle   int64      // after which time without a check every bucket in it is like a new one
	bindings []*binding // the first is own
	disposed sync.Once

	// A check writes two of the following words and reads the others, all of which a cache line can hold.
	_     [64]byte
	users atomic.Int64
	guard *guard.Guard
	own   binding // that of its own tier
	_     [64]byte
}

// retired in users of an entry means that no check may enter any more.
const retired = 1 << 62

// binding says which entry serves a pair of tiers, and when it was last asked for it.
type binding struct {
	entry *entry
	at    place
	used  atomic.Int64
}

// enter keeps an entry from being disposed of until leave. It fails if that has begun.
func (e *entry) enter() bool {
	if e.users.Add(1) < retired {
		return true
	}
	e.leave()
	return false
}

func (e *entry) leave() {
	if e.users.Add(-1) == retired {
		e.dispose()
	}
}

// retire lets no check in any more. The last one that leaves disposes of the entry.
func (e *entry) retire() {
	if e.users.Or(retired) == 0 {
		e.dispose()
	}
}

// retireIfIdle is retire, unless a check is in.
func (e *entry) retireIfIdle() bool { return e.users.CompareAndSwap(0, retired) }

func (e *entry) dispose() {
	e.disposed.Do(func() { _ = e.guard.Close() }) // is always nil
}

// lastUsed is when the entry was last asked for any of the tiers that it serves.
func (e *entry) lastUsed() int64 {
	last := int64(math.MinInt64)
	for _, b := range e.bindings {
		last = max(last, b.used.Load())
	}
	return last
}

// bind returns which limiter serves a place, and makes one if there is room. It returns nil after Close.
func (t *Tiers) bind(at place) *binding {
	want := slog.String("policy", t.pair(at).String())
	b, change, err := t.bindLocked(at, t.now())
	switch {
	case err != nil: // tryCorners has tried it
		t.log(slog.LevelError, "no limiter for a policy", want, slog.Any("error", err))
	case change && b.entry.own.at == at:
		t.log(slog.LevelDebug, "policy limiter made", want)
	case change:
		t.log(slog.LevelWarn, "too many policies: one is served by another",
			want, slog.String("by", b.entry.String()), slog.Int("max", t.max))
	}
	return b
}

func (t *Tiers) bindLocked(at place, now int64) (b *binding, change bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b = t.slots[at-firstPair].Load(); b != nil || t.closed.Load() {
		return b, false, nil
	}
	if want := t.pair(at); len(t.entries) < t.max {
		g, err := guard.New(t.guardOptions(want))
		if err != nil {
			return nil, false, err
		}
		e := &entry{pair: want, guard: g, settle: t.settle(want)}
		t.entries = append(t.entries, e)
		b = &e.own
		b.entry = e
	} else {
		b = &binding{entry: closest(t.entries, want)}
	}
	b.at = at
	b.used.Store(now)
	b.entry.bindings = append(b.entry.bindings, b)
	t.slots[at-firstPair].Store(b)
	return b, true, nil
}

// settle is after which time without a check all buckets of a limiter are full, its lockouts over and forgotten.
func (t *Tiers) settle(p pair) int64 {
	g := &t.guard
	lockout := g.HardLockout
	if g.LockoutFactor > 1 {
		lockout = max(lockout, g.MaxLockout)
	}
	// The guard rounds its rate to a multiple of 1 / TokenScale, at worst down by half of one.
	rate := max(math.Round(p.rps*float64(g.TokenScale)), 1) / float64(g.TokenScale)
	fill := time.Duration(math.Ceil(float64(p.burst) / rate * float64(time.Second)))
	return int64(lockout + max(fill, g.SoftViolationWindow, g.CooldownReset))
}

// startSweep starts a sweep unless one is under way.
func (t *Tiers) startSweep() {
	if !t.sweeping.TryLock() {
		return
	}
	if t.closed.Load() {
		t.sweeping.Unlock()
		return
	}
	go t.sweep()
}

// sweepInTurn is called with the lock sweeping held.
func (t *Tiers) sweepInTurn() {
	defer t.sweeping.Unlock()
	t.sweepEntries()
}

// Sweep sweeps away the limiters that are unused, and returns how many they were. It is for servers that may be quiet for so long
// that the next SweepEvery checks do not come.
func (t *Tiers) Sweep() int {
	t.sweeping.Lock()
	defer t.sweeping.Unlock()
	return t.sweepEntries()
}

func (t *Tiers) sweepEntries() int {
	var gone []*entry
	now := t.now()
	t.mu.Lock()
	t.entries = slices.DeleteFunc(t.entries, func(e *entry) bool {
		if now-e.lastUsed() <= max(t.unused, e.settle) || !e.retireIfIdle() {
			return false
		}
		t.unbind(e.bindings)
		gone = append(gone, e)
		return true
	})
	if len(t.entries) < t.max {
		for _, e := range t.entries {
			quiet := func(b *binding) bool { return b != &e.own && now-b.used.Load() > e.settle }
			for i := len(e.bindings) - 1; i > 0; i-- {
				if quiet(e.bindings[i]) {
					t.unbind(e.bindings[i : i+1])
					e.bindings = slices.Delete(e.bindings, i, i+1)
				}
			}
		}
	}
	t.mu.Unlock()
	for _, e := range gone {
		e.dispose()
		t.log(slog.LevelDebug, "policy limiter swept away", slog.String("policy", e.String()))
	}
	return len(gone)
}

func (t *Tiers) unbind(all []*binding) {
	for _, b := range all {
		t.slots[b.at-firstPair].Store(nil)
	}
}

// Close refuses all later messages with ReasonClosed, and closes each limiter after the last check that uses it. It waits for a
// sweep that is under way; then no goroutine of the Tiers remains. Closing twice is harmless. The error is always nil.
func (t *Tiers) Close() error {
	t.closed.Store(true)
	t.sweeping.Lock()
	defer t.sweeping.Unlock()
	t.mu.Lock()
	gone := t.entries
	t.entries = nil
	for _, e := range gone {
		t.unbind(e.bindings)
	}
	t.mu.Unlock()
	for _, e := range gone {
		e.retire()
	}
	return nil
}

func (t *Tiers) log(level slog.Level, text string, attributes ...slog.Attr) {
	if t.logger != nil {
		t.logger.LogAttrs(context.Background(), level, text, attributes...)
	}
}
