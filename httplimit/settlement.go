package httplimit

import (
	"context"
	"sync"

	"github.com/weirhq/weir"
)

// Settlement is the cost of a request of a client, of which its [Transport] has reserved an estimate (Cost) and which is known
// only when the answer has been read, such as the tokens of a language model. All methods are safe for concurrent use.
type Settlement struct {
	mu    sync.Mutex
	lease weir.Lease
	held  bool
}

type settlementKey struct{}

// WithSettlement answers a context for one request, and the Settlement of its cost, which must end in Commit or Cancel once the
// request was answered: until then the request has cost what was reserved, and slots of a [weir.Concurrency] are in use. Of
// requests that follow redirections, and of those that are sent again, the last one counts, and the others cost nothing.
func WithSettlement(ctx context.Context) (context.Context, *Settlement) {
	s := new(Settlement)
	return context.WithValue(ctx, settlementKey{}, s), s
}

// Commit settles the request with what it really cost: see [weir.Lease.Commit]. It answers false, and does nothing, if nothing
// was reserved, as the request was not sent or has no limit, or if it was settled before.
func (s *Settlement) Commit(actual int64) bool {
	return s.settle(func(l weir.Lease) { l.Commit(actual) })
}

// Cancel settles the request as if it had never been sent.
func (s *Settlement) Cancel() bool { return s.settle(weir.Lease.Cancel) }

func (s *Settlement) settle(how func(weir.Lease)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.held {
		return false
	}
	s.held = false
	how(s.lease)
	return true
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

// settlement is that of the request, nil if there is none.
func (u *turn) settlement() *Settlement {
	s, _ := u.ctx.Value(settlementKey{}).(*Settlement)
	return s
}
