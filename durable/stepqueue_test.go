package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

// inBubble runs f in virtual time with the limits of a cluster, asked at the owner or at another node.
func inBubble(t *testing.T, f func(t *testing.T, s, owner *durable.Node)) {
	t.Helper()
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprintf("asked elsewhere %v", asked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				owner, asking, _ := pair(t, durable.OwnerOptions{})
				synctest.Wait()
				if asked {
					f(t, asking, owner)
				} else {
					f(t, owner, owner)
				}
			})
		})
	}
}

func tokens(policy string, n, burst, rate int64) store.Charge {
	return store.Charge{Policy: policy, Limit: weir.TokenBucket(weir.PerSecond(rate), burst), N: n, Queue: 100}
}

// waited is what a request for several limits was answered, and when.
type waited struct {
	decisions   []weir.Decision
	reservation store.Hold
	err         error
	after       time.Duration
}

func (w *waited) reasons() string {
	var text strings.Builder
	for _, d := range w.decisions {
		text.WriteString(d.Reason.String() + " ")
	}
	return text.String() + w.after.String()
}

func acquire(ctx context.Context, s *durable.Node, w store.Ask, charges ...store.Charge) *waited {
	got := &waited{decisions: make([]weir.Decision, len(charges))}
	begin := time.Now()
	got.reservation, got.err = store.Acquire(ctx, s, w, charges, got.decisions)
	got.after = time.Since(begin)
	if !errors.Is(got.err, store.ErrUnavailable) {
		got.err = contract(ctx, got)
	}
	return got
}

// contract is what is wrong with the error of decisions that were made, if anything: it is nil only if all are allowed, and otherwise
// tells the one that binds, or that ctx was canceled.
func contract(ctx context.Context, got *waited) error {
	d := got.decisions[store.Binding(got.decisions)]
	refused, ok := errors.AsType[*weir.RefusedError](got.err)
	switch {
	case d.Allowed:
		return got.err
	case d.Reason == weir.ReasonCanceled:
		if errors.Is(got.err, weir.ErrRefused) || !errors.Is(got.err, ctx.Err()) {
			return fmt.Errorf("the error is %w, want that of the context alone: %w", got.err, ctx.Err())
		}
	case !ok, !errors.Is(got.err, weir.ErrRefused), refused.Decision != d:
		return fmt.Errorf("the error is %w, want a refusal with %+v", got.err, d)
	}
	return nil
}

// begin is acquire that goes on.
func begin(ctx context.Context, s *durable.Node, w store.Ask, charges ...store.Charge) (ended func() *waited) {
	result := make(chan *waited, 1)
	go func() { result <- acquire(ctx, s, w, charges...) }()
	synctest.Wait()
	return func() *waited { return <-result }
}

func (w *waited) want(t *testing.T, want string) {
	t.Helper()
	if got := w.reasons(); got != want || w.err != nil {
		t.Errorf("%s (%v), want %s", got, w.err, want)
	}
}

func left(t *testing.T, s *durable.Node, c store.Charge, want int64) {
	t.Helper()
	c.N = 0
	st, err := store.Inspect(t.Context(), s, c)
	if err != nil || st.Decision.Remaining != want {
		t.Errorf("%d of %s are left, %v, want %d", st.Decision.Remaining, c.Policy, err, want)
	}
}

var minute = store.Ask{Wait: time.Minute}

// TestWaitForSeveralLimits: a request of several limits is granted when the permits of all are there, in the order of arrival at
// each of them, whatever the order of its charges.
func TestWaitForSeveralLimits(t *testing.T) {
	inBubble(t, func(t *testing.T, s, _ *durable.Node) {
		a, b := tokens("a", 5, 5, 1), tokens("b", 4, 4, 2)
		acquire(t.Context(), s, minute, a, b).want(t, "none none 0s")
		a.N, b.N = 2, 3
		first := begin(t.Context(), s, minute, b, a)
		a.N, b.N = 2, 1
		second := begin(t.Context(), s, minute, a, b)
		third := begin(t.Context(), s, minute, a)
		first().want(t, "none none 2s")
		second().want(t, "none none 4s")
		third().want(t, "none 6s")
	})
}

