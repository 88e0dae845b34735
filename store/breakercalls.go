package store

import (
	"context"
	"time"

	"github.com/weirhq/weir"
)

// Calls that ask nothing, as they have no charges, no ID or no loan, say nothing about the store: it need not be there.

// Take implements [Store].
func (b *Breaker) Take(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if len(charges) == 0 {
		return b.inner.Take(ctx, charges, decisions)
	}
	p, err := b.enter(ctx)
	if err != nil {
		return err
	}
	return b.leave(ctx, p, b.inner.Take(ctx, charges, decisions))
}

// Peek implements [Store].
func (b *Breaker) Peek(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if len(charges) == 0 {
		return b.inner.Peek(ctx, charges, decisions)
	}
	p, err := b.enter(ctx)
	if err != nil {
		return err
	}
	return b.leave(ctx, p, b.inner.Peek(ctx, charges, decisions))
}

// Refund implements [Store].
func (b *Breaker) Refund(ctx context.Context, charges []Charge) error {
	if len(charges) == 0 {
		return b.inner.Refund(ctx, charges)
	}
	p, err := b.enter(ctx)
	if err != nil {
		return err
	}
	return b.leave(ctx, p, b.inner.Refund(ctx, charges))
}

// Reserve implements [Store].
func (b *Breaker) Reserve(
	ctx context.Context, charges []Charge, decisions []weir.Decision, expiry time.Duration,
) (Reservation, error) {
	if len(charges) == 0 {
		return b.inner.Reserve(ctx, charges, decisions, expiry)
	}
	p, err := b.enter(ctx)
	if err != nil {
		return Reservation{}, err
	}
	r, err := b.inner.Reserve(ctx, charges, decisions, expiry)
	return r, b.leave(ctx, p, err)
}

// Commit implements [Store].
func (b *Breaker) Commit(ctx context.Context, r Reservation, actual []int64) error {
	if r.ID == "" {
		return b.inner.Commit(ctx, r, actual)
	}
	p, err := b.enter(ctx)
	if err != nil {
		return err
	}
	return b.leave(ctx, p, b.inner.Commit(ctx, r, actual))
}

// Cancel implements [Store].
func (b *Breaker) Cancel(ctx context.Context, r Reservation) error {
	if r.ID == "" {
		return b.inner.Cancel(ctx, r)
	}
	p, err := b.enter(ctx)
	if err != nil {
		return err
	}
	return b.leave(ctx, p, b.inner.Cancel(ctx, r))
}

// Debit implements [Store].
func (b *Breaker) Debit(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if len(charges) == 0 {
		return b.inner.Debit(ctx, charges, decisions)
	}
	p, err := b.enter(ctx)
	if err != nil {
		return err
	}
	return b.leave(ctx, p, b.inner.Debit(ctx, charges, decisions))
}

// Lend implements [Store].
func (b *Breaker) Lend(ctx context.Context, c Charge, least int64) (Loan, weir.Decision, error) {
	p, err := b.enter(ctx)
	if err != nil {
		return Loan{}, weir.Decision{}, err
	}
	l, d, err := b.inner.Lend(ctx, c, least)
	return l, d, b.leave(ctx, p, err)
}

// Return implements [Store].
func (b *Breaker) Return(ctx context.Context, l Loan, unspent int64) error {
	if l.Charge.N == 0 {
		return b.inner.Return(ctx, l, unspent)
	}
	p, err := b.enter(ctx)
	if err != nil {
		return err
	}
	return b.leave(ctx, p, b.inner.Return(ctx, l, unspent))
}

// Reset implements [Store].
func (b *Breaker) Reset(ctx context.Context, policy, key string) error {
	p, err := b.enter(ctx)
	if err != nil {
		return err
	}
	return b.leave(ctx, p, b.inner.Reset(ctx, policy, key))
}

// Inspect implements [Store].
func (b *Breaker) Inspect(ctx context.Context, c Charge) (State, error) {
	p, err := b.enter(ctx)
	if err != nil {
		return State{}, err
	}
	s, err := b.inner.Inspect(ctx, c)
	return s, b.leave(ctx, p, err)
}
