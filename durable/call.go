package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// CallKind is what a call does.
type CallKind uint8

// What a [Store] and a [Node] ask of the owner. Each is described by the method that it is named after.
const (
	CallTake CallKind = 1 + iota // also Reserve and Acquire
	CallPeek
	CallRefund
	CallCommit
	CallCancel
	CallDebit
	CallLend
	CallReturn
	CallReset
	CallInspect
	CallAdjust
	CallAdjustments

	callKinds
)

// Call is what a [Store] or a [Node] asks of the owner, for one or more keys. Which fields count depends on its kind.
type Call struct {
	Kind CallKind
	// Charges are the keys, at most [store.MostCharges] of them, and exactly one for CallLend, CallReturn, CallReset,
	// CallInspect, CallAdjust and CallAdjustments.
	Charges []store.Charge
	// Wait and Expiry are those of CallTake: see [store.Ask].
	Wait, Expiry time.Duration
	// ID and Expires say which reservation CallCommit and CallCancel end, and Actual with what.
	ID      string
	Expires int64
	Actual  []int64
	// Number is the least of CallLend, what is unspent for CallReturn, and the most of CallAdjustments.
	Number int64
	// Taken is when the loan of CallReturn was taken.
	Taken int64
	// Adjustment is that of CallAdjust. Its names are those of the charge.
	Adjustment Adjustment
}

// Result is the result of a [Call].
type Result struct {
	// Outcome is that of CallTake, otherwise Granted or Unavailable.
	Outcome Outcome
	// Err is why it was Unavailable, otherwise nil.
	Err error
	// Decisions are those about the charges, if there are any: of CallTake, CallPeek and CallDebit, and one of CallLend.
	Decisions []weir.Decision
	// ID and Expires are those of what CallTake has reserved.
	ID      string
	Expires int64
	// Lent is how many permits were lent, and Taken when.
	Lent, Taken int64
	// State is that of CallInspect.
	State store.State
	// Adjustments are those of CallAdjustments, or the one that CallAdjust made.
	Adjustments []Adjustment
}

// check returns what is wrong with a call, or nil.
func (c *Call) check() error {
	if c.Kind == 0 || c.Kind >= callKinds {
		return &weir.OptionError{Option: "Call.Kind", Value: fmt.Sprint(c.Kind), Accepted: "one of the constants"}
	}
	single := c.Kind == CallLend || c.Kind == CallReturn || c.Kind >= CallReset
	if single && len(c.Charges) != 1 {
		return &weir.OptionError{Option: "Call.Charges", Value: fmt.Sprint(len(c.Charges)), Accepted: "one"}
	}
	switch c.Kind {
	case CallTake:
		return c.checkTake()
	case CallPeek, CallRefund, CallInspect, CallAdjust:
		return store.Check(store.Ask{Mode: store.ModeRefund}, c.Charges, nil) //nolint:wrapcheck // it names what is wrong
	case CallCommit, CallCancel:
		actual := c.Actual
		if c.Kind == CallCancel {
			actual = nil
		} else if actual == nil {
			actual = []int64{}
		}
		return store.CheckSettle(store.Hold{ID: c.ID, Charges: c.Charges}, actual) //nolint:wrapcheck // the same
	case CallDebit:
		ask := store.Ask{Mode: store.ModeDebit}
		return store.Check(ask, c.Charges, make([]weir.Decision, len(c.Charges))) //nolint:wrapcheck // the same
	case CallLend:
		ask := store.Ask{Mode: store.ModeLend, Least: c.Number}
		return store.Check(ask, c.Charges, make([]weir.Decision, 1)) //nolint:wrapcheck // the same
	case CallReturn:
		spent := c.Charges[0].N - c.Number
		return store.CheckSettle(store.Hold{Charges: c.Charges}, []int64{spent}) //nolint:wrapcheck // the same
	default: // of which the limit does not count
		return store.Check(store.Ask{Mode: store.ModeReset}, c.Charges, nil) //nolint:wrapcheck // the same
	}
}

func (c *Call) checkTake() error {
	ask := store.Ask{Wait: c.Wait, Hold: c.Expiry}
	return store.CheckQueued(ask, c.Charges, make([]weir.Decision, len(c.Charges))) //nolint:wrapcheck // the same
}

