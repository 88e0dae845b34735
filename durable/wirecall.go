package durable

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// appendCall appends a call: of each verb what counts, and of charges whose limits do not count an empty one.
func appendCall(b []byte, c *Call) ([]byte, error) {
	b = append(b, byte(c.Verb))
	b = binary.AppendUvarint(b, uint64(len(c.Charges)))
	for i := range c.Charges {
		charge := &c.Charges[i]
		b = appendString(appendString(b, charge.Policy), charge.Key)
		b = appendNumbers(b, charge.N, charge.Queue)
		var text [64]byte
		limit := text[:0]
		if c.limited() {
			var err error
			if limit, err = store.AppendLimit(text[:0], charge.Limit); err != nil {
				return b, err //nolint:wrapcheck // it names what is wrong
			}
		}
		b = appendString(b, limit)
	}
	switch c.Verb {
	case VerbDo:
		b = append(b, byte(c.Ask.Mode))
		b = appendNumbers(b, int64(c.Ask.Wait), int64(c.Ask.Hold), c.Ask.Least, number(c.Ask.States != nil))
	case VerbSettle:
		b = appendString(b, c.Hold.ID)
		b = appendNumbers(b, c.Hold.Expires, c.Hold.Taken, number(c.Actual != nil))
		b = binary.AppendUvarint(b, uint64(len(c.Actual)))
		b = appendNumbers(b, c.Actual...)
	case VerbAdjust:
		b = appendNumbers(b, c.Adjustment.Permits)
		b = appendString(appendString(b, c.Adjustment.By), c.Adjustment.Reason)
	default:
		b = appendNumbers(b, int64(c.Most))
	}
	return b, nil
}

// call reads what appendCall wrote. What it says is checked by whoever carries it out.
func (d *reader) call() *Call {
	c := &Call{Verb: Verb(d.byte())}
	c.Charges = make([]store.Charge, d.count(store.MostCharges))
	for i := range c.Charges {
		charge := &c.Charges[i]
		charge.Policy, charge.Key, charge.N, charge.Queue = d.text(), d.text(), d.signed(), d.signed()
		charge.Limit = d.limit()
	}
	switch c.Verb {
	case VerbDo:
		if c.Ask.Mode = store.Mode(d.byte()); c.Ask.Mode > store.ModeReset {
			d.fail()
		}
		c.Ask.Wait, c.Ask.Hold, c.Ask.Least = d.duration(), d.duration(), d.signed()
		if d.bool() {
			c.Ask.States = make([]store.State, len(c.Charges))
		}
	case VerbSettle:
		c.Hold.ID, c.Hold.Expires, c.Hold.Taken = d.text(), d.signed(), d.signed()
		if d.bool() {
			c.Actual = make([]int64, 0, len(c.Charges))
		}
		for range d.count(store.MostCharges) {
			c.Actual = append(c.Actual, d.signed())
		}
	case VerbAdjust:
		c.Adjustment = new(Adjustment)
		c.Adjustment.Permits, c.Adjustment.By, c.Adjustment.Reason = d.signed(), d.text(), d.text()
	case VerbAdjustments:
		c.Most = int(d.signed())
	default:
		d.fail()
	}
	return c
}

// appendResult appends a result, or of one with an error that.
func appendResult(b []byte, r *Result) []byte {
	if b = appendError(b, r.Err); r.Err != nil {
		return b
	}
	b = append(b, byte(r.Reason))
	b = binary.AppendUvarint(b, uint64(len(r.Decisions)))
	for i := range r.Decisions {
		b = appendDecision(b, &r.Decisions[i])
	}
	b = binary.AppendUvarint(b, uint64(len(r.States)))
	for i := range r.States {
		s := &r.States[i]
		b = appendNumbers(b, number(s.Known), s.Reserved, int64(s.Reservations), s.Forgotten)
		b = appendDecision(b, &s.Decision)
	}
	b = appendString(b, r.Hold.ID)
	b = appendNumbers(b, r.Hold.Expires, r.Hold.Taken, r.Lent)
	b = binary.AppendUvarint(b, uint64(len(r.Adjustments)))
	for i := range r.Adjustments {
		a := &r.Adjustments[i]
		b = appendNumbers(b, a.Time.UnixNano(), a.Permits, a.Remaining)
		b = appendString(appendString(b, a.By), a.Reason)
	}
	return b
}

// result reads what appendResult wrote.
func (d *reader) result() *Result {
	r := new(Result)
	if r.Err = d.err(); r.Err != nil {
		r.Reason = weir.ReasonUnavailable
		return r
	}
	if r.Reason = d.reason(int64(d.byte())); r.Reason == weir.ReasonUnavailable { // which has an error
		d.fail()
	}
	if n := d.count(store.MostCharges); n > 0 {
		r.Decisions = make([]weir.Decision, n)
	}
	for i := range r.Decisions {
		r.Decisions[i] = d.decision()
	}
	if n := d.count(store.MostCharges); n > 0 {
		r.States = make([]store.State, n)
	}
	for i := range r.States {
		s := &r.States[i]
		s.Known, s.Reserved, s.Reservations, s.Forgotten = d.bool(), d.signed(), int(d.signed()), d.signed()
		s.Decision = d.decision()
	}
	r.Hold.ID, r.Hold.Expires, r.Hold.Taken, r.Lent = d.text(), d.signed(), d.signed(), d.signed()
	if n := d.count(mostAdjustments); n > 0 {
		r.Adjustments = make([]Adjustment, n)
	}
	for i := range r.Adjustments {
		a := &r.Adjustments[i]
		a.Time, a.Permits, a.Remaining = time.Unix(0, d.signed()), d.signed(), d.signed()
		a.By, a.Reason = d.text(), d.text()
	}
	return r
}

// of is the result of a call, with the names that it has in common with it.
func (r *Result) of(c *Call) Result {
	if r.Err != nil {
		return *r
	}
	adjusted := c.Verb != VerbAdjust || len(r.Adjustments) == 1
	if len(r.Decisions) != c.decided() || len(r.States) != len(c.Ask.States) || !adjusted {
		return failed(fmt.Errorf("%w: %w", store.ErrUnavailable, errMessage))
	}
	for i := range r.Decisions {
		r.Decisions[i].Policy = c.Charges[i].Policy
	}
	for i := range r.States {
		r.States[i].Decision.Policy = c.Charges[i].Policy
	}
	for i := range r.Adjustments {
		r.Adjustments[i].Policy, r.Adjustments[i].Key = c.Charges[0].Policy, c.Charges[0].Key
	}
	return *r
}
