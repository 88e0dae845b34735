package durable

import (
	"fmt"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// errResult says that another process has sent a result that no owner makes of the call.
var errResult = fmt.Errorf("%w: the owner of the limits has sent a result that contradicts itself or the request",
	store.ErrUnavailable)

// fits reports whether a result without an error can be that of a call. One of an owner that is broken, or is none, may say
// anything, and must allow nothing.
func (r *Result) fits(c *Call) bool {
	if len(r.Decisions) != c.decided() || len(r.States) != len(c.Ask.States) || !r.adjusted(c) {
		return false
	}
	allowed := true
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if allowed = allowed && d.Allowed; !possible(d) {
			return false
		}
	}
	for i := range r.States {
		if !possible(&r.States[i].Decision) {
			return false
		}
	}
	done := r.Reason == weir.ReasonNone
	if !c.takes() && !done || c.takes() && len(r.Decisions) > 0 && allowed != done {
		return false
	}
	reserved := c.takes() && c.Ask.Hold != 0 && done
	return reserved == (r.Hold.ID != "") && len(r.Hold.ID) <= store.MostIDBytes && r.lends(c, allowed)
}

// possible reports whether a limit can say that.
func possible(d *weir.Decision) bool {
	return d.Allowed == (d.Reason == weir.ReasonNone) && d.Remaining >= 0 && d.Remaining <= d.Limit &&
		d.RetryAfter >= 0 && d.ResetAfter >= 0
}

// adjusted reports whether there are as many adjustments as there can be.
func (r *Result) adjusted(c *Call) bool {
	switch n := len(r.Adjustments); c.Verb {
	case VerbAdjust:
		return n == 1
	case VerbAdjustments:
		return n <= c.Most
	default:
		return n == 0
	}
}

// lends reports whether as many permits were lent as can have been.
func (r *Result) lends(c *Call, allowed bool) bool {
	if c.Verb != VerbDo || c.Ask.Mode != store.ModeLend || !allowed || len(c.Charges) != 1 {
		return r.Lent == 0
	}
	return r.Lent >= c.Ask.Least && r.Lent <= c.Charges[0].N
}
