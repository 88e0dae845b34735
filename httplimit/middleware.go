package httplimit

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/memo"
	"github.com/weirhq/weir/ratelimitfields"
)

// New returns a middleware that calls the handler only if the limiter allows the request. The error names the option that cannot
// be used.
//
// The fields with the limit are set before the handler is called, so every response has them, and the handler may still change
// them. The handler gets a shallow copy of the request, and the ResponseWriter as it is, so flushing and hijacking work as
// without the middleware. A lease is released when the handler returns or panics; goroutines that go on after that have no
// permit.
//
// A request is charged once, also if it passes the same middleware again. Middlewares of two calls of New are independent: each
// charges, and what the outer one took is not given back if the inner one refuses. Use Limits, or a [weir.Chain] as the Limiter,
// to charge a request to all limits or to none.
func New(o Options) (func(http.Handler) http.Handler, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	policies, err := o.policies()
	if err != nil {
		return nil, err
	}
	if o.Key == nil && o.Limiter == nil {
		if o.Key, err = ByClient(ClientOptions{}); err != nil {
			return nil, err
		}
	}
	o.Limits = slices.Clone(o.Limits)
	m := &middleware{Options: o, policies: policies, derived: len(o.Policies) == 0}
	m.queue, _ = o.Keyed.(KeyedQueue)
	m.taker, _ = o.Keyed.(taker)
	if held, ok := o.Keyed.(holding); ok {
		m.held = []holding{held}
	}
	for i := range m.Limits {
		l := &m.Limits[i]
		if l.Key == nil {
			l.Key = o.Key
		}
		m.held = append(m.held, l.Keyed)
	}
	m.askings.New = func() any { return &asking{m: m} }
	m.front = front{
		skip: o.Skip, cost: o.Cost, status: o.Status, onRefused: o.OnRefused, logger: logger(o.Logger),
		decider: "limiter", charged: m, begin: func() asker { return m.askings.Get().(*asking) },
	}
	return m.handler, nil
}

// logger is l, or one that drops all.
func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

// middleware is one call of New.
type middleware struct {
	Options
	front

	policies *ratelimitfields.Policies
	derived  bool       // from the limiters, and not given
	queue    KeyedQueue // Keyed, if it is one
	taker    taker      // Keyed otherwise
	held     []holding  // Keyed, if it is one, or Limits
	askings  sync.Pool  // of *asking

	// Where the limit of a request is not that of the policies: of a key that has its own, or since it was changed.
	others memo.Table[limitOf, *ratelimitfields.Policies]
}

// limitOf is the quota of a decision under the policy at index.
type limitOf struct {
	index int
	quota int64
	limit weir.Limit // that the key is held to, zero if it is not known
}

// holding is a Keyed that tells the limit of each key. A [weir.Keyed] of strings is one.
type holding interface{ LimitOf(key string) weir.Limit }

// hasQuota reports whether a limit allows so many permits at once.
func hasQuota(l weir.Limit, permits int64) bool {
	quota, _ := l.Quota()
	return quota == permits
}

// under is the policies with the limit that a decision about a key was made by.
func (m *middleware) under(policies *ratelimitfields.Policies, index int, key string, limit int64) *ratelimitfields.Policies {
	if !m.derived || limit <= 0 {
		return policies
	}
	p, of := policies.At(index), limitOf{index, limit, weir.Limit{}}
	if index < len(m.held) {
		if l := m.held[index].LimitOf(key); hasQuota(l, limit) {
			of.limit = l
		}
	} else if p.Quota == limit {
		return policies
	}
	if p.Quota == limit && p.Limit == of.limit {
		return policies
	}
	other, _ := m.others.Of(of, func(of limitOf) (*ratelimitfields.Policies, error) {
		return withQuota(policies, of.index, of.quota, of.limit), nil
	})
	return other
}

// charged is the context of a request that has passed the middleware by.
type charged struct {
	context.Context //nolint:containedctx // it is a context

	by *middleware
}

// Value implements [context.Context]. The middleware itself is the key.
func (c *charged) Value(key any) any {
	if by, ok := key.(*middleware); ok && by == c.by {
		return c
	}
	return c.Context.Value(key)
}

// state fills s with what clients are told of a decision, and returns the policies among which its policy is.
func (m *middleware) state(s *ratelimitfields.State, r *http.Request, key string, d *weir.Decision) *ratelimitfields.Policies {
	policies := m.policies
	index, ok := 0, true
	if policies.Len() > 1 { // a single policy speaks for all decisions
		index, ok = policies.Find(d.Policy)
	}
	if !ok { // a limiter that speaks of a policy that it did not have when New was called
		unheard, err := ratelimitfields.NewPolicies(ratelimitfields.Policy{Name: d.Policy, Quota: d.Limit})
		if err != nil {
			unheard = policies
		}
		policies, index = unheard, 0
	} else {
		policies = m.under(policies, index, key, d.Limit)
	}
	s.Policy, s.Remaining, s.Reset = index, d.Remaining, d.ResetAfter
	if m.PartitionKey != nil {
		s.PartitionKey = m.PartitionKey(r, key)
	}
	return policies
}
