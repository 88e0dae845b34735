package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

// TestContention has 64 callers of two clients ask for permits that do not come back meanwhile: as many are allowed as the limit
// permits, of every algorithm, for one key and for two that are charged together.
func TestContention(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for _, split := range []bool{false, true} {
		clients := [2]*Store{server.open(Options{}), server.open(Options{})}
		clients[0].split, clients[1].split = split, split
		for _, l := range []weir.Limit{
			weir.TokenBucket(weir.Per(1000, 3000*24*time.Hour), 0),
			weir.FixedWindow(weir.Per(1000, 3660*24*time.Hour)),
			weir.SlidingWindow(weir.Per(1000, 3660*24*time.Hour), 0),
			weir.SlidingCounter(weir.Per(1000, 3660*24*time.Hour)),
			weir.CalendarWindow(1000, year()),
		} {
			policy := l.Algorithm().String()
			if split {
				policy += " split"
			}
			one := []store.Charge{{Policy: policy, Key: "a", Limit: l, N: 1}}
			two := []store.Charge{{Policy: policy, Key: "b", Limit: l, N: 1}, {Policy: policy, Key: "c", Limit: l, N: 1}}
			two[1].Limit = limits.WithPermits(l, 5000)
			var ones, twos atomic.Int64
			var wait sync.WaitGroup
			for caller := range 64 {
				wait.Go(func() {
					d := make([]weir.Decision, 2)
					for range 25 {
						s := clients[caller%2]
						if err := store.Take(context.Background(), s, one, d[:1]); err != nil {
							t.Error(err)
							return
						}
						if d[0].Allowed {
							ones.Add(1)
						}
						if err := store.Take(context.Background(), s, two, d); err != nil {
							t.Error(err)
							return
						}
						if d[0].Allowed && d[1].Allowed {
							twos.Add(1)
						}
					}
				})
			}
			wait.Wait()
			t.Logf("%s: admitted %d and %d of 1600, allowed 1000", policy, ones.Load(), twos.Load())
			if ones.Load() != 1000 {
				t.Errorf("%s: admitted %d, want 1000", policy, ones.Load())
			}
			// With charges in several slots a request may be refused because of one that is canceled afterwards.
			if n := twos.Load(); n > 1000 || !split && n != 1000 {
				t.Errorf("%s: admitted %d of two keys, want 1000", policy, n)
			}
			d := make([]weir.Decision, 2)
			if err := store.Peek(context.Background(), clients[0], two, d); err != nil ||
				d[0].Remaining != 1000-twos.Load() || d[1].Remaining != 5000-twos.Load() {
				t.Errorf("%s: left %d and %d after %d, %v", policy, d[0].Remaining, d[1].Remaining, twos.Load(), err)
			}
		}
	}
}

// TestContentionOfReservations has 64 callers of two clients hold permits of a concurrency limit: never more than the limit.
func TestContentionOfReservations(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	clients := [2]*Store{server.open(Options{}), server.open(Options{})}
	const most = 10
	c := []store.Charge{{Policy: "slots", Key: "k", Limit: weir.AtOnce(most), N: 1}}
	var out, highest, granted atomic.Int64
	var wait sync.WaitGroup
	for caller := range 64 {
		wait.Go(func() {
			d := make([]weir.Decision, 1)
			for range 50 {
				r, err := store.Reserve(context.Background(), clients[caller%2], c, d, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if r.ID == "" {
					continue
				}
				granted.Add(1)
				for n := out.Add(1); ; {
					if h := highest.Load(); n <= h || highest.CompareAndSwap(h, n) {
						break
					}
				}
				if err := store.Peek(context.Background(), clients[caller%2], c, d); err != nil { // others come meanwhile
					t.Error(err)
				}
				out.Add(-1)
				if err := store.Cancel(context.Background(), clients[(caller+1)%2], r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	t.Logf("%d were granted, at most %d at a time of %d", granted.Load(), highest.Load(), most)
	if highest.Load() > most || granted.Load() == 0 {
		t.Errorf("%d at a time, want at most %d", highest.Load(), most)
	}
	state, err := store.Inspect(context.Background(), clients[0], c[0])
	if err != nil || state.Known || state.Reservations != 0 {
		t.Errorf("left: %+v, %v", state, err)
	}
}
