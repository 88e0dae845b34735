package keyhash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/race"
)

// TestTextsAreEqualWhereverTheyLie hashes texts of each length at each alignment, among other bytes.
func TestTextsAreEqualWhereverTheyLie(t *testing.T) {
	for n := range 150 {
		text := strings.Repeat("abcdefghijklm", 12)[:n]
		a, b := String(text)
		for at := range 64 {
			among := strings.Repeat(string(rune('A'+at%26)), at) + text + strings.Repeat("z", at)
			if x, y := String(among[at : at+n]); x != a || y != b {
				t.Fatalf("%d bytes, at %d: %x %x, want %x %x", n, at, x, y, a, b)
			}
		}
	}
}

// TestLengthsAreToldApart hashes texts of zeros, and of each byte, which differ in their lengths alone.
func TestLengthsAreToldApart(t *testing.T) {
	as, bs := make(map[uint64]bool), make(map[uint64]bool)
	n := 0
	for c := range 256 {
		for length := range 150 {
			if c > 0 && length == 0 {
				continue
			}
			a, b := String(strings.Repeat(string([]byte{byte(c)}), length))
			as[a], bs[b] = true, true
			n++
		}
	}
	if len(as) != n || len(bs) != n {
		t.Errorf("%d texts have %d and %d hashes", n, len(as), len(bs))
	}
}

// TestABitChangesHalfOfThem flips each bit of texts of several lengths: each bit of the hashes must change in half of the cases.
func TestABitChangesHalfOfThem(t *testing.T) {
	const texts = 500
	for _, n := range []int{3, 7, 13, 16, 32, 33, 64} {
		text := make([]byte, n)
		for bit := range 8 * n {
			var changed [128]int
			for range texts {
				for i := range text {
					text[i] = byte(rand.Uint32())
				}
				a, b := String(string(text))
				text[bit/8] ^= 1 << (bit % 8)
				x, y := String(string(text))
				for i := range 64 {
					changed[i] += int((a ^ x) >> i & 1)
					changed[64+i] += int((b ^ y) >> i & 1)
				}
			}
			for i, times := range changed {
				if math.Abs(float64(times)-texts/2) > 8*math.Sqrt(texts)/2 { // once in 10^15
					t.Errorf("%d bytes: bit %d changes bit %d in %d of %d", n, bit, i, times, texts)
				}
			}
		}
	}
}

// TestPartsOfTheHashesAreIndependent counts how many keys that are alike share parts of their hashes: as many as by chance.
func TestPartsOfTheHashesAreIndependent(t *testing.T) {
	parts := map[string]func(a, b uint64) uint64{
		"the lower half of a":             func(a, _ uint64) uint64 { return a & (1<<32 - 1) },
		"the upper half of a":             func(a, _ uint64) uint64 { return a >> 32 },
		"the lower half of b":             func(_, b uint64) uint64 { return b & (1<<32 - 1) },
		"the upper half of b":             func(_, b uint64) uint64 { return b >> 32 },
		"a quarter of a and one of b":     func(a, b uint64) uint64 { return a&(1<<16-1)<<16 | b>>48 },
		"the exclusive or of one of each": func(a, b uint64) uint64 { return (a ^ b) >> 32 },
	}
	for before, n := range map[string]int{
		"": 10_000_000, "user:": 1_000_000, "tenant-4711/a path of some length/": 1_000_000,
		"a key of more than half a hundred bytes, of which few differ: ": 1_000_000,
	} {
		if race.Enabled || testing.Short() {
			n = 200_000
		}
		as, bs, key := make([]uint64, n), make([]uint64, n), []byte(before)
		for i := range n {
			key = strconv.AppendInt(key[:len(before)], int64(i), 10)
			as[i], bs[i] = String(string(key))
		}
		some := make([]uint64, n)
		for name, part := range parts {
			for i := range some {
				some[i] = part(as[i], bs[i])
			}
			slices.Sort(some)
			shared := float64(n - len(slices.Compact(some)))
			want := float64(n) + (1<<32)*math.Expm1(-float64(n)/(1<<32))
			if math.Abs(shared-want) > 8*math.Sqrt(want) {
				t.Errorf("%d keys %q...: %s: %g shared, want %g", n, before, name, shared, want)
			}
		}
		slices.Sort(as)
		slices.Sort(bs)
		if len(slices.Compact(as)) != n || len(slices.Compact(bs)) != n { // by chance once in 10^5
			t.Errorf("%d keys %q...: some share a hash", n, before)
		}
	}
}

// TestComparableValues have the same hashes as their equals, and others than others.
func TestComparableValues(t *testing.T) {
	a, b := Comparable([2]int{1, 2})
	if x, y := Comparable([2]int{1, 2}); x != a || y != b {
		t.Error("equal values have other hashes")
	}
	if x, y := Comparable([2]int{2, 1}); x == a || y == b || a == b {
		t.Error("other values share a hash")
	}
}

func BenchmarkString(b *testing.B) {
	for _, n := range []int{3, 7, 13, 24, 40, 80} {
		text := strings.Repeat("1", n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				String(text)
			}
		})
	}
}
