package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/nils"
)

// Chain asks several limiters as one: a request is allowed by all of them or charged to none.
//
// TryAcquire and TryReserve are one atomic step over all limiters of this package: no other request sees a limit
// charged that another limit then refuses. Limiters of other kinds are reserved first, and canceled if the request is
// refused. Acquire waits for the limiters in their order, holding what it has already got, and gives it back in reverse
// if a later one refuses; it asks none of them twice. Chains that have several Concurrency
// limiters in common should have them in the same order, or
// callers may wait for one another until their contexts end.
//
// The decision of a refusal is that of the limiter that decides: among those that refuse, the one with the longest
// RetryAfter. The decision of an allowed request is that of the limiter with the fewest remaining permits.
type Chain struct {
	name    string
	limits  []Acquirer
	gates   []link[*gate] // in order of the chain
	ordered []*gate       // in order of locking
	foreign []link[Acquirer]
	shares  []share // those of gates, if there is nothing else, and each can have its state in a word
	chains  []*Chain
	links   int
	clocked bool // some limiter has a Clock

	allowed, refused atomic.Int64

	mu      sync.Mutex
	closed  atomic.Bool
	waiting map[*context.CancelCauseFunc]struct{}
}

// link is a limiter of a chain and its place, those of the chains in the chain included.
type link[L any] struct {
	limiter L
	place   int
}

var _ Acquirer = (*Chain)(nil)

var errChainClosed = errors.New("weir: chain closed")

// NewChain returns a chain of at least one limiter, in the order in which Acquire waits for them. No limiter may be
// in it twice, not even through another chain.
func NewChain(limiters ...Acquirer) (*Chain, error) {
	if len(limiters) == 0 {
		return nil, &OptionError{"NewChain limiters", "empty", "one or more"}
	}
	c := &Chain{limits: slices.Clone(limiters), waiting: map[*context.CancelCauseFunc]struct{}{}}
	seen := map[any]bool{}
	for i, l := range limiters {
		if nils.Is(l) {
			return nil, &OptionError{fmt.Sprintf("NewChain limiter %d", i+1), "nil", "a limiter"}
		}
		if err := c.add(l, i+1, seen); err != nil {
			return nil, err
		}
	}
	for _, g := range c.gates {
		c.ordered = append(c.ordered, g.limiter)
		c.clocked = c.clocked || g.limiter.clock != nil
	}
	slices.SortFunc(c.ordered, func(a, b *gate) int { return cmp.Compare(a.id, b.id) })
	c.shares = c.sharesOf()
	return c, nil
}

// sharesOf returns the words of all limiters, or none if not all of them have one.
func (c *Chain) sharesOf() (shares []share) {
	if len(c.foreign) > 0 || len(c.gates) > maxShares {
		return nil
	}
	for _, link := range c.gates {
		s := share{gate: link.limiter, place: link.place}
		switch w := s.gate.word.(type) {
		case *arrival:
			s.word, s.of = &w.word, w
		case *windowWord:
			s.word, s.of = &w.word, w
		case *free:
			s.word, s.of = &w.word, w
		default:
			return nil
		}
		shares = append(shares, s)
	}
	return shares
}

// gated is implemented by the limiters of this package that have a gate.
type gated interface{ theGate() *gate }

func (g *gate) theGate() *gate { return g }

// isOurs tells limiters of this package, or of the package overload in it, from those that embed one, which have its methods but
// may do something else.
func isOurs(l Acquirer, room string) bool {
	t := reflect.TypeOf(l)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == reflect.TypeFor[Chain]().PkgPath()+room
}

