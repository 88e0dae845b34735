package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

var _ store.Home = (*Node)(nil)

// caller carries a call out: an [Owner], or a [Node] that asks one.
type caller interface {
	call(ctx context.Context, c *Call) Result
}

// do is Do of a [store.Home].
func do(
	ctx context.Context, to caller, ask store.Ask, charges []store.Charge, decisions []weir.Decision,
) (store.Hold, error) {
	c := &Call{Verb: VerbDo, Ask: ask, Charges: charges}
	if err := c.check(decisions); err != nil {
		return store.Hold{}, err
	}
	waits := ask.Wait > 0 && slices.ContainsFunc(charges, func(c store.Charge) bool { return c.Queue > 0 })
	if !waits {
		c.Ask.Wait = 0
	}
	var r Result
	if ctx.Err() != nil {
		r = notBegun(ctx, c)
	} else {
		r = to.call(ctx, c)
	}
	switch {
	case r.Err != nil:
		return store.Hold{}, storeError(r.Err)
	case ctx.Err() != nil && (r.Reason == weir.ReasonCanceled || r.Reason == weir.ReasonDeadline):
		if ask.Wait == 0 {
			return store.Hold{}, notDone(ctx)
		}
		r = tooLate(ctx, to, c)
	case c.takes() && !waits && (r.Reason == weir.ReasonClosed || r.Reason == weir.ReasonDeadline):
		return store.Hold{}, errOwnerGone
	}
	copy(decisions, r.Decisions)
	copy(ask.States, r.States)
	return held(r.Hold, r.Lent, charges), nil
}

// held is a hold with its charges, which keeps nothing of the caller's.
func held(h store.Hold, lent int64, charges []store.Charge) store.Hold {
	if h.ID == "" && lent == 0 {
		return store.Hold{}
	}
	h.Charges = slices.Clone(charges)
	for i := range h.Charges {
		c := &h.Charges[i]
		c.Policy, c.Key = strings.Clone(c.Policy), strings.Clone(c.Key)
		if lent > 0 {
			c.N = lent
		}
	}
	return h
}

// storeError is an error that reports whether the store is unavailable.
func storeError(err error) error {
	if _, misuse := errors.AsType[*weir.OptionError](err); misuse {
		return err
	}
	for _, known := range []error{
		store.ErrNotReserved, store.ErrUnavailable, store.ErrClosed, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// peekTime is how long the owner may take to return what is left to a request whose time was up.
const peekTime = 100 * time.Millisecond

// notDone is the error of a call that was not begun, or that has taken nothing, as its context has ended.
func notDone(ctx context.Context) error {
	return fmt.Errorf("weir: the owner of the limits has done nothing: %w", ctx.Err())
}

// tooLate is the result of a request that would wait for permits, but whose context has ended. If its deadline has passed, it has
// when to come back.
func tooLate(ctx context.Context, to caller, c *Call) Result {
	none := notBegun(ctx, c)
	if none.Reason != weir.ReasonDeadline {
		return none
	}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), peekTime)
	defer cancel()
	r := to.call(short, &Call{Verb: VerbDo, Ask: store.Ask{Mode: store.ModePeek}, Charges: c.Charges})
	if r.Err != nil {
		return none
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if d.Reason == weir.ReasonNone || d.Reason == weir.ReasonLimited {
			d.Reason = weir.ReasonDeadline
		}
		d.Allowed, d.RetryAfter = false, max(d.RetryAfter, 1) // permits that are there now came a moment too late
	}
	return r
}

// settle is Settle of a [store.Home].
func settle(ctx context.Context, to caller, h store.Hold, actual []int64) error {
	mustContext(ctx)
	if err := store.CheckSettle(h, actual); err != nil || h.ID == "" && len(h.Charges) == 0 {
		return err //nolint:wrapcheck // it names what is wrong
	}
	c := &Call{Verb: VerbSettle, Hold: h, Charges: h.Charges, Actual: actual}
	if ctx.Err() != nil {
		return notDone(ctx)
	}
	if r := to.call(ctx, c); r.Err != nil {
		return storeError(r.Err)
	}
	return nil
}

// adjust is [Owner.Adjust].
func adjust(ctx context.Context, to caller, l weir.Limit, a Adjustment) (Adjustment, error) {
	mustContext(ctx)
	r := to.call(ctx, &Call{
		Verb: VerbAdjust, Charges: []store.Charge{{Policy: a.Policy, Key: a.Key, Limit: l}}, Adjustment: &a,
	})
	if r.Err != nil {
		return a, r.Err
	}
	return r.Adjustments[0], nil
}

// listAdjustments is [Owner.Adjustments].
func listAdjustments(ctx context.Context, to caller, policy, key string, most int) ([]Adjustment, error) {
	mustContext(ctx)
	r := to.call(ctx, &Call{Verb: VerbAdjustments, Charges: []store.Charge{{Policy: policy, Key: key}}, Most: most})
	return r.Adjustments, r.Err
}
