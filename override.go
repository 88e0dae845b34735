package weir

import (
	"errors"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/table"
)

// mostOverrides is how many keys can be overridden at a time.
const mostOverrides = 1 << 16

// ErrClosed is returned by calls that change a limiter that has been closed.
var ErrClosed = errors.New("weir: the limiter is closed")

// Override implements keyset.View.
func (k operator[K]) Override(key K, limit Limit, d time.Duration) error {
	t, why := k.termsOf(key)
	if why != ReasonNone {
		t = k.base
	}
	return k.override(k.hash(key), t, limit, d)
}

// Restore implements keyset.View.
func (k operator[K]) Restore(key K) bool { return k.restore(k.hash(key)) }

func (k *keyed) override(h table.Hash, normal *terms, limit Limit, d time.Duration) error {
	t, err := k.alike("Override.limit", limit)
	if err != nil {
		return err
	}
	if d < 1 || d > algo.MaxPeriod {
		return &OptionError{"Override.d", d.String(), "from 1ns to 87840h (3660 days)"}
	}
	g, err := k.lockGate(h, normal)
	if err != nil {
		return err
	}
	defer g.unlock()
	if g.closed {
		return ErrClosed
	}
	if g.normal == nil {
		if k.overrides.Add(1) > mostOverrides {
			k.overrides.Add(-1)
			return inside.ErrTooManyOverrides
		}
		g.normal = g.terms
	} else {
		g.end()
	}
	now := g.now()
	g.until = clock.After(now, d)
	g.hold(t, now)
	expire := func() {
		if _, alive := g.arrive(nil, nil); alive {
			g.unlock()
		}
	}
	if g.clock != nil {
		g.end = g.clock.At(g.until, expire)
	} else {
		g.end = time.AfterFunc(d, expire).Stop
	}
	return nil
}

// endOverride goes back to the normal limit.
func (g *keyGate) endOverride(now int64) {
	g.end()
	normal := g.normal
	g.normal = nil
	g.keyed.overrides.Add(-1)
	g.hold(normal, now)
}

func (k *keyed) restore(h table.Hash) bool {
	for {
		g := k.gateOf(h)
		if g == nil {
			return false
		}
		now, alive := g.arrive(nil, nil)
		if !alive {
			continue
		}
		overridden := g.normal != nil
		if overridden {
			g.endOverride(now)
		}
		g.unlock()
		return overridden
	}
}

// gateOf is the gate of a key, or nil.
func (k *keyed) gateOf(h table.Hash) *keyGate {
	shard := k.states.Lock(h)
	defer shard.Unlock()
	return k.busy[shard.Index()][h]
}

// lockGate returns the gate of a key, locked. If the key has none, it makes one.
func (k *keyed) lockGate(h table.Hash, t *terms) (*keyGate, error) {
	for attempt := 0; ; attempt++ {
		shard := k.states.Lock(h)
		if k.closed.Load() {
			shard.Unlock()
			return nil, ErrClosed
		}
		g := k.busy[shard.Index()][h]
		if g == nil {
			now := k.now()
			slot := shard.Find(h)
			switch {
			case slot == nil:
				slot = k.add(shard, h, t, now)
			case t == k.base: // its own may be a Plan
				k.adopt(shard, slot, h, k.termsWith(slot.Tag()), now)
			case !k.adopt(shard, slot, h, t, now):
				slot = nil
			}
			if slot == nil {
				shard.Unlock()
				if k.makeRoom(&t, now, attempt) {
					continue
				}
				return nil, inside.ErrTableFull
			}
			g = k.raise(shard, slot, h, now)
		}
		shard.Unlock()
		own := t
		if t == k.base {
			own = nil
		}
		if _, alive := g.arrive(own, nil); alive {
			return g, nil
		}
	}
}
