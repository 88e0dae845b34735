package weir_test

import (
	"context"
	"strings"
	"time"

	"github.com/weirhq/weir"
)

// oneKey makes a Limiter of one key of a Keyed, so that whatever is tested of limiters is tested of it.
type oneKey struct {
	keyed *weir.Keyed[string]
}

const theKey = "the key"

func (o oneKey) TryAcquire(n int64) weir.Lease { return o.keyed.TryAcquire(theKey, n) }

func (o oneKey) Acquire(ctx context.Context, n int64) (weir.Lease, error) {
	return o.keyed.Acquire(ctx, theKey, n)
}

func (o oneKey) TryReserve(n int64) weir.Lease { return o.keyed.TryReserve(theKey, n) }

func (o oneKey) Reserve(ctx context.Context, n int64) (weir.Lease, error) {
	return o.keyed.Reserve(ctx, theKey, n)
}

func (o oneKey) Peek(n int64) weir.Decision { return o.keyed.Peek(theKey, n) }

// timedKey is a key whose permits come back with time.
type timedKey struct{ oneKey }

func (o timedKey) Allow() bool { return o.keyed.Allow(theKey) }

func (o timedKey) Refund(n int64) { o.keyed.Refund(theKey, n) }

func (o oneKey) Stats() weir.Stats {
	s := o.keyed.Stats()
	return weir.Stats{
		Available: o.keyed.Peek(theKey, 0).Remaining, Queued: s.Queued, Waiters: s.Waiters,
		Granted: s.Granted, Refused: s.Refused, Forgiven: s.Forgiven,
	}
}

// Idle is not known of a key for how long: it is 0.
func (o oneKey) Idle() (time.Duration, bool) {
	d := o.keyed.Peek(theKey, 0)
	return 0, d.Remaining == d.Limit && o.keyed.Stats().Waiters == 0
}

func (o oneKey) Close() error { return o.keyed.Close() }

// of is the name of the kind without that it is a key.
func (k kind) of() string { return strings.TrimPrefix(k.name, "key with a ") }

// keyedKinds are kinds as keys of a Keyed.
func keyedKinds(kinds []kind) (keyed []kind) {
	for _, k := range kinds {
		of := weir.KeyedOptions{}
		switch k.name {
		case "fixed window":
			of.Algorithm = weir.AlgorithmFixedWindow
		case "sliding window":
			of.Algorithm, of.Segments = weir.AlgorithmSlidingWindow, 4
		case "approximate sliding window":
			of.Algorithm = weir.AlgorithmSlidingCounter
		case "calendar window":
			of.Algorithm, of.Calendar = weir.AlgorithmCalendarWindow, weir.Calendar{Unit: weir.CalendarMinute}
		case "concurrency":
			of.Algorithm = weir.AlgorithmConcurrency
		case "chain", "adaptive":
			continue
		}
		clocked := k.clocked
		k.name, k.keyed = "key with a "+k.name, true // see of
		k.build = func(o setup) (weir.Limiter, error) {
			of := of
			of.Name, of.QueueLimit, of.QueueOrder, of.MaxDebt, of.Clock = o.name, o.queue, o.order, o.maxDebt, o.clock
			if clocked {
				of.Clock = bubbleClock{}
			}
			of.Rate = weir.Per(o.limit, regain)
			if !k.timed || of.Algorithm == weir.AlgorithmCalendarWindow {
				of.Rate, of.Burst = weir.Rate{}, o.limit
			}
			l, err := weir.NewKeyed[string](of)
			if k.timed {
				return timedKey{oneKey{l}}, err
			}
			return oneKey{l}, err
		}
		keyed = append(keyed, k)
	}
	return keyed
}
