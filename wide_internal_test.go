package weir

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestWideBucketIsTheAlgorithm compares the short way with algo.TokenBucket on the same states.
func TestWideBucketIsTheAlgorithm(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(3, seed))
		rate := Rate{Permits: 1 + r.Int64N(1<<(1+seed%30)), Period: time.Duration(1 + r.Int64N(1<<(20+seed%30)))}
		limit := TokenBucket(rate, 1+r.Int64N(1<<(1+seed%40)))
		terms, err := limit.compile("Limit", 0, false)
		if err != nil {
			continue // such a bucket would take too long to fill
		}
		w, now := &terms.wide, r.Int64N(1<<40)
		short, long := make([]uint64, 3), make([]uint64, 3)
		terms.packed.begin(short, now, 0)
		copy(long, short)
		for step := range 500 {
			now += r.Int64N(1 + int64(terms.refill)>>r.IntN(20))
			n := 1 + r.Int64N(1+terms.permits>>r.IntN(12))
			if !w.fits(n) {
				terms.packed.take(short, now, n)
				terms.packed.take(long, now, n)
				continue
			}
			got, want := w.take(short, now, n), terms.packed.take(long, now, n)
			want.Mark = got.Mark
			if got != want {
				t.Fatalf("%v, step %d at %d: %d permits: %+v, want %+v", limit, step, now, n, got, want)
			}
			if f, g := terms.packed.freshAt(short), terms.packed.freshAt(long); f > now && f != g {
				t.Fatalf("%v, step %d: fresh at %d, want %d", limit, step, f, g)
			}
			if r.IntN(20) == 0 {
				terms.packed.charge(short, now, n, limit.Permits())
				terms.packed.charge(long, now, n, limit.Permits())
			}
		}
	}
}
