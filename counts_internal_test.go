package weir

import (
	"runtime"
	"testing"
)

// TestStatsWaitForCountsOnTheirWay stops a caller between the exchange of a word whose count is full and the counting:
// the 63 requests in it have been answered, so Stats must not leave them out.
func TestStatsWaitForCountsOnTheirWay(t *testing.T) {
	b, err := New(TokenBucket(PerDay(1), 100), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range grantsPerWord {
		b.Allow()
	}
	a := &b.fast
	old := a.word.Load()
	if old&grantBits != grantBits {
		t.Fatalf("the word counts %d", old&grantBits/oneGrant)
	}
	a.folding.Add(1) // what fold does, with the exchange
	if !a.word.CompareAndSwap(old, old&^grantBits) {
		t.Fatal("another goroutine uses the bucket")
	}
	counted := make(chan int64, 1)
	go func() { counted <- b.Stats().Allowed }()
	for b.mu.TryLock() { // until Stats holds the lock
		b.mu.Unlock()
		select {
		case n := <-counted:
			t.Fatalf("%d are counted", n)
		default:
			runtime.Gosched()
		}
	}
	a.allowed.Add(grantsPerWord) // and the rest
	a.folding.Add(-1)
	if n := <-counted; n != grantsPerWord {
		t.Errorf("%d are counted, want %d", n, grantsPerWord)
	}
	if n := b.Stats().Remaining; n != 100-grantsPerWord {
		t.Errorf("%d are available", n)
	}
}
