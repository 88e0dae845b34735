package weir

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestEqualLimitsAreOne: limits with equal parameters are the same, also if goroutines make them at the same time, and making one
// that is in use allocates nothing.
func TestEqualLimitsAreOne(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	for _, f := range []func() Limit{
		func() Limit { return TokenBucket(Per(7, 11*time.Second), 13) },
		func() Limit { return FixedWindow(Per(7, 11*time.Second)) },
		func() Limit { return SlidingWindow(Per(7, 11*time.Second), 3) },
		func() Limit { return SlidingCounter(Per(7, 11*time.Second)) },
		func() Limit { return CalendarWindow(7, Month(zone)) },
		func() Limit { return AtOnce(7) },
		func() Limit { return AtOnce(-7) }, // one that cannot be used
	} {
		var made [64]Limit
		var wait sync.WaitGroup
		for i := range made {
			wait.Go(func() { made[i] = f() })
		}
		wait.Wait()
		for _, l := range made {
			if l != made[0] {
				t.Fatalf("%v twice", l)
			}
		}
		if n := testing.AllocsPerRun(100, func() { made[1] = f() }); n != 0 {
			t.Errorf("%v: %v allocations", made[0], n)
		}
	}
	if (Limit{}) != TokenBucket(Rate{}, 0) {
		t.Error("a limit of zero parameters is not the zero Limit")
	}
}

// TestUnusedLimitsAreForgotten: clients can bring any number of limits.
func TestUnusedLimitsAreForgotten(t *testing.T) {
	known := func() int {
		limits.lock.RLock()
		defer limits.lock.RUnlock()
		return len(limits.known)
	}
	kept := AtOnce(1)
	before, most := known(), 0
	for i := range int64(100_000) {
		if AtOnce(1_000_000+i).Permits() != 1_000_000+i {
			t.Fatal("another limit")
		}
		if i%1000 == 0 {
			runtime.GC()
			most = max(most, known())
		}
	}
	if most > 3*before+10_000 {
		t.Errorf("%d limits are known, before there were %d", most, before)
	}
	if kept != AtOnce(1) {
		t.Error("a limit that is used was forgotten")
	}
}

func BenchmarkLimit(b *testing.B) {
	kept := TokenBucket(Per(7, 11*time.Second), 13)
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if TokenBucket(Per(7, 11*time.Second), 13) != kept {
				b.Fatal()
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		n := int64(0)
		for b.Loop() {
			n++
			_ = TokenBucket(Per(7, 11*time.Second), n)
		}
	})
}
