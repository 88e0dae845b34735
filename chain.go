package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
)

// Chain asks several limiters as one: a request is granted by all of them or charged to none.
//
// TryAcquire and TryReserve are one atomic step over all limiters of this package: no other request sees a limit
// charged that another limit then refuses. Limiters of other kinds are reserved first, and canceled if the request is
// refused. Acquire waits for the limiters in their order, holding what it has already got, and gives it back in reverse
// if a later one refuses.
//
// The decision of a refusal is that of the limiter that binds: among those that refuse, the one with the longest
// RetryAfter. The decision of a grant is that of the limiter with the fewest permits left.
type Chain struct {
	name    string
	limits  []Limiter
	gates   []*gate // in order of the chain
	ordered []*gate // in order of locking
	foreign []Limiter
	chains  []*Chain

	granted, refused atomic.Int64

	mu      sync.Mutex
	closed  atomic.Bool
	waiting map[*context.CancelCauseFunc]struct{}
}

var _ Limiter = (*Chain)(nil)

var errChainClosed = errors.New("weir: chain closed")

// NewChain answers a chain of at least one limiter, in the order in which Acquire waits for them. No limiter may be
// in it twice, not even through another chain.
func NewChain(limiters ...Limiter) (*Chain, error) {
	if len(limiters) == 0 {
		return nil, &OptionError{"NewChain limiters", "empty", "one or more"}
	}
	c := &Chain{limits: slices.Clone(limiters), waiting: map[*context.CancelCauseFunc]struct{}{}}
	seen := map[any]bool{}
	for i, l := range limiters {
		if l == nil {
			return nil, &OptionError{fmt.Sprintf("NewChain limiter %d", i+1), "nil", "a limiter"}
		}
		if err := c.add(l, seen); err != nil {
			return nil, err
		}
	}
	c.ordered = slices.SortedFunc(slices.Values(c.gates), func(a, b *gate) int { return cmp.Compare(a.id, b.id) })
	return c, nil
}

// gated is implemented by the limiters of this package that have a gate.
type gated interface{ theGate() *gate }

func (g *gate) theGate() *gate { return g }

func (c *Chain) add(l Limiter, seen map[any]bool) error {
	if seen[l] {
		return &OptionError{"NewChain limiter", fmt.Sprintf("%T", l), "in the chain only once"}
	}
	seen[l] = true
	switch l := l.(type) {
	case *Chain:
		c.chains = append(c.chains, l)
		for _, member := range l.limits {
			if err := c.add(member, seen); err != nil {
				return err
			}
		}
	case gated:
		c.gates = append(c.gates, l.theGate())
	default:
		c.foreign = append(c.foreign, l)
	}
	return nil
}

func (c *Chain) isClosed() bool {
	return c.closed.Load() || slices.ContainsFunc(c.chains, (*Chain).isClosed)
}

func (c *Chain) closedLease(n int64) Lease {
	d := c.Peek(n)
	d.Allowed, d.Reason, d.RetryAfter = false, ReasonClosed, Never
	return Lease{decision: d, permits: n}
}

// TryAcquire implements [Limiter].
func (c *Chain) TryAcquire(n int64) Lease { return c.counted(c.try(n, false, true), n) }

// TryReserve implements [Limiter].
func (c *Chain) TryReserve(n int64) Lease { return c.counted(c.try(n, true, true), n) }

func (c *Chain) counted(l Lease, n int64) Lease {
	switch {
	case n <= 0:
	case l.decision.Allowed:
		c.granted.Add(1)
	default:
		c.refused.Add(1)
	}
	return l
}

func (c *Chain) invalid(n int64) Lease {
	return Lease{decision: Decision{Reason: ReasonInvalid, RetryAfter: Never, Policy: c.name}, permits: n}
}

// try decides in one step. A refusal is counted by the limits that refuse only if it is final.
func (c *Chain) try(n int64, reserve, final bool) Lease {
	switch {
	case n < 0:
		return c.invalid(n)
	case c.isClosed():
		return c.closedLease(n)
	}
	claim, generation := newClaim(c, n, algo.Mark{})
	claim.reserved = true // until the request is granted
	verdict := binding{}
	for _, l := range c.foreign {
		lease := l.TryReserve(n)
		verdict.add(lease.Decision())
		if !lease.Allowed() {
			break
		}
		claim.parts = append(claim.parts, lease)
	}
	c.lock()
	for _, g := range c.gates {
		g.at = g.now()
		d := g.decision(g.peek(g.at, n))
		if final && !d.Allowed {
			g.count(n, false)
		}
		verdict.add(d)
	}
	if verdict.decision.Allowed && n > 0 {
		verdict = binding{}
		for _, part := range claim.parts {
			verdict.add(part.decision)
		}
		for _, g := range c.gates {
			r, reason := g.take(g.at, n)
			g.count(n, reason == ReasonNone)
			lease := g.lease(n, r, reason, reserve)
			verdict.add(lease.decision)
			if lease.claim != nil {
				claim.parts = append(claim.parts, lease)
			}
		}
	}
	c.unlock()
	l := Lease{decision: verdict.decision, permits: n, claim: claim, generation: generation}
	switch {
	case !l.decision.Allowed:
		l.Cancel()
		l.claim = nil
	case len(claim.parts) == 0:
		l.Release()
		l.claim = nil
	default:
		claim.reserved = reserve
	}
	return l
}

// binding is the decision that speaks for several.
type binding struct {
	decision Decision
	any      bool
}

