package spectest

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

func failedWrite(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(0, 0), weir.ReasonNone) // which reads the record
	s.Fail(true)
	r := b.ask(1, slack)
	r.Hold = time.Minute // which is always written
	a := b.get(r, weir.ReasonUnavailable)
	if a.Err == nil || !errors.Is(a.Err, store.ErrUnavailable) {
		t.Error(a.Err)
	}
	s.Fail(false)
	b.get(b.ask(5, slack), weir.ReasonNone)
	b.get(b.ask(1, 0), weir.ReasonLimited)
}

func idleWritesNothing(t *testing.T, s *Subject) {
	b := begin(t, s, every(10*time.Millisecond, 5))
	b.get(b.ask(3, 0), weir.ReasonNone)
	b.get(b.ask(5, slack), weir.ReasonNone)
	before := s.Writes()
	for range 5 { // while permits come back
		<-time.After(soon)
		b.get(b.ask(0, slack), weir.ReasonNone)
	}
	if n := s.Writes() - before; n > 1 { // one may have been on its way
		t.Errorf("%d writes", n)
	}
}

// renew makes the owner end its term.
func (b *bench) renew() {
	b.t.Helper()
	b.s.Asked = b.s.Again(b.t)
	if len(b.s.Asked) == 0 {
		b.t.Fatal("nobody can be asked any more")
	}
}

// burned is how many permits at most a term that has ended can have taken along.
func (s *Subject) burned() int64 {
	switch s.Reserve {
	case -1:
		return 0
	case 0:
		return 1 // a tenth of what these rows use is less
	}
	return s.Reserve - 1
}

func grantsSurvive(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 10))
	b.get(b.ask(3, 0), weir.ReasonNone)
	b.get(b.ask(3, 0), weir.ReasonNone)
	b.renew()
	var granted int64
	for {
		a := Acquire(t.Context(), b.next(), b.ask(1, 0))
		if a.Reason == weir.ReasonLimited {
			break
		}
		if a.Reason != weir.ReasonNone {
			t.Fatalf("%v (%v)", a.Reason, a.Err)
		}
		granted++
	}
	if granted > 4 || granted < 4-s.burned() {
		t.Errorf("6 of 10 were granted before, and %d afterwards", granted)
	}
}

func reservationsSurvive(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	r := b.ask(4, 0)
	r.Hold = slow
	a := b.get(r, weir.ReasonNone)
	b.renew()
	if err := b.next().Settle(t.Context(), a.Hold, []int64{1}); err != nil {
		t.Fatal(err)
	}
	if err := b.next().Settle(t.Context(), a.Hold, []int64{1}); !errors.Is(err, durable.ErrNotReserved) {
		t.Error(err)
	}
	b.get(b.ask(max(1, 4-s.burned()), 0), weir.ReasonNone)
	b.get(b.ask(5, 0), weir.ReasonLimited)
}

func waitersAreTold(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(5, 0), weir.ReasonNone)
	var all []*waits
	for range 4 {
		all = append(all, b.start(b.ask(1, time.Minute)))
	}
	b.queued(4)
	b.renew()
	for _, w := range all {
		<-w.done
		w.cancel()
		switch a := w.answer; {
		case a.Reason == weir.ReasonClosed:
		case a.Reason == weir.ReasonUnavailable && errors.Is(a.Err, store.ErrUnavailable):
		default:
			t.Errorf("%v (%v)", a.Reason, a.Err)
		}
	}
	b.get(b.ask(1, 0), weir.ReasonLimited)
}

func smallerAfterwards(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 20))
	b.get(b.ask(1, 0), weir.ReasonNone)
	b.renew()
	b.limit = limits.WithPermits(b.limit, 2)
	b.get(b.ask(3, 0), weir.ReasonNever)
	b.get(b.ask(2, 0), weir.ReasonNone)
	b.get(b.ask(1, 0), weir.ReasonLimited)
}
