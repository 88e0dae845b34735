package store

import (
	"slices"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// Record is the state of one limit for one key, of any algorithm, with its outstanding reservations: for programs that keep
// states by themselves. It has a binary form with a version, and reading refuses what cannot be a record. It is not safe for
// concurrent use.
//
// Times are Unix nanoseconds. A time before the last one gives nothing back and takes nothing. If it is behind by up to
// [MostAhead], the record waits for the clock, and its waits count from the last time. If it is further behind, the record goes
// on from there, with what was taken. A time that jumps ahead restores at most everything (TestStepsOfAClock). The zero Record
// is not usable: call [NewRecord].
type Record struct{ record }

// NewRecord is the record of a key that has never been seen. The error is an *[weir.OptionError].
func NewRecord(l weir.Limit, now int64) (*Record, error) {
	t, err := termsOf(l)
	if err != nil {
		return nil, err
	}
	return &Record{*newRecord(t, now)}, nil
}

// ParseRecord reads the binary form.
func ParseRecord(b []byte) (*Record, error) {
	r, err := decodeRecord(b, nil)
	if err != nil {
		return nil, err
	}
	return &Record{*r}, nil
}

// AppendBinary appends the binary form to b. The error is always nil.
func (r *Record) AppendBinary(b []byte) ([]byte, error) { return append(b, r.encode()...), nil }

// Limit is the limit of the record, with its defaults filled in.
func (r *Record) Limit() weir.Limit { return r.terms.limit }

// HeldTo reports whether l is the limit of the record, as it was given: then it has been checked.
func (r *Record) HeldTo(l weir.Limit) bool { return l == r.terms.limit }

// Most is the max number of permits at once.
func (r *Record) Most() int64 { return r.terms.most }

// Advance brings the record to a time and a limit, and cancels the reservations that have expired. Call it before any other
// method for that time. It returns whether the limit has changed. New parameters count at once: what is available stays, up to
// the new limit. The error is an *[weir.OptionError], also for a limit of another algorithm: a record is of one. Then nothing has
// changed.
func (r *Record) Advance(now int64, l weir.Limit) (changed bool, err error) {
	if l == r.terms.limit {
		r.ready(now, nil)
		return false, nil
	}
	t, err := r.termsOf(l)
	if err != nil {
		return false, err
	}
	changed = t.text != r.terms.text
	r.ready(now, t)
	return changed, nil
}

// Taking remembers what [Record.Take] took, so that it can be undone.
type Taking struct {
	n    int64
	mark algo.Mark
}

// Permits is how many were taken.
func (t Taking) Permits() int64 { return t.n }

// Take takes n permits if they are there.
func (r *Record) Take(n int64) (Taking, algo.Result) {
	result := r.take(n)
	if !result.Allowed || n == 0 {
		return Taking{}, result
	}
	return Taking{n, result.Mark}, result
}

// Undo gives back what was taken, as if it had not been: what has come back meanwhile does not come back twice. Takings are worth
// nothing once the limit has changed; that only errs on the side of the limit.
func (r *Record) Undo(t Taking) {
	if t.n > 0 {
		r.terms.law.Cancel(r.state, r.at, t.n, t.mark)
	}
}

// Peek returns what Take would.
func (r *Record) Peek(n int64) algo.Result { return r.peek(n) }

// Refund gives n permits back whatever their origin.
func (r *Record) Refund(n int64) { r.refund(n) }

// Debit takes n permits whether they are there or not, up to a debt of the limit.
func (r *Record) Debit(n int64) { r.debit(n) }

// Give is Refund, and returns how many permits were given: no more than were missing.
func (r *Record) Give(n int64) (given int64) {
	before := r.clone()
	r.refund(n)
	low, high := int64(0), max(n, 0) // the least that leads to the same
	for low < high {
		middle := low + (high-low)/2
		other := before.clone()
		if other.refund(middle); slices.Equal(other.state, r.state) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// Charge is Debit, and returns what was taken, which is no more than can be owed. Undo several charges from the last to the
// first.
func (r *Record) Charge(n int64) (taken []Taking) {
	for n > 0 {
		part := min(n, r.terms.most) // more could not be undone at once
		charged := r.terms.law.Charge(r.state, r.at, part, r.terms.most)
		if charged > 0 {
			taken = append(taken, Taking{n: charged, mark: r.terms.law.Mark(r.state)})
		}
		if charged < part {
			break
		}
		n -= part
	}
	return taken
}

// Burn takes n permits, or as many as there are and will be when reservations end. Those of a concurrency limit are never
// burned, as nothing would give them back.
func (r *Record) Burn(n int64) {
	if r.terms.limit.Algorithm() == weir.AlgorithmConcurrency || n <= 0 {
		return
	}
	if now := min(n, r.peek(0).Remaining); now > 0 {
		r.take(now)
		n -= now
	}
	if reserved, _ := r.reserved(); n > 0 && reserved > 0 {
		r.debit(min(n, reserved))
	}
}

// Reserve takes n permits if they are there, until a reservation of this id, which must be new, is settled or has expired.
func (r *Record) Reserve(id string, n int64, expiry time.Duration) (expires int64, result algo.Result) {
	if result = r.take(n); !result.Allowed {
		return 0, result
	}
	expires = r.at + int64(expiry)
	r.hold(id, n, expires, "")
	return expires, result
}

// Hold makes a reservation of the n permits that were the last to be taken, until a time, under this id, which must be new. It is
// what Reserve does, where several records must have the same expiry.
func (r *Record) Hold(id string, n, expires int64) { r.hold(id, n, expires, "") }

// Retime has a reservation expire at another time. It returns false if there is none.
func (r *Record) Retime(id string, expires, to int64) bool {
	at := r.find(id, expires)
	if at < 0 {
		return false
	}
	h := r.held[at]
	r.held = slices.Delete(r.held, at, at+1)
	h.expires = to
	r.insert(h)
	return true
}

// Full reports whether there are so many reservations that there can be no more.
func (r *Record) Full() bool { return r.full() }

// UntilExpiry is how long it takes until the first reservation expires, or 0 if there is none.
func (r *Record) UntilExpiry() time.Duration {
	if len(r.held) == 0 {
		return 0
	}
	return r.later(time.Duration(r.held[0].expires - r.at))
}

// termsOf checks a limit to which the record is to be held.
func (r *Record) termsOf(l weir.Limit) (*terms, error) {
	t, err := termsOf(l)
	if err == nil && l.Algorithm() != r.terms.limit.Algorithm() {
		err = &weir.OptionError{
			Option: "Limit.Algorithm", Value: l.Algorithm().String(),
			Accepted: r.terms.limit.Algorithm().String() + ", as that of the record is",
		}
	}
	return t, err
}

// As is the record as it is under a limit: itself if that is its limit, otherwise a copy, as Advance would make it. The error is
// that of Advance.
func (r *Record) As(l weir.Limit) (*Record, error) {
	if l == r.terms.limit {
		return r, nil
	}
	t, err := r.termsOf(l)
	if err != nil {
		return nil, err
	}
	if t.text == r.terms.text {
		return r, nil
	}
	other := &Record{*r.clone()}
	other.carry(t)
	return other, nil
}

// TakeBack gives back n permits that were lent at a time under a limit: see [Return]. It does nothing if the record has
// another limit. The error is an *[weir.OptionError].
func (r *Record) TakeBack(l weir.Limit, n, taken int64) error {
	t, err := termsOf(l)
	if err != nil {
		return err
	}
	if t.text == r.terms.text {
		r.takeBack(n, taken)
	}
	return nil
}

// Reset makes all permits available and forgets the reservations.
func (r *Record) Reset() { r.reset() }

// State is what [Inspect] returns for a charge of the limit of the record.
func (r *Record) State(c Charge) State {
	c.N = 0
	return r.inspect(c, true, 0)
}

// Settle ends a reservation with what it really cost: see [Commit]. It returns false if there is none.
func (r *Record) Settle(id string, expires, actual int64) bool {
	at := r.find(id, expires)
	if at >= 0 {
		r.commit(at, actual)
	}
	return at >= 0
}

// Cancel ends a reservation as if nothing had been taken. It returns false if there is none.
func (r *Record) Cancel(id string, expires int64) bool {
	at := r.find(id, expires)
	if at >= 0 {
		r.cancel(at)
	}
	return at >= 0
}

// Fresh reports whether the record equals that of a key that has never been seen.
func (r *Record) Fresh() bool { return r.fresh() }

// Time is the latest time that the record was told.
func (r *Record) Time() int64 { return r.at }

// AppendLimit appends the binary form of a limit, with its defaults filled in, to b. The error is an *[weir.OptionError].
func AppendLimit(b []byte, l weir.Limit) ([]byte, error) {
	t, err := termsOf(l)
	if err != nil {
		return b, err
	}
	return append(b, t.text...), nil
}

// ParseLimit reads the binary form of a limit.
func ParseLimit(b []byte) (weir.Limit, error) {
	if len(b) > mostLimitBytes {
		return weir.Limit{}, errMalformed
	}
	t, ok := readTerms(string(b))
	if !ok {
		return weir.Limit{}, errMalformed
	}
	return t.limit, nil
}
