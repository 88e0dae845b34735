package store_test

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/storetest"
)

// lined is a store with one queue for all of its keys, which fails while it is broken.
type lined struct {
	store.Home

	turn   chan struct{}
	broken atomic.Pointer[error]
	calls  atomic.Int64
}

func newLined(s store.Home) *lined { return &lined{Home: s, turn: make(chan struct{}, 1)} }

func (l *lined) failure() error {
	l.calls.Add(1)
	if err := l.broken.Load(); err != nil {
		return *err
	}
	return nil
}

func (l *lined) breaks(err error) { l.broken.Store(&err) }

func (l *lined) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if ask.Mode != store.ModeTake && (ask.Mode != store.ModePeek || ask.States != nil) {
		return l.Home.Do(ctx, ask, charges, decisions)
	}
	if ask.Wait != 0 {
		return l.acquire(ctx, ask, charges, decisions)
	}
	if err := l.failure(); err != nil {
		return store.Hold{}, err
	}
	return l.Home.Do(ctx, ask, charges, decisions)
}

func (l *lined) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	if h.Lent() == 0 {
		if err := l.failure(); err != nil {
			return err
		}
	}
	return l.Home.Settle(ctx, h, actual)
}

// acquire waits in virtual time.
func (l *lined) acquire(ctx context.Context, ask store.Ask, c []store.Charge, ds []weir.Decision) (h store.Hold, err error) {
	timer := time.NewTimer(ask.Wait)
	defer timer.Stop()
	refused := func(why weir.Reason) {
		for i := range ds {
			ds[i] = weir.Decision{Reason: why, Policy: c[i].Policy}
		}
	}
	select {
	case l.turn <- struct{}{}:
	case <-timer.C:
		refused(weir.ReasonDeadline)
		return store.Hold{}, nil
	}
	defer func() { <-l.turn }()
	ask.Wait = 0
	for {
		if h, err = l.Do(ctx, ask, c, ds); err != nil || allGranted(ds) {
			return h, err
		}
		at := store.Binding(ds)
		if ds[at].Reason != weir.ReasonLimited || c[at].Queue < c[at].N {
			return h, nil
		}
		select {
		case <-time.After(ds[at].RetryAfter):
		case <-timer.C:
			refused(weir.ReasonDeadline)
			return h, nil
		case <-ctx.Done():
			refused(weir.ReasonCanceled)
			return h, nil
		}
	}
}

// kinds is a store that makes some keys durable, so that the requests of a suite have all kinds of charges.
type kinds struct {
	*store.Divided

	seed maphash.Seed
}

func (k kinds) of(policy, key string) bool { return maphash.String(k.seed, policy+"\x00"+key)%2 == 0 }

func (k kinds) all(c []store.Charge) []store.Charge {
	c = append([]store.Charge(nil), c...)
	for i := range c {
		c[i].Durable = k.of(c[i].Policy, c[i].Key)
	}
	return c
}

