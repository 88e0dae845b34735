package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// chargeOf is a charge of a limit of the policy p for a key.
func chargeOf(key string, l weir.Limit) *Charge { return &Charge{Policy: "p", Key: key, Limit: l} }

// minutely is a limit whose permits do not come back within a test that lasts a few seconds.
var minutely = weir.FixedWindow(weir.PerMinute(1600))

// leasedTake asks for n permits of the key k.
func leasedTake(t testing.TB, s Home, l weir.Limit, n int64) weir.Decision {
	t.Helper()
	decisions := make([]weir.Decision, 1)
	if err := Take(t.Context(), s, []Charge{{Policy: "p", Key: "k", Limit: l, N: n}}, decisions); err != nil {
		t.Fatal(err)
	}
	return decisions[0]
}

// storeHas is how many permits of the key k the inner store has.
func storeHas(t testing.TB, s Home, l weir.Limit) int64 {
	t.Helper()
	state, err := Inspect(t.Context(), s, Charge{Policy: "p", Key: "k", Limit: l})
	if err != nil {
		t.Fatal(err)
	}
	return state.Decision.Remaining
}

func TestLeasedBound(t *testing.T) {
	for _, c := range []struct {
		limit weir.Limit
		want  LeasedBound
		text  string
	}{
		{
			weir.TokenBucket(weir.PerSecond(100), 160),
			LeasedBound{Limit: 160, Lowered: 119, Block: 7, Term: 400 * time.Millisecond, Leased: true},
			"leased: never above the limit; up to 41 + 7 x instances permits may stay unused, in blocks held for up to 400ms",
		},
		{
			minutely,
			LeasedBound{Limit: 1600, Lowered: 1600, Block: 100, Term: time.Second, Leased: true},
			"leased: never above the limit; up to 100 x instances permits may stay unused, in blocks held for up to 1s",
		},
		{
			weir.SlidingWindow(weir.PerSecond(100), 0),
			LeasedBound{Limit: 100, Lowered: 100, Block: 6, Term: 100 * time.Millisecond, Leased: true},
			"held for up to 100ms",
		},
		{
			weir.CalendarWindow(64, algo.Calendar{Unit: algo.CalendarDay}),
			LeasedBound{Limit: 64, Lowered: 64, Block: 4, Term: time.Second, Leased: true},
			"up to 4 x instances",
		},
		{weir.TokenBucket(weir.PerSecond(100), 63), LeasedBound{Limit: 63, Lowered: 63}, "exact"},
		{weir.TokenBucket(weir.PerSecond(1e6), 1000), LeasedBound{Limit: 1000, Lowered: 1000}, "too fast"},
		{weir.AtOnce(500), LeasedBound{Limit: 500, Lowered: 500}, "exact"},
		{weir.Limit{}, LeasedBound{}, "exact"},
	} {
		if b := (LeasedOptions{}).Bound(c.limit); b != c.want || !strings.Contains(b.String(), c.text) {
			t.Errorf("%v: %+v, want %+v: %v", c.limit, b, c.want, b)
		}
	}
	if n := (LeasedOptions{}).Bound(minutely).Unused(5); n != 500 {
		t.Errorf("unused: %d", n)
	}
	if b := (LeasedOptions{Term: time.Hour}).Bound(minutely); b != (LeasedBound{}) {
		t.Errorf("%+v", b)
	}
	for _, o := range []LeasedOptions{{Term: time.Millisecond}, {Term: 2 * time.Minute}, {MaxKeys: -1}, {MaxKeys: 2e9}} {
		var wrong *weir.OptionError
		if _, err := NewLeased(newMemoryStore(t), o); !errors.As(err, &wrong) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestLeasedBlocksFollowDemand has no block for a key that is seldom used, and few calls for one that is used much.
func TestLeasedBlocksFollowDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, minutely, 1, LeasedOptions{}, 0, 1)
		defer f.close()
		for range 10 {
			f.request(t.Context(), 0, 1)
			letPass(300 * time.Millisecond)
		}
		if s := f.nodes[0].Stats(); s.Lends != 10 || s.Lent != 10 {
			t.Errorf("a key that is seldom used: %+v", s)
		}
		for range 1000 {
			f.request(t.Context(), 0, 1)
			letPass(2 * time.Millisecond)
		}
		s := f.nodes[0].Stats()
		if calls := s.Lends - 10; calls > 40 || s.Held > 100 {
			t.Errorf("a key that is used much: %+v", s)
		}
		letPass(400 * time.Millisecond)
		if s = f.nodes[0].Stats(); s.Held != 0 || s.Lent-s.Returned != 1010 || storeHas(t, f.store, minutely) != 590 {
			t.Errorf("what is not used goes back: %+v", s)
		}
	})
}

