package redis

import (
	"encoding/binary"
	"errors"
	"math"
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
}

var errReply = errors.New("weir: the reply of the script is not one that this version knows")

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
	return int64(math.Float64frombits(v))
}

// decision reads what the script says about n permits; now is what the server's clock shows.
func (w *law) decision(r *reader, now, n int64, policy string) weir.Decision {
	answer := r.byte()
	at := r.number()
	result := w.result(r, at, n, answer == answerAllowed)
	result.Allowed = answer == answerAllowed
	if result.Allowed {
		result.RetryAfter = 0
	}
	wait := time.Duration(max(0, at-now)) // until a clock that was set back has caught up
	result.RetryAfter = nanoseconds(result.RetryAfter, wait)
	result.ResetAfter = nanoseconds(result.ResetAfter, wait)
	d := store.DecisionOf(store.Charge{Policy: policy, N: n}, w.most, result)
	if answer == answerFull {
		d.Reason = weir.ReasonTableFull
	}
	return d
}

// nanoseconds makes microseconds nanoseconds, and adds a wait to those that are not 0.
func nanoseconds(us, wait time.Duration) time.Duration {
	switch {
	case us == algo.Never || us > math.MaxInt64/1000-wait:
		return algo.Never
	case us == 0:
		return 0
	}
	return (us + wait) * 1000
}

// result is what package algo says about the state in the reply, which is that after the call.
func (w *law) result(r *reader, at, n int64, allowed bool) algo.Result {
	if allowed {
		n = 0
	}
	switch w.code {
	case codeBucket:
		b := &w.bucket
		x := span{r.number(), r.number()}
		result := algo.Result{Remaining: b.available(x), ResetAfter: x.ceil()}
		if n <= b.burst {
			if end := b.minus(b.plus(x, b.cost(max(n, 1))), b.full); end.us >= 0 {
				result.RetryAfter = end.ceil()
			}
		}
		return result
	case codeFixed:
		s := algo.WindowState{Window: r.number() / w.window, Used: r.number(), Excess: r.number()}
		return w.fixed.Peek(s, at, n)
	case codeCounter:
		s := algo.SlidingCounterState{Window: r.number() / w.window, Cur: r.number(), Prev: r.number()}
		return w.counter.Peek(s, at, n)
	case codeSliding:
		count := int(r.byte()) - 1
		s := algo.SlidingWindowState{uint64(r.number())}
		segments := s[2:]
		for i := range segments {
			if i >= count {
				break
			}
			segments[i] = uint64(r.number())
			s[1] += segments[i]
		}
		return w.sliding.Peek(s, at, n)
	case codeCalendar:
		s := algo.WindowState{Window: r.number() * microsecond, Used: r.number()}
		result := w.calendar.Peek(s, at*microsecond, n)
		if result.RetryAfter != algo.Never {
			result.RetryAfter = (result.RetryAfter + 999) / 1000
		}
		result.ResetAfter = (result.ResetAfter + 999) / 1000
		return result
	default: // codeConcurrency
		return w.inUse.Peek(algo.ConcurrencyState{InUse: r.number()}, at, n)
	}
}
