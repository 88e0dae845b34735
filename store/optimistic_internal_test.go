package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// slowTakes is a store that answers Take late.
type slowTakes struct {
	Home

	late time.Duration
}

func (s *slowTakes) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	if ask.Mode == ModeTake {
		time.Sleep(s.late)
	}
	return s.Home.Do(ctx, ask, charges, decisions)
}

// TestOptimisticGivesBackExactly has requests that memory grants in part, and the store refuses a while later, when another window
// has begun or the bucket is full again: all of the limit can be had afterwards, and not one permit more. The store is not told
// meanwhile of what may be given back.
func TestOptimisticGivesBackExactly(t *testing.T) {
	for _, l := range []weir.Limit{
		weir.FixedWindow(weir.Per(100, 10*time.Second)),
		weir.FixedWindow(weir.Per(100, time.Hour)),
		weir.SlidingWindow(weir.Per(100, 10*time.Second), 0),
		weir.TokenBucket(weir.Per(100, time.Hour), 100),
		weir.TokenBucket(weir.PerSecond(100), 100),
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			memory, err := NewMemory(MemoryOptions{})
			if err != nil {
				t.Fatal(err)
			}
			inner := &slowTakes{memory, time.Second}
			o, err := NewOptimistic(inner, OptimisticOptions{Drift: 100})
			if err != nil {
				t.Fatal(err)
			}
			window := int64(l.Rate().Period)
			time.Sleep(time.Duration(window-time.Now().UnixNano()%window) - 2500*time.Millisecond)
			known := Charge{Policy: "known", Limit: l, N: 40, Consistency: ConsistencyOptimistic}
			empty := Charge{Policy: "empty", Limit: weir.TokenBucket(weir.PerDay(1), 1), N: 1}
			ds := make([]weir.Decision, 2)
			if err = Take(ctx, memory, []Charge{empty}, ds[:1]); err != nil || !ds[0].Allowed {
				t.Fatal(ds[0], err)
			}
			if err = Peek(ctx, o, []Charge{known}, ds[:1]); err != nil {
				t.Fatal(err)
			}
			first := known
			first.N = 1
			if err = Take(ctx, o, []Charge{first}, ds[:1]); err != nil || !ds[0].Allowed {
				t.Fatal(ds[0], err)
			}
			time.Sleep(time.Second) // the store is told; now there is half a second left of the window
			before, err := Inspect(ctx, memory, known)
			if err != nil {
				t.Fatal(err)
			}
			first.N = 0
			if err := Peek(ctx, o, []Charge{first}, ds[:1]); err != nil {
				t.Fatal(err)
			}
			if err := o.takeMixed(ctx, []Charge{known, empty}, ds); err != nil || !ds[0].Allowed || ds[1].Allowed {
				t.Fatalf("%v: %+v, %v", l, ds, err)
			}
			time.Sleep(time.Second)
			if s, err := Inspect(ctx, memory, known); err != nil || s.Decision.Remaining < before.Decision.Remaining {
				t.Errorf("%v: the store has %+v, %v after a request that was refused, and had %+v", l, s.Decision, err, before.Decision)
			}
			inner.late = 0
			had := int64(0)
			for at := time.Now(); time.Since(at) < 500*time.Millisecond; {
				if err := Take(ctx, o, []Charge{{Policy: "known", Limit: l, N: 1}}, ds[:1]); err != nil {
					t.Fatal(err)
				}
				if ds[0].Allowed {
					had++
					continue
				}
				time.Sleep(min(ds[0].RetryAfter, 100*time.Millisecond))
			}
			most := int64(100)
			if l.Algorithm() == weir.AlgorithmTokenBucket {
				most += int64(float64(100) * float64(3*time.Second) / float64(l.Rate().Period))
			}
			if had > most || had < 99 {
				t.Errorf("%v: %d could be had", l, had)
			}
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOptimisticToldOfWhatIsHeld has another request ask the store about a key of which permits may still be given back: the store
// is told of them first, and so they stay taken.
func TestOptimisticToldOfWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		memory, err := NewMemory(MemoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := NewOptimistic(&slowTakes{memory, time.Second}, OptimisticOptions{})
		if err != nil {
			t.Fatal(err)
		}
		l := weir.FixedWindow(weir.Per(100, 1000*time.Hour))
		known := Charge{Policy: "known", Limit: l, N: 10, Consistency: ConsistencyOptimistic}
		empty := Charge{Policy: "empty", Limit: weir.TokenBucket(weir.PerDay(1), 1), N: 1}
		ds := make([]weir.Decision, 2)
		if err := Take(ctx, memory, []Charge{empty}, ds[:1]); err != nil || !ds[0].Allowed {
			t.Fatal(ds[0], err)
		}
		if err := Take(ctx, o, []Charge{known}, ds[:1]); err != nil || !ds[0].Allowed {
			t.Fatal(ds[0], err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			both := make([]weir.Decision, 2)
			if err := o.takeMixed(ctx, []Charge{known, empty}, both); err != nil || both[1].Allowed {
				t.Errorf("%+v, %v", both, err)
			}
		}()
		time.Sleep(500 * time.Millisecond)
		if s, err := Inspect(ctx, memory, known); err != nil || s.Decision.Remaining != 90 {
			t.Errorf("the store has %+v, %v", s.Decision, err)
		}
		if err := Take(ctx, o, []Charge{known}, ds[:1]); err != nil || !ds[0].Allowed || ds[0].Remaining != 70 {
			t.Errorf("%+v, %v", ds[0], err)
		}
		<-done
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		if s, err := Inspect(ctx, memory, known); err != nil || s.Decision.Remaining != 70 {
			t.Errorf("the store has %+v, %v", s.Decision, err)
		}
	})
}
