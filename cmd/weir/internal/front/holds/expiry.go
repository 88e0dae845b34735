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
		first := h.due[0]
		h.due.remove(first)
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

// cancelAll cancels holds that nobody can find any more.
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

// dueOrder is a heap of holds: that which expires first is the first.
type dueOrder []*hold

func (d *dueOrder) push(kept *hold) {
	*d = append(*d, kept)
	kept.place = len(*d) - 1
	d.up(kept.place)
}

func (d *dueOrder) remove(kept *hold) {
	all := *d
	at, last := kept.place, len(all)-1
	d.swap(at, last)
	all[last] = nil
	*d = all[:last]
	if at < last {
		d.down(at)
		d.up(at)
	}
}

func (d *dueOrder) swap(i, j int) {
	all := *d
	all[i], all[j] = all[j], all[i]
	all[i].place, all[j].place = i, j
}

func (d *dueOrder) before(i, j int) bool { return (*d)[i].expires.Before((*d)[j].expires) }

func (d *dueOrder) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !d.before(i, parent) {
			return
		}
		d.swap(i, parent)
		i = parent
	}
}

func (d *dueOrder) down(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(*d); child++ {
			if d.before(child, first) {
				first = child
			}
		}
		if first == i {
			return
		}
		d.swap(i, first)
		i = first
	}
}
