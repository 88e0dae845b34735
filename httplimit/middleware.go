package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir"
)

// StatusClientClosedRequest is the status that a response has if the client went away while its request waited. It is
// seen by middlewares that log, not by clients.
const StatusClientClosedRequest = 499

// New returns a middleware that lets a request pass only if the limiter allows it, or an error that names the option that
// cannot be used.
//
// The fields that tell the limit are set before the handler is called, so every answer has them, and the handler may still
// change them. The handler gets the ResponseWriter as it is, so flushing, hijacking and the like work as
// without the middleware, and a shallow copy of the request. The lease of a limiter that has one is released when the
// handler returns or panics; what goes on after that in other goroutines does not hold a permit.
//
// A request is charged once, also if it passes the same middleware again. Middlewares of two calls of New are independent:
// each charges, and what the outer one took is not given back if the inner one refuses. Use a [weir.Chain] where all
// limits must be charged or none.
func New(o Options) (func(http.Handler) http.Handler, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	policies, err := o.policies()
	if err != nil {
		return nil, err
	}
	if o.Key == nil && o.Keyed != nil {
		if o.Key, err = ByClient(ClientOptions{}); err != nil {
			return nil, err
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &middleware{Options: o, policies: policies, derived: len(o.Policies) == 0}
	m.queue, _ = o.Keyed.(KeyedQueue)
	if m.held, _ = o.Keyed.(holding); m.held != nil && m.derived {
		for _, p := range policies.items { // there is one
			if l := m.held.LimitOf(""); hasQuota(l, p.Quota) {
				p.limit = l
			}
		}
	}
	return m.around, nil
}

// middleware is one call of New.
type middleware struct {
	Options

	policies *Policies
	derived  bool       // from the limiters, and not given
	queue    KeyedQueue // Keyed, if it is one
	held     holding    // Keyed, if it is one

	// Where the limit of a request is not that of the policies: of a key that has its own, or since it was changed.
	others      sync.Map // limitOf to *Policies
	othersCount atomic.Int64
}

// limitOf is the quota of a decision under the policy at index.
type limitOf struct {
	index int
	quota int64
	limit weir.Limit // that the key is held to, zero if it is not known
}

// holding is a Keyed that tells the limit of each key. A [weir.Keyed] of strings is one.
type holding interface{ LimitOf(key string) weir.Limit }

// mostOthers is how many limits are remembered with the text of their policies.
const mostOthers = 1024

// hasQuota reports whether a limit allows so many permits at once.
func hasQuota(l weir.Limit, permits int64) bool {
	quota, _ := l.Quota()
	return quota == permits
}

// under is the policies with the limit that a decision about a key was made by.
func (m *middleware) under(policies *Policies, index int, key string, limit int64) *Policies {
	if !m.derived || limit <= 0 {
		return policies
	}
	of := limitOf{index, limit, weir.Limit{}}
	if m.held != nil {
		if l := m.held.LimitOf(key); hasQuota(l, limit) {
			of.limit = l
		}
	}
	if p := policies.items[index]; p.Quota == limit && p.limit == of.limit {
		return policies
	}
	if other, ok := m.others.Load(of); ok {
		return other.(*Policies) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	other := policies.withQuota(index, limit, of.limit)
	if m.othersCount.Load() < mostOthers {
		if _, loaded := m.others.LoadOrStore(of, other); !loaded {
			m.othersCount.Add(1)
		}
	}
	return other
}

// around is the middleware in front of next.
func (m *middleware) around(next http.Handler) http.Handler {
	if next == nil {
		panic("weir: httplimit: the handler is nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
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

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.Skip != nil && m.Skip(r) || r.Context().Value(m) != nil {
		next.ServeHTTP(w, r)
		return
	}
	cost := int64(1)
	if m.Cost != nil {
		cost = m.Cost(r)
	}
	if cost < 0 {
		m.fail(w, r, "httplimit: the cost is negative", slog.Int64("cost", cost))
		return
	}
	var (
		lease    weir.Lease
		decision weir.Decision
		key      string
		err      error
	)
	if m.Keyed != nil {
		if key, err = m.Key(r); err != nil {
			m.fail(w, r, "httplimit: the key could not be told", slog.Any("error", err))
			return
		}
		key = boundedKey(key)
	}
	switch {
	case cost == 0:
		decision = m.peek(key, 0)
	case m.Keyed != nil && m.queue == nil:
		decision = m.Keyed.Take(key, cost)
	default:
		lease, decision, err = m.acquire(r.Context(), key, cost)
		if err != nil {
			m.abandon(w, r, err)
			return
		}
		defer lease.Release()
	}
	switch {
	case decision.Allowed || cost == 0:
		states := [1]State{{}}
		policies := m.state(&states[0], r, key, &decision)
		m.Headers.SetAdmitted(w.Header(), policies, states[:]...)
		next.ServeHTTP(w, r.WithContext(&charged{r.Context(), m})) //nolint:contextcheck // it inherits
	case decision.Reason == weir.ReasonInvalid:
		m.fail(w, r, "httplimit: the limiter does not accept the request", slog.Int64("cost", cost))
	default:
		m.refuse(w, r, key, cost, decision)
	}
}

func (m *middleware) peek(key string, cost int64) weir.Decision {
	if m.Keyed != nil {
		return m.Keyed.Peek(key, cost)
	}
	return m.Limiter.Peek(cost)
}

func (m *middleware) try(key string, cost int64) weir.Lease {
	if m.queue != nil {
		return m.queue.TryAcquire(key, cost)
	}
	return m.Limiter.TryAcquire(cost)
}

// acquire asks the limiter. An error means that nobody is there to be answered any more, or that the limiter failed.
func (m *middleware) acquire(ctx context.Context, key string, cost int64) (l weir.Lease, _ weir.Decision, err error) {
	if m.MaxWait == 0 {
		l = m.try(key, cost)
		return l, l.Decision(), nil
	}
	wait := ctx
	if m.MaxWait < weir.Never {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, m.MaxWait)
		defer cancel()
	}
	if m.queue != nil {
		l, err = m.queue.Acquire(wait, key, cost)
	} else {
		l, err = m.Limiter.Acquire(wait, cost)
	}
	if err == nil || errors.Is(err, weir.ErrRefused) {
		return l, l.Decision(), nil
	}
	if !errors.Is(wait.Err(), context.DeadlineExceeded) || errors.Is(ctx.Err(), context.Canceled) {
		return l, weir.Decision{}, err
	}
	// The time was up, here or by a deadline of the server: the client is still there and wants an answer.
	d := m.peek(key, cost)
	if d.Allowed { // perhaps it was up before anything was tried
		if l = m.try(key, cost); l.Allowed() {
			return l, l.Decision(), nil
		}
		d.RetryAfter = 1 // a permit came too late for this request
	}
	d.Allowed, d.Reason = false, weir.ReasonDeadline
	return l, d, nil
}

// state fills s with what clients are told of a decision, and returns the policies among which its policy is.
func (m *middleware) state(s *State, r *http.Request, key string, d *weir.Decision) *Policies {
	policies := m.policies
	index, ok := policies.find(d.Policy)
	if !ok { // a limiter that speaks of a policy that it did not have when New was called
		unheard, err := NewPolicies(Policy{Name: d.Policy, Quota: d.Limit})
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

func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, key string, cost int64, d weir.Decision) {
	var s State
	policies := m.state(&s, r, key, &d)
	refusal := NewRefusal(w.Header(), &m.Headers, policies, s, cost, d)
	refusal.Key = key
	if m.queue != nil && d.Reason != weir.ReasonClosed && d.Reason != weir.ReasonTableFull {
		refusal.ofClient()
	}
	if m.Status != 0 {
		refusal.Status, refusal.Problem.Status = m.Status, m.Status
	}
	if m.OnRefused != nil {
		m.OnRefused(r, &refusal)
	}
	m.send(&refusal, w, r)
}

func (m *middleware) send(f *Refusal, w http.ResponseWriter, r *http.Request) {
	status := f.Status
	if f.Send(w, r) != nil {
		m.Logger.ErrorContext(r.Context(), badStatus, "status", status)
	}
}

// abandon ends a request whose limiter answered an error instead of a decision.
func (m *middleware) abandon(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		w.WriteHeader(StatusClientClosedRequest)
		return
	}
	m.fail(w, r, "httplimit: the limiter failed", slog.Any("error", err))
}

// fail serves a request that cannot be decided. Clients are not told why.
func (m *middleware) fail(w http.ResponseWriter, r *http.Request, message string, why slog.Attr) {
	m.Logger.LogAttrs(r.Context(), slog.LevelError, message, why)
	status := http.StatusInternalServerError
	f := Refusal{Status: status, Problem: Problem{Type: "about:blank", Title: http.StatusText(status)}}
	m.send(&f, w, r)
}