// TestHeldIsGivenBack: what a request holds of one limit while it waits for another comes back exactly when it goes away, and those
// who wait behind it are served then.
func TestHeldIsGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		wait   store.Ask
		cancel time.Duration
		queue  int64
		want   string
		behind string
	}{
		"deadline":    {store.Ask{Wait: 3500 * time.Millisecond}, 0, 100, "limited deadline 3.5s", "none 1.5s"},
		"reserved":    {store.Ask{Wait: 3500 * time.Millisecond, Hold: time.Hour}, 0, 100, "limited deadline 3.5s", "none 1.5s"},
		"caller gone": {minute, 2500 * time.Millisecond, 100, "canceled canceled 2.5s", "none 500ms"},
		"queue full":  {minute, 0, 3, "none queue-full 0s", "none 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s, _ *durable.Node) {
				a, b := tokens("a", 2, 5, 1), tokens("b", 4, 4, 1)
				b.Limit = limits.WithRate(b.Limit, weir.Per(1, time.Hour))
				acquire(t.Context(), s, minute, a, b).want(t, "none none 0s")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				a.N, b.Queue = 3, c.queue
				waiting := begin(ctx, s, c.wait, a, b)
				if c.queue < 4 {
					waiting().want(t, c.want)
				}
				time.Sleep(2 * time.Second)
				a.N = 5
				behind := begin(t.Context(), s, minute, a)
				if c.queue >= 4 {
					waiting().want(t, c.want)
				}
				behind().want(t, c.behind)
				left(t, s, a, 0)
				left(t, s, b, 0)
			})
		})
	}
}

// TestNoQueueRefusesAtOnce: a limit without a queue refuses at once, and nothing is taken or held.
func TestNoQueueRefusesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s, _ *durable.Node) {
		a, b := tokens("a", 2, 5, 1), tokens("b", 4, 4, 1)
		acquire(t.Context(), s, minute, b).want(t, "none 0s")
		b.Queue = 0
		acquire(t.Context(), s, minute, a, b).want(t, "none limited 0s")
		acquire(t.Context(), s, minute, b).want(t, "limited 0s")
		b.N = 5
		acquire(t.Context(), s, minute, a, b).want(t, "none never 0s")
		left(t, s, a, 5)
		b.N = 0
		acquire(t.Context(), s, minute, b).want(t, "limited 0s")
	})
}

// TestWaitAndReserve: what was got bit by bit is one reservation, which ends as a whole when it was asked to after it was granted.
func TestWaitAndReserve(t *testing.T) {
	inBubble(t, func(t *testing.T, s, _ *durable.Node) {
		a, b := tokens("a", 5, 5, 1), tokens("b", 4, 4, 1)
		slots := store.Charge{Policy: "c", Limit: weir.AtOnce(2), N: 2, Queue: 10}
		acquire(t.Context(), s, minute, a, b).want(t, "none none 0s")
		a.N = 1
		w := store.Ask{Wait: time.Minute, Hold: 10 * time.Second}
		held := acquire(t.Context(), s, w, a, b, slots)
		held.want(t, "none none none 4s")
		if end := time.Until(time.Unix(0, held.reservation.Expires)); end != 10*time.Second {
			t.Errorf("it ends in %v", end)
		}
		next := begin(t.Context(), s, w, slots)
		time.Sleep(2 * time.Second)
		if err := store.Commit(t.Context(), s, held.reservation, []int64{1, 2, 0}); err != nil {
			t.Error(err)
		}
		got := next()
		got.want(t, "none 2s")
		left(t, s, a, 5)
		left(t, s, b, 4)
		again := begin(t.Context(), s, w, slots)
		again().want(t, "none 10s") // when the other one has expired
	})
}

// TestOppositeOrders: requests that name their limits in different orders do not wait for each other for ever.
func TestOppositeOrders(t *testing.T) {
	inBubble(t, func(t *testing.T, s, _ *durable.Node) {
		charges := make([]store.Charge, 3)
		for i := range charges {
			charges[i] = store.Charge{
				Policy: string(rune('a' + i)), N: 1, Queue: 100, Limit: weir.AtOnce(1),
			}
		}
		var work sync.WaitGroup
		for i := range 12 {
			work.Go(func() {
				mine := []store.Charge{charges[i%3], charges[(i+1+i/6)%3]}
				got := acquire(t.Context(), s, store.Ask{Wait: time.Minute, Hold: time.Minute}, mine...)
				if got.reservation.ID == "" {
					t.Errorf("%s, %v", got.reasons(), got.err)
				}
				time.Sleep(time.Second)
				if err := store.Cancel(t.Context(), s, got.reservation); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		for _, c := range charges {
			left(t, s, c, 1)
		}
	})
}

// TestStopWhileWaiting: those who wait for several limits are told, and what they held is not burned.
func TestStopWhileWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, s, owner *durable.Node) {
		a, b := tokens("a", 2, 5, 1), tokens("b", 4, 4, 1)
		a.Limit = limits.WithRate(a.Limit, weir.Per(1, time.Hour))
		acquire(t.Context(), s, minute, b).want(t, "none 0s")
		waiting := begin(t.Context(), s, minute, a, b)
		left(t, s, a, 3)
		own := owner.Owner()
		if err := own.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		waiting().want(t, "closed closed 0s")
		synctest.Wait()
		time.Sleep(time.Second)
		left(t, s, a, 5)
	})
}
