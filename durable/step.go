package durable

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

// step is a call of several buckets that is carried out as one step: all of them are locked, in the order of their names, so that
// calls never wait for one another in a circle.
type step struct {
	owner *Owner
	call  *Call
	parts []part // by name
	full  int    // a charge for whose key there is no room, -1 if there is none
	ended chan *part
}

// part is what a call does to one bucket.
type part struct {
	at     int // in the charges
	charge *store.Charge
	name   string
	bucket *bucket // nil if there is no room for it
	waiter *waiter // for what has to be durable, nil if nothing has
}

// join has the owner wait for a call before it hands over, and reports whether it goes on.
func (o *Owner) join() bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.ended != 0 {
		return false
	}
	o.calls.Add(1)
	return true
}

// gather finds the buckets of a call and locks them once the records have been read.
func (o *Owner) gather(ctx context.Context, c *Call) (*step, error) {
	s := &step{owner: o, call: c, parts: make([]part, 0, len(c.Charges))}
	for i := range c.Charges {
		charge := &c.Charges[i]
		if !c.resets() {
			s.parts = append(s.parts, part{at: i, charge: charge, name: recordKeyOf(charge)})
			continue
		}
		for a := range limits.Algorithms {
			s.parts = append(s.parts, part{at: i, charge: charge, name: recordKey(charge.Policy, charge.Key, a)})
		}
	}
	s.ended = make(chan *part, len(s.parts))
	slices.SortFunc(s.parts, func(a, b part) int { return strings.Compare(a.name, b.name) })
	if err := s.load(ctx); err != nil {
		s.release()
		return nil, err
	}
	if !s.lock() {
		s.release()
		return nil, errNotOwner
	}
	if !c.takes() { // whatever is undone is undone where it was done
		for i := range s.parts {
			if b := s.parts[i].bucket; b != nil {
				b.kept--
			}
		}
	}
	return s, nil
}

// keep is the bucket of a record, which stays in memory until release, and whether the record has been read. It may be one over.
func (o *Owner) keep(name string, over bool) (b *bucket, known bool, err error) {
	for {
		if b, err = o.bucket(name, over); err != nil {
			return nil, false, err
		}
		b.mu.Lock()
		gone := b.inForce.gone
		if known = b.known; !gone {
			b.kept++
		}
		b.mu.Unlock()
		if !gone { // otherwise it was dropped a moment ago, to make room
			return b, known, nil
		}
	}
}

func (o *Owner) goesOn() bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.ended == 0
}

// load has the buckets kept in memory until release, and waits until the records of all of them have been read.
func (s *step) load(ctx context.Context) error {
	s.full = -1
	asked := 0
	read := make(chan *waiter, len(s.parts))
	for i := range s.parts {
		p := &s.parts[i]
		b, known, err := s.owner.keep(p.name, s.call.resets())
		if p.bucket = b; err != nil {
			if errors.Is(err, errNotOwner) {
				return err
			}
			s.full = p.at
			continue
		}
		if !known {
			asked++
			w := newWaiter(p.charge, 0, time.Now().Add(s.owner.options.WriteTimeout), func(w *waiter) { read <- w })
			w.loads = true
			b.enter(w) //nolint:contextcheck // a record is read for all
		}
	}
	for ; asked > 0; asked-- {
		select {
		case w := <-read:
			switch {
			case w.allowed():
			case !s.owner.goesOn():
				return errNotOwner
			default:
				return w.failure()
			}
		case <-ctx.Done():
			return fmt.Errorf("weir: the records were not read in time: %w", ctx.Err())
		}
	}
	return nil
}

// lock locks all buckets, or none if one of them is not in use any more or was not read.
func (s *step) lock() bool {
	ok := true
	for i := range s.parts {
		if b := s.parts[i].bucket; b != nil {
			b.mu.Lock()
			ok = ok && b.ended == 0 && b.known
		}
	}
	if !ok {
		for i := range s.parts {
			if b := s.parts[i].bucket; b != nil {
				b.mu.Unlock()
			}
		}
	}
	return ok
}

// release lets the buckets be dropped from memory.
func (s *step) release() {
	for i := range s.parts {
		if b := s.parts[i].bucket; b != nil {
			b.mu.Lock()
			b.kept--
			b.mu.Unlock()
		}
	}
	s.leave()
}

