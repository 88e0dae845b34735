package httplimit

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/ratelimitfields"
)

// Limit is one of the Limits of a middleware.
type Limit struct {
	// Keyed limits the requests of each key: a [weir.Keyed] or a [weir.KeyedConcurrency] of strings, whose permits are released
	// when the handler returns. Required.
	Keyed keyset.Limiter
	// Key returns the key of a request. One that always returns "" makes it a limit of all requests together. Default: that
	// of the Options.
	Key KeyFunc
}

// several is the memory of a request that asks several limits.
type several struct {
	charges   []keyset.Charge
	leases    []weir.Lease
	decisions []weir.Decision
	binding   int // the place of the decision that binds
	policies  ratelimitfields.Policies
	states    []ratelimitfields.State
}

func (s *several) peek() {
	s.decisions, s.binding = keyset.PeekAll(s.decisions[:0], s.charges...)
}

func (s *several) try() {
	s.leases, s.binding = keyset.TryAcquireAll(s.leases[:0], s.charges...)
	s.decide()
}

func (s *several) wait(ctx context.Context) (err error) {
	s.leases, s.binding, err = keyset.AcquireAll(ctx, s.leases[:0], s.charges...)
	s.decide()
	return err
}

func (s *several) decide() {
	s.decisions = s.decisions[:0]
	for i := range s.leases {
		s.decisions = append(s.decisions, s.leases[i].Decision())
	}
}

// end releases what the request has, and forgets the request.
func (s *several) end() {
	for i := range s.leases {
		s.leases[i].Release()
	}
	clear(s.charges)
	clear(s.leases)
	clear(s.states)
	s.charges, s.leases, s.states = s.charges[:0], s.leases[:0], s.states[:0]
}

// serveSeveral is serve with Limits.
func (m *middleware) serveSeveral(w http.ResponseWriter, r *http.Request, next http.Handler, cost int64) {
	s := m.several.Get().(*several)
	defer m.several.Put(s)
	defer s.end()
	for i := range m.Limits {
		key, err := m.Limits[i].Key(r)
		if err != nil {
			m.refuseKey(w, r, err)
			return
		}
		s.charges = append(s.charges, keyset.Charge{Limiter: m.Limits[i].Keyed, Key: keytext.Whole(key), N: cost})
	}
	a := asking{m: m, cost: cost, all: s}
	if err := m.acquire(r.Context(), &a); err != nil {
		m.abandon(w, r, err)
		return
	}
	switch d := a.decision; {
	case d.Allowed || cost == 0:
		policies := m.tell(s, r)
		m.Headers.SetAdmitted(w.Header(), policies, s.states...)
		next.ServeHTTP(w, r.WithContext(&charged{r.Context(), m})) //nolint:contextcheck // it inherits
	case d.Reason == weir.ReasonInvalid:
		m.fail(w, r, notAccepted, slog.Int64("cost", cost))
	default:
		policies := m.tell(s, r)
		refusal := newRefusal(w.Header(), &m.Headers, policies, s.states, cost, d)
		refusal.Key = s.charges[s.binding].Key
		for i := range s.decisions {
			if i != s.binding && !s.decisions[i].Allowed && m.Headers.Fields != ratelimitfields.NoFields {
				refusal.Problem.violated(s.decisions[i].Policy)
			}
		}
		m.finish(w, r, &refusal, refusal.Key != "")
	}
}

// tell collects what clients are told of the limits, the one that binds first, then others that have refused.
func (m *middleware) tell(s *several, r *http.Request) *ratelimitfields.Policies {
	s.policies.Reset()
	m.tellOne(s, r, s.binding)
	for _, allowed := range [...]bool{false, true} {
		for i := range s.decisions {
			if i != s.binding && s.decisions[i].Allowed == allowed {
				m.tellOne(s, r, i)
			}
		}
	}
	return &s.policies
}

func (m *middleware) tellOne(s *several, r *http.Request, i int) {
	var state ratelimitfields.State
	policies := m.state(&state, r, s.charges[i].Key, &s.decisions[i])
	place, added := s.policies.Append(policies, state.Policy)
	if !added { // several limits that are told as one policy
		s.states[place].Remaining = min(s.states[place].Remaining, state.Remaining)
		return
	}
	state.Policy = place
	s.states = append(s.states, state)
}
