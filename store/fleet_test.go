package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/storetest"
)

// newLink is how one process reaches a store that others share: it can be cut, and closing it closes nothing else.
func newLink(shared store.Home) *outage { return &outage{Home: shared} }

// alone is for fleets of one process whose store no goroutine asks.
func alone() store.FleetOptions {
	return store.FleetOptions{Replicas: store.ReplicasOptions{Disabled: true}}
}

func newFleet(t testing.TB, s store.Home, o store.FleetOptions) *store.Fleet {
	t.Helper()
	f, err := store.NewFleet(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// closing closes a fleet at the end of a test in a bubble.
func closing(t testing.TB, f *store.Fleet) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func charge(policy string, l weir.Limit, n int64, c store.Consistency, f store.Fail) store.Charge {
	return store.Charge{Policy: policy, Key: "k", Limit: l, N: n, Consistency: c, Fail: f}
}

func mustTake(t testing.TB, s store.Home, charges ...store.Charge) []weir.Decision {
	t.Helper()
	ds := make([]weir.Decision, len(charges))
	if err := store.Take(context.Background(), s, charges, ds); err != nil {
		t.Fatal(err)
	}
	return ds
}

func allGranted(ds []weir.Decision) bool {
	for _, d := range ds {
		if !d.Allowed {
			return false
		}
	}
	return true
}

func TestFleetConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		clock := newVirtual()
		shared := newMemory(t, store.MemoryOptions{Clock: clock})
		a, b := newFleet(t, newLink(shared), alone()), newFleet(t, newLink(shared), alone())
		t.Cleanup(func() { closing(t, a); closing(t, b) })
		return storetest.Subject{Store: a, Other: b, Now: clock.Now, Advance: clock.Advance, Steps: 5000}
	})
}

// TestFleetFails has requests of all kinds of Fail meet a store that is away.
func TestFleetFails(t *testing.T) {
	const closed, open, local = store.FailClosed, store.FailOpen, store.FailLocal
	l := hourly(10)
	for _, c := range []struct {
		name  string
		fails []store.Fail
		n     int64
		want  []weir.Reason
		left  int64 // of the first local one, afterwards
	}{
		{"closed", []store.Fail{closed}, 1, []weir.Reason{weir.ReasonUnavailable}, 10},
		{"closed, more than there ever is", []store.Fail{closed}, 11, []weir.Reason{weir.ReasonNever}, 10},
		{"open", []store.Fail{open}, 1, []weir.Reason{weir.ReasonNone}, 10},
		{"open, more than there ever is", []store.Fail{open}, 11, []weir.Reason{weir.ReasonNever}, 10},
		{"local", []store.Fail{local}, 4, []weir.Reason{weir.ReasonNone}, 6},
		{"local, more than there ever is", []store.Fail{local}, 11, []weir.Reason{weir.ReasonNever}, 10},
		{"open and local", []store.Fail{open, local}, 4, []weir.Reason{weir.ReasonNone, weir.ReasonNone}, 6},
		{"closed refuses for all", []store.Fail{open, local, closed}, 4, []weir.Reason{weir.ReasonNone, weir.ReasonNone, weir.ReasonUnavailable}, 10},
		{"a Fail that is unknown", []store.Fail{7}, 1, []weir.Reason{weir.ReasonUnavailable}, 10},
	} {
		for _, consistency := range []store.Consistency{store.ConsistencyCoherent, store.ConsistencyLeased, store.ConsistencyOptimistic} {
			synctest.Test(t, func(t *testing.T) {
				m := newLink(newMemory(t, store.MemoryOptions{}))
				f := newFleet(t, m, alone())
				defer f.Close() // the store is away, and is not told of what was allowed
				m.breaks()
				var charges []store.Charge
				for i, fail := range c.fails {
					charges = append(charges, charge(fmt.Sprint(i), l, c.n, consistency, fail))
				}
				for i, d := range mustTake(t, f, charges...) {
					if d.Reason != c.want[i] || d.Allowed != (c.want[i] == weir.ReasonNone) || d.Limit != 10 || d.Policy != charges[i].Policy ||
						(d.RetryAfter > 0) == d.Allowed {
						t.Errorf("%s, %v: charge %d: %+v", c.name, consistency, i, d)
					}
				}
				for i, fail := range c.fails {
					if fail != local {
						continue
					}
					ds := make([]weir.Decision, 1)
					charges[i].N = 0
					if err := store.Peek(t.Context(), f, charges[i:i+1], ds); err != nil || ds[0].Remaining != c.left {
						t.Errorf("%s, %v: %+v, %v; want %d left", c.name, consistency, ds[0], err, c.left)
					}
				}
				s := f.Stats().Fallback
				if n := s.Closed + s.Open + s.LocalAllowed + s.LocalRefused; n != uint64(len(c.fails)) {
					t.Errorf("%s: %+v", c.name, s)
				}
			})
		}
	}
}