// oneCall is a call about one key.
func oneCall(k CallKind, policy, key string, l weir.Limit) *Call {
	return &Call{Kind: k, Charges: []store.Charge{{Policy: policy, Key: key, Limit: l}}}
}

func failed(err error) Result { return Result{Outcome: Unavailable, Err: err} }

// Call carries a call out, all of its charges or none, and waits until what it has changed is durable. What [store.Return]
// gives back may be lost in a crash, and so may what a failed call gives back of its other charges: both only refuse more.
func (o *Owner) Call(ctx context.Context, c *Call) Result {
	mustContext(ctx)
	if err := c.check(); err != nil {
		return failed(err)
	}
	switch c.Kind {
	case CallTake:
		return o.take(ctx, c)
	case CallAdjust:
		a := c.Adjustment
		a.Policy, a.Key = c.Charges[0].Policy, c.Charges[0].Key
		a, err := o.Adjust(ctx, c.Charges[0].Limit, a)
		if err != nil {
			return failed(err)
		}
		return Result{Outcome: Granted, Adjustments: []Adjustment{a}}
	case CallAdjustments:
		all, err := o.Adjustments(ctx, c.Charges[0].Policy, c.Charges[0].Key, int(c.Number))
		if err != nil {
			return failed(err)
		}
		return Result{Outcome: Granted, Adjustments: all}
	default:
		return o.change(ctx, c)
	}
}

// change carries out a call that asks for no permits, other than to borrow them.
func (o *Owner) change(ctx context.Context, c *Call) Result {
	if !o.join() {
		return failed(errNotOwner)
	}
	defer o.calls.Done()
	s, err := o.gather(ctx, c)
	if err != nil {
		return failed(err)
	}
	if s.full >= 0 {
		return s.changeNone()
	}
	var after answers
	now := time.Now()
	result := Result{Outcome: Granted}
	switch c.Kind {
	case CallPeek, CallInspect:
		err = s.look(now, &result, &after)
	case CallCommit, CallCancel:
		err = s.settle(now, &after)
	case CallLend:
		err = s.lend(now, &result, &after)
	default:
		err = s.charge(now, &result, &after)
	}
	s.unlock(&after)
	if err == nil {
		err = s.wait(ctx)
	}
	if err != nil {
		return failed(err)
	}
	return result
}

// changeNone serves a call about a key that is not kept, as there is no room for it, and unlocks the others.
func (s *step) changeNone() Result {
	var after answers
	s.unlock(&after)
	switch s.call.Kind {
	case CallLend, CallDebit, CallPeek:
		result := Result{Outcome: Granted}
		for i := range s.call.Charges {
			result.Decisions = append(result.Decisions, s.noRoom(&s.call.Charges[i]))
		}
		return result
	default:
		return failed(errFull)
	}
}

var errFull = fmt.Errorf("%w: the owner of the limits keeps as many keys as it may", store.ErrUnavailable)

// look returns what a request would be, and changes nothing.
func (s *step) look(now time.Time, result *Result, after *answers) error {
	for i := range s.parts {
		p := &s.parts[i]
		b, charge := p.bucket, p.charge
		if b.state == nil {
			fresh, err := store.NewRecord(charge.Limit, s.owner.unix(now, charge.Limit.Algorithm()))
			if err != nil {
				return err //nolint:wrapcheck // it names what is wrong
			}
			s.answer(p, result, fresh, b)
			continue
		}
		b.bring(now)
		b.expire(now, after)
		b.serve(now, after)
		as, err := b.state.As(charge.Limit)
		if err != nil {
			return err //nolint:wrapcheck // it names what is wrong
		}
		s.answer(p, result, as, b)
	}
	return nil
}

func (s *step) answer(p *part, result *Result, state *store.Record, b *bucket) {
	if s.call.Kind == CallInspect {
		result.State = state.State(*p.charge)
		return
	}
	s.decide(result)[p.at] = b.judge(p.charge, state, false)
}

// decide is the decisions of a result, made if there are none.
func (s *step) decide(result *Result) []weir.Decision {
	if result.Decisions == nil {
		result.Decisions = make([]weir.Decision, len(s.parts))
	}
	return result.Decisions
}