// asks fills the decisions of charges that were not asked, which the suite does not know of.
func (k kinds) asks(ctx context.Context, c []store.Charge, ds []weir.Decision, err error) error {
	if err != nil || allGranted(ds) {
		return err
	}
	for i := range ds {
		if ds[i].Allowed && ds[i].Remaining == 0 {
			if err := store.Peek(ctx, k, c[i:i+1], ds[i:i+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k kinds) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	h, err := k.Divided.Do(ctx, ask, k.all(charges), decisions)
	if ask.Mode == store.ModeTake {
		err = k.asks(ctx, charges, decisions, err)
	}
	for i := range h.Charges {
		if ask.Mode == store.ModeLend {
			h.Charges[i].Durable = false
		}
	}
	return h, err
}

func (k kinds) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	if h.Lent() != 0 {
		h.Charges = k.all(h.Charges)
	}
	return k.Divided.Settle(ctx, h, actual)
}

func TestDividedConforms(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		storetest.Run(t, func(t *testing.T) storetest.Subject {
			clock := newVirtual()
			a, b := newMemory(t, store.MemoryOptions{Clock: clock}), newMemory(t, store.MemoryOptions{Clock: clock})
			s := storetest.Subject{Store: store.NewDivided(a, newLined(b)), Now: clock.Now, Advance: clock.Advance, Steps: 1000}
			if mixed {
				s.Tentative = true
				s.Store = kinds{store.NewDivided(a, newLined(b)), maphash.MakeSeed()}
			}
			return s
		})
	}
}

// TestDividedReservationsExpireByTwoClocks: each part is settled as its own store has made it.
func TestDividedReservationsExpireByTwoClocks(t *testing.T) {
	clock := newVirtual()
	a, b := newMemory(t, store.MemoryOptions{Clock: clock}), newMemory(t, store.MemoryOptions{Clock: ahead{clock, time.Hour}})
	d := store.NewDivided(a, newLined(b))
	charges := []store.Charge{plain("a", hourly(9), 2), durable("b", hourly(9), 3), plain("c", hourly(9), 4)}
	for _, commit := range []bool{true, false} {
		r, err := store.Reserve(t.Context(), d, charges, make([]weir.Decision, 3), time.Minute)
		if err != nil || len(r.Charges) != 3 {
			t.Fatalf("%+v, %v", r, err)
		}
		for i, c := range charges {
			if r.Charges[i] != c {
				t.Errorf("%+v", r.Charges)
			}
		}
		if commit {
			err = store.Commit(t.Context(), d, r, []int64{1, 5, 4})
		} else {
			err = store.Cancel(t.Context(), d, r)
		}
		if err != nil {
			t.Error(err)
		}
		for i, want := range []int64{8, 4, 5} {
			if s, err := store.Inspect(t.Context(), d, charges[i]); err != nil || s.Decision.Remaining != want || s.Reserved != 0 {
				t.Errorf("%s: %+v, %v, want %d", charges[i].Key, s, err, want)
			}
		}
	}
}

func durable(key string, l weir.Limit, n int64) store.Charge {
	return store.Charge{Policy: "durable", Key: key, Limit: l, N: n, Durable: true, Queue: 100}
}

func plain(key string, l weir.Limit, n int64) store.Charge {
	return store.Charge{Policy: "plain", Key: key, Limit: l, N: n}
}

// TestDividedContention has many take what is of both kinds, reserve it and settle that: no more is granted than there is, on neither
// side, and what is not granted costs nothing.
func TestDividedContention(t *testing.T) {
	const workers, rounds = 8, 400
	a, b := newMemory(t, store.MemoryOptions{}), newMemory(t, store.MemoryOptions{})
	d := store.NewDivided(a, newLined(b))
	window := func(n int64) weir.Limit {
		return weir.FixedWindow(weir.Per(n, 10_000*time.Hour))
	}
	all := []store.Charge{
		durable("a", window(700), 1), durable("b", window(300), 2), plain("a", window(600), 1), plain("b", window(400), 3),
	}
	var granted [4]atomic.Int64
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			for range rounds {
				places := rand.Perm(len(all))[:1+rand.N(4)]
				var charges []store.Charge
				for _, at := range places {
					charges = append(charges, all[at])
				}
				ds := make([]weir.Decision, len(charges))
				var r store.Hold
				var err error
				way := rand.N(3)
				switch way {
				case 0:
					err = store.Take(t.Context(), d, charges, ds)
				case 1:
					r, err = store.Reserve(t.Context(), d, charges, ds, time.Hour)
				default:
					_, err = store.Acquire(t.Context(), d, store.Ask{}, charges, ds)
					if errors.Is(err, weir.ErrRefused) == allGranted(ds) {
						t.Errorf("%v of %+v", err, ds)
					}
				}
				if errors.Is(err, weir.ErrRefused) && way > 1 {
					err = nil
				}
				if err != nil {
					t.Error(err)
				}
				if !allGranted(ds) {
					if r.ID != "" {
						t.Errorf("%+v of a refused request", r)
					}
					continue
				}
				actual := make([]int64, len(charges))
				for i := range charges {
					actual[i] = charges[i].N
					if way == 1 {
						actual[i] = rand.Int64N(charges[i].N + 1)
					}
				}
				switch {
				case way != 1:
				case rand.N(2) == 0:
					clear(actual)
					err = store.Cancel(t.Context(), d, r)
				default:
					err = store.Commit(t.Context(), d, r, actual)
				}
				if err != nil {
					t.Error(err)
				}
				for i, at := range places {
					granted[at].Add(actual[i])
				}
			}
		})
	}
	done.Wait()
	for i := range all {
		s, err := store.Inspect(t.Context(), d, all[i])
		if err != nil {
			t.Fatal(err)
		}
		n, used := granted[i].Load(), s.Decision.Limit-s.Decision.Remaining
		if n > s.Decision.Limit || n != used || n == 0 || s.Reserved != 0 {
			t.Errorf("%s %s: %d granted of %d, and %d used: %+v", all[i].Policy, all[i].Key, n, s.Decision.Limit, used, s)
		}
	}
}

