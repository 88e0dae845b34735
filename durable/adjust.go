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
	// Permits is how many are to be given, or taken if it is negative, and of one that was made how many were: no more than were
	// missing, or can be owed.
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

// trailName stands before the names of the adjustments of a key, whatever the algorithm, and of no other.
func trailName(policy, key string) string {
	return fmt.Sprintf("%s%d:%d:%s%s/", trailPrefix, len(key), len(policy), policy, key)
}

// check returns what is wrong with an adjustment of a limit, or nil.
func (a *Adjustment) check(l weir.Limit) error {
	switch {
	case a.Permits > maxRecordAhead || a.Permits < -maxRecordAhead:
		return &weir.OptionError{Option: "Adjustment.Permits", Value: fmt.Sprint(a.Permits), Accepted: "from -10^15 to 10^15"}
	case len(a.By) > mostAdjustmentText || a.By == "":
		return &weir.OptionError{
			Option: "Adjustment.By", Value: fmt.Sprintf("of %d bytes", len(a.By)), Accepted: "from 1 to 256 bytes",
		}
	case len(a.Reason) > mostAdjustmentText || a.Reason == "":
		return &weir.OptionError{
			Option: "Adjustment.Reason", Value: fmt.Sprintf("of %d bytes", len(a.Reason)), Accepted: "from 1 to 256 bytes",
		}
	case l.Algorithm() == weir.AlgorithmConcurrency:
		return &weir.OptionError{
			Option: "Limit.Algorithm", Value: l.Algorithm().String(), Accepted: "one whose permits come back with time",
		}
	}
	return nil
}

// Adjust gives permits of a key back, at most until all are available. A negative number takes them, whether they are there or
// not, up to a debt of the limit. When Adjust returns without an error, the change is durable, with who made it and why. After an
// error that matches ErrUnavailable of package store it is not known whether it is.
func (o *Owner) Adjust(ctx context.Context, l weir.Limit, a Adjustment) (Adjustment, error) {
	return adjust(ctx, o, l, a)
}

// Adjustments are the last adjustments of a key, the last one first, at most so many, from 1 to 1000.
func (o *Owner) Adjustments(ctx context.Context, policy, key string, most int) ([]Adjustment, error) {
	return listAdjustments(ctx, o, policy, key, most)
}

// adjustments reads what [Owner.Adjustments] returns.
func (o *Owner) adjustments(ctx context.Context, c *Call) Result {
	ctx, cancel := context.WithTimeout(ctx, o.options.WriteTimeout)
	defer cancel()
	found, err := o.term.List(ctx, trailName(c.Charges[0].Policy, c.Charges[0].Key), c.Most)
	if err != nil {
		return failed(fmt.Errorf("%w: %w", store.ErrUnavailable, err))
	}
	all := make([]Adjustment, 0, len(found))
	for i := range found {
		var a Adjustment
		text, err := unseal(found[i].Name, found[i].Value)
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		if err != nil {
			return failed(fmt.Errorf("weir: the adjustment %.80q cannot be read: %w", found[i].Name, err))
		}
		all = append(all, a)
	}
	return Result{Adjustments: all}
}

// adjust carries an adjustment out.
func (s *step) adjust(now time.Time, made *Adjustment, after *answers) error {
	p := &s.parts[0]
	b := p.bucket
	if err := b.ready(now, p.charge.Limit, after); err != nil {
		return err
	}
	a := &adjusting{Adjustment: *s.call.Adjustment}
	a.Policy, a.Key, a.Time = p.charge.Policy, p.charge.Key, now
	// They are in the order in which they were made, whatever clocks show.
	number := b.owner.adjusts.Add(1)
	a.name = fmt.Sprintf("%s%020d.%020d", trailName(a.Policy, a.Key), b.owner.term.Epoch(), number)
	if a.Permits > 0 {
		a.given = b.state.Give(a.Permits)
		a.Permits = a.given
		b.uncover()
	} else {
		a.taken = b.state.Charge(-a.Permits)
		a.Permits = 0
		for _, t := range a.taken {
			a.Permits -= t.Permits()
		}
	}
	a.Remaining = b.state.Peek(0).Remaining
	b.trail = append(b.trail, a)
	w := s.waiter(p, 0)
	w.adjusts, w.must, w.generation = a, true, b.generation
	b.pass(w, after)
	b.serve(now, after)
	*made = a.Adjustment
	return nil
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
