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
	"github.com/weirhq/weir/store"
)

// step is a call of several buckets that is carried out as one step: all of them are locked, in the order of their names, so that
// calls never wait for one another in a circle.
type step struct {
	owner *Owner
	call  *Call
	parts []part // by name
	full  int    // a charge for whose key there is no room, -1 if there is none
	ended chan ending
}

// part is what a call does to one bucket.
type part struct {
	at     int // in the charges
	charge *store.Charge
	name   string
	bucket *bucket // nil if there is no room for it
	waiter *waiter // for what has to be durable, nil if nothing has
}

// ending is how the waiter of a part has ended.
type ending struct {
	part   *part
	answer Answer
}

// join has the owner wait for a call before it hands over, and reports whether it goes on.
func (o *Owner) join() bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.outcome != 0 {
		return false
	}
	o.calls.Add(1)
	return true
}

// gather finds the buckets of a call and locks them, once their records have been read.
func (o *Owner) gather(ctx context.Context, c *Call) (*step, error) {
	s := &step{owner: o, call: c, parts: make([]part, len(c.Charges)), ended: make(chan ending, len(c.Charges))}
	for i := range c.Charges {
		charge := &c.Charges[i]
		s.parts[i] = part{at: i, charge: charge, name: recordKey(charge.Policy, charge.Key)}
	}
	slices.SortFunc(s.parts, func(a, b part) int { return strings.Compare(a.name, b.name) })
	if err := s.load(ctx); err != nil {
		s.release()
		return nil, err
	}
	if !s.lock() {
		s.release()
		return nil, errNotOwner
	}
	if c.Kind != CallTake { // whatever is undone is undone where it was done
		for i := range s.parts {
			if b := s.parts[i].bucket; b != nil {
				b.kept--
			}
		}
	}
	return s, nil
}

// keep is the bucket of a key, which stays in memory until release, and whether its record has been read.
func (o *Owner) keep(policy, key string) (b *bucket, known bool, why Outcome) {
	for {
		if b, why = o.bucket(policy, key); b == nil {
			return nil, false, why
		}
		b.mu.Lock()
		gone := b.inForce.gone
		if known = b.known; !gone {
			b.kept++
		}
		b.mu.Unlock()
		if !gone { // otherwise it was dropped a moment ago, to make room
			return b, known, 0
		}
	}
}

func (o *Owner) goesOn() bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.outcome == 0
}

