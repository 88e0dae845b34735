package table

import "sync/atomic"

// Cursor is how far a walk through a table has come. Its zero value is the beginning.
type Cursor struct {
	shard  int
	prefix uint64 // of the hashes of the shard that come next
}

// StartAt is a cursor at the beginning of a shard. A walk from there ends with the last shard and has to go on from the
// beginning to see all.
func (t *Table) StartAt(shard int) Cursor { return Cursor{shard: shard % len(t.shards)} }

// Shards is how many shards there are.
func (t *Table) Shards() int { return len(t.shards) }

// Shard is the shard in which the walk goes on. It is Table.Shards at the end.
func (c Cursor) Shard() int { return c.shard }

// Next calls f for the keys of one segment, under the lock of its shard, and moves the cursor behind it. It returns false
// at the end. A walk sees every key that stays throughout, exactly once, also while the table grows. f may change the
// state, and remove keys by answering false; it must not call the table.
func (t *Table) Next(c *Cursor, f func(h Hash, slot Slot) (keep bool)) (more bool) {
	if c.shard >= len(t.shards) {
		return false
	}
	s := &t.shards[c.shard]
	s.lock.lock()
	defer s.Unlock()
	g := s.segmentOf(Hash{a: c.prefix})
	removed := false
	for i := range g.size {
		slot := g.slot(i, t.stride)
		if slot[0] != 0 && !f(Hash{slot[0], settle(&slot[1]) & identity}, slot) {
			atomic.StoreUint64(&slot[0], 0)
			removed = true
		}
	}
	if removed {
		s.compact(g, c.prefix)
	}
	span := uint64(1) << (64 - g.depth) // 0 if there is one segment only
	c.prefix = c.prefix&^(span-1) + span
	if g.depth == 0 || c.prefix == 0 {
		c.shard++
		c.prefix = 0
	}
	return true
}

// compact restores the order of a segment in which slots were emptied, of which a is the top bits of some hash.
func (s *Shard) compact(g *segment, a uint64) {
	kept := s.table.segment(g.depth, int(g.size))
	g.moveTo(kept, kept, 0, s.table.stride)
	s.table.keys.Add(int64(kept.used - g.used))
	s.replace(g, a, kept, kept)
}

// Each calls f for every key like Next, until it returns false.
func (t *Table) Each(f func(h Hash, slot Slot) bool) {
	for c, goOn := (Cursor{}), true; goOn; {
		more := t.Next(&c, func(h Hash, slot Slot) bool {
			goOn = goOn && f(h, slot)
			return true
		})
		goOn = goOn && more
	}
}
