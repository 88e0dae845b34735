package policy

import (
	"context"
	"sync"
	"sync/atomic"
)

// waiting are the requests that wait for keys of a policy, to be woken when another limit holds for one of them.
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
