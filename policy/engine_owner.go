package policy

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// never says that a request does not wait for the owner of the cluster.
const never time.Duration = -1

// ask asks where limits are kept for several processes. A request waits for the owner of the cluster for so long at most, if that
// is not never.
func (e *Engine) ask(ctx context.Context, x *sharing, reserve bool, most time.Duration) (err error) {
	expiry := time.Duration(0)
	if reserve || x.returns {
		expiry = time.Duration(x.hold)
	}
	switch {
	case e.closed.Load():
		return store.ErrClosed
	case most != never:
		return e.acquire(ctx, x, store.Ask{Wait: most, Hold: expiry})
	}
	x.reservation, err = e.states.Do(ctx, store.Ask{Hold: expiry}, x.asked, x.decisions)
	return err
}

// acquire waits in the queue of the owner, until Close at the latest.
func (e *Engine) acquire(ctx context.Context, x *sharing, ask store.Ask) (err error) {
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ending, cancel)() //nolint:contextcheck // it is not that of the request
	x.reservation, err = e.states.Do(bounded, ask, x.asked, x.decisions)
	if bounded.Err() != nil && ctx.Err() == nil && (err != nil || x.canceled()) {
		return store.ErrClosed
	}
	return err
}

// canceled reports whether somebody was answered that its caller has gone.
func (x *sharing) canceled() bool {
	for i := range x.decisions {
		if x.decisions[i].Reason == weir.ReasonCanceled {
			return true
		}
	}
	return false
}

// ownerless counts requests that were let pass as nobody could decide on them, and logs why. Those that were refused are counted
// where they are.
func (e *Engine) ownerless(charges []store.Charge, err error) {
	s := e.live.Load()
	var last *livePolicy
	for i := range charges {
		name, _, _ := strings.Cut(charges[i].Policy, "/")
		p := s.policy(name)
		if p == nil || p == last {
			continue
		}
		last = p
		if charges[i].Fail == store.FailOpen {
			e.unavailable(p, err)
		} else if !errors.Is(err, context.Canceled) {
			e.warn(&p.state.counts.storeWarned, storeFailed, "policy", p.Name, err)
		}
	}
}
