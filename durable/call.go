package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

const (
	// DefaultQueueLimit is how many permits can be waited for where a caller does not say.
	DefaultQueueLimit = 10_000
	// DefaultTimeout is how long a caller waits whose context has no deadline.
	DefaultTimeout = 30 * time.Second
)

// Verb is which method of a [Node] a [Call] is.
type Verb uint8

// The verbs are named after the methods.
const (
	VerbDo Verb = 1 + iota
	VerbSettle
	VerbAdjust
	VerbAdjustments
)

// Call is what a [Node] asks of the owner: a call of a [store.Home], or of an operator. Which fields count depends on its verb.
type Call struct {
	Verb Verb
	// Ask is that of VerbDo.
	Ask store.Ask
	// Charges are those of VerbDo, or of the hold of VerbSettle. VerbAdjust and VerbAdjustments have one, for its names and, of
	// VerbAdjust, its limit.
	Charges []store.Charge
	// Hold is what VerbSettle ends, with its charges left out, and Actual with what.
	Hold   store.Hold
	Actual []int64
	// Adjustment is that of VerbAdjust. Its names are those of the charge.
	Adjustment *Adjustment
	// Most is how many adjustments VerbAdjustments returns at most.
	Most int
}

// Result is the result of a [Call].
type Result struct {
	// Reason is why the call was not carried out: it is ReasonNone if it was, and ReasonUnavailable if there is an error.
	Reason weir.Reason
	Err    error
	// Decisions are those of VerbDo about the charges, unless its mode makes none.
	Decisions []weir.Decision
	// States are those of ModePeek, if they were asked for.
	States []store.State
	// Hold is what was taken, with its charges left out, and Lent how many permits ModeLend has lent.
	Hold store.Hold
	Lent int64
	// Adjustments are those of VerbAdjustments, or the one that VerbAdjust made.
	Adjustments []Adjustment
}

// takes reports whether a call asks for permits.
func (c *Call) takes() bool { return c.Verb == VerbDo && c.Ask.Mode == store.ModeTake }

// resets reports whether a call is a reset: of the records of all algorithms, as its charges have no limits.
func (c *Call) resets() bool { return c.Verb == VerbDo && c.Ask.Mode == store.ModeReset }

// single reports whether a call asks for the permits of one charge, for which it waits in one queue.
func (c *Call) single() bool { return c.takes() && len(c.Charges) == 1 }

// lent reports whether a call ends a loan.
func (c *Call) lent() bool { return c.Verb == VerbSettle && c.Hold.ID == "" }

// decided is how many decisions the result of a call has.
func (c *Call) decided() int {
	if c.Verb != VerbDo || c.Ask.Mode == store.ModeRefund || c.resets() {
		return 0
	}
	return len(c.Charges)
}

// limited reports whether the limits of the charges count.
func (c *Call) limited() bool {
	return c.Verb == VerbDo && !c.resets() || c.Verb == VerbSettle || c.Verb == VerbAdjust
}

// check returns what is wrong with a call, or with where its decisions go, or nil.
func (c *Call) check(decisions []weir.Decision) error {
	switch {
	case c.Verb == VerbDo:
		return store.CheckQueued(c.Ask, c.Charges, decisions) //nolint:wrapcheck // it names what is wrong
	case c.lent() || c.Verb != VerbSettle:
		if len(c.Charges) != 1 {
			return &weir.OptionError{Option: "charges", Value: fmt.Sprint(len(c.Charges)), Accepted: "one"}
		}
	}
	switch c.Verb {
	case VerbSettle:
		return store.CheckSettle(store.Hold{ID: c.Hold.ID, Charges: c.Charges}, c.Actual) //nolint:wrapcheck // the same
	case VerbAdjust:
		if err := c.Adjustment.check(c.Charges[0].Limit); err != nil {
			return err
		}
		return store.CheckQueued(store.Ask{Mode: store.ModeRefund}, c.Charges, nil) //nolint:wrapcheck // the same
	default:
		if c.Most < 1 || c.Most > mostAdjustments {
			return &weir.OptionError{Option: "most", Value: fmt.Sprint(c.Most), Accepted: "from 1 to 1000"}
		}
		return store.CheckQueued(store.Ask{Mode: store.ModeReset}, c.Charges, nil) //nolint:wrapcheck // the same
	}
}

// checkSent is check for a call of another node, which has the room for its decisions.
func (c *Call) checkSent() error {
	if c.decided() == 0 {
		return c.check(nil)
	}
	return c.check(room[:min(len(c.Charges), len(room))])
}

// room is for nothing but its length.
var room [store.MostCharges]weir.Decision //nolint:gochecknoglobals // a constant

// unspent is how many permits of a loan go back.
func (c *Call) unspent() int64 {
	if len(c.Actual) == 0 {
		return c.Charges[0].N
	}
	return c.Charges[0].N - c.Actual[0]
}

func failed(err error) Result { return Result{Reason: weir.ReasonUnavailable, Err: err} }

// refusedAll is a result that says the same of all charges.
func refusedAll(c *Call, why weir.Reason) Result {
	result := Result{Reason: why, Decisions: make([]weir.Decision, len(c.Charges))}
	for i := range result.Decisions {
		result.Decisions[i] = weir.Decision{Reason: why, Policy: c.Charges[i].Policy}
	}
	return result
}

// notBegun is the result of a call that asks for permits whose caller has gone.
func notBegun(ctx context.Context, c *Call) Result { return refusedAll(c, ended(ctx)) }

// ended is why a caller has gone whose context has ended.
func ended(ctx context.Context) weir.Reason {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return weir.ReasonDeadline
	}
	return weir.ReasonCanceled
}