// leave has a reset leave no buckets behind that it need not: those of records that do not exist, and those for which there is no
// room.
func (s *step) leave() {
	if !s.call.resets() {
		return
	}
	o := s.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range s.parts {
		if b := s.parts[i].bucket; b != nil && b.none() {
			o.forget(b)
		}
	}
	for i := range s.parts {
		if b := s.parts[i].bucket; b != nil && len(o.buckets) > o.options.MaxKeys {
			o.forget(b)
		}
	}
}

// unlock lets the buckets go and gives the results.
func (s *step) unlock(after *answers) {
	for i := range s.parts {
		if b := s.parts[i].bucket; b != nil {
			b.arm()
			b.mu.Unlock()
		}
	}
	after.give()
}

// waiter is that of a part, for n permits.
func (s *step) waiter(p *part, n int64) *waiter {
	w := newWaiter(p.charge, n, time.Now().Add(s.owner.options.WriteTimeout), func(*waiter) { s.ended <- p })
	w.hold, w.bucket = s.call.Ask.Hold, p.bucket
	p.waiter = w
	return w
}

// wait waits until what the parts have done is durable.
func (s *step) wait(ctx context.Context) (err error) {
	for i := range s.parts {
		if s.parts[i].waiter == nil {
			continue
		}
		select {
		case p := <-s.ended:
			err = errors.Join(err, p.waiter.failure())
		case <-ctx.Done():
			return fmt.Errorf("weir: it is not known whether it was done: %w", ctx.Err())
		}
	}
	return err
}

// takeAll takes the permits of all charges, or none, as one step; those that may wait then wait for one charge after the other.
func (o *Owner) takeAll(ctx context.Context, c *Call) Result {
	if !o.join() {
		return failed(errNotOwner)
	}
	defer o.calls.Done()
	deadline := time.Now().Add(c.Ask.Wait)
	s, err := o.gather(ctx, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return notBegun(ctx, c)
	case err != nil:
		return failed(err)
	}
	defer s.release()
	result, err := s.take(time.Now())
	switch {
	case err != nil:
		return failed(err)
	case result.Reason == weir.ReasonNone:
		result = s.durable(ctx, result)
	case s.mayWait(&result):
		result = s.queue(ctx, deadline)
	}
	for range c.Charges {
		o.counts.count(result.Reason)
	}
	return result
}

// take takes the permits of all charges if they are there, and unlocks the buckets.
func (s *step) take(now time.Time) (result Result, err error) {
	var after answers
	defer func() { s.unlock(&after) }()
	result = Result{Decisions: make([]weir.Decision, len(s.parts))}
	for i := range s.parts {
		p := &s.parts[i]
		d := &result.Decisions[p.at]
		if *d, err = s.offer(p, now, &after); err != nil {
			return Result{}, err
		}
		switch {
		case d.Reason == weir.ReasonNever:
			result.Reason = weir.ReasonNever
		case !d.Allowed && result.Reason == weir.ReasonNone:
			result.Reason = weir.ReasonLimited
		}
	}
	if result.Reason != weir.ReasonNone {
		return result, nil
	}
	if s.call.Ask.Hold != 0 {
		result.Hold.ID = rand.Text()
		for i := range s.parts {
			result.Hold.Expires = max(result.Hold.Expires, s.parts[i].bucket.state.Time()+int64(s.call.Ask.Hold))
		}
	}
	for i := range s.parts {
		p := &s.parts[i]
		w := s.waiter(p, p.charge.N)
		w.id, w.expires = result.Hold.ID, result.Hold.Expires
		p.bucket.take(w, &after)
		result.Decisions[p.at] = w.decision[0]
	}
	return result, nil
}

// offer is what a limit says to its charge.
func (s *step) offer(p *part, now time.Time, after *answers) (weir.Decision, error) {
	b := p.bucket
	if b == nil {
		return s.owner.noRoom(p.charge), nil
	}
	if err := b.ready(now, p.charge.Limit, after); err != nil {
		return weir.Decision{}, err
	}
	d := b.judge(p.charge, b.state, s.call.Ask.Hold != 0)
	if d.Allowed && b.paused(now) { // it is not the limit that refuses
		if s.call.Ask.Wait == 0 {
			return weir.Decision{}, b.failure
		}
		d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonLimited, b.retryAt.Sub(now)
	}
	return d, nil
}

