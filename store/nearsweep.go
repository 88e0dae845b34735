package store

import "time"

// nearLook says when the sweeper looks at a key.
type nearLook[K any] struct {
	at  int64
	key *nearKey[K]
}

// nearQueue is a heap of looks by time.
type nearQueue[K any] []nearLook[K]

func (q *nearQueue[K]) push(look nearLook[K]) {
	*q = append(*q, look)
	for at, h := len(*q)-1, *q; at > 0 && h[at].at < h[(at-1)/2].at; at = (at - 1) / 2 {
		h[at], h[(at-1)/2] = h[(at-1)/2], h[at]
	}
}

// pop takes the earliest look out of the queue, which must not be empty.
func (q *nearQueue[K]) pop() nearLook[K] {
	h := *q
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], nearLook[K]{}
	h = h[:last]
	*q = h
	for at := 0; ; {
		next := 2*at + 1
		if next+1 < len(h) && h[next+1].at < h[next].at {
			next++
		}
		if next >= len(h) || h[at].at <= h[next].at {
			return first
		}
		h[at], h[next] = h[next], h[at]
		at = next
	}
}

// watch has the sweeper look at a key at a time, unless it does so earlier. Its shard must be locked.
func (n *near[K]) watch(k *nearKey[K], at int64) {
	if k.due <= at {
		return
	}
	k.due = at
	n.shard(k.hash).queue.push(nearLook[K]{at, k})
	if at < n.next.Load() {
		n.hurry()
	}
}

// hurry has the sweeper look now.
func (n *near[K]) hurry() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// pop takes a key out of the queue that is due, or returns nil. The shard must be locked.
func (s *nearShard[K]) pop(now int64) *K {
	for len(s.queue) > 0 && s.queue[0].at <= now {
		look := s.queue.pop()
		if look.at == look.key.due { // otherwise it was looked at earlier
			look.key.due = never
			return look.key.kept
		}
	}
	return nil
}

// earliest is when the first key is due.
func (n *near[K]) earliest() int64 {
	at := int64(never)
	for i := range n.shards {
		s := &n.shards[i]
		s.lock.Lock()
		if len(s.queue) > 0 {
			at = min(at, s.queue[0].at)
		}
		s.lock.Unlock()
	}
	return at
}

// run starts the sweeper, which runs until Close.
func (n *near[K]) run(now int64) {
	if !n.runs.Load() && n.runs.CompareAndSwap(false, true) {
		n.tick.Store(now + n.every)
		n.swept.Go(n.sweep)
	}
}

// sweep has done what is due when it is, and forgets keys in one shard after the other, one in each tick.
func (n *near[K]) sweep() {
	for at, last := 0, n.now(); ; {
		n.next.Store(never) // what is queued from now on wakes it
		now := n.now()
		if now < last {
			n.shift(last - now)
		}
		last = now
		if now >= n.tick.Load() {
			n.tick.Store(now + n.every)
			n.forgetStale(&n.shards[at%len(n.shards)], now)
			at++
		}
		next := min(max(n.rule.due(now), n.earliest()), n.tick.Load())
		n.next.Store(next)
		due, stop := n.after(next - now)
		select {
		case <-n.stop:
			stop()
			return
		case <-n.wake:
			stop()
		case <-due:
		}
	}
}

// shift has everything looked at earlier, by as much as the clock was set back.
func (n *near[K]) shift(back int64) {
	n.tick.Add(-back)
	for i := range n.shards {
		s := &n.shards[i]
		s.lock.Lock()
		for i := range s.queue {
			look := &s.queue[i]
			if look.key.due == look.at {
				look.key.due -= back
			}
			look.at -= back
		}
		s.lock.Unlock()
	}
}

// nextTick is when the tick after now is.
func (n *near[K]) nextTick(now int64) int64 {
	at := n.tick.Load()
	if at <= now { // it is under way
		at += n.every
	}
	return at
}

// after is a channel on which something comes once d has passed.
func (n *near[K]) after(d int64) (passed <-chan time.Time, stop func() bool) {
	if n.clock == nil {
		t := time.NewTimer(time.Duration(d))
		return t.C, t.Stop
	}
	c := make(chan time.Time, 1)
	return c, n.clock.AfterFunc(time.Duration(d), func() { c <- time.Time{} })
}
