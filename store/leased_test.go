package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// minutely is a limit whose permits do not come back within a test that lasts a few seconds.
var minutely = weir.Limit{Algorithm: weir.AlgorithmFixedWindow, Rate: weir.PerMinute(1600)}

// leasedTake asks for n permits of the key k.
func leasedTake(t testing.TB, s Store, l weir.Limit, n int64) weir.Decision {
	t.Helper()
	decisions := make([]weir.Decision, 1)
	if err := s.Take(t.Context(), []Charge{{Policy: "p", Key: "k", Limit: l, N: n}}, decisions); err != nil {
		t.Fatal(err)
	}
	return decisions[0]
}

// storeHas is how many permits of the key k the inner store has.
func storeHas(t testing.TB, s Store, l weir.Limit) int64 {
	t.Helper()
	state, err := s.Inspect(t.Context(), Charge{Policy: "p", Key: "k", Limit: l})
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
			weir.Limit{Rate: weir.PerSecond(100), Burst: 160},
			LeasedBound{Limit: 160, Lowered: 119, Block: 7, Term: 400 * time.Millisecond, Leased: true},
			"leased: never above the limit; up to 41 + 7 x instances permits may stay unused, in blocks held for up to 400ms",
		},
		{
			minutely, LeasedBound{Limit: 1600, Lowered: 1600, Block: 100, Term: time.Second, Leased: true},
			"leased: never above the limit; up to 100 x instances permits may stay unused, in blocks held for up to 1s",
		},
		{
			weir.Limit{Algorithm: weir.AlgorithmSlidingWindow, Rate: weir.PerSecond(100)},
			LeasedBound{Limit: 100, Lowered: 100, Block: 6, Term: 100 * time.Millisecond, Leased: true}, "held for up to 100ms",
		},
		{
			weir.Limit{Algorithm: weir.AlgorithmCalendarWindow, Burst: 64, Calendar: weir.Calendar{Unit: weir.CalendarDay}},
			LeasedBound{Limit: 64, Lowered: 64, Block: 4, Term: time.Second, Leased: true}, "up to 4 x instances",
		},
		{weir.Limit{Rate: weir.PerSecond(100), Burst: 63}, LeasedBound{Limit: 63, Lowered: 63}, "exact"},
		{weir.Limit{Rate: weir.PerSecond(1e6), Burst: 1000}, LeasedBound{Limit: 1000, Lowered: 1000}, "too fast"},
		{weir.Limit{Algorithm: weir.AlgorithmConcurrency, Burst: 500}, LeasedBound{Limit: 500, Lowered: 500}, "exact"},
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
		limit := weir.Limit{Rate: weir.PerSecond(100_000), Burst: 1_000_000}
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
		// It asks once in a while whether somebody has given permits back.
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
		{Algorithm: weir.AlgorithmSlidingWindow, Rate: weir.PerMinute(1600), Segments: 4},
		{Algorithm: weir.AlgorithmSlidingCounter, Rate: weir.PerMinute(1600)},
		{Algorithm: weir.AlgorithmCalendarWindow, Burst: 1600, Calendar: weir.Calendar{Unit: weir.CalendarHour}},
		{Rate: weir.PerHour(60), Burst: 1600},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, limit, nodes, LeasedOptions{}, 2*time.Millisecond, 1)
			bound := LeasedOptions{}.Bound(limit)
			f.each(func(node int) {
				for i := 0; i < 400; i++ {
					if f.request(t.Context(), node, 1); f.refused() {
						return
					}
					letPass(time.Duration(node+1) * time.Millisecond)
				}
			})
			least := limit.Burst + limit.Rate.Permits*min(1, 1-limit.Burst/1600) - bound.Unused(nodes)
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
	p, err := l.plans.plan(limit)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLeasedEdges(t *testing.T) {
	bucket := weir.Limit{Rate: weir.PerSecond(100), Burst: 400} // lowered to 299
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
	if d := leasedTake(t, l, bucket, 2); !d.Allowed {
		t.Errorf("a small one: %+v", d)
	}
	small := weir.Limit{Rate: weir.PerHour(2)} // which is passed on, for a key that was not known
	l = newLeased(t, newMemoryStore(t), LeasedOptions{})
	for i, want := range []bool{true, true, false} {
		if d := leasedTake(t, l, small, 1); d.Allowed != want || d.Limit != 2 {
			t.Errorf("%d of a small limit: %+v", i, d)
		}
	}
	var wrong *weir.OptionError
	for _, c := range []Charge{
		{Policy: "p", Limit: bucket, N: -1}, {Policy: "p", Limit: bucket, N: 1 << 60}, {Limit: bucket, N: 1}, {Policy: "p", N: 1},
		{Policy: "p", Limit: weir.Limit{Algorithm: weir.AlgorithmConcurrency, Burst: 100}, N: 1},
	} {
		if err := l.Take(t.Context(), []Charge{c}, make([]weir.Decision, 1)); !errors.As(err, &wrong) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := l.Take(t.Context(), nil, make([]weir.Decision, 1)); !errors.As(err, &wrong) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Take(ended, []Charge{{Policy: "p", Key: "k", Limit: bucket, N: 1}}, make([]weir.Decision, 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestLeasedAllOrNothing charges a limit that has permits and one that has none: nothing is taken.
func TestLeasedAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		net := &network{Store: m, slowest: 0}
		l := newLeased(t, net, LeasedOptions{})
		few := weir.Limit{Algorithm: weir.AlgorithmFixedWindow, Rate: weir.PerMinute(64)}
		tiny := weir.Limit{Rate: weir.PerHour(5)} // which is passed on
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
			if err := l.Take(t.Context(), charges[:n], decisions[:n]); err != nil {
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
		if err := l.Take(t.Context(), charges, decisions); err != nil || decisions[2].Allowed || !decisions[0].Allowed {
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
			s, err := m.Inspect(t.Context(), Charge{Policy: c.policy, Limit: c.limit})
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
		limit := weir.Limit{Algorithm: weir.AlgorithmFixedWindow, Rate: weir.PerHour(70)}
		f := newFleet(t, limit, 1, LeasedOptions{}, 0, 1)
		defer f.close()
		gate := make(chan struct{})
		f.nodes[0].inner = &gated{Store: f.store, gate: gate}
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

// gated is a store that lends when it is told.
type gated struct {
	Store

	gate chan struct{}
}

func (g *gated) Lend(ctx context.Context, c Charge, least int64) (Loan, weir.Decision, error) {
	select {
	case <-g.gate:
		return g.Store.Lend(ctx, c, least)
	case <-ctx.Done():
		return Loan{}, weir.Decision{}, ErrUnavailable
	}
}

// TestLeasedContextEnds loses patience while a block is under way: nothing is taken, and what comes goes back.
func TestLeasedContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		g := &gated{Store: m, gate: make(chan struct{})}
		l := newLeased(t, g, LeasedOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		charges := []Charge{{Policy: "p", Key: "k", Limit: minutely, N: 500}, {Policy: "p", Key: "l", Limit: minutely, N: 5}}
		err := l.Take(ctx, charges, make([]weir.Decision, 2))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		g.gate <- struct{}{}
		g.gate <- struct{}{}
		letPass(time.Second)
		if n := storeHas(t, m, minutely); n != 1600 {
			t.Errorf("%d are there", n)
		}
		// A store that does not answer at all is unavailable for those who would wait forever.
		decisions := make([]weir.Decision, 1)
		if err := l.Take(t.Context(), charges[:1], decisions); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		close(g.gate)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLeasedUnavailable cuts the link: what is in hand is spent until its time is over, then the error is passed on.
func TestLeasedUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, minutely, 1, LeasedOptions{}, 0, 1)
		for range 200 {
			f.request(t.Context(), 0, 1)
			letPass(time.Millisecond)
		}
		f.nets[0].failing.Store(true)
		held := f.nodes[0].Stats().Held
		if before := f.total(); held < 20 {
			t.Errorf("only %d are in hand", held)
		} else {
			for range 10 {
				if !f.request(t.Context(), 0, 1) {
					t.Error("refused")
				}
			}
			letPass(time.Second)
			if f.request(t.Context(), 0, 1) || f.total() != before+10 {
				t.Error("a permit was spent that is too old")
			}
		}
		err := f.nodes[0].Take(t.Context(), []Charge{{Policy: "p", Key: "k", Limit: minutely, N: 1}}, make([]weir.Decision, 1))
		if !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		f.nets[0].failing.Store(false)
		if !f.request(t.Context(), 0, 1) {
			t.Error("refused")
		}
		if s := f.nodes[0].Stats(); s.Lost == 0 {
			t.Errorf("%+v", s)
		}
		f.close()
	})
}

// TestLeasedLimitChanges raises and lowers a limit while blocks are in hand.
func TestLeasedLimitChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, minutely, 2, LeasedOptions{}, 0, 1)
		defer f.close()
		warm := func(limit weir.Limit) {
			f.limit = limit
			for range 100 {
				f.request(t.Context(), 0, 1)
				f.request(t.Context(), 1, 1)
				letPass(time.Millisecond)
			}
		}
		warm(minutely)
		// What is in hand when the limit changes does not come back in the window, as the store cannot know what it is worth.
		lost := int64(0)
		empty := func(what string, want int64) {
			t.Helper()
			for f.request(t.Context(), 0, 1) || f.request(t.Context(), 1, 1) {
			}
			if n := f.total(); n > want || n < want-lost {
				t.Errorf("%s: %d were granted of %d, %d were in hand before", what, n, want, lost)
			}
		}
		change := func(l weir.Limit) {
			for _, node := range f.nodes {
				lost += node.Stats().Held
			}
			warm(l)
		}
		change(weir.Limit{Algorithm: weir.AlgorithmFixedWindow, Rate: weir.PerMinute(300)})
		empty("lowered", 300)
		change(weir.Limit{Algorithm: weir.AlgorithmFixedWindow, Rate: weir.PerMinute(700)})
		empty("raised", 700)
		change(weir.Limit{Rate: weir.PerHour(60), Burst: 200}) // another algorithm begins anew
		empty("another algorithm", 700+199)                    // which is what the burst is lowered to
	})
}

