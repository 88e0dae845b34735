package policy

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// waiting are the requests that wait for keys of a policy, for which other limits may begin to apply.
type waiting struct {
	mu    sync.Mutex
	items map[*item]waitingItem
}

type waitingItem struct {
	key []byte
	by  *waiter
}

// waiter is a request that waits.
type waiter struct {
	woken  atomic.Bool
	cancel context.CancelFunc
}

func (w *waiter) wake() {
	w.woken.Store(true)
	w.cancel()
}

// add adds what a request waits for. It wakes the request if another limit holds for the key since it was gathered.
func (a *waiting) add(it *item, key []byte, by *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.items == nil {
		a.items = map[*item]waitingItem{}
	}
	a.items[it] = waitingItem{key, by}
	if x := it.policy.overrides.of(key); x != it.override && (it.policy.shared || x != nil && x.Unlimited) {
		by.wake()
	}
}

func (a *waiting) remove(it *item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.items, it)
}

// reload makes the set in force hold for requests that wait: where the limits of their keys are the same states as before, under
// other parameters, those take effect in the place that each request has in the queue. Other requests are woken, and decided
// on anew under the new set.
func (e *Engine) reload(old, now *snapshot) {
	for i := range old.live {
		old.live[i].waiting.reload(now)
	}
}

func (a *waiting) reload(now *snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var peeked []weir.Decision
	for it, waits := range a.items {
		charges, ok := it.reloaded(now, waits.key)
		if !ok {
			waits.by.wake()
		} else if len(charges) > 0 {
			peeked, _ = keyset.PeekAll(peeked[:0], charges...) // which holds the key to the limits from now on
		}
	}
}

// reloaded returns charges of nothing under the limits that apply to a key of a set that has been loaded since the item was
// gathered. It returns false if the request has to be decided on anew.
func (it *item) reloaded(now *snapshot, key []byte) (charges []keyset.Charge, ok bool) {
	was := it.policy
	p := now.policy(was.Name)
	if p == nil {
		return nil, false
	}
	if p.Mode != was.Mode || p.Parent != was.Parent || (p.LimitBy == nil) != (was.LimitBy == nil) {
		return nil, false
	}
	x, known := it.under(p, key)
	switch {
	case was.shared:
		return nil, was.samePlaces(p) && (it.override != nil || known && slices.Equal(it.variant.limits, x.limits))
	case !known || p.shared || !slices.EqualFunc(was.limits, p.limits, func(a, b liveLimit) bool { return a.state == b.state }):
		return nil, false
	}
	for i := range p.limits {
		charges = append(charges, keyset.Charge{Limiter: p.limits[i].state.limiter, Key: string(key), Plan: x.plans[i]})
	}
	return charges, true
}

// under returns the limits that an item has under another set. It returns false if that cannot be told without the request.
func (it *item) under(p *livePolicy, key []byte) (x *variant, known bool) {
	was := it.policy
	if p.LimitBy != nil && it.variant != &was.usual && it.variant != was.keys[string(key)] {
		return it.variant, true // the request brought them
	}
	if own := p.keys[string(key)]; own != nil {
		return own, true
	}
	if p.TierBy == nil && was.TierBy == nil {
		return &p.usual, true
	}
	for name, tier := range was.tiers {
		if tier == it.variant {
			x = p.tiers[name]
			return x, x != nil
		}
	}
	return &p.usual, it.variant == &was.usual && sameNames(was.tiers, p.tiers)
}

func sameNames(a, b map[string]*variant) bool {
	for name := range a {
		if _, has := b[name]; !has {
			return false
		}
	}
	return len(a) == len(b)
}

// wake wakes those who wait for a key.
func (a *waiting) wake(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, it := range a.items {
		if string(it.key) == key {
			it.by.wake()
		}
	}
}

// register registers a request that waits, until it is unregistered.
func (w *work) register(by *waiter) {
	for i := range w.items {
		if it := &w.items[i]; it.first >= 0 {
			it.policy.waiting.add(it, w.key(it), by)
		}
	}
}

func (w *work) unregister() {
	for i := range w.items {
		if it := &w.items[i]; it.first >= 0 {
			it.policy.waiting.remove(it)
		}
	}
}
