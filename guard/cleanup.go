package guard

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir/internal/table"
)

// maxCleanup is how long a cleanup goes on at most.
const maxCleanup = 5 * time.Second

// Cleanup is what a cleanup has done.
type Cleanup struct {
	// Skipped is set if another cleanup was running, or the guard is closed, and so nothing was done.
	Skipped bool `json:"skipped"`
	// Complete is set if the cleanup has looked at all endpoints, and forgotten all that it should.
	Complete bool `json:"complete"`
	// Stale is how many endpoints were forgotten because they had not been seen for longer than StaleEntry.
	Stale int `json:"stale"`
	// Evicted is how many more were forgotten because more than MaxTrackedEndpoints were tracked.
	Evicted int `json:"evicted"`
	// Tracked is how many endpoints are still tracked.
	Tracked int64 `json:"tracked"`
}

// Cleanup does now what is done every CleanupInterval. It forgets endpoints that have not been seen for longer than StaleEntry.
// If more than MaxTrackedEndpoints are tracked, it forgets those that were seen longest ago. An endpoint that would gain by it is
// kept: see [Guard].
//
// It forgets at most MaxEvictionCapacity endpoints and takes at most 5 s; the next one goes on from there. It locks a part of the
// table of at most 2048 places at a time, for some 100 us. If a cleanup is running, or the guard is closed, it does nothing.
func (g *Guard) Cleanup() Cleanup {
	if !g.cleaning.TryLock() {
		return Cleanup{Skipped: true, Tracked: g.states.Len()}
	}
	defer g.cleaning.Unlock()
	if g.closed.Load() {
		return Cleanup{Skipped: true, Tracked: g.states.Len()}
	}
	run := &cleanup{g: g, now: g.now(), left: g.o.MaxEvictionCapacity}
	run.end = run.now + int64(maxCleanup)
	run.sweep()
	if over := g.states.Len() - g.maxTracked.Load(); over > 0 && g.maxTracked.Load() > 0 && !run.ended {
		run.evict(int(min(over, int64(run.left))))
	}
	over := g.maxTracked.Load() > 0 && g.states.Len() > g.maxTracked.Load()
	c := Cleanup{
		Complete: !run.ended && (!over || run.left > 0), Stale: run.stale, Evicted: run.evicted, Tracked: g.states.Len(),
	}
	capped := g.capped.Sum()
	refused := capped - g.reported
	g.reported = capped
	g.cleanups.Add(1)
	g.forgotten.Add(int64(c.Stale))
	g.evicted.Add(int64(c.Evicted))
	g.log(c, refused)
	return c
}

func (g *Guard) log(c Cleanup, refused int64) {
	if g.o.Logger == nil {
		return
	}
	level, text := slog.LevelDebug, "guard cleaned up"
	if refused > 0 {
		level, text = slog.LevelWarn, "guard refused new endpoints, as too many are tracked"
	}
	g.o.Logger.LogAttrs(context.Background(), level, text,
		slog.String("guard", g.o.Name), slog.Int64("tracked", c.Tracked), slog.Int("stale", c.Stale),
		slog.Int("evicted", c.Evicted), slog.Bool("complete", c.Complete), slog.Int64("refused", refused))
}

// cleanup is one that is running.
type cleanup struct {
	g              *Guard
	now, end       int64
	left           int // how many endpoints it may still forget
	stale, evicted int
	ended          bool // before it has come to all of them
}

// pause lets callers go on that wait for a lock, and reports whether to go on.
func (c *cleanup) pause() bool {
	runtime.Gosched()
	c.now = c.g.now()
	c.ended = c.ended || c.now > c.end || c.g.closed.Load()
	return !c.ended
}