// TestLeasedIsBounded has more keys than there is room for: those without anything on loan are forgotten, and if there are
// none, the store decides.
func TestLeasedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		net := &network{Store: m}
		l := newLeased(t, net, LeasedOptions{MaxKeys: 10})
		take := func(key string, n int64) weir.Decision {
			ds := make([]weir.Decision, 1)
			if err := l.Take(t.Context(), []Charge{{Policy: "p", Key: key, Limit: minutely, N: n}}, ds); err != nil {
				t.Fatal(err)
			}
			return ds[0]
		}
		for i := range 1000 {
			if !take(fmt.Sprint(i), 1).Allowed {
				t.Fatal("refused")
			}
		}
		if s := l.Stats(); s.Keys != 10 || s.Full != 0 {
			t.Errorf("hostile keys: %+v", s)
		}
		for i := range 10 {
			for range 10 { // so that something is in hand
				take(fmt.Sprint("hot", i), 1)
			}
		}
		if s := l.Stats(); s.Keys != 10 || s.Held == 0 {
			t.Errorf("hot keys: %+v", s)
		}
		for range 1600 {
			if !take("new", 1).Allowed {
				t.Fatal("refused")
			}
		}
		if take("new", 1).Allowed {
			t.Error("above the limit")
		}
		if s := l.Stats(); s.Keys != 10 || s.Full == 0 {
			t.Errorf("a key for which there is no room: %+v", s)
		}
		letPass(10 * time.Second)
		for i := range 10 {
			take(fmt.Sprint("later", i), 1)
		}
		if s := l.Stats(); s.Held != 0 || s.Keys > 10 {
			t.Errorf("later: %+v", s)
		}
	})
}

