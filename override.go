package weir

import (
	"errors"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inside"
)

// mostOverrides is how many keys can be overridden at a time.
const mostOverrides = 1 << 16

// ErrClosed is returned by calls that change a limiter that has been closed.
var ErrClosed = errors.New("weir: the limiter is closed")

// Override implements keyset.View.
func (k operator[K]) Override(key K, limit Limit, d time.Duration) error {
	t, err := k.alike("Override.limit", limit)
	if err != nil {
		return err
	}
	if d < 1 || d > algo.MaxPeriod {
		return &OptionError{"Override.d", d.String(), "from 1ns to 87840h (3660 days)"}
	}
	var c cell
	k.cell(&c, key)
	if err := c.lockGate(); err != nil {
		return err
	}
	defer c.unlock()
	return c.gate.override(t, c.now, d)
}

// Restore implements keyset.View.
func (k operator[K]) Restore(key K) bool {
	c := cell{k: &k.keyed, hash: k.hash(key)}
	c.lock(nil)
	defer c.unlock()
	if c.gate == nil || c.gate.normal == nil {
		return false
	}
	c.gate.endOverride(c.now)
	return true
}

// lockGate is lock that moves the state into a gate if it is in none.
func (c *cell) lockGate() error {
	if c.full || c.terms == nil { // the limit that was chosen for the key cannot be used
		c.terms, c.full = c.k.base, false
	}
	t, own := c.terms, c.terms
	if t == c.k.base {
		own = nil // that of the state may be a Plan
	}
	for attempt := 0; ; attempt++ {
		c.terms = own
		c.enter()
		switch {
		case c.gate != nil:
			return nil
		case c.k.closed.Load():
			c.unlock()
			return ErrClosed
		case c.slot == nil:
			c.terms = t
			c.add()
		}
		tracked := c.slot != nil
		if tracked {
			c.raise()
		}
		c.unlock()
		if !tracked && !c.makeRoom(attempt) {
			return inside.ErrTableFull
		}
	}
}

// override holds the state to t for d from now on.
func (g *keyGate) override(t *terms, now int64, d time.Duration) error {
	if g.closed {
		return ErrClosed
	}
	k := g.keyed
	if g.normal == nil {
		if k.overrides.Add(1) > mostOverrides {
			k.overrides.Add(-1)
			return inside.ErrTooManyOverrides
		}
		g.normal = g.terms
	} else {
		g.end()
	}
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
