package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// What the first byte of a reply says.
const (
	replyDone = iota
	replyAllKeys
	replyEdges
	replyAtOnce     // the time is that of the record
	replyUnreadable // what is kept for a charge is no record
)

// What a reply says about a charge.
const (
	answerRefused = iota
	answerAllowed
	answerFull
)

// reader reads the reply of the script.
type reader struct {
	rest  string
	short bool
	wrong bool  // a number is none that the script writes
	now   int64 // what the server's clock shows
}

var errReply = errors.New("weir: the reply of the script is not one that this version knows")

// failure is what is wrong with the reply, as far as it was read, which was about a charge last.
func (r *reader) failure(c *store.Charge) error {
	switch {
	case r.short:
		return unavailable(errReply)
	case r.wrong:
		return unreadable(c)
	}
	return nil
}

// end is failure, of a reply that ends here: one with more is not about what was asked.
func (r *reader) end(c *store.Charge) error {
	if err := r.failure(c); err != nil || r.rest == "" {
		return err
	}
	return unavailable(errReply)
}

// unreadable is the error for a charge of which no record is kept, but something else.
func unreadable(c *store.Charge) error {
	return fmt.Errorf("%w: policy %q, key %.80q", store.ErrUnreadable, c.Policy, c.Key)
}

func (r *reader) byte() byte {
	if len(r.rest) < 1 {
		r.short = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) number() int64 {
	if len(r.rest) < 8 {
		r.short = true
		return 0
	}
	v := binary.LittleEndian.Uint64([]byte(r.rest[:8]))
	r.rest = r.rest[8:]
	f := math.Float64frombits(v)
	if !(math.Abs(f) < 1<<53) { // or NaN
		r.wrong = true
		return 0
	}
	return int64(f)
}

// state has room for the words of any law.
type state [2 + algo.MaxSegments]uint64

var states = sync.Pool{New: func() any { return new(state) }} //nolint:gochecknoglobals // memory that is used again

// decision reads what the script says about n permits.
func (w *law) decision(r *reader, n int64, policy string) weir.Decision {
	answer := r.byte()
	at := r.number()
	asked := n
	if answer == answerAllowed { // the state is that after the call
		asked = 0
	}
	buf := states.Get().(*state)
	words := buf[:w.Words()]
	w.state(words, r, at)
	if !w.Valid(words) { // what follows need not end for it
		r.wrong = true
		states.Put(buf)
		return weir.Decision{}
	}
	result := w.Peek(words, at*w.unit, asked)
	states.Put(buf)
	result.Allowed = answer == answerAllowed
	if result.Allowed {
		result.RetryAfter = 0
	}
	if answer > answerFull || result.Remaining < 0 || result.Remaining > w.Limit() {
		r.wrong = true
	}
	behind := max(0, at-r.now) // until a clock that was set back has caught up
	result.RetryAfter, result.ResetAfter = w.wait(result.RetryAfter, behind), w.wait(result.ResetAfter, behind)
	d := store.DecisionOf(store.Charge{Policy: policy, N: n}, w.Limit(), result)
	if answer == answerFull {
		d.Reason = weir.ReasonTableFull
	}
	return d
}

// wait makes a time of the law one in nanoseconds, rounded up to the microseconds of the script. If it is not 0, it is longer by
// what the clock of the server is behind.
func (w *law) wait(d time.Duration, behind int64) time.Duration {
	if d == algo.Never || d == 0 {
		return d
	}
	us := int64(d) / w.unit
	if int64(d)%w.unit != 0 {
		us++
	}
	if us > math.MaxInt64/microsecond-behind {
		return algo.Never
	}
	return time.Duration((us + behind) * microsecond)
}
