package redis

import (
	"context"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// Debit implements [store.Store].
func (s *Store) Debit(context.Context, []store.Charge, []weir.Decision) error {
	return unavailable(errReply)
}

// Lend implements [store.Store].
func (s *Store) Lend(context.Context, store.Charge, int64) (store.Loan, weir.Decision, error) {
	return store.Loan{}, weir.Decision{}, unavailable(errReply)
}

// Return implements [store.Store].
func (s *Store) Return(context.Context, store.Loan, int64) error { return unavailable(errReply) }
