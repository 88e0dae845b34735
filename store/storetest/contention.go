package storetest

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// callers is how many goroutines call at a time, half of them over each handle.
const callers = 64

// crowd runs f in as many goroutines as callers, each with one of the handles, until all return.
func (s *suite) crowd(f func(caller int, handle store.Home)) {
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			handle := s.Store
			if i%2 == 1 {
				handle = s.Other
			}
			f(i, handle)
		})
	}
	all.Wait()
}

// insist calls f again while the store is unavailable, as when others hold a lock for too long. What such a call did is not
// known, but it must be nothing that counts: f has to be a call of which the test finds out.
func (s *suite) insist(what string, f func() error) bool {
	s.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		switch {
		case err == nil:
			return true
		case !errors.Is(err, store.ErrUnavailable) || time.Now().After(deadline):
			s.Errorf("%s: %v", what, err)
			return false
		}
	}
}

// testContentionOneKey wants exactly as many grants as there are permits, for every algorithm.
func testContentionOneKey(s *suite) {
	const n = 200
	for name, l := range s.limits(n) {
		var granted atomic.Int64
		c := s.charge(name, "hot", l, 1)
		s.crowd(func(_ int, handle store.Home) {
			var ds [1]weir.Decision
			take := func() error { return store.Take(s.Context(), handle, []store.Charge{c}, ds[:]) }
			for s.insist("Take", take) && ds[0].Allowed {
				granted.Add(1)
			}
		})
		if granted.Load() != n {
			s.Errorf("%s: %d were granted of %d", name, granted.Load(), n)
		}
		s.wantLeft(c, 0)
	}
}

// testContentionSeveralKeys has requests that charge a key of their own and one of all, in both orders: both must agree on
// what was granted.
func testContentionSeveralKeys(s *suite) {
	const n, own = 150, 4
	limits := s.limits(n)
	shared := s.charge("shared", "hot", limits[fixedWindow], 1)
	perCaller := s.limits(own)[tokenBucket]
	var granted [callers]int64
	take := func(i int, handle store.Home) {
		charges := []store.Charge{shared, s.charge("own", string(rune('0'+i)), perCaller, 1)}
		if i%3 == 0 {
			charges[0], charges[1] = charges[1], charges[0]
		}
		ds := make([]weir.Decision, 2)
		for s.insist("Take", func() error { return store.Take(s.Context(), handle, charges, ds) }) && allAllowed(ds) {
			granted[i]++
		}
	}
	s.crowd(take)
	if s.Tentative {
		for i := range callers {
			take(i, s.Store)
		}
	}
	total := int64(0)
	for i, got := range &granted {
		total += got
		s.wantLeft(s.charge("own", string(rune('0'+i)), perCaller, 0), own-got)
	}
	if total != n {
		s.Errorf("%d were granted of %d", total, n)
	}
	s.wantLeft(shared, 0)
}

// testContentionReservations has callers reserve permits of a concurrency limit for a moment: never are more out than there
// are.
func testContentionReservations(s *suite) {
	const n, rounds = 5, 4
	var out, most, last atomic.Int64
	c := s.charge("slots", "hot", weir.AtOnce(n), 1)
	began := time.Now()
	stuck := func() bool { return time.Since(began)-time.Duration(last.Load()) > patience } // no caller gets one any more
	s.crowd(func(_ int, handle store.Home) {
		for done := 0; done < rounds; {
			if stuck() {
				s.Errorf("nobody got a permit within %v", patience)
				return
			}
			var (
				ds [1]weir.Decision
				r  store.Hold
			)
			if !s.insist("Reserve", func() (err error) {
				r, err = store.Reserve(s.Context(), handle, []store.Charge{c}, ds[:], time.Hour)
				return err
			}) {
				return
			}
			if r.ID == "" {
				continue
			}
			if now := out.Add(1); now > most.Load() {
				most.Store(now)
			}
			done++
			last.Store(int64(time.Since(began)))
			runtime.Gosched()
			out.Add(-1)
			tried := 0
			if !s.insist("Cancel", func() error {
				err := store.Cancel(s.Context(), handle, r)
				if tried++; tried > 1 && errors.Is(err, store.ErrNotReserved) { // the first did it, and did not know
					return nil
				}
				return err
			}) {
				return
			}
		}
	})
	if most.Load() > n {
		s.Errorf("%d were out of %d", most.Load(), n)
	}
	s.wantLeft(c, n)
}
