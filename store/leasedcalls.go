package store

import (
	"context"

	"github.com/weirhq/weir"
)

// lowered are the charges as the inner store is asked.
func (l *Leased) lowered(charges []Charge) ([]Charge, error) {
	asked := make([]Charge, len(charges))
	for i, c := range charges {
		p, err := l.plan(c.Limit)
		if err != nil {
			return nil, err
		}
		c.Limit = p.lowered
		asked[i] = c
	}
	return asked, nil
}

// inHand calls f with what is kept for a charge that is leased and has something in hand.
func (l *Leased) inHand(c *Charge, f func(e *leasedKey, now int64)) {
	p, err := l.plan(c.Limit)
	if err != nil || !p.bound.Leased {
		return
	}
	l.with(c.Policy, c.Key, func(e *leasedKey) {
		if e.plan.lowered == p.lowered {
			f(e, l.now())
		}
	})
}

// peek asks the inner store, and adds what is in hand here. asked are the charges with their lowered limits.
func (l *Leased) peek(ctx context.Context, ask Ask, charges, asked []Charge, decisions []weir.Decision) error {
	held := make([]int64, len(charges))
	for i, c := range charges {
		l.inHand(&c, func(e *leasedKey, now int64) {
			held[i] = e.left(now)
			if n := c.N; n <= e.plan.most { // or it is refused for good
				asked[i].N = max(0, n-held[i])
			}
		})
	}
	if _, err := l.inner.Do(ctx, ask, asked, decisions); err != nil {
		return err
	}
	add := func(d *weir.Decision, held, n int64) {
		d.Remaining = min(d.Remaining+held, max(d.Limit, d.Remaining))
		if !d.Allowed && held > 0 && n <= held {
			d.Allowed, d.Reason, d.RetryAfter = true, weir.ReasonNone, 0
		}
	}
	for i := range decisions {
		add(&decisions[i], held[i], charges[i].N)
	}
	for i := range ask.States {
		add(&ask.States[i].Decision, held[i], 0)
	}
	return nil
}

// refund puts permits that were spent from a block in hand back into it, and returns all others.
func (l *Leased) refund(charges, asked []Charge) []Charge {
	rest := asked[:0]
	for i, given := range charges {
		c := asked[i]
		l.inHand(&given, func(e *leasedKey, now int64) {
			e.refusal = leasedRefusal{}
			for i := range e.blocks {
				if b := &e.blocks[i]; b.deadline > now {
					back := min(c.N, b.n-b.left)
					b.left += back
					b.back += back
					c.N -= back
				}
			}
		})
		if c.N > 0 {
			rest = append(rest, c)
		}
	}
	return rest
}

// reset forgets keys in the inner store, and what is in hand here.
func (l *Leased) reset(ctx context.Context, charges []Charge) error {
	if _, err := l.inner.Do(ctx, Ask{Mode: ModeReset}, charges, nil); err != nil {
		return err
	}
	now := l.now()
	for i := range charges {
		l.with(charges[i].Policy, charges[i].Key, func(e *leasedKey) {
			e.releaseAll(now, nil)
			e.epoch++
			e.refusal, e.seen, e.reset = leasedRefusal{}, e.plan.most, now
		})
	}
	return nil
}
