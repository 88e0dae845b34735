package replay

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// ordered is a sequence of a size, and what it hands on.
func ordered(size int) (s *sequence, got *[]request) {
	got = new([]request)
	s = newSequence(func(at int64, text []byte) { *got = append(*got, request{at, string(text)}) })
	s.size = size
	return s, got
}

type request struct {
	at   int64
	text string
}

func TestOrderIsThatOfTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 5, 100, 5000} {
		var want []request
		s, got := ordered(5000)
		for i := range n {
			r := request{rng.Int64N(int64(n)/3 + 1), strconv.Itoa(i)}
			want = append(want, r)
			s.add(r.at, []byte(r.text))
		}
		slices.SortStableFunc(want, func(a, b request) int { return int(a.at - b.at) })
		if s.drain(); !slices.Equal(*got, want) {
			t.Errorf("%d requests: not in the order of a stable sort", n)
		}
	}
}

// TestOrderWithinItsSize sends a long log whose requests are displaced by less than the size, some at equal times.
func TestOrderWithinItsSize(t *testing.T) {
	const size, n = 64, 10_000
	rng := rand.New(rand.NewPCG(1, 2))
	log := make([]request, n)
	for i := range log {
		log[i] = request{int64(i / 3), strconv.Itoa(i)}
	}
	for i := 0; i+size <= n; i += size {
		rng.Shuffle(size, func(a, b int) { log[i+a], log[i+b] = log[i+b], log[i+a] })
	}
	want := slices.Clone(log)
	slices.SortStableFunc(want, func(a, b request) int { return int(a.at - b.at) })
	s, got := ordered(size)
	for _, r := range log {
		s.add(r.at, []byte(r.text))
		if len(s.held) > 2*size {
			t.Fatalf("%d are held back", len(s.held))
		}
	}
	if s.drain(); !slices.Equal(*got, want) {
		t.Error("not in the order of a stable sort")
	}
}

func BenchmarkOrder(b *testing.B) {
	s := newSequence(func(int64, []byte) {})
	rng := rand.New(rand.NewPCG(1, 2))
	key := []byte("192.0.2.1")
	for i := int64(0); b.Loop(); i++ {
		s.add(i+rng.Int64N(1000), key)
	}
}