func (c *Chain) add(l Acquirer, number int, seen map[any]bool) error {
	if reflect.ValueOf(l).Comparable() { // otherwise it is not known whether it is the same
		if seen[l] {
			return &OptionError{fmt.Sprintf("NewChain limiter %d", number), fmt.Sprintf("%T", l), "in the chain only once"}
		}
		seen[l] = true
	}
	if w, ok := l.(interface{ Concurrency() *Concurrency }); ok && isOurs(l, "/overload") { // an Adaptive
		return c.add(w.Concurrency(), number, seen)
	}
	chain, isChain := l.(*Chain)
	if isChain {
		c.chains = append(c.chains, chain)
		for _, member := range chain.limits {
			if err := c.add(member, number, seen); err != nil {
				return err
			}
		}
		return nil
	}
	if own, ok := l.(gated); ok && isOurs(l, "") {
		c.gates = append(c.gates, link[*gate]{own.theGate(), c.links})
	} else {
		c.foreign = append(c.foreign, link[Acquirer]{l, c.links})
	}
	c.links++
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

// TryAcquire implements [Acquirer].
func (c *Chain) TryAcquire(n int64) (l Lease) {
	c.try(nil, &l, n, false) //nolint:staticcheck // nil says that the caller does not wait
	c.count(&l)
	return l
}

// TryReserve implements [Acquirer].
func (c *Chain) TryReserve(n int64) (l Lease) {
	c.try(nil, &l, n, true) //nolint:staticcheck // as above
	c.count(&l)
	return l
}

func (c *Chain) count(l *Lease) {
	switch {
	case l.permits <= 0:
	case l.decision.Allowed:
		c.allowed.Add(1)
	default:
		c.refused.Add(1)
	}
}

func (c *Chain) invalid(n int64) Lease {
	return Lease{decision: Decision{Reason: ReasonInvalid, RetryAfter: Never, Policy: c.name}, permits: n}
}

// claim gives l a claim with a part for every link, which counts as reserved until the request is allowed.
func (c *Chain) claim(l *Lease) {
	of := l.bind(c, l.permits)
	of.parts = slices.Grow(of.parts[:0], c.links)[:c.links]
	clear(of.parts)
	of.reserved = true
}

// try decides in one step. If the caller is ready to wait until ctx ends, a refusal is final only if there is nothing
// to wait for; a caller that is not has a ctx of nil. The limiters that refuse count only final refusals.
func (c *Chain) try(ctx context.Context, l *Lease, n int64, reserve bool) (final bool) {
	c.made()
	switch {
	case n < 0:
		*l = c.invalid(n)
		return true
	case c.isClosed():
		*l = c.closedLease(n)
		return true
	}
	l.permits = n
	if len(c.shares) > 0 && n > 0 && c.takeShares(l, n, reserve, ctx == nil) {
		return true
	}
	var foreign strictest
	if len(c.foreign) > 0 {
		c.claim(l)
		c.reserveForeign(l, n, &foreign)
	}
	c.lock()
	verdict := foreign
	for _, link := range c.gates {
		g := link.limiter
		g.at = g.catchUp()
		d := g.decision(g.peek(g.at, n))
		g.refuses = !d.Allowed
		verdict.add(d)
	}
	switch {
	case verdict.decision.Allowed && (n > 0 || reserve):
		final, verdict = true, foreign
		c.take(l, n, reserve, &verdict)
	case verdict.decision.Allowed || ctx == nil || c.hopeless(ctx, &verdict.decision):
		final = true
		c.countRefusals(n)
	}
	c.unlock()
	l.decision = verdict.decision
	switch {
	case l.claim == nil:
	case !l.decision.Allowed || n == 0 && !reserve:
		l.Cancel()
		l.claim = nil
	default:
		l.claim.reserved = reserve
	}
	return final
}

// countRefusals counts a refusal by those that refuse.
func (c *Chain) countRefusals(n int64) {
	for _, link := range c.gates {
		if link.limiter.refuses {
			link.limiter.count(n, false)
		}
	}
}

// reserveForeign reserves n permits of every limiter of another kind, until one refuses. The others are then only asked. If one
// panics, what was reserved is given back.
func (c *Chain) reserveForeign(l *Lease, n int64, verdict *strictest) {
	asked := false
	defer func() {
		if !asked {
			l.Cancel()
		}
	}()
	for _, link := range c.foreign {
		if verdict.any && !verdict.decision.Allowed {
			verdict.add(link.limiter.Peek(n))
			continue
		}
		part := link.limiter.TryReserve(n)
		verdict.add(part.decision)
		if part.decision.Allowed {
			l.claim.parts[link.place] = part
		}
	}
	asked = true
}

// take takes n permits of every gate, which must be locked and have them.
func (c *Chain) take(l *Lease, n int64, reserve bool, verdict *strictest) {
	for _, link := range c.gates {
		g := link.limiter
		r, reason := g.take(g.at, n)
		g.count(n, reason == ReasonNone)
		part := g.lease(n, g.decision(r, reason), r.Mark, reserve, under{})
		verdict.add(part.decision)
		c.addPart(l, link.place, part)
	}
}

// addPart keeps what ends with l.
func (c *Chain) addPart(l *Lease, place int, part Lease) {
	if part.claim == nil {
		return
	}
	if l.claim == nil {
		c.claim(l)
	}
	l.claim.parts[place] = part
}

// hopeless reports whether waiting until ctx ends cannot help a request that was refused with d, and says so in d.
func (c *Chain) hopeless(ctx context.Context, d *Decision) bool {
	if d.Reason == ReasonNever || d.Reason == ReasonClosed {
		return true
	}
	until, ok := ctx.Deadline()
	if !ok || c.clocked || d.RetryAfter <= time.Until(until) {
		return false
	}
	d.Reason = ReasonDeadline
	return true
}

// strictest is the decision that speaks for several.
type strictest struct {
	decision Decision
	any      bool
}

func (b *strictest) add(d Decision) {
	if !b.any || binds(&d, &b.decision) {
		b.decision, b.any = d, true
	}
}

// settle implements settler.
func (c *Chain) settle(cl *claim, how settlement, actual int64) {
	switch {
	case cl.reserved || how == drop:
	case how == cancel:
		how = ignore
	default:
		how = release
	}
	for _, part := range slices.Backward(cl.parts) {
		switch how {
		case release:
			part.Release()
		case drop:
			part.Drop()
		case ignore:
			part.claim.settle(part.generation, ignore, part.permits)
		case commit:
			part.Commit(actual)
		case cancel:
			part.Cancel()
		}
	}
}

// members are the limiters of the chain, in its order.
func (c *Chain) members() []Acquirer { return c.limits }

// membersOf is inside.Members. A type that embeds a chain has its limiters.
func membersOf(limiter any) (members []Acquirer, ok bool) {
	c, ok := limiter.(interface{ members() []Acquirer })
	if !ok {
		return nil, false
	}
	return slices.Clone(c.members()), true
}

// Acquire implements [Acquirer].
func (c *Chain) Acquire(ctx context.Context, n int64) (Lease, error) {
	return c.acquireCounted(ctx, n, false)
}

// Reserve implements [Acquirer].
func (c *Chain) Reserve(ctx context.Context, n int64) (Lease, error) {
	return c.acquireCounted(ctx, n, true)
}

// Do calls f while it holds n permits of each limiter, which come back when f returns or panics where they do not come back with
// time. It waits for them as Acquire does. The error is that of f, or, if the permits were not taken and f not called, that of
// Acquire. A nil f panics.
func (c *Chain) Do(ctx context.Context, n int64, f func() error) error {
	mustDo(f)
	l, err := c.Acquire(ctx, n)
	return l.during(err, f)
}

func (c *Chain) acquireCounted(ctx context.Context, n int64, reserve bool) (Lease, error) {
	l, err := c.acquire(ctx, n, reserve)
	if l.decision.Reason != ReasonCanceled {
		c.count(&l)
	}
	return l, err
}

// acquire is Acquire without the counting.
func (c *Chain) acquire(ctx context.Context, n int64, reserve bool) (Lease, error) {
	c.made()
	switch ended := over(ctx); {
	case n < 0:
		l := c.invalid(n)
		return l, l.Err()
	case ended:
		return c.canceled(ctx, n)
	case len(c.foreign) > 0: // try would ask them, and wait would ask them again
		return c.wait(ctx, n, reserve)
	}
	var l Lease
	if c.try(ctx, &l, n, reserve) {
		return l, l.Err()
	}
	return c.wait(ctx, n, reserve)
}

func (c *Chain) canceled(ctx context.Context, n int64) (Lease, error) {
	return Lease{decision: Decision{Reason: ReasonCanceled, Policy: c.name}, permits: n}, ended(ctx, n)
}

// wait gets the permits of one limiter after the other, and asks the others how long they refuse once one has refused. If one of
// another kind panics, what it has got is given back.
func (c *Chain) wait(ctx context.Context, n int64, reserve bool) (Lease, error) {
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if !c.register(&stop) {
		l := c.closedLease(n)
		return l, l.Err()
	}
	defer c.unregister(&stop)

	l := Lease{permits: n}
	c.claim(&l)
	l.claim.parts = l.claim.parts[:0]
	taken := false
	defer func() {
		if !taken {
			l.Cancel()
		}
	}()
	verdict := strictest{}
	for i, limit := range c.limits {
		part, err := reserveFrom(inner, limit, n)
		verdict.add(part.decision)
		if err == nil {
			l.claim.parts = append(l.claim.parts, part)
			continue
		}
		part.Cancel()
		l.Cancel()
		var refused *RefusedError
		switch {
		case errors.Is(context.Cause(inner), errChainClosed) && ctx.Err() == nil:
			l = c.closedLease(n)
			return l, l.Err()
		case errors.As(err, &refused):
		case ctx.Err() != nil:
			part.decision.Allowed, part.decision.Reason = false, ReasonCanceled
			return Lease{decision: part.decision, permits: n}, ended(ctx, n)
		default: // of a limiter of another kind
			return Lease{decision: part.decision, permits: n}, err
		}
		for _, rest := range c.limits[i+1:] {
			verdict.add(rest.Peek(n))
		}
		l.claim, l.decision = nil, verdict.decision
		if l.decision.Reason == ReasonLimited { // it would have been waited for
			l.decision.Reason = part.decision.Reason
		}
		return l, refusal(l.decision, n, refused.Err)
	}
	if c.isClosed() {
		l.Cancel()
		l = c.closedLease(n)
		return l, l.Err()
	}
	taken = true
	l.claim.begin()
	l.claim.reserved = reserve
	l.decision = verdict.decision
	return l, nil
}

// reserveFrom is l.Reserve, uncounted where l is a chain: it is not the one that was asked. The error of another kind of limiter
// is made what it should be if that only says in the lease that it refused.
func reserveFrom(ctx context.Context, l Acquirer, n int64) (Lease, error) {
	if c, ok := l.(*Chain); ok {
		return c.acquire(ctx, n, true)
	}
	part, err := l.Reserve(ctx, n)
	if err == nil {
		err = part.Err()
	}
	return part, err
}

// made panics if c is a zero Chain, which has no limiter that could refuse.
func (c *Chain) made() {
	if c.links == 0 {
		panic("weir: zero Chain: make it by NewChain")
	}
}

// register has a call stopped when the chain, or one within it, is closed. It returns false if one is.
func (c *Chain) register(stop *context.CancelCauseFunc) bool {
	for i, chain := range c.chains {
		if !chain.register(stop) {
			for _, before := range c.chains[:i] {
				before.unregister(stop)
			}
			return false
		}
	}
	c.mu.Lock()
	closed := c.closed.Load()
	if !closed {
		c.waiting[stop] = struct{}{}
	}
	c.mu.Unlock()
	if closed {
		c.unregister(stop)
	}
	return !closed
}

func (c *Chain) unregister(stop *context.CancelCauseFunc) {
	for _, chain := range c.chains {
		chain.unregister(stop)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, stop)
}

// Peek implements [Acquirer]. Like TryAcquire it looks at all limiters at the same moment.
func (c *Chain) Peek(n int64) Decision {
	c.made()
	if n < 0 {
		return c.invalid(n).decision
	}
	verdict := strictest{}
	for _, link := range c.foreign {
		verdict.add(link.limiter.Peek(n))
	}
	c.lock()
	for _, link := range c.gates {
		g := link.limiter
		verdict.add(g.decision(g.peek(g.catchUp(), n)))
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

// Stats implements [Acquirer]: Limit, Remaining and Idle are the least of the limiters, so that Idle is negative while any of
// them is in use. Queued, Waiters and Forgiven are sums. Allowed and Refused count the requests to the chain itself, not those
// that reach it as a part of another chain.
func (c *Chain) Stats() Stats {
	c.made()
	s := Stats{
		Limit: algo.MaxPermits, Remaining: algo.MaxPermits, Idle: Never, Allowed: c.allowed.Load(), Refused: c.refused.Load(),
	}
	add := func(child Stats) {
		if child.Limit > 0 { // that of another kind of limiter may be unknown
			s.Limit = min(s.Limit, child.Limit)
		}
		s.Remaining = min(s.Remaining, child.Remaining)
		s.Idle = min(s.Idle, child.Idle)
		s.Queued += child.Queued
		s.Waiters += child.Waiters
		s.Forgiven += min(child.Forgiven, math.MaxInt64-s.Forgiven)
	}
	for _, link := range c.foreign {
		add(link.limiter.Stats())
	}
	c.lock()
	defer c.unlock()
	for _, link := range c.gates {
		add(link.limiter.stats())
	}
	return s
}

// Close refuses all callers that wait in the chain and all that come later, with ReasonClosed. The limiters of the chain stay
// open. Closing twice is harmless. The error is always nil.
func (c *Chain) Close() error {
	c.made()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed.Store(true)
	for stop := range c.waiting {
		(*stop)(errChainClosed)
	}
	clear(c.waiting)
	return nil
}

// sharer is a word from which a chain can take.
type sharer interface {
	word
	// ask is what taking n > 0 permits at time now would make of the word, which was old, and the decision on that in a zero d.
	// If the state does not lie in the word, the verdict is locked, and d is not changed.
	ask(d *Decision, now, n int64) (old, next uint64, v verdict)
	// mark is that of taking permits at time now, which would make the word next.
	mark(next uint64, now int64) algo.Mark
	// count counts a call that was decided.
	count(allowed bool)
}

// swap is what a word is, what it would become, and the decision on that.
type swap struct {
	old, next uint64
	decision  Decision
}

// share is a limiter of a chain whose state can lie in a word.
type share struct {
	word  *atomic.Uint64
	of    sharer
	gate  *gate
	place int // among the links of the chain
}

// ask is that of its word. Called by the interface, it would have the decision allocated.
func (s *share) ask(d *Decision, now, n int64) (old, next uint64, v verdict) {
	switch w := s.of.(type) {
	case *arrival:
		return w.ask(d, now, n)
	case *windowWord:
		return w.ask(d, now, n)
	case *free:
		return w.ask(d, now, n)
	default:
		panic("weir: unknown word")
	}
}

// maxShares is how many words a step can be over: it has a swap of each on its stack.
const maxShares = 4

// takeShares takes n permits of every limiter of the chain in one step over their words. It is not ok if it needs the locks, or
// if it would refuse and must not.
//
// All words are asked as of one time, and exchanged together, each only if it has not changed: all but the last are held before
// the last is exchanged. Calls wait for a word that is held, so none sees a limit charged that another limit then refuses. No
// step waits while it holds a word.
//
// As with a single word, a refusal must not rest on a time that was read before the word changed.
func (c *Chain) takeShares(l *Lease, n int64, reserve, refuse bool) (ok bool) {
	var room [maxShares]swap
	swaps := room[:len(c.shares)]
	for i := range swaps {
		swaps[i].old = c.shares[i].word.Load()
	}
	for {
		now := clock.Now()
		speaks, changed := &swaps[0].decision, false
		for i := range swaps {
			o := &swaps[i]
			old, next, v := c.shares[i].ask(&o.decision, now, n)
			before := o.old
			o.old, o.next = old, next
			switch v {
			case locked:
				if o.old != held {
					return false
				}
				runtime.Gosched()
				changed = true
			case short:
				changed = changed || o.old != before
			case taken:
			}
			if binds(&o.decision, speaks) {
				speaks = &o.decision
			}
		}
		if !changed {
			switch {
			case speaks.Allowed:
				ok = c.exchange(l, swaps, now, reserve)
			case refuse:
				ok = true
				c.refuseShares(swaps)
			default:
				return false
			}
			if ok {
				l.decision = *speaks
				return true
			}
		}
		for i := range swaps {
			swaps[i].decision = Decision{}
		}
	}
}

// refuseShares counts a refusal where it was refused.
func (c *Chain) refuseShares(swaps []swap) {
	for i := range swaps {
		if !swaps[i].decision.Allowed {
			c.shares[i].of.count(false)
		}
	}
}

// exchange takes the permits as of time now, or nothing if a word has changed.
func (c *Chain) exchange(l *Lease, swaps []swap, now int64, reserve bool) (ok bool) {
	var marks [maxShares]algo.Mark
	if reserve {
		for i := range swaps {
			marks[i] = c.shares[i].of.mark(swaps[i].next, now)
		}
	}
	last := len(swaps) - 1
	for i := range swaps {
		next := uint64(held)
		if i == last {
			next = swaps[i].next
		}
		if c.shares[i].word.CompareAndSwap(swaps[i].old, next) {
			continue
		}
		for j, o := range swaps[:i] {
			c.shares[j].word.Store(o.old)
		}
		return false
	}
	for i := range last {
		c.shares[i].word.Store(swaps[i].next)
	}
	for i := range swaps {
		s := &c.shares[i]
		s.of.count(true)
		if reserve || s.gate.returned {
			c.addPart(l, s.place, s.gate.lease(l.permits, swaps[i].decision, marks[i], reserve, under{}))
		}
	}
	if l.claim != nil {
		l.claim.reserved = reserve
	}
	return true
}
