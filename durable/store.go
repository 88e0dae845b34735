package durable

import (
	"context"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// Store is the limits of a cluster as a [store.Queued]. Several limits of a request are one step of the owner.
type Store struct{ node *Node }

var _ store.Queued = (*Store)(nil)

// NewStore answers the limits of the cluster of a node as a store. Closing it does not close the node.
func NewStore(n *Node) *Store { return &Store{node: n} }

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	return store.ErrUnavailable
}

// Peek implements [store.Store].
func (s *Store) Peek(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	return store.ErrUnavailable
}

// Refund implements [store.Store].
func (s *Store) Refund(ctx context.Context, charges []store.Charge) error {
	return store.ErrUnavailable
}

// Reserve implements [store.Store].
func (s *Store) Reserve(ctx context.Context, charges []store.Charge, decisions []weir.Decision, expiry time.Duration) (store.Reservation, error) {
	return store.Reservation{}, store.ErrUnavailable
}

// Acquire implements [store.Queued].
func (s *Store) Acquire(ctx context.Context, charges []store.Charge, decisions []weir.Decision, w store.Waiting) (store.Reservation, error) {
	return store.Reservation{}, store.ErrUnavailable
}

// Commit implements [store.Store].
func (s *Store) Commit(ctx context.Context, r store.Reservation, actual []int64) error {
	return store.ErrUnavailable
}

// Cancel implements [store.Store].
func (s *Store) Cancel(ctx context.Context, r store.Reservation) error { return store.ErrUnavailable }

// Debit implements [store.Store].
func (s *Store) Debit(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	return store.ErrUnavailable
}

// Lend implements [store.Store].
func (s *Store) Lend(ctx context.Context, c store.Charge, least int64) (store.Loan, weir.Decision, error) {
	return store.Loan{}, weir.Decision{}, store.ErrUnavailable
}

// Return implements [store.Store].
func (s *Store) Return(ctx context.Context, l store.Loan, unspent int64) error {
	return store.ErrUnavailable
}

// Reset implements [store.Store].
func (s *Store) Reset(ctx context.Context, policy, key string) error { return store.ErrUnavailable }

// Inspect implements [store.Store].
func (s *Store) Inspect(ctx context.Context, c store.Charge) (store.State, error) {
	return store.State{}, store.ErrUnavailable
}

// Close implements [store.Store].
func (s *Store) Close() error { return nil }
