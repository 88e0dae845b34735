package cluster

import (
	"context"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// Acquire implements [store.Queued].
func (l *Cluster) Acquire(
	ctx context.Context, charges []store.Charge, decisions []weir.Decision, w store.Waiting,
) (store.Reservation, error) {
	m, err := l.member()
	if err != nil {
		return store.Reservation{}, err
	}
	return m.store.Acquire(ctx, charges, decisions, w)
}

// Take implements [store.Store].
func (l *Cluster) Take(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	m, err := l.member()
	if err != nil {
		return err
	}
	return m.store.Take(ctx, charges, decisions)
}

// Peek implements [store.Store].
func (l *Cluster) Peek(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	m, err := l.member()
	if err != nil {
		return err
	}
	return m.store.Peek(ctx, charges, decisions)
}

// Refund implements [store.Store].
func (l *Cluster) Refund(ctx context.Context, charges []store.Charge) error {
	m, err := l.member()
	if err != nil {
		return err
	}
	return m.store.Refund(ctx, charges)
}

// Reserve implements [store.Store].
func (l *Cluster) Reserve(
	ctx context.Context, charges []store.Charge, decisions []weir.Decision, expiry time.Duration,
) (store.Reservation, error) {
	m, err := l.member()
	if err != nil {
		return store.Reservation{}, err
	}
	return m.store.Reserve(ctx, charges, decisions, expiry)
}

// Commit implements [store.Store].
func (l *Cluster) Commit(ctx context.Context, r store.Reservation, actual []int64) error {
	m, err := l.member()
	if err != nil {
		return err
	}
	return m.store.Commit(ctx, r, actual)
}

// Cancel implements [store.Store].
func (l *Cluster) Cancel(ctx context.Context, r store.Reservation) error {
	m, err := l.member()
	if err != nil {
		return err
	}
	return m.store.Cancel(ctx, r)
}

// Debit implements [store.Store].
func (l *Cluster) Debit(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	m, err := l.member()
	if err != nil {
		return err
	}
	return m.store.Debit(ctx, charges, decisions)
}

// Lend implements [store.Store].
func (l *Cluster) Lend(ctx context.Context, c store.Charge, least int64) (store.Loan, weir.Decision, error) {
	m, err := l.member()
	if err != nil {
		return store.Loan{}, weir.Decision{}, err
	}
	return m.store.Lend(ctx, c, least)
}

// Return implements [store.Store].
func (l *Cluster) Return(ctx context.Context, loan store.Loan, unspent int64) error {
	m, err := l.member()
	if err != nil {
		return err
	}
	return m.store.Return(ctx, loan, unspent)
}

// Reset implements [store.Store].
func (l *Cluster) Reset(ctx context.Context, policy, key string) error {
	m, err := l.member()
	if err != nil {
		return err
	}
	return m.store.Reset(ctx, policy, key)
}

// Inspect implements [store.Store].
func (l *Cluster) Inspect(ctx context.Context, c store.Charge) (store.State, error) {
	m, err := l.member()
	if err != nil {
		return store.State{}, err
	}
	return m.store.Inspect(ctx, c)
}

// Adjust is [durable.Node.Adjust].
func (l *Cluster) Adjust(ctx context.Context, limit weir.Limit, a durable.Adjustment) (durable.Adjustment, error) {
	m, err := l.member()
	if err != nil {
		return a, err
	}
	return m.node.Adjust(ctx, limit, a) //nolint:wrapcheck // it is ours
}

// Adjustments is [durable.Node.Adjustments].
func (l *Cluster) Adjustments(ctx context.Context, policy, key string, most int) ([]durable.Adjustment, error) {
	m, err := l.member()
	if err != nil {
		return nil, err
	}
	return m.node.Adjustments(ctx, policy, key, most) //nolint:wrapcheck // it is ours
}
