package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
)

// TestLeasedContention has 64 goroutines ask four processes for two keys as fast as they can, in real time, while others look and
// give back: of a window that does not end, exactly the limit is granted and returned.
func TestLeasedContention(t *testing.T) {
	limit := weir.Limit{Algorithm: weir.AlgorithmCalendarWindow, Burst: 120_000, Calendar: weir.Calendar{Unit: weir.CalendarYear}}
	m := newMemoryStore(t)
	nodes := make([]*Leased, 4)
	for i := range nodes {
		nodes[i] = newLeased(t, m, LeasedOptions{Term: 20 * time.Millisecond})
	}
	var granted [2]atomic.Int64
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			l := nodes[i%len(nodes)]
			charges := []Charge{{Policy: "p", Key: "0", Limit: limit, N: 1}, {Policy: "p", Key: "1", Limit: limit, N: int64(1 + i%3)}}
			ds := make([]weir.Decision, 2)
			for turn := range 3000 {
				cut := charges[:1+turn%2]
				since := l.now()
				if err := l.Take(t.Context(), cut, ds[:len(cut)]); err != nil {
					t.Error(err)
					return
				}
				if !ds[Binding(ds[:len(cut)])].Allowed {
					continue
				}
				if turn%16 == 0 {
					l.giveBackSince(cut, since)
					continue
				}
				for k := range cut {
					granted[k].Add(cut[k].N)
				}
			}
		})
	}
	all.Wait()
	lost := int64(0)
	for _, l := range nodes {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		lost += l.Stats().Lost
	}
	for k := range granted {
		s, err := m.Inspect(t.Context(), Charge{Policy: "p", Key: fmt.Sprint(k), Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		n := granted[k].Load()
		if gone := limit.Burst - s.Decision.Remaining; gone < n || gone > n+n/100 || n < 50_000 {
			t.Errorf("key %d: %d were granted, and %d are gone", k, n, gone)
		}
	}
	t.Logf("%d and %d granted", granted[0].Load(), granted[1].Load())
}
