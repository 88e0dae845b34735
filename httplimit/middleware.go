package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/ratelimitfields"
)

// StatusClientClosedRequest is the status that a response has if the client went away while its request waited. It is
// seen by middlewares that log, not by clients.
const StatusClientClosedRequest = 499

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
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
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
	m.several.New = func() any { return new(several) }
	return m.around, nil
}

// middleware is one call of New.
type middleware struct {
	Options

	policies *ratelimitfields.Policies
	derived  bool       // from the limiters, and not given
	queue    KeyedQueue // Keyed, if it is one
	taker    taker      // Keyed otherwise
	held     []holding  // Keyed, if it is one, or Limits
	several  sync.Pool  // of *several

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
func (m *middleware) under(policies *ratelimitfields.Policies, index int, key string, limit int64) *ratelimitfields.Policies {
	if !m.derived || limit <= 0 {
		return policies
	}
	of := limitOf{index, limit, weir.Limit{}}
	if index < len(m.held) {
		if l := m.held[index].LimitOf(key); hasQuota(l, limit) {
			of.limit = l
		}
	}
	if p := policies.At(index); p.Quota == limit && p.Limit == of.limit {
		return policies
	}
	if other, ok := m.others.Load(of); ok {
		return other.(*ratelimitfields.Policies) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	other := withQuota(policies, index, limit, of.limit)
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
	if m.Limits != nil {
		m.serveSeveral(w, r, next, cost)
		return
	}
	a := asking{m: m, cost: cost}
	if m.Keyed != nil {
		key, err := m.Key(r)
		if err != nil {
			m.refuseKey(w, r, err)
			return
		}
		a.key = keytext.Whole(key)
	}
	if cost > 0 && m.Keyed != nil && m.queue == nil {
		a.decision = m.taker.Take(a.key, cost)
	} else if err := m.acquire(r.Context(), &a); err != nil {
		m.abandon(w, r, err)
		return
	}
	defer a.lease.Release()
	switch {
	case a.decision.Allowed || cost == 0:
		states := [1]ratelimitfields.State{{}}
		policies := m.state(&states[0], r, a.key, &a.decision)
		m.Headers.SetAdmitted(w.Header(), policies, states[:]...)
		next.ServeHTTP(w, r.WithContext(&charged{r.Context(), m})) //nolint:contextcheck // it inherits
	case a.decision.Reason == weir.ReasonInvalid:
		m.fail(w, r, notAccepted, slog.Int64("cost", cost))
	default:
		m.refuse(w, r, &a)
	}
}

// notAccepted is logged where a limiter finds fault with what it was asked.
const notAccepted = "httplimit: the limiter does not accept the request"

// asking is what one request asks, of the Limiter, of a key of Keyed, or of Limits.
type asking struct {
	m        *middleware
	key      string
	cost     int64
	all      *several // nil where there is one limit
	lease    weir.Lease
	decision weir.Decision // the one that binds
}

func (a *asking) peek() {
	switch m := a.m; {
	case a.all != nil:
		a.all.peek()
		a.decision = a.all.decisions[a.all.binding]
	case m.Keyed != nil:
		a.decision = m.Keyed.Peek(a.key, a.cost)
	default:
		a.decision = m.Limiter.Peek(a.cost)
	}
}

func (a *asking) try() {
	switch m := a.m; {
	case a.all != nil:
		a.all.try()
		a.decision = a.all.decisions[a.all.binding]
		return
	case m.queue != nil:
		a.lease = m.queue.TryAcquire(a.key, a.cost)
	default:
		a.lease = m.Limiter.TryAcquire(a.cost)
	}
	a.decision = a.lease.Decision()
}

func (a *asking) wait(ctx context.Context) (err error) {
	switch m := a.m; {
	case a.all != nil:
		err = a.all.wait(ctx)
		a.decision = a.all.decisions[a.all.binding]
		return err
	case m.queue != nil:
		a.lease, err = m.queue.Acquire(ctx, a.key, a.cost)
	default:
		a.lease, err = m.Limiter.Acquire(ctx, a.cost)
	}
	a.decision = a.lease.Decision()
	return err
}

// acquire asks. An error means that no client is there any more that could get an answer, or that the limiter failed.
func (m *middleware) acquire(ctx context.Context, a *asking) error {
	switch {
	case a.cost == 0:
		a.peek()
		return nil
	case m.MaxWait == 0:
		a.try()
		return nil
	}
	wait := ctx
	if m.MaxWait < weir.Never {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, m.MaxWait)
		defer cancel()
	}
	err := a.wait(wait)
	if err == nil || errors.Is(err, weir.ErrRefused) {
		return nil
	}
	if !errors.Is(wait.Err(), context.DeadlineExceeded) || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	// The time was up, here or by a deadline of the server: the client is still there and wants an answer.
	a.peek()
	if a.decision.Allowed { // perhaps it was up before anything was tried
		peeked := a.decision
		if a.try(); a.decision.Allowed {
			return nil
		}
		a.decision = peeked
		a.decision.RetryAfter = 1 // a permit came too late for this request
	}
	a.decision.Allowed, a.decision.Reason = false, weir.ReasonDeadline
	return nil
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

func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, a *asking) {
	d := a.decision
	var s ratelimitfields.State
	policies := m.state(&s, r, a.key, &d)
	refusal := NewRefusal(w.Header(), &m.Headers, policies, s, a.cost, d)
	refusal.Key = a.key
	m.finish(w, r, &refusal, m.queue != nil)
}

// finish sends a refusal. ofKey reports whether it is that of a key.
func (m *middleware) finish(w http.ResponseWriter, r *http.Request, refusal *Refusal, ofKey bool) {
	if reason := refusal.Decision.Reason; ofKey && reason != weir.ReasonClosed && reason != weir.ReasonTableFull {
		refusal.ofClient()
	}
	if m.Status != 0 {
		refusal.Status, refusal.Problem.Status = m.Status, m.Status
	}
	if m.OnRefused != nil {
		m.OnRefused(r, refusal)
	}
	m.send(refusal, w, r)
}

// refuseKey ends a request whose key function returned an error instead of a key.
func (m *middleware) refuseKey(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*KeyError](err)
	if !ok || e.Status < 400 || e.Status > 599 {
		m.fail(w, r, "httplimit: the key could not be told", slog.Any("error", err))
		return
	}
	refusal := Refusal{
		Decision: weir.Decision{Reason: weir.ReasonInvalid}, Header: w.Header(), Status: e.Status,
		Problem: Problem{Type: aboutBlank, Title: http.StatusText(e.Status), Status: e.Status, Detail: e.Detail},
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

// abandon ends a request whose limiter returned an error instead of a decision.
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
	f := Refusal{Status: status, Problem: Problem{Type: aboutBlank, Title: http.StatusText(status)}}
	m.send(&f, w, r)
}