// TestDividedRefusals tell what is left, and of what was not asked nothing.
func TestDividedRefusals(t *testing.T) {
	a, b := newMemory(t, store.MemoryOptions{}), newMemory(t, store.MemoryOptions{})
	queue := newLined(b)
	d := store.NewDivided(a, queue)
	ds := make([]weir.Decision, 2)
	for _, c := range []struct {
		charges []store.Charge
		want    [2]weir.Decision
	}{
		{
			[]store.Charge{plain("k", hourly(5), 1), durable("k", hourly(3), 4)},
			[2]weir.Decision{{Allowed: true, Limit: 5}, {Reason: weir.ReasonNever, Limit: 3, Remaining: 3, RetryAfter: weir.Never}},
		},
		{
			[]store.Charge{plain("k", hourly(5), 6), durable("k", hourly(3), 2)},
			[2]weir.Decision{{Reason: weir.ReasonNever, Limit: 5, Remaining: 5, RetryAfter: weir.Never}, {Allowed: true, Limit: 3, Remaining: 3}},
		},
	} {
		for range 3 { // which costs nothing
			if err := store.Take(t.Context(), d, c.charges, ds); err != nil {
				t.Fatal(err)
			}
			for i := range ds {
				c.want[i].Policy = c.charges[i].Policy
				if ds[i] != c.want[i] {
					t.Errorf("%+v, want %+v", ds[i], c.want[i])
				}
			}
		}
	}
	before := queue.calls.Load()
	r, err := store.Acquire(t.Context(), d, store.Ask{Wait: time.Hour}, []store.Charge{plain("k", hourly(5), 6), durable("k", hourly(3), 2)}, ds)
	if !errors.Is(err, weir.ErrRefused) || r.ID != "" || ds[0].Allowed || !ds[1].Allowed || ds[1].Remaining != 0 || queue.calls.Load() != before {
		t.Errorf("%+v, %v: the owner need not be asked for what the store refuses", ds, err)
	}
}

// slow is a store that answers when it may.
type slow struct {
	store.Home

	asked, may chan struct{}
}

func (s slow) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if ask.Mode == store.ModeTake {
		s.asked <- struct{}{}
		<-s.may
	}
	return s.Home.Do(ctx, ask, charges, decisions)
}

// TestDividedHoldsWhileItAsks: durable permits are out while the other store is asked, and back when it has refused.
func TestDividedHoldsWhileItAsks(t *testing.T) {
	a, b := newMemory(t, store.MemoryOptions{}), newMemory(t, store.MemoryOptions{})
	shared := slow{a, make(chan struct{}), make(chan struct{})}
	d := store.NewDivided(shared, newLined(b))
	refused := make([]weir.Decision, 2)
	err := make(chan error)
	go func() {
		err <- store.Take(t.Context(), d, []store.Charge{plain("k", hourly(1), 2), durable("k", hourly(1), 1)}, refused)
	}()
	<-shared.asked
	ds := make([]weir.Decision, 1)
	if err := store.Take(t.Context(), d, []store.Charge{durable("k", hourly(1), 1)}, ds); err != nil || ds[0].Reason != weir.ReasonLimited {
		t.Errorf("%+v, %v, while another has the permit", ds, err)
	}
	shared.may <- struct{}{}
	if err := <-err; err != nil || refused[0].Reason != weir.ReasonNever || !refused[1].Allowed || refused[1].Remaining != 1 {
		t.Errorf("%+v, %v", refused, err)
	}
	if err := store.Take(t.Context(), d, []store.Charge{durable("k", hourly(1), 1)}, ds); err != nil || !ds[0].Allowed {
		t.Errorf("%+v, %v, after it has come back", ds, err)
	}
}