// TestFleetContexts wants no decision for a caller who has gone, and one for a caller whose deadline the store has let pass.
func TestFleetContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newLink(newMemory(t, store.MemoryOptions{}))
		f := newFleet(t, m, alone())
		defer f.Close() // the store is away, and is not told of what was allowed
		m.silent.Store(int64(time.Hour))
		m.breaks()
		charges, ds := []store.Charge{charge("p", hourly(5), 1, store.ConsistencyCoherent, store.FailLocal)}, make([]weir.Decision, 1)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := store.Take(ctx, f, charges, ds); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		before := m.calls.Load()
		_, reserved := store.Reserve(ctx, f, charges, ds, time.Minute)
		for _, err := range []error{store.Take(ctx, f, charges, ds), store.Peek(ctx, f, charges, ds), reserved} {
			if !errors.Is(err, context.Canceled) || m.calls.Load() != before {
				t.Errorf("%v, %d calls", err, m.calls.Load()-before)
			}
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := store.Take(ctx, f, charges, ds); err != nil || ds[0].Remaining != 4 {
			t.Errorf("%+v, %v", ds[0], err)
		}
	})
}

// TestFleetMixedIsAllOrNothing has requests of all consistencies of which one limit is used up: the others lose nothing, whichever
// it is, and all of each can be had afterwards.
func TestFleetMixedIsAllOrNothing(t *testing.T) {
	const n = 200
	for empty := range 3 {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, newMemory(t, store.MemoryOptions{}), alone())
			defer closing(t, f)
			window := weir.FixedWindow(weir.Per(n, 100*time.Hour))
			charges := []store.Charge{ // in an order that is not that of the parts
				charge("coherent", window, 1, store.ConsistencyCoherent, store.FailClosed),
				charge("leased", window, 1, store.ConsistencyLeased, store.FailClosed),
				charge("optimistic", window, 1, store.ConsistencyOptimistic, store.FailClosed),
			}
			taken := 0
			one := charges[empty]
			for mustTake(t, f, one)[0].Allowed {
				taken++
			}
			if taken != n {
				t.Fatalf("%d of %v", taken, one.Policy)
			}
			for range 20 {
				ds := mustTake(t, f, charges...)
				for i, d := range ds {
					if d.Allowed == (i == empty) || d.Limit != n || d.Policy != charges[i].Policy {
						t.Fatalf("%+v with no permit of %s", d, one.Policy)
					}
				}
				if at := store.Binding(ds); at != empty {
					t.Fatalf("%d binds", at)
				}
				time.Sleep(10 * time.Millisecond)
			}
			for i, c := range charges {
				had := 0
				for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
					if !mustTake(t, f, c)[0].Allowed {
						time.Sleep(50 * time.Millisecond)
						continue
					}
					had++
				}
				want := n
				if i == empty {
					want = 0
				}
				if had != want {
					t.Errorf("%d of %s could be had after refusals for %s, want %d", had, c.Policy, one.Policy, want)
				}
			}
		})
	}
}

