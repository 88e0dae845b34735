package rangemax_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirhq/weir/internal/rangemax"
)

// TestRow compares with a list.
func TestRow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 20; n++ {
		row, list := rangemax.New(n), make([]float64, n)
		for range 200 {
			from := random.IntN(n)
			to := from + random.IntN(n-from+1)
			x := float64(random.IntN(21) - 10)
			row.Add(from, to, x)
			for i := from; i < to; i++ {
				list[i] += x
			}
			from = random.IntN(n)
			to = from + 1 + random.IntN(n-from)
			if got, want := row.Most(from, to), slices.Max(list[from:to]); got != want {
				t.Fatalf("the greatest of %v is %v, not %v", list[from:to], got, want)
			}
			if i := row.MostAt(from, to); i < from || i >= to || list[i] != slices.Max(list[from:to]) {
				t.Fatalf("the greatest of %v is at %d", list[from:to], i-from)
			}
			if i := random.IntN(n); row.At(i) != list[i] {
				t.Fatalf("%v is at %d of %v", row.At(i), i, list)
			}
		}
		if !math.IsInf(row.Most(n, n), -1) {
			t.Error("an empty range has a greatest number")
		}
	}
}