// TestLeasedAsksAhead has a store that is far away: a key that is used all the time waits for it only in the beginning.
func TestLeasedAsksAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := weir.TokenBucket(weir.PerSecond(100_000), 1_000_000)
		f := newFleet(t, limit, 1, LeasedOptions{}, 20*time.Millisecond, 1)
		defer f.close()
		waited := 0
		for i := range 20_000 {
			before := time.Now()
			if !f.request(t.Context(), 0, 1) {
				t.Fatal("refused")
			}
			if time.Now().After(before) && i > 2000 {
				waited++
			}
			letPass(200 * time.Microsecond)
		}
		if waited > 0 {
			t.Errorf("%d requests waited", waited)
		}
	})
}

// TestLeasedRefusesFromMemory counts the calls that a hot key costs which is refused.
func TestLeasedRefusesFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, minutely, 2, LeasedOptions{}, time.Millisecond, 1)
		defer f.close()
		for f.request(t.Context(), 0, 1) {
		}
		if f.total() != 1600 {
			t.Fatalf("%d were granted", f.total())
		}
		before := f.nets[0].lends.Load() + f.nets[0].takes.Load()
		for range 10_000 {
			d := leasedTake(t, f.nodes[0], minutely, 1)
			if rest := time.Minute - time.Duration(time.Now().UnixNano())%time.Minute; d.Allowed || d.Reason != weir.ReasonLimited ||
				d.RetryAfter < rest || d.RetryAfter > rest+5*time.Millisecond || d.Limit != 1600 || d.Remaining != 0 {
				t.Fatalf("%+v, and the window ends in %v", d, rest)
			}
			letPass(time.Millisecond)
		}
		// It asks once in a while whether permits were given back.
		if calls := f.nets[0].lends.Load() + f.nets[0].takes.Load() - before; calls > 10 {
			t.Errorf("%d calls in 10 s", calls)
		}
		letPass(time.Minute)
		if d := leasedTake(t, f.nodes[0], minutely, 1); !d.Allowed {
			t.Errorf("in the next window: %+v", d)
		}
	})
}

// TestLeasedUnused compares what is refused with what the bound says: when a request is refused no more than Unused was not
// granted.
func TestLeasedUnused(t *testing.T) {
	const nodes = 8
	for _, limit := range []weir.Limit{
		minutely,
		weir.SlidingWindow(weir.PerMinute(1600), 4),
		weir.SlidingCounter(weir.PerMinute(1600)),
		weir.CalendarWindow(1600, algo.Calendar{Unit: algo.CalendarHour}),
		weir.TokenBucket(weir.PerHour(60), 1600),
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, limit, nodes, LeasedOptions{}, 2*time.Millisecond, 1)
			bound := LeasedOptions{}.Bound(limit)
			f.each(func(node int) {
				for range 400 {
					if f.request(t.Context(), node, 1); f.refused() {
						return
					}
					letPass(time.Duration(node+1) * time.Millisecond)
				}
			})
			least := limit.Permits() + limit.Rate().Permits*min(1, 1-limit.Permits()/1600) - bound.Unused(nodes)
			if f.total() < least || !f.refused() || f.total() < 1000 {
				t.Errorf("%v: %d were granted when the first was refused, and not %d", limit, f.total(), least)
			}
			f.close() // and everything goes back
			back := storeHas(t, f.store, f.nodes[0].mustPlan(t, limit).lowered)
			if want := bound.Lowered - f.total(); back < want-8*int64(nodes) || back > want+1 {
				t.Errorf("%v: %d were granted, and %d of %d are there", limit, f.total(), back, bound.Lowered)
			}
		})
	}
}

func (f *fleet) refused() bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.short > 0
}

