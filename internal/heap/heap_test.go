package heap_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirhq/weir/internal/heap"
)

type item struct{ due, place int }

func (i *item) Before(other *item) bool { return i.due < other.due }
func (i *item) Placed(at int)           { i.place = at }

// TestTheFirstIsTheLeast compares random histories with a list that is searched.
func TestTheFirstIsTheLeast(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var h heap.Heap[*item]
		var list []*item
		out := func(i *item) {
			if i.place != -1 {
				t.Fatalf("seed %d: an item that is out has the place %d", seed, i.place)
			}
			list = slices.DeleteFunc(list, func(other *item) bool { return other == i })
		}
		for range 1000 {
			switch n := len(h); {
			case n == 0 || rng.IntN(5) < 2:
				i := &item{due: rng.IntN(100)}
				h.Push(i)
				list = append(list, i)
			case rng.IntN(3) == 0:
				out(h.Pop())
			case rng.IntN(2) == 0:
				i := list[rng.IntN(n)]
				if removed := h.Remove(i.place); removed != i {
					t.Fatalf("seed %d: another item was removed", seed)
				}
				out(i)
			default:
				i := list[rng.IntN(n)]
				i.due = rng.IntN(100)
				h.Fix(i.place)
			}
			if len(h) != len(list) {
				t.Fatalf("seed %d: %d items, want %d", seed, len(h), len(list))
			}
			for place, i := range h {
				if i.place != place || i.due < h[0].due {
					t.Fatalf("seed %d: item %d has the place %d, is due at %d, the first at %d", seed, place, i.place, i.due, h[0].due)
				}
			}
		}
		for last := -1; len(h) > 0; {
			i := h.Pop()
			if i.due < last {
				t.Fatalf("seed %d: %d came out after %d", seed, i.due, last)
			}
			last = i.due
			out(i)
		}
		if len(list) > 0 {
			t.Fatalf("seed %d: %d items are lost", seed, len(list))
		}
	}
}
