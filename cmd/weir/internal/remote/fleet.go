// Package remote opens what keeps limits outside of the process: the store that several servers share, and the cluster that owns
// the limits of durability cluster.
package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/redis"
)

// Fleet is a store that several processes share. All of its methods are safe for concurrent use.
type Fleet struct {
	*store.Fleet

	where string
	late  *late
}

// OpenFleet returns a fleet over the store that a configuration names. It does not fail if the store cannot be reached, which is
// logged and tried again until Close: meanwhile every shared policy decides as its fail says. The error says what is wrong with
// the options.
func OpenFleet(ctx context.Context, s *config.Store, log *slog.Logger) (*Fleet, error) {
	options := RedisOptions(s)
	open := func() (store.Home, error) { return redis.Open(options) }
	l, err := openLate(ctx, log, s.String(), open)
	if err != nil {
		return nil, refused(s, err)
	}
	o := FleetOptions(s)
	o.Logger = log
	f, err := store.NewFleet(l, o)
	if err != nil {
		_ = l.Close() // it is not used
		return nil, refused(s, err)
	}
	return &Fleet{Fleet: f, where: s.String(), late: l}, nil
}

// refused says what cannot be used, with where that stands.
func refused(s *config.Store, err error) error {
	where := s.Source
	if where == "" {
		where = "--store"
	}
	if o, ok := errors.AsType[*weir.OptionError](err); ok && o.Option == "Options.URL" {
		return fmt.Errorf("weir: %s: %s: must be %s", where, s, o.Accepted) // its value would be shown otherwise
	}
	return fmt.Errorf("weir: %s: %s: %w", where, s, err)
}

// RedisOptions are the options of the store itself.
func RedisOptions(s *config.Store) redis.Options {
	o := redis.Options{
		URL: s.URL, Addresses: s.Addresses, MasterSet: s.Master, Username: s.Username, Password: s.Password,
		SentinelUsername: s.SentinelUsername, SentinelPassword: s.SentinelPassword, DB: s.Database, Prefix: s.Prefix,
		Timeout: s.Timeout, MaxInFlight: s.MaxInFlight, Connections: s.Connections,
	}
	if s.TLS {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return o
}

// FleetOptions are those of the modes in which policies are shared. A configuration without a store has the defaults.
func FleetOptions(s *config.Store) store.FleetOptions {
	var o store.FleetOptions
	if s == nil {
		return o
	}
	o.Replicas.Assumed = s.Replicas
	o.Leased = store.LeasedOptions{Term: s.Leased.Term, MaxKeys: s.Leased.MaxKeys}
	o.Optimistic = store.OptimisticOptions{
		Interval: s.Optimistic.Interval, Drift: s.Optimistic.Drift, MaxKeys: s.Optimistic.MaxKeys,
	}
	return o
}

// FleetStatus is the state of a fleet.
type FleetStatus struct {
	store.FleetStats

	// Store is where it is, without passwords.
	Store string `json:"store"`
	// Reached reports whether it could be reached since the server has started.
	Reached bool `json:"reached"`
	// Answers reports whether it does now.
	Answers bool `json:"answers"`
	// Error is why it does not, "" if it does.
	Error string `json:"error,omitempty"`
}

// Status returns the state.
func (f *Fleet) Status() FleetStatus {
	s := FleetStatus{Store: f.where, FleetStats: f.Stats()}
	if err := f.late.missing(); err != nil {
		s.Error = err.Error()
	} else {
		s.Reached = true
		s.Answers = s.Breaker.State == store.BreakerClosed
		s.Error = s.Breaker.Error
	}
	return s
}

// Between two attempts to open a store.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// late is a store that may be opened later than it is used. Until then every call fails at once with [store.ErrUnavailable].
type late struct {
	open   func() (store.Home, error)
	opened atomic.Pointer[store.Home]
	// why it is not open.
	why    atomic.Pointer[error]
	closed atomic.Bool
	end    context.CancelFunc
	ended  chan struct{}
}

var _ store.Home = (*late)(nil)

// openLate tries to open a store, and if it is unavailable goes on trying in the background, until Close or until ctx ends. Any
// other error is answered.
func openLate(ctx context.Context, log *slog.Logger, where string, open func() (store.Home, error)) (*late, error) {
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
	if l.closed.Load() { // it is not needed any more
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
func (l *late) inner() (store.Home, error) { //nolint:ireturn // of any type
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

// Do implements [store.Home].
func (l *late) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	s, err := l.inner()
	if err != nil {
		return store.Hold{}, err
	}
	return s.Do(ctx, ask, charges, decisions)
}

// Settle implements [store.Home].
func (l *late) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	s, err := l.inner()
	if err != nil {
		return err
	}
	return s.Settle(ctx, h, actual)
}
