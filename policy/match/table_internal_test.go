package match

import (
	"math/rand/v2"
	"testing"
)

// TestTextTableIsAMap compares the table with a map, over short and long texts that differ in few bytes.
func TestTextTableIsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		b := make([]byte, rng.IntN(3*longText))
		for i := range b {
			b[i] = 'a'
		}
		for range min(len(b), rng.IntN(3)) {
			b[rng.IntN(len(b))] = byte(rng.IntN(256))
		}
		return string(b)
	}
	for _, size := range []int{1, 10, 3000} {
		var table textTable
		want := map[string]int32{}
		for range size {
			s, number := text(), rng.Int32()
			table.put(s, number)
			want[s] = number
		}
		table.freeze()
		for s, number := range want {
			if got := table.get(s); got != number {
				t.Fatalf("%q: %d, want %d", s, got, number)
			}
		}
		for range 10_000 {
			s := text()
			number, ok := want[s]
			if !ok {
				number = nowhere
			}
			if got := table.get(s); got != number {
				t.Fatalf("%q: %d, want %d", s, got, number)
			}
		}
	}
}
