package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// TestLeasedContention has 64 goroutines ask four processes for two keys as fast as they can, in real time, while others look and
// give back: of a window that does not end, exactly what is granted, or said to be lost, is gone.
func TestLeasedContention(t *testing.T) {
	limit := weir.CalendarWindow(120_000, algo.Calendar{
		Unit: algo.CalendarYear, Month: 1 + (time.Now().UTC().Month()+5)%12, // which does not begin now
	})
	m := newMemoryStore(t)
	nodes := make([]*Leased, 4)
	for i := range nodes {
		nodes[i] = newLeased(t, m, LeasedOptions{Term: 20 * time.Millisecond})
		if i > 0 {
			nodes[i].patience = 1 // decisions with and without the lock take turns all the time
		}
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
				if i%8 >= len(nodes) && turn%100 > 0 {
					cut = charges[:1] // most calls are about one hot key
				}
				since := l.now()
				if err := Take(t.Context(), l, cut, ds[:len(cut)]); err != nil {
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
	left := int64(0) // permits that no call took
	for _, l := range nodes {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		left -= l.Stats().Lost // a goroutine that stands still gives back too late
	}
	for k := range granted {
		s, err := Inspect(t.Context(), m, Charge{Policy: "p", Key: fmt.Sprint(k), Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		n := granted[k].Load()
		gone := limit.Permits() - s.Decision.Remaining
		if gone < n || n < 20_000 {
			t.Errorf("key %d: %d were granted, and %d are gone", k, n, gone)
		}
		left += gone - n
	}
	if left != 0 {
		t.Errorf("%d more are gone than were granted or lost", left)
	}
	t.Logf("%d and %d granted", granted[0].Load(), granted[1].Load())
}