// durable waits until what was taken is durable. If a part of it cannot be, the others are given back.
func (s *step) durable(ctx context.Context, result Result) Result {
	var first *part // that was not allowed
	done := ctx.Done()
	for waiting := len(s.parts); waiting > 0; {
		select {
		case p := <-s.ended:
			if waiting--; !p.waiter.allowed() && first == nil {
				first = p
				s.withdraw()
			}
		case <-done:
			done = nil
			s.withdraw()
		}
	}
	if first == nil {
		return result
	}
	return s.refused(ctx, first)
}

// withdraw ends the parts that are not durable yet.
func (s *step) withdraw() {
	for i := range s.parts {
		s.parts[i].waiter.cancel()
	}
}

// refused is the result of a call one part of which was not allowed, after the others were given back.
func (s *step) refused(ctx context.Context, failure *part) Result {
	for i := range s.parts {
		if p := &s.parts[i]; p.waiter != nil && p.waiter.allowed() {
			p.bucket.revoke(p.waiter)
		}
	}
	d := &failure.waiter.decision[0]
	switch d.Reason { //nolint:exhaustive // the others are of the limit
	case weir.ReasonUnavailable:
		return failed(failure.waiter.err)
	case weir.ReasonCanceled:
		d.Reason = ended(ctx)
	case weir.ReasonClosed:
		return refusedAll(s.call, d.Reason)
	}
	result := refusedAll(s.call, d.Reason)
	if s.lock() {
		var after answers
		now := time.Now()
		for i := range s.parts {
			p := &s.parts[i]
			if d, err := s.offer(p, now, &after); err == nil {
				result.Decisions[p.at] = d
			}
		}
		s.unlock(&after)
	}
	result.Decisions[failure.at] = *d
	return result
}

// mayWait reports whether a call that was refused can wait for what it asks for.
func (s *step) mayWait(result *Result) bool {
	if s.call.Ask.Wait == 0 || result.Reason != weir.ReasonLimited || s.full >= 0 {
		return false
	}
	for i := range s.call.Charges {
		if !result.Decisions[i].Allowed && s.call.Charges[i].Queue == 0 {
			return false
		}
	}
	return true
}

// queue joins one queue after the other, in the order in which all calls do, and holds what it has got meanwhile. Keys for
// which no request can wait come first, so that they refuse at once or not at all.
func (s *step) queue(ctx context.Context, deadline time.Time) Result {
	order := make([]*part, len(s.parts))
	for i := range s.parts {
		order[i] = &s.parts[i]
	}
	slices.SortStableFunc(order, func(a, b *part) int { return waits(a.charge) - waits(b.charge) })
	result := Result{Decisions: make([]weir.Decision, len(s.parts))}
	if s.call.Ask.Hold != 0 {
		result.Hold.ID = rand.Text()
	}
	for _, p := range order {
		left := time.Until(deadline)
		w := s.waiter(p, p.charge.N)
		w.id = result.Hold.ID
		if w.hold > 0 { // at least for as long as it is asked for, from when all permits are there
			w.hold += max(left, 0)
		}
		if p.charge.Queue > 0 {
			w.waits, w.at = true, deadline
		}
		p.bucket.enter(w) //nolint:contextcheck // a record is read for all
		select {
		case <-s.ended:
		case <-ctx.Done():
			w.cancel()
			<-s.ended
		}
		if !w.allowed() {
			return s.refused(ctx, p)
		}
		result.Decisions[p.at] = w.decision[0]
	}
	s.retime(&result.Hold)
	return result
}

func waits(c *store.Charge) int {
	if c.Queue > 0 {
		return 1
	}
	return 0
}

// retime has what was reserved bit by bit end at one time. Nothing waits until that is durable: what a crash leaves ends later.
func (s *step) retime(h *store.Hold) {
	if h.ID == "" {
		return
	}
	now := time.Now()
	for i := range s.parts { // their time may be of a clock that was ahead
		b := s.parts[i].bucket
		b.mu.Lock()
		at := max(s.owner.unix(now, b.state.Limit().Algorithm()), b.state.Time())
		h.Expires = max(h.Expires, at+int64(s.call.Ask.Hold))
		b.mu.Unlock()
	}
	for i := range s.parts {
		p := &s.parts[i]
		p.bucket.mu.Lock()
		until := p.bucket.until(h.Expires, s.call.Ask.Hold)
		p.bucket.state.Retime(h.ID, p.waiter.expires, until)
		if p.bucket.ended == 0 {
			p.bucket.ask()
			p.bucket.arm()
		}
		p.bucket.mu.Unlock()
	}
}
