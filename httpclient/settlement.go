package httpclient

import (
	"context"
	"sync"

	"github.com/weirhq/weir"
)

// Settlement is the cost of a request that is known only after its response, such as the tokens of a language model. Its
// [Transport], or its [Metered], has reserved an estimate (Cost). The owner of the limit settles costs of a Metered: Commit and
// Cancel wait until that is durable, for 5 s at most. All methods are safe for concurrent use.
type Settlement struct {
	ctx context.Context //nolint:containedctx // for the values of the request

	mu      sync.Mutex
	lease   weir.Lease
	held    bool
	metered *meteredCost
}

type settlementKey struct{}

// WithSettlement returns a context for one request, and the Settlement of its cost. End it by Commit or Cancel after the
// response: until then the request has cost what was reserved, and permits of a [weir.Concurrency] are in use. Of requests that
// follow redirections, and of those that are sent again, the last one counts, and the others cost nothing. A Metered gives back
// what is not settled within MeteredOptions.ReserveFor.
func WithSettlement(ctx context.Context) (context.Context, *Settlement) {
	s := &Settlement{ctx: context.WithoutCancel(ctx)}
	return context.WithValue(ctx, settlementKey{}, s), s
}

// Commit settles the request with what it really cost: see [weir.Lease.Commit]. It returns false, and does nothing, if nothing
// was reserved, as the request was not sent or has no limit, or if it was settled before. It also returns false if a cost of a
// Metered could not be settled, which is logged.
func (s *Settlement) Commit(actual int64) bool {
	return s.settle(func(l weir.Lease) { l.Commit(actual) }, func(c *meteredCost) bool { return c.commit(s.ctx, max(actual, 0)) })
}

// Cancel settles the request as if it had never been sent.
func (s *Settlement) Cancel() bool {
	return s.settle(weir.Lease.Cancel, func(c *meteredCost) bool { return c.cancel(s.ctx) })
}

func (s *Settlement) settle(how func(weir.Lease), metered func(*meteredCost) bool) bool {
	s.mu.Lock()
	lease, held, cost := s.lease, s.held, s.metered
	s.lease, s.held, s.metered = weir.Lease{}, false, nil
	s.mu.Unlock()
	if held {
		how(lease)
	}
	if cost != nil {
		return metered(cost)
	}
	return held
}

// hold takes over what a request has reserved.
func (s *Settlement) hold(lease weir.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		s.lease.Cancel()
	}
	s.lease, s.held = lease, lease.Allowed()
}

// holdMetered takes over what a request has reserved of a durable limit.
func (s *Settlement) holdMetered(cost *meteredCost) {
	s.mu.Lock()
	before := s.metered
	s.metered = cost
	s.mu.Unlock()
	if before != nil {
		before.cancel(s.ctx)
	}
}

// settlement is that of the request, nil if there is none.
func (u *turn) settlement() *Settlement {
	s, _ := u.ctx.Value(settlementKey{}).(*Settlement)
	return s
}