// TestDividedWaits for the durable part, with all or nothing of the rest.
func TestDividedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newMemory(t, store.MemoryOptions{}), newMemory(t, store.MemoryOptions{})
		d := store.NewDivided(a, newLined(b))
		minutely := weir.TokenBucket(weir.PerMinute(1), 1)
		ds := make([]weir.Decision, 2)
		charges := []store.Charge{durable("k", minutely, 1), plain("k", hourly(3), 1)}
		want := func(after time.Duration, why weir.Reason, w store.Ask) store.Hold {
			t.Helper()
			began := time.Now()
			r, err := store.Acquire(t.Context(), d, w, charges, ds)
			refused, _ := errors.AsType[*weir.RefusedError](err)
			if why != weir.ReasonNone && (refused == nil || refused.Decision.Reason != why || refused.Permits != 1) {
				t.Errorf("%v, want to be refused: %v", err, why)
			} else if why != weir.ReasonNone {
				err = nil
			}
			if took := time.Since(began); err != nil || took != after || ds[store.Binding(ds)].Reason != why {
				t.Errorf("%v after %v: %+v, want %v after %v", err, took, ds, why, after)
			}
			return r
		}
		left := func(want int64) {
			t.Helper()
			if s, err := store.Inspect(t.Context(), d, charges[1]); err != nil || s.Decision.Remaining != want {
				t.Errorf("%d are left of the other store, want %d, %v", s.Decision.Remaining, want, err)
			}
		}
		want(0, weir.ReasonNone, store.Ask{Wait: time.Hour})
		want(time.Minute, weir.ReasonNone, store.Ask{Wait: time.Hour})
		left(1)
		want(30*time.Second, weir.ReasonDeadline, store.Ask{Wait: 30 * time.Second})
		left(1)
		r := want(30*time.Second, weir.ReasonNone, store.Ask{Wait: time.Hour, Hold: time.Minute})
		left(0)
		if len(r.Charges) != 2 || !strings.HasPrefix(r.ID, "weir-both:") {
			t.Errorf("%+v", r)
		}
		if err := store.Commit(t.Context(), d, r, []int64{0, 0}); err != nil {
			t.Error(err)
		}
		left(1)
		if err := store.Commit(t.Context(), d, r, []int64{0, 0}); !errors.Is(err, store.ErrNotReserved) {
			t.Error(err)
		}
		want(0, weir.ReasonNone, store.Ask{Wait: time.Hour})
		want(0, weir.ReasonLimited, store.Ask{Wait: time.Hour}) // of the other store, so the call does not wait
	})
}

// TestDividedFails: what one side cannot decide on is decided by Fail, whatever the other says.
func TestDividedFails(t *testing.T) {
	gone := errors.New("the owner is away")
	for _, c := range []struct {
		name            string
		breaks          [2]bool // the durable side, and the other one
		fail            [2]store.Fail
		want            [2]weir.Reason
		durable, shared int64 // what is left of 3
		told            int
	}{
		{"closed", [2]bool{true, false}, [2]store.Fail{}, [2]weir.Reason{weir.ReasonUnavailable, 0}, 3, 3, 1},
		{"open", [2]bool{true, false}, [2]store.Fail{store.FailOpen, 0}, [2]weir.Reason{}, 3, 2, 1},
		{"other closed", [2]bool{false, true}, [2]store.Fail{}, [2]weir.Reason{0, weir.ReasonUnavailable}, 3, 3, 1},
		{"other open", [2]bool{false, true}, [2]store.Fail{0, store.FailOpen}, [2]weir.Reason{}, 2, 3, 1},
		{"both open", [2]bool{true, true}, [2]store.Fail{store.FailOpen, store.FailOpen}, [2]weir.Reason{}, 3, 3, 2},
	} {
		for _, reserve := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				a, b := newMemory(t, store.MemoryOptions{}), newMemory(t, store.MemoryOptions{})
				owner, other := newLined(b), newLined(a)
				d := store.NewDivided(other, owner)
				told := 0
				d.Failed = func(charges []store.Charge, err error) {
					told++
					if len(charges) != 1 || !errors.Is(err, gone) {
						t.Errorf("%+v, %v", charges, err)
					}
				}
				for i, l := range []*lined{owner, other} {
					if c.breaks[i] {
						l.breaks(gone)
					}
				}
				charges := []store.Charge{durable("k", hourly(3), 1), plain("k", hourly(3), 1)}
				charges[0].Fail, charges[1].Fail = c.fail[0], c.fail[1]
				ds := make([]weir.Decision, 2)
				var r store.Hold
				var err error
				if reserve {
					r, err = store.Reserve(t.Context(), d, charges, ds, time.Hour)
				} else {
					err = store.Take(t.Context(), d, charges, ds)
				}
				if err != nil || told != c.told {
					t.Errorf("%v, told %d times", err, told)
				}
				for i := range ds {
					if ds[i].Reason != c.want[i] || ds[i].Allowed != (c.want[i] == 0) || c.want[i] != 0 && ds[i].RetryAfter != time.Second {
						t.Errorf("%+v", ds)
					}
				}
				for i, left := range []int64{c.durable, c.shared} {
					s, err := store.Inspect(t.Context(), []store.Home{b, a}[i], charges[i])
					if err != nil || s.Decision.Remaining != left {
						t.Errorf("%d are left of side %d, want %d, %v", s.Decision.Remaining, i, left, err)
					}
				}
				if r.ID == "" {
					return
				}
				if err := store.Cancel(t.Context(), d, r); err != nil {
					t.Error(err)
				}
				for i, s := range []store.Home{b, a} {
					if s, err := store.Inspect(t.Context(), s, charges[i]); err != nil || s.Decision.Remaining != 3 {
						t.Errorf("%d are left of side %d, %v", s.Decision.Remaining, i, err)
					}
				}
			})
		}
	}
}

