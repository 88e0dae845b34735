package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// Adjustment is a change of the remaining permits of a limit, made by an operator. It is written together with what it changes.
type Adjustment struct {
	Time   time.Time `json:"time"`
	Policy string    `json:"policy"`
	Key    string    `json:"key"`
	// Permits is how many were given, or taken if it is negative.
	Permits int64 `json:"permits"`
	// Remaining is how many permits remained afterwards.
	Remaining int64 `json:"remaining"`
	// By and Reason are who did it and why, in at most 256 bytes each.
	By     string `json:"by"`
	Reason string `json:"reason"`
}

const (
	mostAdjustmentText = 256
	// mostTrail is how many adjustments are written with a record.
	mostTrail = 10
)

// adjusting is an adjustment that is being carried out.
type adjusting struct {
	Adjustment

	name  string
	drawn bool           // it is in a record that is being written, or was
	given int64          // permits that were given, which are no more than were missing
	taken []store.Taking // and those that were taken, no more than can be owed
}

func (a *adjusting) write() Write {
	text, _ := json.Marshal(&a.Adjustment) //nolint:errchkjson // it fails for no time that a clock shows
	return Write{Name: a.name, Value: seal(a.name, append(make([]byte, sealSize, sealSize+len(text)), text...))}
}

const trailPrefix = "audit/"

// trailName stands before the names of the adjustments of a key, and of no other.
func trailName(policy, key string) string {
	return fmt.Sprintf("%s%d:%s/", trailPrefix, len(key), recordKey(policy, key))
}

// Adjust gives permits of a key back, at most until all are available. A negative number takes them, whether they are there or
// not, up to a debt of the limit. When Adjust returns without an error, the change is durable, with who made it and why. After an
// error that matches ErrUnavailable of package store it is not known whether it is.
func (o *Owner) Adjust(ctx context.Context, l weir.Limit, a Adjustment) (Adjustment, error) {
	switch r := (Request{Policy: a.Policy, Key: a.Key, Limit: l}); {
	case a.Permits > maxRecordAhead || a.Permits < -maxRecordAhead:
		return a, &weir.OptionError{Option: "Adjustment.Permits", Value: fmt.Sprint(a.Permits), Accepted: "from -10^15 to 10^15"}
	case len(a.By) > mostAdjustmentText || a.By == "":
		return a, &weir.OptionError{
			Option: "Adjustment.By", Value: fmt.Sprintf("of %d bytes", len(a.By)), Accepted: "from 1 to 256 bytes",
		}
	case len(a.Reason) > mostAdjustmentText || a.Reason == "":
		return a, &weir.OptionError{
			Option: "Adjustment.Reason", Value: fmt.Sprintf("of %d bytes", len(a.Reason)), Accepted: "from 1 to 256 bytes",
		}
	case l.Algorithm() == weir.AlgorithmConcurrency:
		return a, &weir.OptionError{
			Option: "Limit.Algorithm", Value: l.Algorithm().String(), Accepted: "one whose permits come back with time",
		}
	default:
		if err := r.check(); err != nil {
			return a, err
		}
	}
	b, why := o.bucket(a.Policy, a.Key)
	if b == nil {
		return a, noBucket(&Request{}, why).reason()
	}
	own := &adjusting{Adjustment: a}
	got := make(chan Answer, 1)
	b.enter(&waiter{ //nolint:contextcheck // a record is read for everybody
		request: Request{Policy: a.Policy, Key: a.Key, Limit: l}, adjusts: own, answer: func(x Answer) { got <- x }, place: -1,
		at: time.Now().Add(o.options.WriteTimeout),
	})
	select {
	case x := <-got:
		if x.Outcome == Granted {
			return own.Adjustment, nil
		}
		return a, x.reason()
	case <-ctx.Done():
		return a, fmt.Errorf("weir: it is not known whether it was adjusted: %w", ctx.Err())
	}
}

// Adjustments are the last adjustments of a key, the last one first, at most so many, from 1 to 1000.
func (o *Owner) Adjustments(ctx context.Context, policy, key string, most int) ([]Adjustment, error) {
	if most < 1 || most > 1000 {
		return nil, &weir.OptionError{Option: "most", Value: fmt.Sprint(most), Accepted: "from 1 to 1000"}
	}
	ctx, cancel := context.WithTimeout(ctx, o.options.WriteTimeout)
	defer cancel()
	found, err := o.term.List(ctx, trailName(policy, key), most)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	all := make([]Adjustment, 0, len(found))
	for i := range found {
		var a Adjustment
		text, err := unseal(found[i].Name, found[i].Value)
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		if err != nil {
			return nil, fmt.Errorf("weir: the adjustment %.80q cannot be read: %w", found[i].Name, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// adjust carries an adjustment out, and returns once that is durable.
func (b *bucket) adjust(w *waiter, after *answers) {
	b.deadlines.remove(w)
	a := w.adjusts
	a.Time = time.Now()
	if err := b.turn(a.Time, &w.request, after); err != nil {
		after.add(w, unavailable(w, err))
		return
	}
	// They are in the order in which they were made, whatever clocks show.
	number := b.owner.adjusts.Add(1)
	a.name = fmt.Sprintf("%s%020d.%020d", trailName(a.Policy, a.Key), b.owner.term.Epoch(), number)
	if a.Permits > 0 {
		a.given = b.state.Give(a.Permits)
		b.uncover()
	} else {
		a.taken = b.state.Charge(-a.Permits)
	}
	left := b.state.Peek(0)
	a.Remaining = left.Remaining
	b.trail = append(b.trail, a)
	w.must, w.generation = true, b.generation
	b.pass(w, Answer{Outcome: Granted, Decision: b.decision(&w.request, left)}, after)
	b.serve(a.Time, after)
}

// unadjust takes an adjustment back, as it could not be written.
func (b *bucket) unadjust(w *waiter) {
	a := w.adjusts
	b.state.Debit(a.given)
	for i := len(a.taken) - 1; i >= 0 && w.generation == b.generation; i-- {
		b.state.Undo(a.taken[i])
	}
	for i, other := range b.trail {
		if other == a {
			b.trail = append(b.trail[:i:i], b.trail[i+1:]...)
			break
		}
	}
	if w.written {
		b.inForce.voids = append(b.inForce.voids, a.name) // which may have been written
	}
	b.uncover()
}

// Inspect returns what remains of a limit, as a probe, and changes nothing.
func (o *Owner) Inspect(ctx context.Context, policy, key string, l weir.Limit) (weir.Decision, error) {
	r := o.Call(ctx, oneCall(CallInspect, policy, key, l))
	return r.State.Decision, r.Err
}
