package holds

import (
	"sync"
	"time"

	"github.com/weirhq/weir/policy"
)

// mostAtOnce is how many expired reservations are canceled at the same time, each of which may have to ask a store.
const mostAtOnce = 32

// arm makes the timer fire when the first reservation expires, unless sweep is at work, which does so when it is done.
func (h *Holds) arm() {
	if h.closed || len(h.due) == 0 || h.sweeping {
		return
	}
	wait := max(time.Until(h.due[0].expires), 0)
	if h.timer == nil {
		h.timer = time.AfterFunc(wait, h.sweep)
	} else {
		h.timer.Reset(wait)
	}
}

// sweep cancels what has expired. There is one at a time.
func (h *Holds) sweep() {
	h.mu.Lock()
	if h.closed || h.sweeping {
		h.mu.Unlock()
		return
	}
	now := time.Now()
	var expired []*hold
	for len(h.due) > 0 && !h.due[0].expires.After(now) {
		first := h.due.Pop()
		delete(h.byID, first.id)
		expired = append(expired, first)
	}
	h.sweeping = true
	h.mu.Unlock()
	h.cancelAll(expired)
	h.mu.Lock()
	h.sweeping = false
	h.arm()
	h.mu.Unlock()
}

// cancelAll cancels holds that were taken out of the table.
func (h *Holds) cancelAll(all []*hold) {
	workers := min(mostAtOnce, (len(all)+few-1)/few)
	if workers <= 1 {
		for _, kept := range all {
			h.end(kept, (*policy.Verdict).Cancel)
		}
		return
	}
	var wait sync.WaitGroup
	for i := range workers {
		wait.Go(func() {
			for at := i; at < len(all); at += workers {
				h.end(all[at], (*policy.Verdict).Cancel)
			}
		})
	}
	wait.Wait()
}

// few is how many are canceled one after the other.
const few = 8
