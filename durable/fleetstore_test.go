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

var _ store.Store = (*remote)(nil)

// send sends a call about charges, whose answer is nothing but decisions.
func (r *remote) send(
	ctx context.Context, what string, charges []store.Charge, decisions []weir.Decision, repeats bool,
	f func(context.Context, []store.Charge, []weir.Decision) error,
) error {
	charges = slices.Clone(charges)
	got, err := over(ctx, r, what, charges, repeats, func(ctx context.Context) ([]weir.Decision, error) {
		own := make([]weir.Decision, len(charges))
		return own, f(ctx, charges, own)
	})
	copy(decisions, got)
	return err
}

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

// Take implements [store.Store].
func (r *remote) Take(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	return r.send(ctx, "take", charges, decisions, true, r.Memory.Take)
}

// Peek implements [store.Store].
func (r *remote) Peek(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	return r.send(ctx, "peek", charges, decisions, true, r.Memory.Peek)
}

// Debit implements [store.Store].
func (r *remote) Debit(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	return r.send(ctx, "debit", charges, decisions, true, r.Memory.Debit)
}

// Refund implements [store.Store].
func (r *remote) Refund(ctx context.Context, charges []store.Charge) error {
	return r.send(ctx, "refund", charges, nil, false,
		func(ctx context.Context, charges []store.Charge, _ []weir.Decision) error {
			return r.Memory.Refund(ctx, charges)
		})
}

// Reserve implements [store.Store].
func (r *remote) Reserve(
	ctx context.Context, charges []store.Charge, decisions []weir.Decision, expiry time.Duration,
) (store.Reservation, error) {
	type reserved struct {
		held      store.Reservation
		decisions []weir.Decision
	}
	charges = slices.Clone(charges)
	got, err := over(ctx, r, "reserve", charges, true, func(ctx context.Context) (x reserved, err error) {
		x.decisions = make([]weir.Decision, len(charges))
		x.held, err = r.Memory.Reserve(ctx, charges, x.decisions, expiry)
		return x, err
	})
	copy(decisions, got.decisions)
	return got.held, err
}

// Commit implements [store.Store].
func (r *remote) Commit(ctx context.Context, held store.Reservation, actual []int64) error {
	actual = slices.Clone(actual)
	_, err := over(ctx, r, "commit", held.Charges, true, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.Memory.Commit(ctx, held, actual)
	})
	return err
}

// Cancel implements [store.Store].
func (r *remote) Cancel(ctx context.Context, held store.Reservation) error {
	_, err := over(ctx, r, "cancel", held.Charges, true, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.Memory.Cancel(ctx, held)
	})
	return err
}

// Lend implements [store.Store].
func (r *remote) Lend(ctx context.Context, c store.Charge, least int64) (store.Loan, weir.Decision, error) {
	type lent struct {
		loan     store.Loan
		decision weir.Decision
	}
	got, err := over(ctx, r, "lend", []store.Charge{c}, true, func(ctx context.Context) (x lent, err error) {
		x.loan, x.decision, err = r.Memory.Lend(ctx, c, least)
		return x, err
	})
	return got.loan, got.decision, err
}

// Return implements [store.Store].
func (r *remote) Return(ctx context.Context, l store.Loan, unspent int64) error {
	_, err := over(ctx, r, fmt.Sprint("return ", unspent, " of "), []store.Charge{l.Charge}, false, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.Memory.Return(ctx, l, unspent)
	})
	return err
}

// Inspect implements [store.Store].
func (r *remote) Inspect(ctx context.Context, c store.Charge) (store.State, error) {
	return over(ctx, r, "inspect", []store.Charge{c}, true, func(ctx context.Context) (store.State, error) {
		return r.Memory.Inspect(ctx, c)
	})
}

// Close implements [store.Store]: the store stays, for the other processes.
func (r *remote) Close() error { return nil }
