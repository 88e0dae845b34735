package httplimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/ratelimitfields"
)

// asking is the memory of one request that asks the limits of a middleware: all of Limits, or the only one.
type asking struct {
	m         *middleware
	ctx       context.Context //nolint:containedctx // of the request
	cost      int64
	charges   []keyset.Charge // the only limit is asked by its key alone, which is "" for the Limiter
	leases    []weir.Lease
	decisions []weir.Decision
	binding   int // the place of the decision that binds
	policies  ratelimitfields.Policies
	states    []ratelimitfields.State
}

func (a *asking) ask(r *http.Request, cost int64) (weir.Reason, error) {
	a.ctx, a.cost = r.Context(), cost
	if err := a.findKeys(r); err != nil {
		return weir.ReasonNone, keyFailedError{err}
	}
	if m := a.m; m.taker != nil && m.queue == nil && cost > 0 {
		a.decided(m.taker.Take(a.key(), cost))
	} else if err := a.acquire(r.Context()); err != nil {
		return weir.ReasonNone, err
	}
	switch d := a.bound(); {
	case d.Allowed:
		return weir.ReasonNone, nil
	case d.Reason == weir.ReasonInvalid && a.cost > 0:
		return weir.ReasonNone, a.misuse(r.Context())
	default:
		return d.Reason, nil
	}
}

// misuse is why the limit that binds refuses as invalid, for the log: the limit that was chosen for the key cannot be used. Only
// calls that may wait say what is wrong with it.
func (a *asking) misuse(ctx context.Context) error {
	limiter := a.m.queue
	if a.m.Limits != nil {
		limiter, _ = a.charges[a.binding].Limiter.(KeyedQueue)
	}
	if limiter != nil {
		ended, end := context.WithCancel(ctx)
		end()
		l, err := limiter.Acquire(ended, a.charges[a.binding].Key, a.cost)
		l.Release()
		if l.Decision().Reason == weir.ReasonInvalid {
			return err
		}
	}
	return &weir.RefusedError{Decision: *a.bound(), Permits: a.cost}
}

// findKeys finds the keys that the request is charged to.
func (a *asking) findKeys(r *http.Request) error {
	m := a.m
	for i := range m.Limits {
		key, err := m.Limits[i].Key(r)
		if err != nil {
			return err
		}
		a.charges = append(a.charges, keyset.Charge{Limiter: m.Limits[i].Keyed, Key: keytext.Whole(key), N: a.cost})
	}
	if m.Limits != nil {
		return nil
	}
	a.charges = append(a.charges, keyset.Charge{})
	if m.Keyed == nil {
		return nil
	}
	key, err := m.Key(r)
	a.charges[0].Key = keytext.Whole(key)
	return err
}

// key is that of the only limit.
func (a *asking) key() string { return a.charges[0].Key }

// bound is the decision that binds.
func (a *asking) bound() *weir.Decision { return &a.decisions[a.binding] }

// decided is the decision of the only limit.
func (a *asking) decided(d weir.Decision) { a.decisions, a.binding = append(a.decisions[:0], d), 0 }

func (a *asking) peek() {
	switch m := a.m; {
	case m.Limits != nil:
		a.decisions, a.binding = keyset.PeekAll(a.decisions[:0], a.charges...)
	case m.Keyed != nil:
		a.decided(m.Keyed.Peek(a.key(), a.cost))
	default:
		a.decided(m.Limiter.Peek(a.cost))
	}
}

func (a *asking) try() {
	switch m := a.m; {
	case m.Limits != nil:
		a.leases, a.binding = keyset.TryAcquireAll(a.leases[:0], a.charges...)
	case m.queue != nil:
		a.leases = append(a.leases[:0], m.queue.TryAcquire(a.key(), a.cost))
	default:
		a.leases = append(a.leases[:0], m.Limiter.TryAcquire(a.cost))
	}
	a.decide()
}

