package durable

import (
	"encoding/binary"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// mostListed is how many adjustments can be asked for at a time.
const mostListed = 1000

// limited reports whether the limits of the charges of a call count.
func (k CallKind) limited() bool {
	return k != CallCommit && k != CallCancel && k != CallReset && k != CallAdjustments
}

// appendCall appends a call. What has no limits carries empty ones.
func appendCall(b []byte, c *Call) ([]byte, error) {
	b = append(b, byte(c.Kind))
	b = binary.AppendUvarint(b, uint64(len(c.Charges)))
	for i := range c.Charges {
		charge := &c.Charges[i]
		var limit []byte
		if c.Kind.limited() {
			var err error
			if limit, err = store.AppendLimit(nil, charge.Limit); err != nil {
				return b, err //nolint:wrapcheck // it names what is wrong
			}
		}
		b = appendString(appendString(appendString(b, charge.Policy), charge.Key), string(limit))
		b = appendNumbers(b, charge.N, charge.Queue)
	}
	b = appendNumbers(b, int64(c.Wait), int64(c.Expiry))
	b = appendString(b, c.ID)
	b = binary.AppendUvarint(b, uint64(len(c.Actual)))
	b = appendNumbers(b, c.Actual...)
	b = appendNumbers(b, c.Expires, c.Number, c.Taken, c.Adjustment.Permits)
	return appendString(appendString(b, c.Adjustment.By), c.Adjustment.Reason), nil
}

// call reads what appendCall wrote. What it says is checked by whoever carries it out.
func (d *reader) call() *Call {
	c := &Call{Kind: CallKind(d.byte())}
	c.Charges = make([]store.Charge, d.count(store.MostCharges))
	for i := range c.Charges {
		charge := &c.Charges[i]
		charge.Policy, charge.Key, charge.Limit = d.text(), d.text(), d.limit()
		charge.N, charge.Queue = d.signed(), d.signed()
	}
	c.Wait, c.Expiry, c.ID = d.duration(), d.duration(), d.text()
	c.Actual = make([]int64, d.count(store.MostCharges))
	for i := range c.Actual {
		c.Actual[i] = d.signed()
	}
	c.Expires, c.Number, c.Taken, c.Adjustment.Permits = d.signed(), d.signed(), d.signed(), d.signed()
	c.Adjustment.By, c.Adjustment.Reason = d.text(), d.text()
	if c.Kind == 0 || c.Kind >= callKinds {
		d.fail()
	}
	return c
}

func appendResult(b []byte, r *Result) []byte {
	b = append(b, byte(r.Outcome))
	b = appendError(b, r.Err)
	b = binary.AppendUvarint(b, uint64(len(r.Decisions)))
	for i := range r.Decisions {
		b = appendDecision(b, &r.Decisions[i])
	}
	b = appendString(b, r.ID)
	b = appendNumbers(b, r.Expires, r.Lent, r.Taken)
	s := &r.State
	b = appendNumbers(b, number(s.Known), s.Reserved, int64(s.Reservations), s.Forgotten)
	b = appendDecision(b, &s.Decision)
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
	r := &Result{Outcome: Outcome(d.byte())}
	if r.Outcome == 0 || r.Outcome >= outcomes {
		d.fail()
	}
	r.Err = d.err()
	if n := d.count(store.MostCharges); n > 0 {
		r.Decisions = make([]weir.Decision, n)
	}
	for i := range r.Decisions {
		r.Decisions[i] = d.decision()
	}
	r.ID, r.Expires, r.Lent, r.Taken = d.text(), d.signed(), d.signed(), d.signed()
	s := &r.State
	s.Known, s.Reserved, s.Reservations, s.Forgotten = d.bool(), d.signed(), int(d.signed()), d.signed()
	s.Decision = d.decision()
	if n := d.count(mostListed); n > 0 {
		r.Adjustments = make([]Adjustment, n)
	}
	for i := range r.Adjustments {
		a := &r.Adjustments[i]
		a.Time, a.Permits, a.Remaining = time.Unix(0, d.signed()), d.signed(), d.signed()
		a.By, a.Reason = d.text(), d.text()
	}
	return r
}

// name gives what a result has in common with its call the names that it has there. It returns false if it is not a result of
// that call.
func (r *Result) name(c *Call) bool {
	want := 0
	switch {
	case r.Err != nil: // which has nothing else
		return len(r.Decisions) == 0
	case c.Kind == CallTake || c.Kind == CallPeek || c.Kind == CallDebit || c.Kind == CallLend:
		want = len(c.Charges)
	}
	if len(r.Decisions) != want || r.Outcome == Unavailable {
		return false
	}
	for i := range r.Decisions {
		r.Decisions[i].Policy = c.Charges[i].Policy
	}
	if c.Kind == CallInspect {
		r.State.Decision.Policy = c.Charges[0].Policy
	}
	for i := range r.Adjustments {
		r.Adjustments[i].Policy, r.Adjustments[i].Key = c.Charges[0].Policy, c.Charges[0].Key
	}
	return c.Kind != CallAdjust || len(r.Adjustments) == 1
}