// TestLeasedGiveBack undoes requests: permits come back to where they were, and no more than once.
func TestLeasedGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		l := newLeased(t, m, LeasedOptions{})
		charges := []Charge{{Policy: "p", Key: "k", Limit: minutely, N: 7}}
		for i := range 300 {
			since := l.now()
			if d := leasedTake(t, l, minutely, 7); !d.Allowed {
				t.Fatalf("%d: %+v", i, d)
			}
			letPass(time.Millisecond)
			if i%3 != 0 {
				l.giveBackSince(charges, since)
			} else if i%2 == 0 {
				l.giveBack(charges)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if n := storeHas(t, m, minutely); n != 1600-50*7 {
			t.Errorf("%d are there, want %d", n, 1600-50*7)
		}
	})
}

// TestLeasedReset and what goes to the inner store.
func TestLeasedCallsOfTheInnerStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		l := newLeased(t, m, LeasedOptions{})
		ctx, c := t.Context(), Charge{Policy: "p", Key: "k", Limit: weir.Limit{Rate: weir.PerHour(60), Burst: 1601}, N: 1}
		bound := LeasedOptions{}.Bound(c.Limit)
		if bound.Lowered != 1600 {
			t.Fatalf("%+v", bound)
		}
		for range 100 {
			leasedTake(t, l, c.Limit, 1)
		}
		look := func(what string, want int64) {
			t.Helper()
			ds := make([]weir.Decision, 1)
			if err := l.Peek(ctx, []Charge{c}, ds); err != nil || ds[0].Remaining != want || !ds[0].Allowed || ds[0].Limit != 1600 {
				t.Errorf("%s: peek %+v, want %d; %v", what, ds[0], want, err)
			}
			if s, err := l.Inspect(ctx, c); err != nil || s.Decision.Remaining != want || s.Decision.Limit != 1600 {
				t.Errorf("%s: inspect %+v, want %d; %v", what, s.Decision, want, err)
			}
		}
		if held := l.Stats().Held; held < 10 {
			t.Fatalf("%d are in hand", held)
		}
		look("taken", 1500)
		refund := c
		refund.N = 50
		if err := l.Refund(ctx, []Charge{refund}); err != nil {
			t.Error(err)
		}
		look("refunded", 1550)
		ds := make([]weir.Decision, 1)
		r, err := l.Reserve(ctx, []Charge{refund}, ds, time.Minute)
		if err != nil || !ds[0].Allowed {
			t.Errorf("%+v, %v", ds, err)
		}
		look("reserved", 1500)
		if err := l.Commit(ctx, r, []int64{20}); err != nil {
			t.Error(err)
		}
		look("committed", 1530)
		if r, err = l.Reserve(ctx, []Charge{refund}, ds, time.Minute); err != nil || l.Cancel(ctx, r) != nil {
			t.Error(err)
		}
		look("canceled", 1530)
		if err := l.Debit(ctx, []Charge{refund}, ds); err != nil {
			t.Error(err)
		}
		look("debited", 1480)
		loan, d, err := l.Lend(ctx, refund, 1)
		if err != nil || !d.Allowed || loan.Charge.Limit.Burst != 1600 {
			t.Errorf("%+v, %+v, %v", loan, d, err)
		}
		look("lent", 1430)
		if err := l.Return(ctx, loan, 50); err != nil {
			t.Error(err)
		}
		look("returned", 1480)
		if err := l.Reset(ctx, "p", "k"); err != nil {
			t.Error(err)
		}
		look("reset", 1600)
		if s := l.Stats(); s.Held != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestLeasedClose gives everything back, answers those who wait, and leaves no goroutine behind: the bubble would not end.
func TestLeasedClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		g := &gated{Store: m, gate: make(chan struct{})}
		l, err := NewLeased(g, LeasedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error)
		go func() {
			waiting <- l.Take(t.Context(), []Charge{{Policy: "p", Key: "slow", Limit: minutely, N: 1}}, make([]weir.Decision, 1))
		}()
		synctest.Wait()
		before := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(before); took != closeTime {
			t.Errorf("a store that does not answer is left after %v", took)
		}
		if err := <-waiting; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}

		l, err = NewLeased(m, LeasedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range 500 {
			leasedTake(t, l, minutely, 1)
		}
		if l.Stats().Held == 0 {
			t.Error("nothing is in hand")
		}
		for range 2 {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		if n := storeHas(t, m, minutely); n != 1100 {
			t.Errorf("%d are there", n)
		}
		charges, ds := []Charge{{Policy: "p", Key: "k", Limit: minutely, N: 1}}, make([]weir.Decision, 1)
		_, reserve := l.Reserve(t.Context(), charges, ds, time.Minute)
		_, inspect := l.Inspect(t.Context(), charges[0])
		_, _, lend := l.Lend(t.Context(), charges[0], 1)
		for i, err := range []error{
			l.Take(t.Context(), charges, ds), l.Peek(t.Context(), charges, ds), l.Refund(t.Context(), charges), reserve, inspect, lend,
			l.Debit(t.Context(), charges, ds), l.Reset(t.Context(), "p", "k"), l.Return(t.Context(), Loan{}, 0),
			l.Commit(t.Context(), Reservation{}, nil), l.Cancel(t.Context(), Reservation{}),
		} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		l.giveBack(charges)
	})
}