func (l *Leased) mustPlan(t testing.TB, limit weir.Limit) *leasePlan {
	t.Helper()
	p, err := l.plan(limit)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLeasedEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := weir.TokenBucket(weir.PerSecond(100), 400) // lowered to 299
		m := newMemoryStore(t)
		l := newLeased(t, m, LeasedOptions{})
		if d := leasedTake(t, l, bucket, 0); !d.Allowed || d.Limit != 299 || d.Remaining != 299 {
			t.Errorf("a probe: %+v", d)
		}
		for range 2 { // of a key that is not known, and of one that is
			if d := leasedTake(t, l, bucket, 300); d.Allowed || d.Reason != weir.ReasonNever || d.RetryAfter != weir.Never || d.Limit != 299 {
				t.Errorf("more than there can be: %+v", d)
			}
			if d := leasedTake(t, l, bucket, 1); !d.Allowed || d.Limit != 299 || d.Policy != "p" {
				t.Errorf("one: %+v", d)
			}
		}
		if d := leasedTake(t, l, bucket, 290); !d.Allowed {
			t.Errorf("a large one: %+v", d)
		}
		if d := leasedTake(t, l, bucket, 290); d.Allowed || d.Reason != weir.ReasonLimited || d.RetryAfter > 3*time.Second {
			t.Errorf("another large one: %+v", d)
		}
		if d := leasedTake(t, l, bucket, 299); d.Allowed || d.RetryAfter < 2700*time.Millisecond || d.RetryAfter > 3*time.Second {
			t.Errorf("a larger one, from memory: %+v", d)
		}
		if d := leasedTake(t, l, bucket, 2); !d.Allowed {
			t.Errorf("a small one: %+v", d)
		}
		small := weir.TokenBucket(weir.PerHour(2), 0) // which is passed on, for a key that was not known
		l = newLeased(t, newMemoryStore(t), LeasedOptions{})
		for i, want := range []bool{true, true, false} {
			if d := leasedTake(t, l, small, 1); d.Allowed != want || d.Limit != 2 {
				t.Errorf("%d of a small limit: %+v", i, d)
			}
		}
		var wrong *weir.OptionError
		for _, c := range []Charge{
			{Policy: "p", Limit: bucket, N: -1},
			{Policy: "p", Limit: bucket, N: 1 << 60},
			{Limit: bucket, N: 1},
			{Policy: "p", N: 1},
			{Policy: "p", Limit: weir.AtOnce(100), N: 1},
		} {
			if err := Take(t.Context(), l, []Charge{c}, make([]weir.Decision, 1)); !errors.As(err, &wrong) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if err := Take(t.Context(), l, nil, make([]weir.Decision, 1)); !errors.As(err, &wrong) {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Take(ended, l, []Charge{{Policy: "p", Key: "k", Limit: bucket, N: 1}}, make([]weir.Decision, 1)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestLeasedAllOrNothing charges a limit that has permits and one that has none: nothing is taken.
func TestLeasedAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		net := &network{Home: m, slowest: 0}
		l := newLeased(t, net, LeasedOptions{})
		few := weir.FixedWindow(weir.PerMinute(64))
		tiny := weir.TokenBucket(weir.PerHour(5), 0) // which is passed on
		charges := []Charge{
			{Policy: "many", Limit: minutely, N: 2}, {Policy: "few", Limit: few, N: 4}, {Policy: "tiny", Limit: tiny, N: 1},
		}
		decisions := make([]weir.Decision, 3)
		granted := int64(0)
		for i := range 200 {
			n := 2
			if granted < 5 {
				n = 3
			}
			if err := Take(t.Context(), l, charges[:n], decisions[:n]); err != nil {
				t.Fatal(err)
			}
			if at := Binding(decisions[:n]); decisions[at].Allowed {
				granted++
			} else if at != 1 || !decisions[0].Allowed {
				t.Fatalf("%d: %+v", i, decisions)
			}
		}
		decisions[2] = weir.Decision{}
		charges[1].N = 0
		charges[1].Key = "other"
		if err := Take(t.Context(), l, charges, decisions); err != nil || decisions[2].Allowed || !decisions[0].Allowed {
			t.Errorf("%+v, %v", decisions, err)
		}
		if granted != 16 {
			t.Errorf("%d were granted", granted)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range []struct {
			policy string
			limit  weir.Limit
			want   int64
		}{{"many", minutely, 1600 - 32}, {"few", few, 0}, {"tiny", tiny, 0}} {
			s, err := Inspect(t.Context(), m, Charge{Policy: c.policy, Limit: c.limit})
			if err != nil || s.Decision.Remaining != c.want {
				t.Errorf("%s: %+v, want %d; %v", c.policy, s.Decision, c.want, err)
			}
		}
	})
}

// TestLeasedOneCallForAll has many requests wait for one key: one call is made for all of them, and they are served in the order
// in which they came.
func TestLeasedOneCallForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := weir.FixedWindow(weir.PerHour(70))
		f := newFleet(t, limit, 1, LeasedOptions{}, 0, 1)
		defer f.close()
		gate := make(chan struct{})
		f.nodes[0].inner = &gated{Home: f.store, gate: gate}
		var granted [100]bool
		var all sync.WaitGroup
		for i := range granted {
			all.Go(func() { granted[i] = f.request(t.Context(), 0, 1) })
			synctest.Wait()
		}
		gate <- struct{}{} // the first one asked for itself alone
		gate <- struct{}{} // for all others, of which 69 are granted
		synctest.Wait()
		if f.total() != 70 || f.short != 0 {
			t.Errorf("%d were granted, %d refused", f.total(), f.short)
		}
		gate <- struct{}{} // the rest is refused
		all.Wait()
		for i, ok := range granted {
			if ok != (i < 70) {
				t.Errorf("request %d: %v", i, ok)
			}
		}
		if calls := f.nodes[0].Stats().Lends; calls != 3 {
			t.Errorf("%d calls", calls)
		}
		close(gate)
	})
}