// TestFleetMixedMisuse wants requests that make no sense to be refused as a whole.
func TestFleetMixedMisuse(t *testing.T) {
	m := newMemory(t, store.MemoryOptions{})
	f := newFleet(t, m, alone())
	defer closing(t, f)
	good := charge("p", hourly(5), 1, store.ConsistencyCoherent, store.FailClosed)
	same := charge("p", hourly(5), 1, store.ConsistencyLeased, store.FailClosed)
	wrong := charge("q", hourly(5), -1, store.ConsistencyLeased, store.FailClosed)
	slots := charge("q", weir.AtOnce(1), 1, store.ConsistencyLeased, store.FailClosed)
	for _, charges := range [][]store.Charge{{good, same}, {good, wrong}, {good, slots}} {
		err := store.Take(t.Context(), f, charges, make([]weir.Decision, 2))
		if _, ok := errors.AsType[*weir.OptionError](err); !ok || m.Len() != 0 {
			t.Errorf("%v", err)
		}
	}
}

// TestFleetReservations settles reservations across an outage: those of the store and those of this process each where they are.
func TestFleetReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newMemory(t, store.MemoryOptions{})
		m := newLink(shared)
		f := newFleet(t, m, alone())
		other := newFleet(t, newLink(shared), alone())
		defer closing(t, f)
		defer closing(t, other)
		ctx := t.Context()
		slots := charge("slots", weir.AtOnce(4), 1, store.ConsistencyCoherent, store.FailLocal)
		tokens := charge("tokens", hourly(100), 10, store.ConsistencyLeased, store.FailLocal)
		free := charge("free", hourly(100), 10, store.ConsistencyOptimistic, store.FailOpen)
		charges, ds := []store.Charge{slots, tokens, free}, make([]weir.Decision, 3)
		reserve := func() store.Hold {
			t.Helper()
			r, err := store.Reserve(ctx, f, charges, ds, time.Hour)
			if err != nil || r.ID == "" || len(r.Charges) != 3 || !allGranted(ds) {
				t.Fatalf("%+v, %+v, %v", r, ds, err)
			}
			return r
		}
		out := func(want int64) {
			t.Helper()
			st, err := store.Inspect(ctx, shared, slots)
			if err != nil || st.Reserved != want {
				t.Errorf("%d slots are out in the store, want %d; %v", st.Reserved, want, err)
			}
		}
		before, abandoned := reserve(), reserve()
		out(2)
		repair := m.breaks()
		for i, r := range []store.Hold{before, abandoned} {
			actual := []int64{1, 4, 10}
			if i == 1 {
				actual = nil
			}
			if err := store.Commit(ctx, f, r, actual); actual != nil && !errors.Is(err, store.ErrUnavailable) {
				t.Error(err)
			}
			if err := store.Cancel(ctx, f, r); actual == nil && !errors.Is(err, store.ErrUnavailable) {
				t.Error(err)
			}
		}
		during, ended, dear := reserve(), reserve(), reserve()
		if !strings.HasPrefix(during.ID, "weir-local:") || len(during.ID) > store.MostIDBytes {
			t.Errorf("ID %q", during.ID)
		}
		if err := store.Cancel(ctx, f, ended); err != nil {
			t.Error(err)
		}
		if err := store.Cancel(ctx, f, ended); !errors.Is(err, store.ErrNotReserved) {
			t.Error(err)
		}
		if err := store.Cancel(ctx, other, during); !errors.Is(err, store.ErrNotReserved) {
			t.Error(err)
		}
		nobody, err := store.Reserve(ctx, f, charges[2:], ds[2:], time.Hour)
		if err != nil || !strings.HasPrefix(nobody.ID, "weir-open:") || store.Commit(ctx, f, nobody, []int64{5}) != nil {
			t.Errorf("%+v, %v", nobody, err)
		}
		repair()
		time.Sleep(20 * time.Second) // without a call the breaker stays open
		if f.Stats().Unsettled == 0 {
			t.Error("settled without the store")
		}
		after := reserve() // the probe
		time.Sleep(time.Second)
		out(1)
		if s := f.Stats(); s.Unsettled != 0 || s.Fallback.Owed != 0 {
			t.Errorf("%+v", s)
		}
		for r, actual := range map[*store.Hold][]int64{&during: {1, 3, 10}, &dear: {1, 15, 10}, &after: {1, 10, 10}} {
			if err := store.Commit(ctx, f, *r, actual); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		out(0)
		// 4 of before, 20 of during and dear, 5 more of dear, 10 of after, and what was canceled was never told.
		ds = ds[:1]
		tokens.N = 0
		if err := store.Peek(ctx, f, []store.Charge{tokens}, ds); err != nil || ds[0].Limit-ds[0].Remaining != 4+20+5+10 {
			t.Errorf("%+v, %v", ds[0], err)
		}
	})
}

