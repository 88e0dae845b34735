package table

// Turns counts how often a caller that touches several keys first, and then locks their shards one after the other, has locked
// each shard since: these turns are no other caller's.
type Turns [maxTurns]uint8

const (
	// maxTurns is how many shards have their turns counted. A turn in another one is taken for one of another caller.
	maxTurns = 256
	// moved is in the place of the turns in a shard where keys may be elsewhere than where they were touched.
	moved = 255
)

// Begin must be called when the keys were touched, or before.
func (own *Turns) Begin() { *own = Turns{} }

// Moved must be called when a key was added to a shard, which is locked. A nil Turns does not count.
func (own *Turns) Moved(s *Shard) {
	if own != nil && int(s.index) < len(own) {
		own[s.index] = moved
	}
}

// lock is Spot.Lock.
func (own *Turns) lock(p *Spot, h Hash) (alone bool) {
	s := p.shard
	at := int(s.index)
	if at >= len(own) || own[at] >= moved-1 {
		p.relock(h)
		return false
	}
	turns := own[at]
	own[at]++
	version := p.version + 2*uint64(turns)
	if s.lock.version.Load() == version && s.lock.tryFrom(version) { // a load is cheaper than an exchange that fails
		return true
	}
	p.relock(h)
	return false
}
