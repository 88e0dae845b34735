package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// Between two attempts to open a store.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// late is a store that may be opened later than it is used. Until then every call fails at once with [store.ErrUnavailable].
type late struct {
	open   func() (store.Store, error)
	opened atomic.Pointer[store.Store]
	// why it is not open.
	why    atomic.Pointer[error]
	closed atomic.Bool
	end    context.CancelFunc
	ended  chan struct{}
}

var _ store.Store = (*late)(nil)

// openLate tries to open a store, and if it is unavailable goes on trying in the background, until Close or until ctx ends. Any
// other error is answered.
func openLate(ctx context.Context, log *slog.Logger, where string, open func() (store.Store, error)) (*late, error) {
	l := &late{open: open, ended: make(chan struct{})}
	err := l.try()
	if err == nil {
		l.end = func() {}
		close(l.ended)
		return l, nil
	}
	if !errors.Is(err, store.ErrUnavailable) {
		return nil, err
	}
	log.Warn("the store cannot be reached: until it can, the fail of each shared policy decides", "store", where,
		"error", cause(err))
	ctx, l.end = context.WithCancel(ctx)
	go l.keepTrying(ctx, log, where)
	return l, nil
}

// cause is why a store is unavailable, without saying that it is.
func cause(err error) string {
	return strings.TrimPrefix(err.Error(), store.ErrUnavailable.Error()+": ")
}

func (l *late) try() error {
	s, err := l.open()
	if err != nil {
		l.why.Store(&err)
		return err
	}
	l.opened.Store(&s)
	if l.closed.Load() { // nobody needs it any more
		return s.Close()
	}
	return nil
}

func (l *late) keepTrying(ctx context.Context, log *slog.Logger, where string) {
	defer close(l.ended)
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		// Servers that were started together do not ask together.
		timer := time.NewTimer(wait/2 + rand.N(wait/2)) //nolint:gosec // no secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		err := l.try()
		switch {
		case err == nil && l.closed.Load():
			return
		case err == nil:
			log.Info("the store is reached", "store", where)
			return
		case !errors.Is(err, store.ErrUnavailable):
			log.Error("the store cannot be used", "store", where, "error", err.Error())
			return
		}
	}
}

// missing is why the store is not open, nil if it is.
func (l *late) missing() error {
	if l.opened.Load() != nil {
		return nil
	}
	return *l.why.Load()
}

// inner is the store, or why there is none.
func (l *late) inner() (store.Store, error) { //nolint:ireturn // of any type
	if s := l.opened.Load(); s != nil {
		return *s, nil
	}
	if l.closed.Load() {
		return nil, store.ErrClosed
	}
	err := *l.why.Load()
	if !errors.Is(err, store.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return nil, err
}

// Close closes the store if it is open, and opens it no more.
func (l *late) Close() error {
	if !l.closed.CompareAndSwap(false, true) {
		return nil
	}
	l.end()
	if s := l.opened.Load(); s != nil {
		return (*s).Close()
	}
	return nil
}

// Take implements [store.Store].
func (l *late) Take(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	s, err := l.inner()
	if err != nil {
		return err
	}
	return s.Take(ctx, charges, decisions)
}

// Peek implements [store.Store].
func (l *late) Peek(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	s, err := l.inner()
	if err != nil {
		return err
	}
	return s.Peek(ctx, charges, decisions)
}

// Refund implements [store.Store].
func (l *late) Refund(ctx context.Context, charges []store.Charge) error {
	s, err := l.inner()
	if err != nil {
		return err
	}
	return s.Refund(ctx, charges)
}

// Reserve implements [store.Store].
func (l *late) Reserve(
	ctx context.Context, charges []store.Charge, decisions []weir.Decision, expiry time.Duration,
) (store.Reservation, error) {
	s, err := l.inner()
	if err != nil {
		return store.Reservation{}, err
	}
	return s.Reserve(ctx, charges, decisions, expiry)
}

// Commit implements [store.Store].
func (l *late) Commit(ctx context.Context, r store.Reservation, actual []int64) error {
	s, err := l.inner()
	if err != nil {
		return err
	}
	return s.Commit(ctx, r, actual)
}

// Cancel implements [store.Store].
func (l *late) Cancel(ctx context.Context, r store.Reservation) error {
	s, err := l.inner()
	if err != nil {
		return err
	}
	return s.Cancel(ctx, r)
}

// Debit implements [store.Store].
func (l *late) Debit(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	s, err := l.inner()
	if err != nil {
		return err
	}
	return s.Debit(ctx, charges, decisions)
}

// Lend implements [store.Store].
func (l *late) Lend(ctx context.Context, c store.Charge, least int64) (store.Loan, weir.Decision, error) {
	s, err := l.inner()
	if err != nil {
		return store.Loan{}, weir.Decision{}, err
	}
	return s.Lend(ctx, c, least)
}

// Return implements [store.Store].
func (l *late) Return(ctx context.Context, loan store.Loan, unspent int64) error {
	s, err := l.inner()
	if err != nil {
		return err
	}
	return s.Return(ctx, loan, unspent)
}

// Reset implements [store.Store].
func (l *late) Reset(ctx context.Context, policy, key string) error {
	s, err := l.inner()
	if err != nil {
		return err
	}
	return s.Reset(ctx, policy, key)
}

// Inspect implements [store.Store].
func (l *late) Inspect(ctx context.Context, c store.Charge) (store.State, error) {
	s, err := l.inner()
	if err != nil {
		return store.State{}, err
	}
	return s.Inspect(ctx, c)
}
