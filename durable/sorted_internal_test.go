//go:build !race

package durable

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestSorted: records are those of a map, in order, whatever was put and removed.
func TestSorted(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var s sorted
	m := map[string]string{}
	name := func() string { return fmt.Sprintf("%c%05d", "ab\xff"[r.IntN(3)], r.IntN(2000)) }
	for i := range 40_000 {
		n := name()
		if r.IntN(5) == 0 || i > 30_000 {
			s.remove(n)
			delete(m, n)
		} else {
			m[n] = strings.Repeat("x", r.IntN(5))
			s.put(Named{Name: n, Value: []byte(m[n]), Revision: int64(i)})
		}
		if i%500 != 0 {
			continue
		}
		size := int64(0)
		all := slices.Sorted(maps.Keys(m))
		for _, n := range all {
			size += int64(len(n) + len(m[n]) + recordOverhead)
		}
		if s.count != len(m) || s.bytes != size {
			t.Fatalf("%d records of %d bytes, want %d of %d", s.count, s.bytes, len(m), size)
		}
		for _, prefix := range []string{"", "a", "a0", "b", "\xff", "c"} {
			from, most := name(), r.IntN(2000)
			var page []string
			for _, n := range all {
				if strings.HasPrefix(n, prefix) && n > from && len(page) < most {
					page = append(page, n)
				}
			}
			var list []string
			for _, n := range slices.Backward(all) {
				if strings.HasPrefix(n, prefix) && len(list) < most {
					list = append(list, n)
				}
			}
			if got := namesOf(s.page(prefix, from, most)); !slices.Equal(got, page) {
				t.Fatalf("after %q: %q, want %q", from, got, page)
			}
			if got := namesOf(s.list(prefix, most)); !slices.Equal(got, list) {
				t.Fatalf("the last of %q: %q, want %q", prefix, got, list)
			}
		}
	}
}