// load has the buckets kept in memory until release, and waits until the records of all of them have been read.
func (s *step) load(ctx context.Context) error {
	s.full = -1
	asked := 0
	read := make(chan Answer, len(s.parts))
	for i := range s.parts {
		p := &s.parts[i]
		b, known, why := s.owner.keep(p.charge.Policy, p.charge.Key)
		if p.bucket = b; b == nil {
			if why != Refused {
				return errNotOwner
			}
			s.full = p.at
			continue
		}
		if !known {
			asked++
			b.enter(&waiter{ //nolint:contextcheck // a record is read for everybody
				request: Request{Policy: p.charge.Policy, Key: p.charge.Key}, loads: true, place: -1,
				at: time.Now().Add(s.owner.options.WriteTimeout), answer: func(a Answer) { read <- a },
			})
		}
	}
	for ; asked > 0; asked-- {
		select {
		case a := <-read:
			if a.Outcome == Unavailable && a.Err != nil {
				return a.Err
			}
			if a.Outcome != Granted && !s.owner.goesOn() {
				return errNotOwner
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
}

// unlock lets the buckets go and gives the answers.
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
	p.waiter = &waiter{
		request: Request{Policy: p.charge.Policy, Key: p.charge.Key, Limit: p.charge.Limit, N: n, Reserve: s.call.Expiry},
		place:   -1, at: time.Now().Add(s.owner.options.WriteTimeout),
		answer: func(a Answer) { s.ended <- ending{p, a} },
	}
	return p.waiter
}

// wait waits until what the parts have done is durable.
func (s *step) wait(ctx context.Context) (err error) {
	for i := range s.parts {
		if s.parts[i].waiter == nil {
			continue
		}
		select {
		case e := <-s.ended:
			if e.answer.Outcome != Granted {
				err = errors.Join(err, e.answer.reason())
			}
		case <-ctx.Done():
			return fmt.Errorf("weir: it is not known whether it was done: %w", ctx.Err())
		}
	}
	return err
}

// reason is why a call that is not for permits was not granted.
func (a Answer) reason() error {
	switch {
	case a.Err != nil:
		return a.Err
	case a.Decision.Reason == weir.ReasonTableFull:
		return errFull
	case a.Outcome == Stopping || a.Outcome == Unavailable:
		return errOwnerGone
	}
	return fmt.Errorf("%w: it is not known whether it was done: %v", store.ErrUnavailable, a.Outcome)
}

// take takes the permits of all charges, or none, as one step; those who may wait then wait for one charge after the other.
func (o *Owner) take(ctx context.Context, c *Call) Result {
	if ctx.Err() != nil {
		return notBegun(ctx, c)
	}
	if !o.join() {
		return failed(errNotOwner)
	}
	defer o.calls.Done()
	deadline := time.Now().Add(c.Wait)
	s, err := o.gather(ctx, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return notBegun(ctx, c)
	case err != nil:
		return failed(err)
	}
	defer s.release()
	result, err := s.takeAll(time.Now())
	switch {
	case err != nil:
		return failed(err)
	case result.Outcome == Granted:
		result = s.durable(ctx, result)
	case s.mayWait(&result):
		result = s.queue(ctx, deadline)
	}
	for range c.Charges {
		o.counts.count(result.Outcome)
	}
	return result
}

// notBegun is the result of a call whose caller has gone.
func notBegun(ctx context.Context, c *Call) Result {
	return refusedAll(c, ended(ctx, &Request{}).Outcome)
}

// refusedAll is a result that says the same of all charges.
func refusedAll(c *Call, why Outcome) Result {
	result := Result{Outcome: why, Decisions: make([]weir.Decision, len(c.Charges))}
	for i := range result.Decisions {
		result.Decisions[i] = weir.Decision{Reason: reasons[why], Policy: c.Charges[i].Policy}
	}
	return result
}

// takeAll takes the permits of all charges if they are there, and unlocks the buckets.
func (s *step) takeAll(now time.Time) (result Result, err error) {
	var after answers
	defer func() { s.unlock(&after) }()
	result = Result{Outcome: Granted, Decisions: make([]weir.Decision, len(s.parts))}
	for i := range s.parts {
		p := &s.parts[i]
		d := &result.Decisions[p.at]
		if *d, err = s.offer(p, now, &after); err != nil {
			return Result{}, err
		}
		switch {
		case d.Reason == weir.ReasonNever:
			result.Outcome = Never
		case !d.Allowed && result.Outcome == Granted:
			result.Outcome = Refused
		}
	}
	if result.Outcome != Granted {
		return result, nil
	}
	if s.call.Expiry != 0 {
		result.ID = rand.Text()
		for i := range s.parts {
			result.Expires = max(result.Expires, s.parts[i].bucket.state.Time()+int64(s.call.Expiry))
		}
	}
	for i := range s.parts {
		p := &s.parts[i]
		w := s.waiter(p, p.charge.N)
		w.id, w.expires = result.ID, result.Expires
		p.bucket.take(w, &after)
		result.Decisions[p.at] = w.final.Decision
	}
	return result, nil
}

// offer is what a limit says to its charge.
func (s *step) offer(p *part, now time.Time, after *answers) (weir.Decision, error) {
	b := p.bucket
	if b == nil {
		return s.noRoom(p.charge), nil
	}
	r := Request{Policy: p.charge.Policy, Key: p.charge.Key, Limit: p.charge.Limit}
	if err := b.ready(now, &r, after); err != nil {
		return weir.Decision{}, err
	}
	d := b.judge(p.charge, b.state, s.call.Expiry != 0)
	if d.Allowed && b.paused(now) { // it is not the limit that refuses
		if s.call.Wait == 0 {
			return weir.Decision{}, b.failure
		}
		d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonLimited, b.retryAt.Sub(now)
	}
	return d, nil
}

// noRoom is the decision about a charge whose key is not kept, as there is no room for it.
func (s *step) noRoom(c *store.Charge) weir.Decision {
	d := weir.Decision{Reason: weir.ReasonTableFull, RetryAfter: time.Second, Policy: c.Policy}
	if r, err := store.NewRecord(c.Limit, s.owner.unix(time.Now(), c.Limit.Algorithm())); err == nil {
		d.Limit, d.Remaining = r.Most(), r.Most()
	}
	return d
}

// durable waits until what was taken is durable. If a part of it cannot be, the others are given back.
func (s *step) durable(ctx context.Context, result Result) Result {
	var failure *ending
	done := ctx.Done()
	for waiting := len(s.parts); waiting > 0; {
		select {
		case e := <-s.ended:
			waiting--
			if e.answer.Outcome == Granted {
				continue
			}
			e.part.waiter = nil
			if failure == nil {
				failure = &e
				s.withdraw()
			}
		case <-done:
			done = nil
			s.withdraw()
		}
	}
	if failure == nil {
		return result
	}
	s.revoke()
	return s.refused(ctx, failure)
}

// withdraw ends the parts that are not durable yet.
func (s *step) withdraw() {
	for i := range s.parts {
		if p := &s.parts[i]; p.waiter != nil {
			p.bucket.cancel(p.waiter)
		}
	}
}

// revoke gives back what the parts were granted.
func (s *step) revoke() {
	for i := range s.parts {
		if p := &s.parts[i]; p.waiter != nil {
			p.bucket.revoke(p.waiter)
			p.waiter = nil
		}
	}
}

// refused is the result of a call one part of which was not granted, after the others were given back.
func (s *step) refused(ctx context.Context, e *ending) Result {
	why := e.answer.Outcome
	switch {
	case why == Unavailable:
		if e.answer.Err == nil {
			return failed(errOwnerGone)
		}
		return failed(e.answer.Err)
	case why == Canceled:
		why = ended(ctx, &Request{}).Outcome
		e.answer.Decision.Reason = reasons[why]
	case why == Stopping && errors.Is(e.answer.Err, errNotOwner):
		return failed(errNotOwner)
	}
	result := refusedAll(s.call, why)
	if why != Stopping && s.lock() {
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
	if e.part != nil {
		result.Decisions[e.part.at] = e.answer.Decision
	}
	return result
}
