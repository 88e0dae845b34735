package weir

import "context"

// oneByOne reserves the permits of one part after the other, and cancels them if one refuses. Limits that refuse count it if
// the refusal is final.
func (c *charging) oneByOne(leases []Lease, reserve, final bool) (all []Lease, binding int) {
	first, refused := len(leases), -1
	for i := range c.parts {
		p := &c.parts[i]
		if refused >= 0 {
			leases = append(leases, Lease{decision: p.peek()})
			continue
		}
		var l Lease
		added := false
		if p.why != ReasonNone {
			l = p.k.untaggable(p.terms, p.why, p.n)
		} else {
			l, added = p.k.try(p.hash, p.terms, p.n, true)
		}
		leases = append(leases, l)
		switch {
		case !l.decision.Allowed:
			refused = i
			switch {
			case p.n == 0:
			case final:
				p.of.note(p.hash, p.key)
			default:
				p.k.refused.Undo()
			}
		case added:
			p.of.offer(p.hash, p.key)
		}
	}
	own := leases[first:]
	c.settleAll(own, refused >= 0, reserve)
	return leases, bindingLease(own)
}

// settleAll ends leases that were reserved one after the other: they are canceled if one was refused, and those that
// need not be settled later are spent.
func (c *charging) settleAll(own []Lease, refused, reserve bool) {
	for i := len(own) - 1; i >= 0; i-- {
		l := &own[i]
		switch {
		case refused:
			l.Cancel()
			if l.decision.Allowed && l.permits > 0 {
				c.parts[i].k.granted.Undo() // the request was not
				l.permits = 0
			}
			l.claim = nil
		case !reserve && l.claim != nil && !l.claim.settler.(*keyed).returns(): //nolint:errcheck,forcetypeassert // of a Keyed
			l.Release()
			l.claim = nil
		}
	}
}

func bindingLease(own []Lease) int {
	b := -1
	for i := range own {
		if b < 0 || binds(&own[i].decision, &own[b].decision) {
			b = i
		}
	}
	return b
}

// WaitAll implements AcquireAll and ReserveAll of keyset, and ends the work.
func (c *charging) WaitAll(ctx context.Context, leases []Lease, reserve bool) (all []Lease, binding int, err error) {
	mustContext(ctx)
	defer c.free()
	first := len(leases)
	if !c.valid() {
		leases = refuseCharges(leases, c.parts, invalidLease)
		return leases, bindingOf(len(c.parts)), refusal(leases[first+c.wrongAt].decision, c.parts[c.wrongAt].n, c.wrong)
	}
	if over(ctx) {
		var n int64
		for i := range c.parts {
			n = max(n, c.parts[i].n)
		}
		leases = refuseCharges(leases, c.parts, func(d Decision, n int64) Lease {
			d.Reason, d.RetryAfter = ReasonCanceled, 0
			return Lease{decision: d, permits: n}
		})
		return leases, bindingOf(len(c.parts)), ended(ctx, n)
	}
	leases, binding = c.charge(leases, reserve, false)
	if binding < 0 || leases[first+binding].decision.Allowed {
		return leases, binding, nil
	}
	if hopeless, why := c.hopeless(leases[first:]); hopeless {
		leases = c.refused(leases[:first], true)
		return leases, binding, refusal(leases[first+binding].decision, c.parts[binding].n, why)
	}
	clear(leases[first:])
	return c.wait(ctx, leases[:first], reserve)
}

// hopeless reports whether a limit refuses that no waiting helps with, and why if it has no queue.
func (c *charging) hopeless(own []Lease) (is bool, why error) {
	for i := range own {
		c.parts[i].decision = own[i].decision
	}
	for i := range own {
		switch d := &own[i].decision; {
		case d.Allowed:
		case d.Reason != ReasonLimited:
			return true, nil
		case c.parts[i].k.bounds.Load().QueueLimit == 0:
			is, why = true, ErrNoQueue
		}
	}
	return is, why
}

// wait gets the permits of one part after the other, in the order of the locks.
func (c *charging) wait(ctx context.Context, leases []Lease, reserve bool) (all []Lease, binding int, err error) {
	first, refused := len(leases), false
	leases = append(leases, make([]Lease, len(c.parts))...)
	for _, i := range c.order {
		p, l := &c.parts[i], &leases[first+i]
		switch {
		case refused:
			l.decision = p.peek()
			continue
		case p.why != ReasonNone:
			*l = p.k.untaggable(p.terms, p.why, p.n)
			err = l.Err()
		default:
			*l, err = p.k.acquire(ctx, p.hash, p.terms, p.plan, p.n, true)
		}
		if err != nil {
			refused, binding = true, i
			if p.n > 0 && l.decision.Reason != ReasonCanceled {
				p.of.note(p.hash, p.key)
			}
		}
	}
	own := leases[first:]
	c.settleAll(own, refused, reserve)
	if !refused {
		binding = bindingLease(own)
	}
	return leases, binding, err
}
