package replay

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

func TestOrderIsThatOfTimes(t *testing.T) {
	type request struct {
		at  int64
		key string
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 5, 100, 5000} {
		var want, got []request
		o := order{size: 5000}
		for i := range n {
			r := request{rng.Int64N(int64(n)/3 + 1), strconv.Itoa(i)}
			want = append(want, r)
			o.add(r.at, []byte(r.key))
		}
		slices.SortStableFunc(want, func(a, b request) int { return int(a.at - b.at) })
		for !o.empty() {
			at, key := o.next()
			got = append(got, request{at, string(key)})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d requests: not in the order of a stable sort", n)
		}
	}
}

// TestOrderWithinItsSize sends a long log whose requests are displaced by less than the size.
func TestOrderWithinItsSize(t *testing.T) {
	const size, n = 64, 10_000
	rng := rand.New(rand.NewPCG(1, 2))
	times := make([]int64, n)
	for i := range times {
		times[i] = int64(i)
	}
	for i := 0; i+size <= n; i += size {
		rng.Shuffle(size, func(a, b int) { times[i+a], times[i+b] = times[i+b], times[i+a] })
	}
	o := order{size: 2 * size}
	next := int64(0)
	take := func() {
		at, key := o.next()
		if at != next || string(key) != strconv.FormatInt(at, 10) {
			t.Fatalf("got %d %q, want %d", at, key, next)
		}
		next++
	}
	for _, at := range times {
		if o.full() {
			take()
		}
		o.add(at, strconv.AppendInt(nil, at, 10))
	}
	for !o.empty() {
		take()
	}
	if next != n || len(o.keys) > 2*size {
		t.Errorf("%d of %d requests came out, %d keys were kept", next, n, len(o.keys))
	}
}

func BenchmarkOrder(b *testing.B) {
	o := order{size: 1 << 20}
	rng := rand.New(rand.NewPCG(1, 2))
	key := []byte("192.0.2.1")
	for i := int64(0); b.Loop(); i++ {
		if o.full() {
			o.next()
		}
		o.add(i+rng.Int64N(1000), key)
	}
}
