package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/internal/limits"
)

// unreliable is an engine whose writes fail at random: some were carried out nevertheless, some are later.
type unreliable struct {
	*durable.MemoryEngine

	mu      sync.Mutex
	rand    *rand.Rand
	percent int // of writes that fail
	only    int // how, if it is not 0
	late    *sync.WaitGroup
}

func (u *unreliable) Campaign(ctx context.Context, address string) (durable.Term, error) {
	t, err := u.MemoryEngine.Campaign(ctx, address)
	if err != nil {
		return nil, err
	}
	return &unreliableTerm{t, u}, nil
}

type unreliableTerm struct {
	durable.Term

	engine *unreliable
}

var errLost = errors.New("the answer was lost")

func (t *unreliableTerm) Store(ctx context.Context, writes []durable.Write) (int64, error) {
	u := t.engine
	u.mu.Lock()
	fails, how, after := u.rand.IntN(100) < u.percent, u.rand.IntN(3), time.Duration(u.rand.IntN(500))*time.Millisecond
	if u.only > 0 {
		how = u.only
	}
	u.mu.Unlock()
	if !fails {
		return t.Term.Store(ctx, writes)
	}
	switch how {
	case 0: // nothing was written
	case 1: // it was
		_, _ = t.Term.Store(ctx, writes)
	default: // it will be, unless something else was written before
		writes = slices.Clone(writes)
		u.late.Go(func() { //nolint:contextcheck // it comes late
			time.Sleep(after)
			short, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = t.Term.Store(short, writes)
		})
	}
	return 0, errLost
}

// ledger is what is known of what was taken from a limit whose permits do not come back.
type ledger struct {
	mu       sync.Mutex
	certain  int64 // permits that callers have
	possible int64 // permits more that may have been taken
	given    int64 // permits that were given on top, for certain
	gifts    int64 // and that may have been
}

func (l *ledger) note(certain, possible, given, gifts int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.certain += certain
	l.possible += possible
	l.given += given
	l.gifts += gifts
}

// wrong says where the permits that were granted, and those that are left, are not those of the limit, "" if they are. So many more may
// have been burned.
func (l *ledger) wrong(burst, rest, burned int64) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.certain + rest
	if most := burst + l.given + l.gifts; sum > most {
		return fmt.Sprintf("%d of %d permits were granted", sum, most)
	}
	if least := burst + l.given - l.possible - burned; sum < least {
		return fmt.Sprintf("%d permits were granted, at least %d were there", sum, least)
	}
	return ""
}

// TestNothingIsGrantedTwice: callers take, reserve, settle, cancel, adjust and change the limit, while writes fail with an unknown
// outcome, come late, and owners die. The permits do not come back, so that they can be counted: never more are granted than there
// are, and no more are lost than what crashes burn and what callers were told not to know.
func TestNothingIsGrantedTwice(t *testing.T) {
	for seed := range seeds(120, 40) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { counted(t, rand.New(rand.NewPCG(seed, 3))) })
		}) {
			return
		}
	}
}