func (a *asking) wait(ctx context.Context) (err error) {
	var only weir.Lease
	switch m := a.m; {
	case m.Limits != nil:
		a.leases, a.binding, err = keyset.AcquireAll(ctx, a.leases[:0], a.charges...)
		a.decide()
		return err
	case m.queue != nil:
		only, err = m.queue.Acquire(ctx, a.key(), a.cost)
	default:
		only, err = m.Limiter.Acquire(ctx, a.cost)
	}
	a.leases = append(a.leases[:0], only)
	a.decide()
	return err
}

func (a *asking) decide() {
	a.decisions = a.decisions[:0]
	for i := range a.leases {
		a.decisions = append(a.decisions, a.leases[i].Decision())
	}
}

// acquire asks. An error means that no client is there any more that could get an answer, or that the limiter failed.
func (a *asking) acquire(ctx context.Context) error {
	switch {
	case a.cost == 0:
		a.peek()
		return nil
	case a.m.MaxWait == 0:
		a.try()
		return nil
	}
	wait := ctx
	if a.m.MaxWait < weir.Never {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, a.m.MaxWait)
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
	if a.bound().Allowed { // perhaps it was up before anything was tried
		peeked := *a.bound()
		if a.try(); a.bound().Allowed {
			return nil
		}
		*a.bound() = peeked
		a.bound().RetryAfter = 1 // a permit came too late for this request
	}
	a.bound().Allowed, a.bound().Reason = false, weir.ReasonDeadline
	return nil
}

func (a *asking) admit(dst http.Header, r *http.Request) context.Context {
	policies := a.tell(r)
	a.m.Headers.SetAdmitted(dst, policies, a.states...)
	return &charged{r.Context(), a.m}
}

func (a *asking) refuse(dst http.Header, r *http.Request) *Refusal {
	m, d := a.m, a.bound()
	policies := a.tell(r)
	refusal := newRefusal(dst, &m.Headers, policies, a.states, a.cost, *d)
	refusal.Key = a.charges[a.binding].Key
	for i := range a.decisions {
		if i != a.binding && !a.decisions[i].Allowed && m.Headers.Fields != ratelimitfields.NoFields {
			refusal.Problem.violated(a.decisions[i].Policy)
		}
	}
	ofKey := m.queue != nil || m.Limits != nil && refusal.Key != ""
	if ofKey && d.Reason != weir.ReasonClosed && d.Reason != weir.ReasonTableFull {
		refusal.ofClient()
	}
	return &refusal
}

// tell collects what clients are told of the limits, the one that binds first, then others that have refused. It returns the
// policies of which that is: of the only limit, those of the middleware.
func (a *asking) tell(r *http.Request) *ratelimitfields.Policies {
	if a.m.Limits == nil {
		a.states = append(a.states, ratelimitfields.State{})
		return a.m.state(&a.states[0], r, a.key(), a.bound())
	}
	a.policies.Reset()
	a.tellOne(r, a.binding)
	for _, allowed := range [...]bool{false, true} {
		for i := range a.decisions {
			if i != a.binding && a.decisions[i].Allowed == allowed {
				a.tellOne(r, i)
			}
		}
	}
	return &a.policies
}

func (a *asking) tellOne(r *http.Request, i int) {
	var state ratelimitfields.State
	policies := a.m.state(&state, r, a.charges[i].Key, &a.decisions[i])
	place, added := a.policies.Append(policies, state.Policy)
	if !added { // several limits that are told as one policy
		a.states[place].Remaining = min(a.states[place].Remaining, state.Remaining)
		return
	}
	state.Policy = place
	a.states = append(a.states, state)
}

// end releases what the request has. A limit that adapts learns whether its time was over.
func (a *asking) end() {
	how := weir.Lease.Release
	if len(a.leases) > 0 && errors.Is(a.ctx.Err(), context.DeadlineExceeded) {
		how = weir.Lease.Drop
	}
	for i := range a.leases {
		how(a.leases[i])
	}
	a.ctx = nil
	a.charges, a.leases, a.states = a.charges[:0], a.leases[:0], a.states[:0]
	a.m.askings.Put(a)
}
