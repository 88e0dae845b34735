package store

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
)

const (
	// leastLeased is the smallest limit that is leased: a part of a smaller one is too much for a node to hold.
	leastLeased = 64
	// leastSpan is the shortest time for which a block is worth its round trip.
	leastSpan = 5 * time.Millisecond
	// blockShare is which part of a limit a node holds unspent at most.
	blockShare = 16
	// driftShare is the part of each deadline that is not used, so that a clock of a store which runs faster or slower than
	// that of the process by less does no harm.
	driftShare = 1024
)

// LeasedBound is what a [Leased] makes of a limit. Its zero value is that of a limit that is not valid.
type LeasedBound struct {
	// Limit is the max number of permits that the limit allows at once.
	Limit int64
	// Lowered is the max number of permits at once where the limit is leased. It is less than Limit only for a token bucket.
	Lowered int64
	// Block is the max number of unspent permits in one instance; 0 if the limit is not leased.
	Block int64
	// Term is for how long, at most, an instance keeps them.
	Term time.Duration
	// Leased reports whether the limit is leased. If not, the store is asked for every decision.
	Leased bool
}

// Unused is how many permits may stay unused, at most, while a request is refused that needs them: Limit - Lowered + Block x
// instances. It is 0 if the limit is not leased.
func (b LeasedBound) Unused(instances int) int64 {
	return b.Limit - b.Lowered + b.Block*int64(instances)
}

// String is the bound in words.
func (b LeasedBound) String() string {
	if !b.Leased {
		return "leased: too small, or too fast, to be taken in blocks, so the store is asked for every decision: exact"
	}
	unused := fmt.Sprintf("%d x instances", b.Block)
	if b.Limit > b.Lowered {
		unused = fmt.Sprintf("%d + %s", b.Limit-b.Lowered, unused)
	}
	const text = "leased: never above the limit; up to %s permits may stay unused, in blocks held for up to %v"
	return fmt.Sprintf(text, unused, b.Term)
}

// Bound is what a [Leased] of these options makes of a limit. It is the zero LeasedBound if the limit, or Term, is not valid.
func (o LeasedOptions) Bound(l weir.Limit) LeasedBound {
	o, err := o.filled()
	if err != nil {
		return LeasedBound{}
	}
	t, err := termsOf(l)
	if err != nil {
		return LeasedBound{}
	}
	return t.leased(o.Term).bound
}

// leasePlan is how a limit is leased.
type leasePlan struct {
	terms   *terms
	term    time.Duration // of the Leased
	next    *leasePlan    // for another term
	lowered weir.Limit    // as the inner store is asked
	bound   LeasedBound
	most    int64 // permits that can be taken at once
	span    int64 // how long permits may be held, at most
	longest int64 // how long a refusal is believed, at most
	segment int64 // segments of a window, if it has any
	steady  bool  // permits come back one by one, at the rate of the limit or more slowly
	drips   bool  // and each in less than a pause
}

// leased is how a limit is leased for a term.
func (t *terms) leased(term time.Duration) *leasePlan {
	for {
		first := t.leases.Load()
		for p := first; p != nil; p = p.next {
			if p.term == term {
				return p
			}
		}
		p := t.newLeasePlan(term)
		p.next = first
		if t.leases.CompareAndSwap(first, p) {
			return p
		}
	}
}

// newLeasePlan says how a limit is leased for a term.
func (t *terms) newLeasePlan(term time.Duration) *leasePlan {
	p := &leasePlan{terms: t, term: term, lowered: t.limit, most: t.most, longest: int64(term)}
	p.bound = LeasedBound{Limit: t.most, Lowered: t.most}
	span, window := int64(term), int64(t.limit.Rate().Period)
	switch t.limit.Algorithm() {
	case weir.AlgorithmConcurrency:
		return p
	case weir.AlgorithmTokenBucket: // the time in which a quarter of the bucket is filled
		span = min(span, muldiv(t.most, window, 4*t.limit.Rate().Permits))
	case weir.AlgorithmSlidingWindow:
		p.segment = int64(t.limit.Segments())
		span = min(span, window/p.segment)
	case weir.AlgorithmCalendarWindow: // a minute or more
	default:
		p.segment = 1
		span = min(span, window)
	}
	if t.most < leastLeased || span < int64(leastSpan) {
		return p
	}
	if t.limit.Algorithm() == weir.AlgorithmTokenBucket {
		p.most -= muldiv(t.limit.Rate().Permits, span, window) + 1
		p.lowered = limits.WithPermits(p.lowered, p.most)
	}
	p.span = span
	p.steady = t.limit.Algorithm() == weir.AlgorithmTokenBucket || t.limit.Algorithm() == weir.AlgorithmSlidingCounter
	p.drips = t.limit.Algorithm() == weir.AlgorithmTokenBucket && int64(limits.Interval(t.limit.Rate())) <= p.pause()
	p.bound.Lowered, p.bound.Leased, p.bound.Term = p.most, true, time.Duration(span)
	p.bound.Block = max(1, p.most/blockShare)
	return p
}

// muldiv is a x b / c rounded down, for a, b >= 0 and c > 0, or the largest int64 if it is no less.
func muldiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return never
	}
	quo, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(quo, never))
}

// pause is the shortest time for which a refusal is believed: what comes back meanwhile is asked for at once then.
func (p *leasePlan) pause() int64 { return p.span / 64 }

// demandSpan is the time over which demand is counted: a block is what was spent in it.
func (p *leasePlan) demandSpan() int64 { return p.span / 2 }

// spendable is for how long permits that were taken at a time of the store may be spent after they were asked for.
func (p *leasePlan) spendable(taken int64) int64 {
	span := p.span
	switch {
	case p.lowered.Algorithm() == weir.AlgorithmCalendarWindow:
		span = min(span, int64(p.terms.first(taken, 1).ResetAfter)) // until the window ends
	case p.segment > 0:
		span = min(span, untilSegmentEnds(taken, int64(p.lowered.Rate().Period), p.segment))
	}
	return span - span/driftShare
}

// untilSegmentEnds is how long it is from t to the end of its segment: of a window that is cut into so many, the first of which
// begins at 0.
func untilSegmentEnds(t, window, segments int64) int64 {
	in := t % window
	if in < 0 {
		in += window
	}
	next := muldiv(in, segments, window) + 1
	end := muldiv(next, window, segments)
	if muldiv(end, segments, window) < next { // it was rounded down
		end++
	}
	return end - in
}

// plan is how a limit is leased here.
func (l *Leased) plan(limit weir.Limit) (*leasePlan, error) {
	t, err := termsOf(limit)
	if err != nil {
		return nil, err
	}
	return t.leased(l.term), nil
}
