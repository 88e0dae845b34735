//go:build !race

package policy

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"
)

// recentModel has the time of every refusal.
type recentModel struct{ times []int64 }

func (m *recentModel) count(now, within int64) uint64 {
	m.times = slices.DeleteFunc(m.times, func(at int64) bool { return now-at > within })
	return uint64(len(m.times))
}

// TestRecentRefusalsKeepToTheirBound notes refusals at random times beside a list of all of them. With up to markCount in the
// window the count is exact; with more it is never above, and misses fewer than a sixteenth of N.
func TestRecentRefusalsKeepToTheirBound(t *testing.T) {
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 1))
		within := markUnit * (1 + random.Int64N(int64(24*time.Hour)/markUnit))
		limit := []uint64{1, 2, 5, 20, 32, 33, 34, 50, 64, 65, 100, 1000, 65535}[random.IntN(13)]
		pace := 1 + int64(float64(within)/float64(limit)*(0.2+2*random.Float64()))
		now := random.Int64N(1<<40) / markUnit * markUnit
		var (
			words   [recentWords]uint64
			model   recentModel
			last    int64
			longest = min(5*int(limit), 20_000)
		)
		recent := recentRefusals(words[:])
		for i := range longest {
			gap := random.Int64N(2 * pace)
			switch random.IntN(200) {
			case 0:
				gap = within
			case 1:
				gap = within + markUnit
			case 2:
				gap = 0
			}
			now += gap / markUnit * markUnit
			if now-last > within {
				recent.clear()
			}
			last = now
			recent.add(now, within)
			model.times = append(model.times, now)
			want, got := model.count(now, within), recent.count(now, within)
			if got > want {
				t.Fatalf("seed %d, refusal %d: counted %d, there were %d", seed, i, got, want)
			}
			if limit <= markCount+1 && got != want {
				t.Fatalf("seed %d, refusal %d: counted %d of %d, where each has a mark", seed, i, got, want)
			}
			if limit > markCount+1 && got < limit && want-got > limit/16 {
				t.Fatalf("seed %d, refusal %d: counted %d of %d with %d as the limit", seed, i, got, want, limit)
			}
			if got == 0 {
				t.Fatalf("seed %d, refusal %d: a refusal does not count itself", seed, i)
			}
			if got >= limit {
				recent.clear()
				model.times = nil
			}
		}
	}
}

// TestFreshRefusalsAreCountedExactly: of a key that had none, the refusal with the number N is known as such, whatever N is.
func TestFreshRefusalsAreCountedExactly(t *testing.T) {
	within := int64(time.Minute)
	var words [recentWords]uint64
	recent := recentRefusals(words[:])
	for n := uint64(1); n <= 65535; n++ {
		recent.add(int64(n)*markUnit, within)
		if got := recent.count(int64(n)*markUnit, within); got != n {
			t.Fatalf("refusal %d is counted as %d", n, got)
		}
	}
	if recent.clear(); !recent.none() || recent.count(0, within) != 0 {
		t.Error("something is left")
	}
}

// TestOldMarksDoNotComeBack: a time wraps around after 59 hours, and no mark is in a window that it has left.
func TestOldMarksDoNotComeBack(t *testing.T) {
	l := newLockouts(10)
	o := &Lockout{Refusals: 3, Within: 24 * time.Hour, For: time.Minute}
	wrap := int64(1<<32) * markUnit
	for _, gap := range []int64{int64(o.Within) + markUnit, wrap - markUnit, wrap, wrap + 1, 2 * wrap, 3*wrap - markUnit} {
		now := int64(5 * time.Hour)
		l.refused([]byte("k"), now, o)
		l.refused([]byte("k"), now, o)
		now += gap
		if _, recent := l.look([]byte("k"), now, o); recent != 0 {
			t.Errorf("after %v: %d refusals count", time.Duration(gap), recent)
		}
		if locked := l.refused([]byte("k"), now, o); locked != 0 {
			t.Errorf("after %v: locked out", time.Duration(gap))
		}
		l.unlock([]byte("k"), now, o)
	}
	// The longest gaps in which a mark still counts.
	now := int64(0)
	for i := range 20 {
		now += int64(o.Within)
		if l.refused([]byte("k"), now, o) != 0 {
			t.Fatalf("refusal %d: two are in each window, not three", i)
		}
	}
}

// TestBytesPerLockout measures the memory of keys that were refused, each once and then many times.
func TestBytesPerLockout(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	o := &Lockout{Refusals: 65535, Within: 24 * time.Hour, For: time.Hour}
	for _, keys := range []int{30_000, 50_000, 70_000, 100_000} {
		before := heap()
		l := newLockouts(0)
		for again := range 3 {
			for key := range keys {
				l.refused(strconv.AppendInt(nil, int64(key), 10), int64(again)*markUnit, o)
			}
		}
		perKey := float64(heap()-before) / float64(keys)
		if perKey < 100 || perKey > 280 {
			t.Errorf("%d keys: %.0f bytes each, want up to 280", keys, perKey)
		}
		runtime.KeepAlive(l)
	}
}
