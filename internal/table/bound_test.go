package table

import "testing"

// TestBoundIsChanged lowers, lifts and sets the bound of a table.
func TestBoundIsChanged(t *testing.T) {
	table := New(Options{Words: 1, Shards: 4, FreshAt: func(state []uint64, _ uint16) int64 { return int64(state[0]) }})
	next := uint64(0)
	add := func(n int, due uint64, now int64) (added int) {
		for range n {
			h := hash(next)
			next++
			s := table.Lock(h)
			s.Find(h)
			if slot := s.Add(h, 0, now); slot != nil {
				slot.State()[0] = due
				s.Due(h, int64(due))
				added++
			}
			s.Unlock()
		}
		return added
	}
	reclaim := func(now int64) (n int) {
		for table.Reclaim(now) {
			n++
		}
		return n
	}
	if got := add(100, 50, 0); got != 100 {
		t.Errorf("%d keys got into a table without a bound", got)
	}
	table.Bound(80)
	if got := add(10, 50, 0); got != 0 || table.Len() != 100 {
		t.Errorf("%d keys got in beyond the bound, %d are there", got, table.Len())
	}
	// The times at which keys become fresh were not kept until now.
	if got := reclaim(49); got != 0 {
		t.Errorf("%d keys were forgotten too early", got)
	}
	if got := table.NextFresh(); got != 50 {
		t.Errorf("the first key becomes fresh at %d", got)
	}
	if got := reclaim(50); got != 100 {
		t.Errorf("%d keys were forgotten", got)
	}
	if got := add(100, 90, 60); got != 80 {
		t.Errorf("%d keys got in", got)
	}
	table.Bound(0)
	if got := add(100, 90, 60); got != 100 {
		t.Errorf("%d keys got in", got)
	}
}

// TestSharpenFindsTheFirst has keys that are used, so that they become fresh later than the table has heard.
func TestSharpenFindsTheFirst(t *testing.T) {
	table := New(Options{Words: 1, Shards: 8, MaxKeys: 5000, FreshAt: func(state []uint64, _ uint16) int64 { return int64(state[0]) }})
	for key := range uint64(5000) {
		h := hash(key)
		s := table.Lock(h)
		s.Find(h)
		s.Add(h, 0, 0).State()[0] = 10
		s.Due(h, 10)
		s.Find(h).State()[0] = 1000 + key // used since
		s.Unlock()
	}
	if got := table.NextFresh(); got != 10 {
		t.Errorf("before: %d", got)
	}
	table.Sharpen(3)
	if got := table.NextFresh(); got != 10 {
		t.Errorf("after three segments of many: %d", got)
	}
	table.Sharpen(1000)
	if got := table.NextFresh(); got != 1000 {
		t.Errorf("after all: %d, want 1000", got)
	}
	s := table.Lock(hash(0))
	s.Find(hash(0)).State()[0] = 5000
	s.Unlock()
	table.Sharpen(1000)
	if got := table.NextFresh(); got != 1001 {
		t.Errorf("%d, want 1001", got)
	}
	if table.Reclaim(1000) || !table.Reclaim(1001) {
		t.Error("the first key is not found at its time")
	}
	empty := New(Options{Words: 1, Shards: 2, MaxKeys: 1})
	empty.Sharpen(10)
	if got := empty.NextFresh(); got != NotByItself {
		t.Errorf("an empty table: %d", got)
	}
}

func TestFingerprintsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for key := range uint64(100_000) {
		seen[hash(key).Fingerprint()] = true
	}
	if len(seen) != 100_000 {
		t.Errorf("%d fingerprints", len(seen))
	}
}
