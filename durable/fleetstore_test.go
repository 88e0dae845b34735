package durable_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// driftingClock is the clock of a machine of a simulated fleet: it is ahead or behind, runs a little too fast or too slow, and is set now
// and then.
type driftingClock struct {
	net   *network
	ahead time.Duration
	fast  int64 // in millionths
	steps []step
}

// step is a clock that is set at an instant.
type step struct{ at, by time.Duration }

// Now implements [weir.Clock].
func (c *driftingClock) Now() int64 {
	now := c.net.now()
	shown := now + c.ahead + time.Duration(int64(now)/1e6*c.fast)
	for _, s := range c.steps {
		if s.at <= now {
			shown += s.by
		}
	}
	return c.net.begin.UnixNano() + int64(shown)
}

// AfterFunc implements [weir.Clock].
func (c *driftingClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d-time.Duration(int64(d)/1e6*c.fast), f).Stop
}

// stepped is by how much a clock is set, forward and backward together.
func (c *driftingClock) stepped() (sum time.Duration) {
	for _, s := range c.steps {
		sum += s.by.Abs()
	}
	return sum
}

// newDriftingClock is a clock whose faults follow from the seed. Of one that is steady, only the hour is wrong.
func newDriftingClock(n *network, machine string, steady bool) *driftingClock {
	r := chance(n.seed, "clock of "+machine)
	c := &driftingClock{net: n, ahead: time.Duration(r.Int64N(int64(2*time.Hour))) - time.Hour, fast: r.Int64N(801) - 400}
	for !steady && r.IntN(3) == 0 {
		by := []time.Duration{time.Second, -time.Second, 8 * time.Second, -8 * time.Second}[r.IntN(4)]
		c.steps = append(c.steps, step{time.Duration(r.Int64N(int64(fleetTime))), by})
	}
	return c
}

// remote is the model of Redis as one process reaches it: a [store.Memory] with a clock of its own, at the other end of a link. Calls are
// sent once each, as the client of Redis is told to (DisableRetry), so the network repeats only those whose second time gives no
// permit back.
type remote struct {
	*store.Memory

	net  *network
	link string
	dead atomic.Bool // the process at this end has died
}

var _ store.Home = (*remote)(nil)

// over sends a call of a process that may have died.
func over[T any](
	ctx context.Context, r *remote, what string, charges []store.Charge, repeats bool, f func(context.Context) (T, error),
) (T, error) {
	keys := make([]string, 0, len(charges))
	for i := range charges {
		keys = append(keys, fmt.Sprintf("%s/%s %d", charges[i].Policy, charges[i].Key, charges[i].N))
	}
	slices.Sort(keys)
	if r.dead.Load() {
		var none T
		return none, store.ErrUnavailable
	}
	return call(ctx, r.net, r.link, fmt.Sprint(what, keys), repeats, func() (T, error) { //nolint:contextcheck // as it says
		return f(context.Background()) // it is carried out, also if no caller waits any more
	})
}

var modeNames = [...]string{"take", "peek", "debit", "refund", "lend", "reset"}

// Do implements [store.Home].
func (r *remote) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	type reply struct {
		held      store.Hold
		decisions []weir.Decision
		states    []store.State
	}
	what, repeats := modeNames[ask.Mode], ask.Mode != store.ModeRefund
	if ask.Hold != 0 {
		what = "reserve"
	}
	charges = slices.Clone(charges)
	got, err := over(ctx, r, what, charges, repeats, func(ctx context.Context) (x reply, err error) {
		own := ask
		if decisions != nil {
			x.decisions = make([]weir.Decision, len(charges))
		}
		if ask.States != nil {
			x.states = make([]store.State, len(charges))
			own.States = x.states
		}
		x.held, err = r.Memory.Do(ctx, own, charges, x.decisions)
		return x, err
	})
	copy(decisions, got.decisions)
	copy(ask.States, got.states)
	return got.held, err
}

// Settle implements [store.Home].
func (r *remote) Settle(ctx context.Context, held store.Hold, actual []int64) error {
	what, repeats := "commit", held.Lent() == 0
	switch actual = slices.Clone(actual); {
	case !repeats:
		what = fmt.Sprint("return of all but ", actual, " of ")
	case actual == nil:
		what = "cancel"
	}
	_, err := over(ctx, r, what, held.Charges, repeats, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.Memory.Settle(ctx, held, actual)
	})
	return err
}

// Close implements [store.Home]: the store stays, for the other processes.
func (r *remote) Close() error { return nil }
