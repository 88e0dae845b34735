package table

import (
	"runtime"
	"sync"
	"testing"
)

// TestLockExcludes has callers count under a lock, one by one. A goroutine that finds it alone has seen all counts before it
// looked.
func TestLockExcludes(t *testing.T) {
	const callers = 8
	rounds := fewer(200_000)
	table := New(Options{Words: 1, Shards: 1, FreshAt: freshAt})
	h := hash(1)
	table.put(h, 0, 0, 0)
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for round := range rounds {
				before, _, _ := table.get(h)
				spot := table.Touch(h)
				between := uint64(0)
				if round%3 == 0 {
					between, _, _ = table.get(h)
				}
				s, alone := spot.Lock(h)
				slot := spot.Find(h)
				switch state := slot.State()[0]; {
				case alone && between != 0:
					t.Error("a lock that was taken in between was not")
				case state < before || state < between:
					t.Errorf("%d counted, and %d before", state, max(before, between))
				}
				slot.State()[0]++
				if round%1000 == 0 {
					runtime.Gosched() // others wait for long
				}
				s.Unlock()
			}
		})
	}
	group.Wait()
	if n, _, _ := table.get(h); n != uint64(callers*rounds) {
		t.Errorf("%d counted, want %d", n, callers*rounds)
	}
}
