package table

// Fingerprint is 64 bits of the hash, by which other tables may spread the same keys. It tells nothing about the key.
func (h Hash) Fingerprint() uint64 { return (h.a ^ h.b<<tagBits) * 0x9E3779B97F4A7C15 }

// Bound changes MaxKeys; 0 is no bound. Keys beyond a bound that is lower than before stay until they are forgotten.
func (t *Table) Bound(maxKeys int64) {
	for i := range t.shards {
		t.shards[i].mu.Lock()
	}
	t.max = maxKeys
	for i := range t.shards {
		// While there is no bound, nobody keeps the times at which keys become fresh.
		for _, g := range t.shards[i].dir {
			g.due = Always
		}
		t.shards[i].due.Store(Always)
		t.shards[i].mu.Unlock()
	}
}
