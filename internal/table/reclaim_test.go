package table

import (
	"math/rand/v2"
	"testing"
)

// TestReclaimFindsTheOnlyFreshKey fills a table with keys in use but for one, wherever that is, and expects that a new
// key takes its place at once.
func TestReclaimFindsTheOnlyFreshKey(t *testing.T) {
	const bound = 20_000
	table := New(Options{Words: 1, Shards: 16, MaxKeys: bound, FreshAt: freshAt})
	for key := range uint64(bound) {
		table.put(hash(key), 1<<40, 0, 0)
	}
	newcomer := uint64(bound)
	for now := int64(1); now < 500; now++ {
		if table.put(hash(newcomer), 1<<40, 0, now) || table.Reclaim(now) {
			t.Fatalf("time %d: a key in use was forgotten", now)
		}
		key := newcomer - 1 - uint64(now)*7%1000
		if state, _, ok := table.get(hash(key)); !ok || state != 1<<40 {
			continue
		}
		table.put(hash(key), uint64(now+1), 0, now) // it will be fresh
		if next := table.NextFresh(); next > now+1 {
			t.Fatalf("time %d: the next fresh key is announced for %d, want %d at most", now, next, now+1)
		}
		now++
		if !table.put(hash(newcomer), 1<<40, 0, now) && (!table.Reclaim(now) || !table.put(hash(newcomer), 1<<40, 0, now)) {
			t.Fatalf("time %d: the fresh key was not found", now)
		}
		if _, _, ok := table.get(hash(key)); ok {
			t.Fatalf("time %d: the fresh key is still there", now)
		}
		newcomer++
	}
	if table.Len() != bound {
		t.Errorf("%d keys, want %d", table.Len(), bound)
	}
	check(t, table)
}

// TestRefusedNewKeysSearchNothing sends new keys to a full table: none of them searches it, as nothing can be fresh.
func TestRefusedNewKeysSearchNothing(t *testing.T) {
	searched := 0
	table := New(Options{Words: 1, Shards: 16, MaxKeys: 50_000, FreshAt: func(state []uint64, _ uint16) int64 {
		searched++
		return int64(state[0])
	}})
	for key := range uint64(50_000) {
		table.put(hash(key), 1<<40+key, 0, 0)
	}
	searched = 0
	for key := range uint64(10_000) {
		if table.put(hash(1<<50+key), 1<<41, 0, 5) || table.Reclaim(5) {
			t.Fatal("a key in use was forgotten")
		}
	}
	if searched > 0 {
		t.Errorf("10,000 refusals looked at %d slots", searched)
	}
}

// TestForgottenIsTold counts what is forgotten by growth and by lack of room.
func TestForgottenIsTold(t *testing.T) {
	forgotten := int64(0)
	table := New(Options{Words: 1, Shards: 2, MaxKeys: 1000, FreshAt: freshAt, Forgotten: func([]uint64, uint16) { forgotten++ }})
	for key := range int64(20_000) {
		if !table.put(hash(uint64(key)), uint64(key+500), 0, key) {
			t.Fatalf("key %d does not get in", key)
		}
		if told := key + 1 - table.Len(); told != forgotten {
			t.Fatalf("%d keys were forgotten, told were %d", told, forgotten)
		}
	}
	check(t, table)
}

// TestWalkRemoves walks tables and removes keys on the way.
func TestWalkRemoves(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, keys := range []uint64{0, 1, 7, 100, 5000, 60_000} {
		table := New(Options{Words: 2, Shards: 4, FreshAt: freshAt})
		for key := range keys {
			table.put(hash(key), key|1<<62, 0, 0)
		}
		removed := map[Hash]bool{}
		var c Cursor
		for table.Next(&c, func(h Hash, _ Slot) bool {
			if rng.IntN(3) > 0 {
				return true
			}
			removed[h] = true
			return false
		}) {
			rng.Uint64()
		}
		if table.Len() != int64(keys)-int64(len(removed)) {
			t.Errorf("%d keys of %d are left, removed were %d", table.Len(), keys, len(removed))
		}
		for key := range keys {
			if state, _, ok := table.get(hash(key)); ok == removed[hash(key)] || ok && state != key|1<<62 {
				t.Fatalf("key %d of %d: there %v, removed %v", key, keys, ok, removed[hash(key)])
			}
		}
		check(t, table)
	}
}
