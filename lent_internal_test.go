package weir

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/internal/bounds"
	"github.com/weirhq/weir/internal/clock"
)

// TestLendingContention asks one limiter from many goroutines that it lends to. No span of time may see more than burst + rate x t,
// and while all permits are asked for, none is lost.
func TestLendingContention(t *testing.T) {
	const goroutines, calls = 16, 20_000
	for _, limit := range []Limit{TokenBucket(PerSecond(1e6), 256), TokenBucket(PerSecond(2e6), 4096), TokenBucket(PerSecond(5e6), 20_000)} {
		l, err := New(limit, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var (
			all   sync.WaitGroup
			parts [goroutines][]bounds.Event
			began = time.Now()
		)
		for i := range parts {
			all.Go(func() {
				events := make([]bounds.Event, 0, calls)
				for n := range calls {
					if n%1000 == i { // contention begins when it does
						l.lock()
						l.fast.hot = true
						l.unlock()
					}
					e := bounds.Event{Sent: int64(time.Since(began)), N: 1, Kind: bounds.Granted}
					allowed := l.Allow()
					if e.Received = int64(time.Since(began)); allowed {
						events = append(events, e)
					}
				}
				parts[i] = events
			})
		}
		all.Wait()
		var events []bounds.Event
		for _, part := range parts {
			events = append(events, part...)
		}
		rate := limit.Rate()
		bucket := bounds.Bucket{Rate: float64(rate.Permits) / rate.Period.Seconds(), Burst: float64(limit.Permits())}
		if b := bucket.Minted(events); b.Broken() {
			t.Errorf("%v: %+v", limit, b)
		}
		s := l.Stats()
		if s.Allowed != int64(len(events)) || s.Allowed+s.Refused != goroutines*calls {
			t.Errorf("%v: %d granted of %d calls: %+v", limit, len(events), goroutines*calls, s)
		}
		if s.Remaining > limit.Permits() {
			t.Errorf("%v: %+v", limit, s)
		}
		t.Logf("%v: %d of %d, in %v", limit, len(events), goroutines*calls, time.Since(began))
	}
}

// TestLendingBegins: goroutines that wait for one another at the word are lent permits, and when they stop nothing is lent.
func TestLendingBegins(t *testing.T) {
	const calls = 4 * leastPatience * failsCounted * 16
	synctest.Test(t, func(t *testing.T) {
		l, err := New(TokenBucket(PerSecond(1e9), 1e9), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range calls {
			time.Sleep(1)
			l.allowContended(clock.Now())
		}
		if l.fast.word.Load() != lent {
			t.Error("nothing is lent")
		}
		time.Sleep(2 * lentPeriod)
		synctest.Wait()
		if l.fast.word.Load() == lent {
			t.Error("permits are still lent")
		}
		if s := l.Stats(); s.Allowed != calls || s.Remaining != 1e9 {
			t.Errorf("%+v", s)
		}
	})
}
