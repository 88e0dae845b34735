package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// loanEvent is a call of a history in which permits are lent and returned.
type loanEvent struct {
	kind  loanKind
	at    int64
	limit weir.Limit
	n     int64 // permits that were taken, lent or debited, or given back
	of    int   // of a return: which event was the loan
}

type loanKind uint8

const (
	eventTake loanKind = iota
	eventLend
	eventDebit
	eventReturn
)

func (e loanEvent) String() string {
	of := ""
	if e.kind == eventReturn {
		of = fmt.Sprintf(" of event %d", e.of)
	}
	return fmt.Sprintf("%v: %s %d%s of %v",
		time.Unix(0, e.at).UTC().Format("15:04:05.999999999"), []string{"take", "lend", "debit", "return"}[e.kind], e.n, of, e.limit)
}

// replayed is a store in which the events have taken place, but of the loans what was returned was not lent. Nothing that was
// granted may be refused there.
func replayed(t *testing.T, events []loanEvent) (*store.Memory, *virtual, error) {
	t.Helper()
	events = slices.Clone(events)
	for _, e := range events {
		if e.kind == eventReturn {
			events[e.of].n -= e.n
		}
	}
	clock := newVirtual()
	m := newMemory(t, store.MemoryOptions{Clock: clock})
	ds := make([]weir.Decision, 1)
	for i, e := range events {
		clock.now.Store(e.at)
		charges := []store.Charge{{Policy: "p", Key: "k", Limit: e.limit, N: e.n}}
		var err error
		switch {
		case e.kind == eventReturn:
		case e.kind == eventDebit || e.n == 0: // which leaves the limit as it was changed
			err = store.Debit(context.Background(), m, charges, ds)
		default:
			if err = store.Take(context.Background(), m, charges, ds); err == nil && !ds[0].Allowed {
				err = fmt.Errorf("event %d was granted, but without what was returned it is %+v", i, ds[0])
			}
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return m, clock, nil
}

// loanLimits are limits between which a key may be changed.
func loanLimits() map[string][]weir.Limit {
	return map[string][]weir.Limit{
		"bucket":     {weir.TokenBucket(weir.Per(10, time.Second), 30)},
		"odd bucket": {weir.TokenBucket(weir.Per(7, 3*time.Second), 5)},
		"fixed":      {weir.FixedWindow(weir.Per(9, 3*time.Second))},
		"sliding":    {weir.SlidingWindow(weir.Per(9, 4*time.Second), 7)},
		"counter":    {weir.SlidingCounter(weir.Per(11, 4*time.Second))},
		"calendar": {
			weir.CalendarWindow(9, algo.Calendar{Unit: algo.CalendarMinute}),
		},
		"changed buckets": {
			weir.TokenBucket(weir.Per(10, time.Second), 30), weir.TokenBucket(weir.Per(100, time.Second), 40), weir.TokenBucket(weir.PerMinute(7), 0),
		},
		"changed windows": {
			weir.FixedWindow(weir.Per(9, 10*time.Second)),
			weir.FixedWindow(weir.Per(5, 10*time.Second)),
			weir.FixedWindow(weir.Per(20, time.Second)),
		},
		"changed sliding windows": {
			weir.SlidingWindow(weir.Per(20, 10*time.Second), 3),
			weir.SlidingWindow(weir.Per(9, 10*time.Second), 3),
			weir.SlidingWindow(weir.Per(9, time.Second), 10),
		},
		"changed counters": {
			weir.SlidingCounter(weir.Per(20, 10*time.Second)),
			weir.SlidingCounter(weir.Per(9, 10*time.Second)),
			weir.SlidingCounter(weir.Per(9, time.Second)),
		},
		"changed calendars": {
			weir.CalendarWindow(9, algo.Calendar{Unit: algo.CalendarMinute}),
			weir.CalendarWindow(30, algo.Calendar{Unit: algo.CalendarMinute}),
			weir.CalendarWindow(9, algo.Calendar{Unit: algo.CalendarHour}),
		},
		"several": {
			weir.TokenBucket(weir.Per(10, 10*time.Second), 0),
			weir.FixedWindow(weir.Per(10, 10*time.Second)),
			weir.SlidingWindow(weir.Per(10, 10*time.Second), 5),
		},
	}
}

func listed(events []loanEvent) string {
	var b strings.Builder
	for i, e := range events {
		fmt.Fprintf(&b, "%3d %v\n", i, e)
	}
	return b.String()
}

// loanHistory makes one history, and returns how many more permits there were after returns.
func loanHistory(t *testing.T, rng *rand.Rand, limits []weir.Limit) (events []loanEvent, given int64) {
	t.Helper()
	ctx := context.Background()
	clock := newVirtual()
	m := newMemory(t, store.MemoryOptions{Clock: clock})
	limit := limits[rng.IntN(len(limits))]
	ds := make([]weir.Decision, 1)
	loans := map[int]store.Hold{} // by event
	for range 60 {
		switch rng.IntN(6) {
		case 0, 1:
			clock.Advance(time.Duration(rng.Int64N(int64(time.Second))))
		case 2:
			clock.Advance(time.Duration(rng.Int64N(int64(6 * time.Second))))
		}
		if rng.IntN(8) == 0 {
			limit = limits[rng.IntN(len(limits))]
		}
		c := store.Charge{Policy: "p", Key: "k", Limit: limit}
		charges := []store.Charge{c}
		if err := store.Peek(ctx, m, charges, ds); err != nil {
			t.Fatal(err)
		}
		left, most := ds[0].Remaining, ds[0].Limit
		e := loanEvent{kind: loanKind(rng.IntN(4)), at: clock.Now(), limit: limit, n: 1 + rng.Int64N(most)}
		if rng.IntN(2) == 0 {
			e.n = 1 + rng.Int64N(min(most, 3))
		}
		var err error
		switch e.kind {
		case eventTake:
			charges[0].N = e.n
			if err = store.Take(ctx, m, charges, ds); !ds[0].Allowed {
				e.kind, e.n = eventDebit, 0 // it has changed the limit
			}
		case eventLend:
			var l store.Hold
			c.N = e.n
			if l, _, err = store.Lend(ctx, m, c, 1); l.Lent() == 0 {
				e.kind = eventDebit // it has changed the limit
			} else {
				loans[len(events)] = l
			}
			e.n = l.Lent()
		case eventDebit:
			if left == 0 { // so that no debt is forgotten
				e.n = 0
			}
			charges[0].N = min(e.n, left+most/2)
			e.n = charges[0].N
			err = store.Debit(ctx, m, charges, ds)
		case eventReturn:
			open := slices.Sorted(keysOf(loans))
			if len(open) == 0 {
				continue
			}
			e.of = open[rng.IntN(len(open))]
			if rng.IntN(2) == 0 {
				e.of = open[len(open)-1]
			}
			l := loans[e.of]
			delete(loans, e.of)
			if e.n = rng.Int64N(l.Lent() + 1); rng.IntN(2) == 0 {
				e.n = l.Lent()
			}
			err = store.Return(ctx, m, l, e.n)
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
		if e.kind == eventReturn {
			given += notMinted(t, m, events, left)
		}
		if t.Failed() {
			return events, given
		}
	}
	return events, given
}

func keysOf(loans map[int]store.Hold) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for k := range loans {
			if !yield(k) {
				return
			}
		}
	}
}

// notMinted compares m with what it were if what was returned had not been lent, and returns how many more permits there are
// than before.
func notMinted(t *testing.T, m *store.Memory, events []loanEvent, before int64) int64 {
	t.Helper()
	ctx := context.Background()
	last := events[len(events)-1]
	ref, clock, err := replayed(t, events)
	if err != nil {
		t.Error(err)
		return 0
	}
	clock.now.Store(last.at)
	more := int64(0)
	for _, n := range []int64{0, 1, 2, 5} {
		got, want := make([]weir.Decision, 1), make([]weir.Decision, 1)
		charges := []store.Charge{{Policy: "p", Key: "k", Limit: last.limit, N: n}}
		for _, err := range []error{store.Peek(ctx, m, charges, got), store.Peek(ctx, ref, charges, want)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		g, w := got[0], want[0]
		if g.Remaining > w.Remaining || g.RetryAfter < w.RetryAfter || g.ResetAfter < w.ResetAfter {
			t.Errorf("for %d permits it says\n%+v, but without what was returned\n%+v", charges[0].N, g, w)
		}
		more = max(more, g.Remaining-before)
	}
	return more
}

// exceeded tells in which interval more was spent than the limit allows. Permits of a loan are spent when they are lent.
func exceeded(l weir.Limit, events []loanEvent) error {
	spent, debited := slices.Clone(events), false
	for _, e := range events {
		if e.kind == eventReturn {
			spent[e.of].n -= e.n
		}
		debited = debited || e.kind == eventDebit && e.n > 0
	}
	if debited { // which exceeds the limit
		return nil
	}
	for i, from := range spent {
		total := int64(0)
		for _, e := range spent[i:] {
			if e.kind != eventReturn {
				total += e.n
			}
			if most := allowedIn(l, from.at, e.at); total > most {
				return fmt.Errorf("%d permits were spent from event %d to %v, at most %d are allowed", total, i, e, most)
			}
		}
	}
	return nil
}

// allowedIn is how many permits may be spent from one time to another.
func allowedIn(l weir.Limit, from, to int64) int64 {
	n := l.Rate().Permits
	window := int64(l.Rate().Period)
	windows := func(length int64) int64 { return to/length - from/length + 1 }
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return l.Permits() + (to-from)*n/window
	case weir.AlgorithmFixedWindow:
		return n * windows(window)
	case weir.AlgorithmCalendarWindow:
		return l.Permits() * windows(int64(time.Minute))
	case weir.AlgorithmSlidingWindow: // any whole window less a segment
		return n * ((to-from)/(window-window/int64(l.Segments())-1) + 1)
	default: // two windows grant no more than one and a part, and any window at most twice the limit
		return 2 * n * windows(window)
	}
}

// TestReturnAfterChangesThatWereForgotten changes a limit to one under which everything comes back at once, and back again, on
// a store that has no room: what was lent before stays lent.
func TestReturnAfterChangesThatWereForgotten(t *testing.T) {
	ctx := context.Background()
	day, second := weir.Per(10, 24*time.Hour), weir.PerSecond(10)
	for _, limits := range [][2]weir.Limit{
		{weir.TokenBucket(day, 0), weir.TokenBucket(second, 0)},
		{weir.TokenBucket(day, 0), weir.FixedWindow(second)},
		{weir.FixedWindow(day), weir.FixedWindow(second)},
		{weir.SlidingWindow(day, 0), weir.SlidingWindow(second, 0)},
		{weir.SlidingCounter(day), weir.TokenBucket(second, 0)},
		{
			weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarDay}),
			weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarMinute}),
		},
	} {
		clock := newVirtual()
		memory := newMemory(t, store.MemoryOptions{Clock: clock, MaxKeys: 2})
		locked := newLocked(t, store.NewMemoryLocks(clock), store.LockedOptions{Clock: clock})
		for _, s := range []store.Home{memory, locked} {
			c := store.Charge{Policy: "p", Key: "k", Limit: limits[0], N: 10}
			loan, d, err := store.Lend(ctx, s, c, 10)
			if err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			ds := make([]weir.Decision, 1)
			fast := c
			fast.Limit, fast.N = limits[1], 1
			debit := func(c store.Charge) {
				t.Helper()
				if err := store.Debit(ctx, s, []store.Charge{c}, ds); err != nil {
					t.Fatal(err)
				}
			}
			debit(fast)
			clock.Advance(3 * time.Minute)
			for _, key := range []string{"a", "b", "c"} { // for which there is no room
				debit(store.Charge{Policy: "p", Key: key, Limit: limits[0], N: 1})
			}
			debit(c)
			if err := store.Return(ctx, s, loan, 10); err != nil {
				t.Fatal(err)
			}
			c.N = 1
			if err := store.Peek(ctx, s, []store.Charge{c}, ds); err != nil || ds[0].Allowed {
				t.Errorf("%T of %v: %+v, %v", s, limits, ds[0], err)
			}
		}
	}
}