// judge is what a limit says to a charge, without taking anything. The state is that of the bucket, as it is under the limit of
// the charge.
func (b *bucket) judge(c *store.Charge, state *store.Record, reserve bool) weir.Decision {
	d := store.DecisionOf(*c, state.Most(), state.Peek(c.N))
	switch {
	case d.Reason == weir.ReasonNever:
	case b.queue.Len() > 0: // whoever comes now is served after those who wait
		d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonLimited, b.untilTurn(c.N)
	case d.Allowed && reserve && state.Full():
		d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonTableFull, state.UntilExpiry()
	}
	return d
}

// settle ends a reservation at all of its keys.
func (s *step) settle(now time.Time, after *answers) error {
	found := len(s.parts) == 0 || s.call.ID == ""
	for i := range s.parts {
		p := &s.parts[i]
		ending := settlement{reservation: Reservation{ID: s.call.ID, Expires: s.call.Expires}, cancel: s.call.Kind == CallCancel}
		if !ending.cancel {
			ending.actual = s.call.Actual[p.at]
		}
		if p.bucket.settled(&ending) {
			found = true
			s.written(p, after)
			p.bucket.serve(now, after)
		}
	}
	if !found {
		return ErrNotReserved
	}
	return nil
}

// written has a part, which was carried out in memory, wait until it is durable. It stays done even if that fails.
func (s *step) written(p *part, after *answers) {
	s.waiter(p, 0)
	p.waiter.must, p.waiter.stays = true, true
	p.bucket.pass(p.waiter, Answer{Outcome: Granted}, after)
}

// lend takes what there is.
func (s *step) lend(now time.Time, result *Result, after *answers) error {
	p := &s.parts[0]
	b, least := p.bucket, s.call.Number
	r := Request{Policy: p.charge.Policy, Key: p.charge.Key, Limit: p.charge.Limit}
	if err := b.ready(now, &r, after); err != nil {
		return err
	}
	if b.paused(now) {
		return b.failure
	}
	asked := *p.charge
	asked.N = least
	d := b.judge(&asked, b.state, false)
	if d.Allowed {
		s.waiter(p, min(p.charge.N, d.Remaining))
		result.Lent, result.Taken = p.waiter.request.N, b.state.Time()
		b.take(p.waiter, after)
		d = p.waiter.final.Decision
	}
	result.Decisions = []weir.Decision{d}
	return nil
}

// charge gives permits back, or takes them whether they are there or not.
func (s *step) charge(now time.Time, result *Result, after *answers) error {
	for i := range s.parts {
		p := &s.parts[i]
		b, n := p.bucket, p.charge.N
		kind := s.call.Kind
		if b.state == nil && kind != CallDebit { // it has all its permits
			continue
		}
		r := Request{Policy: p.charge.Policy, Key: p.charge.Key, Limit: p.charge.Limit}
		if kind == CallReset || kind == CallReturn {
			r.Limit = b.state.Limit()
		}
		if err := b.ready(now, &r, after); err != nil {
			return err
		}
		switch kind {
		case CallRefund:
			b.state.Refund(n)
			b.uncover()
			s.written(p, after)
		case CallReturn: // nobody waits for that: if it is lost, that is on the side of the limit
			if err := b.state.TakeBack(p.charge.Limit, s.call.Number, s.call.Taken); err != nil {
				return err //nolint:wrapcheck // it names what is wrong
			}
			b.ask()
		case CallReset:
			b.state.Reset()
			b.generation++
			b.uncover()
			s.written(p, after)
		default:
			s.debit(p, after)
			probe := b.state.Peek(0)
			s.decide(result)[p.at] = store.DecisionOf(store.Charge{Policy: p.charge.Policy}, b.state.Most(), probe)
		}
		b.serve(now, after)
	}
	return nil
}

// debit takes permits: as a request does if they are there, which needs no write then where the record is ahead.
func (s *step) debit(p *part, after *answers) {
	b, n := p.bucket, p.charge.N
	switch {
	case n == 0:
	case b.state.Peek(n).Allowed:
		s.waiter(p, n)
		p.waiter.stays = true
		b.state.Debit(n)
		b.pass(p.waiter, Answer{Outcome: Granted}, after)
	default:
		b.state.Debit(n)
		s.written(p, after)
	}
}

// ready brings a bucket, whose state need not exist, to the limit of a request and serves those who came before.
func (b *bucket) ready(now time.Time, r *Request, after *answers) error {
	if err := b.exist(r); err != nil {
		return err
	}
	return b.turn(now, r, after)
}
