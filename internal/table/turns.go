package table

// Turns counts how often a caller that touches several keys first, and then finds them one after the other, has locked each shard
// since: these turns are no other caller's. It must add no key to a shard that Find has locked. The turns in one table are not
// those in another: once a key of another one is looked for, none is counted that was before.
type Turns struct {
	table *Table
	turns [maxTurns]uint8 // by shard
}

const (
	// maxTurns is how many shards have their turns counted. A turn in another one is taken for one of another caller.
	maxTurns = 256
	// mostTurns is how often a shard can have been locked.
	mostTurns = 255
)

// Begin must be called before the first key is found.
func (own *Turns) Begin() { *own = Turns{} }

// Find locks the shard of h, which was touched, and returns it with the slot of the key, or nil. It reports whether no other
// caller has locked the shard since.
func (own *Turns) Find(p *Spot, h Hash) (s *Shard, slot Slot, alone bool) {
	s = p.shard
	if s.table != own.table {
		*own = Turns{table: s.table}
	}
	if at := int(s.index); at < len(own.turns) && own.turns[at] < mostTurns {
		version := p.version + 2*uint64(own.turns[at])
		own.turns[at]++
		alone = s.lock.version.Load() == version && s.lock.tryFrom(version) // a load is cheaper than an exchange that fails
	}
	if !alone {
		p.relock(h)
	}
	slot = p.Find(h)
	return s, slot, alone
}