func (b *binding) add(d Decision) {
	switch {
	case !b.any, b.decision.Allowed && !d.Allowed:
		b.decision = d
	case b.decision.Allowed != d.Allowed:
	case d.Allowed && d.Remaining < b.decision.Remaining, !d.Allowed && d.RetryAfter > b.decision.RetryAfter:
		b.decision = d
	}
	b.any = true
}

// settle implements settler.
func (c *Chain) settle(cl *claim, how settlement, actual int64) {
	if !cl.reserved {
		how = release
	}
	for _, part := range slices.Backward(cl.parts) {
		switch how {
		case release:
			part.Release()
		case commit:
			part.Commit(actual)
		case cancel:
			part.Cancel()
		}
	}
}

// Acquire implements [Limiter].
func (c *Chain) Acquire(ctx context.Context, n int64) (Lease, error) { return c.acquire(ctx, n, false) }

// Reserve implements [Limiter].
func (c *Chain) Reserve(ctx context.Context, n int64) (Lease, error) { return c.acquire(ctx, n, true) }

func (c *Chain) acquire(ctx context.Context, n int64, reserve bool) (Lease, error) {
	if n < 0 {
		return c.invalid(n), negative("Acquire", n)
	}
	if ctx.Err() != nil {
		return Lease{decision: Decision{Reason: ReasonCanceled, Policy: c.name}, permits: n}, ended(ctx, n)
	}
	l := c.try(n, reserve, false)
	switch l.decision.Reason {
	case ReasonNone, ReasonNever, ReasonClosed:
		return c.counted(l, n), nil
	default: // there may be something to wait for
	}
	if until, ok := ctx.Deadline(); ok && l.decision.RetryAfter > time.Until(until) {
		l.decision.Reason = ReasonDeadline
		return c.counted(l, n), nil
	}
	l, err := c.wait(ctx, n, reserve)
	if err != nil {
		return l, err
	}
	return c.counted(l, n), nil
}

// wait gets the permits of one limiter after the other.
func (c *Chain) wait(ctx context.Context, n int64, reserve bool) (Lease, error) {
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if !c.register(&stop) {
		return c.closedLease(n), nil
	}
	defer c.unregister(&stop)

	claim, generation := newClaim(c, n, algo.Mark{})
	claim.reserved = true // until everything is there
	l := Lease{permits: n, claim: claim, generation: generation}
	verdict := binding{}
	for _, limit := range c.limits {
		part, err := limit.Reserve(inner, n)
		verdict.add(part.decision)
		if err == nil && part.Allowed() {
			claim.parts = append(claim.parts, part)
			continue
		}
		l.Cancel()
		l.claim, l.decision = nil, part.decision
		switch {
		case ctx.Err() != nil && err != nil:
			return l, ended(ctx, n)
		case err != nil && errors.Is(context.Cause(inner), errChainClosed):
			return c.closedLease(n), nil
		}
		return l, err
	}
	if c.isClosed() {
		l.Cancel()
		return c.closedLease(n), nil
	}
	claim.reserved = reserve
	l.decision = verdict.decision
	return l, nil
}

func (c *Chain) register(stop *context.CancelCauseFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return false
	}
	c.waiting[stop] = struct{}{}
	return true
}

func (c *Chain) unregister(stop *context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, stop)
}

// Peek implements [Limiter]. Like TryAcquire it looks at all limiters at the same moment.
func (c *Chain) Peek(n int64) Decision {
	if n < 0 {
		return c.invalid(n).decision
	}
	verdict := binding{}
	for _, l := range c.foreign {
		verdict.add(l.Peek(n))
	}
	c.lock()
	for _, g := range c.gates {
		verdict.add(g.decision(g.peek(g.now(), n)))
	}
	c.unlock()
	if c.isClosed() {
		verdict.decision.Allowed, verdict.decision.Reason, verdict.decision.RetryAfter = false, ReasonClosed, Never
	}
	return verdict.decision
}

// lock locks all gates, always in the same order.
func (c *Chain) lock() {
	for _, g := range c.ordered {
		g.lock()
	}
}

func (c *Chain) unlock() {
	for _, g := range slices.Backward(c.ordered) {
		g.unlock()
	}
}

// Stats implements [Limiter]: Available is the least of the limiters, Queued, Waiters and Forgiven are sums, and
// Granted and Refused count the requests to the chain.
func (c *Chain) Stats() Stats {
	s := Stats{Available: algo.MaxPermits, Granted: c.granted.Load(), Refused: c.refused.Load()}
	add := func(child Stats) {
		s.Available = min(s.Available, child.Available)
		s.Queued += child.Queued
		s.Waiters += child.Waiters
		s.Forgiven += child.Forgiven
	}
	for _, l := range c.foreign {
		add(l.Stats())
	}
	c.lock()
	defer c.unlock()
	for _, g := range c.gates {
		add(g.stats())
	}
	return s
}

// Idle implements [Limiter]: it is the shortest of the limiters, and not ok if any of them is in use.
func (c *Chain) Idle() (time.Duration, bool) {
	shortest := Never
	for _, l := range c.limits {
		d, ok := l.Idle()
		if !ok {
			return 0, false
		}
		shortest = min(shortest, d)
	}
	return shortest, true
}

// Close implements [Limiter]. The limiters of the chain stay open.
func (c *Chain) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed.Store(true)
	for stop := range c.waiting {
		(*stop)(errChainClosed)
	}
	clear(c.waiting)
	return nil
}
