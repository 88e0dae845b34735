// Package remote has where limits are kept outside of the process: the store that several servers share, and the cluster that
// owns the limits of durability cluster.
package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

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
// logged and tried again until Close: meanwhile every shared policy answers as its fail says. The error says what is wrong with
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