// walk calls f for all endpoints, from the shard of the rotation all the way round. If it does not come to the end, the
// next one begins with the shard in which it has ended.
func (c *cleanup) walk(f func(h table.Hash, s *entry) (keep bool)) {
	t, first := c.g.states, c.g.rotation
	next := func(h table.Hash, slot table.Slot) bool { return f(h, (*entry)(slot.State())) }
	for at, round := t.StartAt(first), false; !round || at.Shard() < first; {
		shard := at.Shard()
		if !t.Next(&at, next) { // the last shard is behind, or there is none before the first
			at, round = t.StartAt(0), true
			continue
		}
		if !c.pause() {
			c.g.rotation = shard
			return
		}
	}
}

func (c *cleanup) sweep() {
	stale := int64(c.g.o.StaleEntry)
	c.walk(func(_ table.Hash, s *entry) bool {
		if c.now-s.at(seenAt) <= stale || c.g.forgettableAt(s) > c.now {
			return true
		}
		if c.left == 0 {
			c.ended = true
			return true
		}
		c.left--
		c.stale++
		return false
	})
	if !c.ended {
		c.g.rotation = (c.g.rotation + 1) % c.g.states.Shards()
	}
}

// candidate is an endpoint that could be forgotten when it was looked at.
type candidate struct {
	hash table.Hash
	seen int64
}

// evict forgets the n endpoints that were seen longest ago, of those that can be forgotten.
func (c *cleanup) evict(n int) {
	if n == 0 {
		c.ended = true
		return
	}
	oldest := make([]candidate, 0, 2*n)
	newest := int64(math.MaxInt64) // of the n oldest so far
	trim := func() {
		slices.SortFunc(oldest, func(a, b candidate) int { return cmp.Compare(a.seen, b.seen) })
		if len(oldest) > n {
			oldest = oldest[:n]
			newest = oldest[n-1].seen
		}
	}
	c.walk(func(h table.Hash, s *entry) bool {
		if seen := s.at(seenAt); seen < newest && c.g.forgettableAt(s) <= c.now {
			if oldest = append(oldest, candidate{h, seen}); len(oldest) == cap(oldest) {
				trim()
			}
		}
		return true
	})
	trim()
	for _, old := range oldest {
		shard := c.g.states.Lock(old.hash)
		if slot := shard.Find(old.hash); slot != nil {
			s := (*entry)(slot.State())
			if s.at(seenAt) == old.seen && c.g.forgettableAt(s) <= c.now {
				shard.Remove(old.hash)
				c.evicted++
				c.left--
			}
		}
		shard.Unlock()
	}
}

// SetMaxTrackedEndpoints changes MaxTrackedEndpoints. If more are tracked, cleanups forget those that were seen longest ago, as
// soon as they can be forgotten. Until then no new endpoint adds to their number. The error is a *[weir.OptionError] for an n out
// of range.
func (g *Guard) SetMaxTrackedEndpoints(n int) error {
	if n < 0 || n > math.MaxInt32 {
		return optionError("MaxTrackedEndpoints", strconv.Itoa(n), "from 0 to 2147483647")
	}
	g.states.Bound(int64(n))
	g.maxTracked.Store(int64(n))
	return nil
}

// schedule sets the timer for the cleanup after the one that was due at time due.
func (g *Guard) schedule(due int64) {
	g.timer.Lock()
	defer g.timer.Unlock()
	if g.closed.Load() {
		return
	}
	// A cleanup that is missed is not made up for.
	next := max(due+int64(g.o.CleanupInterval), g.now()+1)
	g.stop = g.clock.At(next, func() {
		g.Cleanup()
		g.schedule(next)
	})
}

// Close refuses all later messages with ReasonClosed, and ends the cleanups. One that is running has ended when Close returns,
// and nothing is logged any more: so the Logger must not call it. Closing twice is harmless. The error is always nil.
func (g *Guard) Close() error {
	g.closed.Store(true)
	g.timer.Lock()
	stop := g.stop
	g.timer.Unlock()
	stop()
	g.cleaning.Lock()
	defer g.cleaning.Unlock()
	return nil
}