// lastWord is a store whose reservations cannot be settled.
type lastWord struct{ *lined }

func (l lastWord) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	if actual != nil {
		return store.ErrUnavailable
	}
	return l.lined.Settle(ctx, h, actual)
}

// TestDividedOwnerLostInBetween refuses, and what the other store has taken stays taken.
func TestDividedOwnerLostInBetween(t *testing.T) {
	a, b := newMemory(t, store.MemoryOptions{}), newMemory(t, store.MemoryOptions{})
	d := store.NewDivided(a, lastWord{newLined(b)})
	charges := []store.Charge{durable("k", hourly(3), 1), plain("k", hourly(3), 1)}
	ds := make([]weir.Decision, 2)
	if err := store.Take(t.Context(), d, charges, ds); err != nil || ds[0].Reason != weir.ReasonUnavailable || !ds[1].Allowed {
		t.Errorf("%+v, %v", ds, err)
	}
	if s, err := store.Inspect(t.Context(), d, charges[1]); err != nil || s.Decision.Remaining != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestDividedMisuse: errors that no Fail is for, and charges that there is no store for.
func TestDividedMisuse(t *testing.T) {
	ds := make([]weir.Decision, 1)
	for _, name := range []string{"no owner", "no store"} {
		m := newMemory(t, store.MemoryOptions{})
		d := store.NewDivided(m, nil)
		if name == "no store" {
			d = store.NewDivided(nil, newLined(m))
		}
		c := durable("k", hourly(3), 1)
		c.Durable, c.Fail = name == "no owner", store.FailOpen
		var wrong *weir.OptionError
		if err := store.Take(t.Context(), d, []store.Charge{c}, ds); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
		if c.Durable = !c.Durable; store.Take(t.Context(), d, []store.Charge{c}, ds) != nil || !ds[0].Allowed {
			t.Errorf("%s: %+v", name, ds)
		}
		if err := errors.Join(store.Reset(t.Context(), d, c.Policy, c.Key), d.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	}
	d := store.NewDivided(newMemory(t, store.MemoryOptions{}), newLined(newMemory(t, store.MemoryOptions{})))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	charges := []store.Charge{durable("k", hourly(3), 1), plain("z", hourly(3), 1)}
	charges[0].Fail, charges[1].Fail = store.FailOpen, store.FailOpen
	if err := store.Take(ctx, d, charges, make([]weir.Decision, 2)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, id := range []string{"weir-both:", "weir-both:3", "weir-both:1:1:3:abc", "weir-both:1:1:-1:abcd", "weir-both:1:1:9:abc", "weir-both:1:x:1:ab", "weir-both:1:1:2:" + strings.Repeat("x", 200)} {
		if err := store.Cancel(t.Context(), d, store.Hold{ID: id, Charges: charges}); !errors.Is(err, store.ErrNotReserved) {
			t.Errorf("%s: %v", id, err)
		}
	}
}
