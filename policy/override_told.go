package policy

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// mostTelling is how long a store may take to be told of an override.
const mostTelling = 2 * time.Second

// tellings are what stores are being told of overrides: of each key by one call at a time, which tells what holds by then. So
// the last call that a store gets for a key never tells it of a limit that has been replaced.
type tellings struct {
	mu  sync.Mutex
	all map[tellingKey]*telling
}

type tellingKey struct{ policy, key string }

// telling is what the store is being told of a key.
type telling struct {
	turn  chan struct{} // has room for the one who tells it
	told  uint64        // the last change that it knows of; for the one whose turn it is
	users int           // those who tell it or wait for their turn, by tellings.mu
}

func (t *tellings) enter(k tellingKey) *telling {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.all[k]
	if one == nil {
		if t.all == nil {
			t.all = map[tellingKey]*telling{}
		}
		one = &telling{turn: make(chan struct{}, 1)}
		t.all[k] = one
	}
	one.users++
	return one
}

func (t *tellings) leave(k tellingKey, one *telling) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.all, k)
	}
}

// tellStore tells the store of a policy which limits hold for a key, as it goes on under those of the last request, and returns
// when it knows of the change of that number. It does so one after the other for each key, with the limits that hold when
// its turn comes: of changes that are made at the same time the store keeps the last.
func (e *Engine) tellStore(change uint64, policy, key string) {
	ctx, cancel := context.WithTimeout(e.ending, mostTelling)
	defer cancel()
	k := tellingKey{policy, key}
	one := e.telling.enter(k)
	defer e.telling.leave(k, one)
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done():
		e.untold(policy, ctx.Err())
		return
	}
	defer func() { <-one.turn }()
	for one.told < change {
		s, last, charges := e.holding(policy, key)
		if len(charges) > 0 {
			if err := store.Debit(ctx, e.states, charges, make([]weir.Decision, len(charges))); err != nil {
				e.untold(policy, err)
				return
			}
		}
		if e.live.Load() == s { // or the limits were replaced meanwhile
			one.told = last
		}
	}
}

// holding are the charges of no permits that tell a store what holds for a key now, the set that says so, and the number of the
// last change. There are none if nothing is known without a request.
func (e *Engine) holding(policy, key string) (s *snapshot, last uint64, charges []store.Charge) {
	e.loading.Lock()
	defer e.loading.Unlock()
	s, last = e.live.Load(), e.changes
	p := e.live.Load().policy(policy)
	if p == nil || !p.shared {
		return s, last, nil
	}
	x := p.overrides.of([]byte(key))
	if (x == nil || x.Unlimited) && (p.TierBy != nil || p.LimitBy != nil) {
		return s, last, nil
	}
	charges = appendStored(nil, boundKey(key), &item{policy: p, variant: p.limitsFor(key)})
	charges = slices.DeleteFunc(charges, func(c store.Charge) bool { return c.Limit.Algorithm() == weir.AlgorithmConcurrency })
	return s, last, charges
}

func (e *Engine) untold(policy string, why error) {
	if p := e.live.Load().policy(policy); p != nil && !e.closed.Load() {
		e.warn(&p.state.counts.storeWarned, storeFailed, "policy", policy, why)
	}
}
