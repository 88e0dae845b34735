package table

import "slices"

// Fingerprint is 64 bits of the hash, by which other tables may spread the same keys. It tells nothing about the key.
func (h Hash) Fingerprint() uint64 { return (h.a ^ h.b<<tagBits) * 0x9E3779B97F4A7C15 }

// Bound changes MaxKeys; 0 is no bound. Keys beyond a bound that is lower than before stay until they are forgotten.
func (t *Table) Bound(maxKeys int64) {
	for i := range t.shards {
		t.shards[i].lock.lock()
	}
	t.max = maxKeys
	for i := range t.shards {
		if d := t.shards[i].dir.Load(); d != t.empty {
			d.unsure()
			t.due[i].Store(Always)
		}
		t.shards[i].Unlock()
	}
}

// unsure makes every time before which nothing is fresh Always: while there is no bound, they are not kept.
func (d *directory) unsure() {
	for at := 0; at < len(d.segments); {
		var g *segment
		g, at = d.next(at)
		g.due = Always
		for j := range g.dues {
			g.dues[j] = Always
		}
	}
}

// Sharpen makes NextFresh more exact, which does not hear of keys that were used since: it looks again at the segments, at most
// at scans of them, of which the first key to become fresh should be one, until one is.
func (t *Table) Sharpen(scans int) {
	for sharp := false; scans > 0 && !sharp; scans-- {
		first := 0
		for i := range t.due {
			if t.due[i].Load() < t.due[first].Load() {
				first = i
			}
		}
		sharp = t.shards[first].sharpen()
	}
}

// sharpen looks at the segment whose keys should become fresh first, and reports whether one of them does by then.
func (s *Shard) sharpen() bool {
	s.lock.lock()
	defer s.Unlock()
	d := s.dir.Load()
	if d == s.table.empty {
		return true
	}
	first := d.segments[0]
	for at := 0; at < len(d.segments); {
		var g *segment
		if g, at = d.next(at); g.due < first.due {
			first = g
		}
	}
	before, t := first.due, s.table
	for i := range first.dues {
		first.dues[i] = NotByItself
	}
	for i := range first.size {
		if slot := first.slot(i, t.stride); slot[0] != 0 {
			settle(&slot[1])
			due := &first.dues[i>>blockBits]
			*due = min(*due, t.freshAt(slot.State(), slot.Tag()))
		}
	}
	first.due = slices.Min(first.dues)
	least := int64(NotByItself)
	for at := 0; at < len(d.segments); {
		var g *segment
		g, at = d.next(at)
		least = min(least, g.due)
	}
	t.due[s.index].Store(least)
	return first.due <= before
}