// TestFleetCloses wants Close to tell the store what it does not know yet, or to say that it could not, and to end all goroutines,
// with which the bubble would not end.
func TestFleetCloses(t *testing.T) {
	for _, alive := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			shared := newMemory(t, store.MemoryOptions{})
			m := newLink(shared)
			f := newFleet(t, m, store.FleetOptions{})
			time.Sleep(time.Second)
			repair := m.breaks()
			c := charge("p", hourly(100), 7, store.ConsistencyCoherent, store.FailLocal)
			for range 8 {
				mustTake(t, f, c)
			}
			if alive {
				repair()
				time.Sleep(100 * time.Millisecond)
				if err := store.Peek(t.Context(), f, []store.Charge{charge("q", hourly(100), 0, 0, 0)}, make([]weir.Decision, 1)); err != nil {
					t.Error(err)
				}
			}
			if err := f.Close(); (err == nil) != alive || f.Close() != nil {
				t.Errorf("store there %v: %v", alive, err)
			}
			want := int64(100)
			if alive {
				want = 100 - 8*7
			}
			c.N = 0
			ds := make([]weir.Decision, 1)
			if err := store.Peek(t.Context(), shared, []store.Charge{c}, ds); err != nil || ds[0].Remaining != want {
				t.Errorf("%+v, %v; want %d left", ds[0], err, want)
			}
			if err := store.Take(t.Context(), f, []store.Charge{c}, ds); !errors.Is(err, store.ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// TestFleetStats wants the counts to be readable by programs, and one line for each transition.
func TestFleetStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		m := newLink(newMemory(t, store.MemoryOptions{}))
		f := newFleet(t, m, store.FleetOptions{Logger: slog.New(slog.NewJSONHandler(&logged, nil))})
		defer closing(t, f)
		time.Sleep(time.Second)
		repair := m.breaks()
		for range 100 {
			mustTake(t, f, charge("p", hourly(100), 1, store.ConsistencyCoherent, store.FailClosed),
				charge("q", hourly(100), 1, store.ConsistencyCoherent, store.FailOpen))
		}
		text, err := json.Marshal(f.Stats())
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{`"state":"open"`, `"failed":5`, `"fast_failed":95`, `"closed":100`, `"open":100`, `"replicas":1`} {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %s", text, part)
			}
		}
		repair()
		time.Sleep(10 * time.Second) // the heartbeat is the probe
		if s := f.Stats().Breaker; s.State != store.BreakerClosed || s.Opened != 1 {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(logged.String(), "\n"); n != 2 {
			t.Errorf("%d lines:\n%s", n, logged.String())
		}
	})
}

func TestFleetOptions(t *testing.T) {
	for _, o := range []store.FleetOptions{
		{Breaker: store.BreakerOptions{Failures: -1}},
		{Leased: store.LeasedOptions{MaxKeys: -1}},
		{Optimistic: store.OptimisticOptions{MaxKeys: -1}},
		{Replicas: store.ReplicasOptions{Assumed: -1}},
		{Fallback: store.FallbackOptions{MaxKeys: -1}},
		{Fallback: store.FallbackOptions{Grace: -1}},
	} {
		_, err := store.NewFleet(newMemory(t, store.MemoryOptions{}), o)
		if _, ok := errors.AsType[*weir.OptionError](err); !ok {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