func counted(t *testing.T, r *rand.Rand) {
	t.Helper()
	burst := []int64{40, 100, 300}[r.IntN(3)]
	limit := weir.TokenBucket(weir.Per(1, 1_000*time.Hour), burst)
	haste := time.Duration(1+r.IntN(40)) * time.Millisecond
	k := []int64{1, 2, 10, 0}[r.IntN(4)]
	percent := []int{0, 0, 10, 40}[r.IntN(4)]
	m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Duration(r.IntN(3)) * time.Millisecond, TTL: 300 * time.Millisecond}))
	book := new(ledger)
	var late sync.WaitGroup
	crashed := int64(0)
	for range 2 + r.IntN(5) {
		u := &unreliable{m.Engine(), sync.Mutex{}, rand.New(rand.NewPCG(r.Uint64(), 1)), percent, 0, &late}
		term := must(u.Campaign(t.Context(), "node"))
		o := must(durable.NewOwner(term, durable.OwnerOptions{Reserve: k, WriteTimeout: 100 * time.Millisecond, MaxKeys: 2}))
		var work sync.WaitGroup
		for range 1 + r.IntN(6) {
			own := rand.New(rand.NewPCG(r.Uint64(), 2))
			work.Go(func() {
				for range own.IntN(60) {
					countedCall(t.Context(), o, own, limit, book)
					time.Sleep(time.Duration(own.Int64N(int64(haste))))
				}
			})
		}
		if r.IntN(2) == 0 {
			work.Wait()
		} else {
			time.Sleep(time.Duration(r.IntN(800)) * time.Millisecond)
		}
		if r.IntN(3) > 0 { // it dies
			u.Cut(true)
			time.Sleep(400 * time.Millisecond)
			crashed++
		}
		short, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		if err := o.Stop(short); err != nil {
			crashed++
		}
		cancel()
		work.Wait()
		_ = u.Close()
		time.Sleep(time.Second) // until its term is over
	}
	last, _ := owned(t, m, durable.OwnerOptions{Reserve: 1})
	rest := int64(0)
	late.Wait()
	for {
		a := spectest.Acquire(t.Context(), last, spectest.Request{Policy: "p", Limit: limit, N: 1})
		if a.Reason == weir.ReasonLimited {
			break
		}
		if rest++; a.Reason != weir.ReasonNone {
			t.Fatalf("%v: %v", a.Reason, a.Err)
		}
	}
	if k == 0 {
		k = burst / 10
	}
	if wrong := book.wrong(burst, rest, crashed*(k-1)); wrong != "" {
		t.Errorf("K %d, %d%% fail, %d crashes: %s", k, percent, crashed, wrong)
	}
}

// countedCall makes a call of any kind, and notes what it took.
func countedCall(ctx context.Context, o *durable.Owner, r *rand.Rand, limit weir.Limit, book *ledger) {
	n := 1 + r.Int64N(3)
	ask := spectest.Request{Policy: "p", Limit: limit, N: n, Queue: 1000}
	if r.IntN(2) == 0 {
		ask.Wait = time.Duration(1+r.IntN(50)) * time.Millisecond
	}
	switch kind := r.IntN(12); kind {
	case 0, 1: // reserved, and settled somehow, or left to itself
		ask.Hold = 24 * time.Hour
		a := spectest.Acquire(ctx, o, ask)
		if a.Reason != weir.ReasonNone {
			book.unknown(a, n)
			return
		}
		time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
		cost, err := n, error(nil)
		switch r.IntN(3) {
		case 0:
			cost, err = 0, o.Settle(ctx, a.Hold, nil)
		case 1:
			cost = r.Int64N(n + 1)
			err = o.Settle(ctx, a.Hold, []int64{cost})
		}
		switch {
		case err == nil && cost < n: // across a change of the rate, part of a permit is lost
			book.note(cost, 1, 0, 0)
		case err == nil:
			book.note(cost, 0, 0, 0)
		default:
			book.note(min(cost, n), max(cost, n)-min(cost, n), 0, 0)
		}
	case 2: // a gift; there is room for it, or it would be cut off
		if d, err := spectest.Peek(ctx, o, "p", "", limit); err != nil || d.Remaining > limit.Permits()-20 {
			return
		}
		if _, err := o.Adjust(ctx, limit, durable.Adjustment{Policy: "p", Permits: n, By: "x", Reason: "y"}); err == nil {
			book.note(0, 0, n, 0)
		} else {
			book.note(0, 0, 0, n)
		}
	case 3: // a caller that goes away
		short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(3))*time.Millisecond)
		defer cancel()
		book.outcome(spectest.Acquire(short, o, ask), n)
	case 4: // the same limit in other words, and another key
		ask.Limit = limits.WithRate(ask.Limit, weir.Per(1, 1_400*time.Hour))
		book.outcome(spectest.Acquire(ctx, o, ask), n)
		ask.Key = fmt.Sprint(r.IntN(5))
		_ = spectest.Acquire(ctx, o, ask)
	default:
		book.outcome(spectest.Acquire(ctx, o, ask), n)
	}
}

func (l *ledger) outcome(a spectest.Answer, n int64) {
	if a.Reason == weir.ReasonNone {
		l.note(n, 0, 0, 0)
		return
	}
	l.unknown(a, n)
}

// unknown notes what a request may have taken that was not granted.
func (l *ledger) unknown(a spectest.Answer, n int64) {
	switch a.Reason { //nolint:exhaustive // the others take nothing, or are known
	case weir.ReasonUnavailable, weir.ReasonCanceled, weir.ReasonDeadline, weir.ReasonClosed:
		l.note(0, n, 0, 0)
	}
}