// TestLeasedContention has 64 goroutines ask four processes for two keys as fast as they can, in real time, while others look and
// give back: of a window that does not end, exactly the limit is granted and returned.
func TestLeasedContention(t *testing.T) {
	limit := weir.Limit{Algorithm: weir.AlgorithmCalendarWindow, Burst: 120_000, Calendar: weir.Calendar{Unit: weir.CalendarYear}}
	m := newMemoryStore(t)
	nodes := make([]*Leased, 4)
	for i := range nodes {
		nodes[i] = newLeased(t, m, LeasedOptions{Term: 20 * time.Millisecond})
	}
	var granted [2]atomic.Int64
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			l := nodes[i%len(nodes)]
			charges := []Charge{{Policy: "p", Key: "0", Limit: limit, N: 1}, {Policy: "p", Key: "1", Limit: limit, N: int64(1 + i%3)}}
			ds := make([]weir.Decision, 2)
			for turn := range 3000 {
				cut := charges[:1+turn%2]
				since := l.now()
				if err := l.Take(t.Context(), cut, ds[:len(cut)]); err != nil {
					t.Error(err)
					return
				}
				if !ds[Binding(ds[:len(cut)])].Allowed {
					continue
				}
				if turn%16 == 0 {
					l.giveBackSince(cut, since)
					continue
				}
				for k := range cut {
					granted[k].Add(cut[k].N)
				}
			}
		})
	}
	all.Wait()
	lost := int64(0)
	for _, l := range nodes {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		lost += l.Stats().Lost
	}
	for k := range granted {
		s, err := m.Inspect(t.Context(), Charge{Policy: "p", Key: fmt.Sprint(k), Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		n := granted[k].Load()
		if gone := limit.Burst - s.Decision.Remaining; gone < n || gone > n+n/100 || n < 50_000 {
			t.Errorf("key %d: %d were granted, and %d are gone", k, n, gone)
		}
	}
	t.Logf("%d and %d granted", granted[0].Load(), granted[1].Load())
}

// TestLeasedGiveBackOfWhatWasPassedOn undoes a request whose limit is not leased.
func TestLeasedGiveBackOfWhatWasPassedOn(t *testing.T) {
	small := weir.Limit{Rate: weir.PerHour(5)}
	m := newMemoryStore(t)
	l := newLeased(t, m, LeasedOptions{})
	for range 20 {
		if d := leasedTake(t, l, small, 3); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		l.giveBack([]Charge{{Policy: "p", Key: "k", Limit: small, N: 3}, {Policy: "p", Key: "nobody", Limit: minutely, N: 1}})
	}
	if n := storeHas(t, m, small); n != 5 {
		t.Errorf("%d are there", n)
	}
}
