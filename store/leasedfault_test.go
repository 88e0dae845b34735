package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// gated is a store that lends when it is told.
type gated struct {
	Home

	gate chan struct{}
}

func (g *gated) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	if ask.Mode != ModeLend {
		return g.Home.Do(ctx, ask, charges, decisions)
	}
	select {
	case <-g.gate:
		return g.Home.Do(ctx, ask, charges, decisions)
	case <-ctx.Done():
		return Hold{}, ErrUnavailable
	}
}

// TestLeasedContextEnds loses patience while a block is under way: nothing is taken, and what comes goes back.
func TestLeasedContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		g := &gated{Home: m, gate: make(chan struct{})}
		l := newLeased(t, g, LeasedOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		charges := []Charge{{Policy: "p", Key: "k", Limit: minutely, N: 500}, {Policy: "p", Key: "l", Limit: minutely, N: 5}}
		err := Take(ctx, l, charges, make([]weir.Decision, 2))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		g.gate <- struct{}{}
		g.gate <- struct{}{}
		synctest.Wait()
		if s := l.Stats(); s.Held != 105 || s.Returned != 400 { // no more than a block of each key
			t.Errorf("%+v", s)
		}
		letPass(time.Second)
		if n := storeHas(t, m, minutely); n != 1600 {
			t.Errorf("%d are there", n)
		}
		// A store that does not answer at all is unavailable for those who would wait forever.
		decisions := make([]weir.Decision, 1)
		if err := Take(t.Context(), l, charges[:1], decisions); !errors.Is(err, ErrUnavailable) {
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
		err := Take(t.Context(), f.nodes[0], []Charge{{Policy: "p", Key: "k", Limit: minutely, N: 1}}, make([]weir.Decision, 1))
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
			for granted := true; granted; {
				granted = f.request(t.Context(), 0, 1) || f.request(t.Context(), 1, 1)
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
		change(weir.FixedWindow(weir.PerMinute(300)))
		empty("lowered", 300)
		change(weir.FixedWindow(weir.PerMinute(700)))
		empty("raised", 700)
		change(weir.TokenBucket(weir.PerHour(60), 200)) // another algorithm begins anew
		empty("another algorithm", 700+199)             // which is what the burst is lowered to
	})
}

// TestLeasedIsBounded has more keys than there is room for: those without anything on loan are forgotten, and if there are
// none, the store decides.
func TestLeasedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		net := &network{Home: m}
		l := newLeased(t, net, LeasedOptions{MaxKeys: 10})
		take := func(key string, n int64) weir.Decision {
			ds := make([]weir.Decision, 1)
			if err := Take(t.Context(), l, []Charge{{Policy: "p", Key: key, Limit: minutely, N: n}}, ds); err != nil {
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

// TestLeasedRefusedAndFailed has one of the limits of a request refuse it while another cannot tell: the answer is the refusal, and
// the other one does not look like one.
func TestLeasedRefusedAndFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore(t)
		l := newLeased(t, failsFor{m, "b"}, LeasedOptions{})
		charges := []Charge{{Policy: "p", Key: "k", Limit: minutely, N: 1}, {Policy: "p", Key: "b", Limit: minutely, N: 1}}
		if _, _, err := Lend(t.Context(), m, Charge{Policy: "p", Key: "k", Limit: minutely, N: 1600}, 1); err != nil {
			t.Fatal(err)
		}
		decisions := []weir.Decision{{}, {Reason: weir.ReasonNever, RetryAfter: weir.Never}} // of a request before
		err := Take(t.Context(), l, charges, decisions)
		if err != nil || (decisions[0].Allowed || !decisions[1].Allowed || decisions[1].Reason != weir.ReasonNone) {
			t.Errorf("%+v", decisions)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// failsFor is a store that cannot lend anything for a key.
type failsFor struct {
	Home

	key string
}

func (f failsFor) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	if ask.Mode == ModeLend {
		if charges[0].Key == f.key {
			return Hold{}, ErrUnavailable
		}
		time.Sleep(time.Millisecond)
	}
	return f.Home.Do(ctx, ask, charges, decisions)
}
