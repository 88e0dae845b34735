package weir_test

import (
	"context"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inside"
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

// Stats are those of the key. For how long it has been idle is not known: it is 0.
func (o oneKey) Stats() weir.Stats {
	s, d := o.keyed.Stats(), o.keyed.Peek(theKey, 0)
	idle := s.Idle
	if d.Remaining == d.Limit && s.Waiters == 0 {
		idle = 0
	}
	return weir.Stats{
		Remaining: d.Remaining, Queued: s.Queued, Waiters: s.Waiters,
		Allowed: s.Allowed, Refused: s.Refused, Forgiven: s.Forgiven, Idle: idle,
	}
}

func (o oneKey) Close() error { return o.keyed.Close() }

// of is the name of the kind without that it is a key.
func (k kind) of() string { return strings.TrimPrefix(k.name, "key with a ") }

// keyedKinds are kinds as keys of a Keyed.
func keyedKinds(kinds []kind) (keyed []kind) {
	for _, k := range kinds {
		limitOf := func(n int64) weir.Limit { return weir.TokenBucket(weir.Per(n, regain), 0) }
		switch k.name {
		case "fixed window":
			limitOf = func(n int64) weir.Limit { return weir.FixedWindow(weir.Per(n, regain)) }
		case "sliding window":
			limitOf = func(n int64) weir.Limit { return weir.SlidingWindow(weir.Per(n, regain), 4) }
		case "approximate sliding window":
			limitOf = func(n int64) weir.Limit { return weir.SlidingCounter(weir.Per(n, regain)) }
		case "calendar window":
			limitOf = func(n int64) weir.Limit { return weir.CalendarWindow(n, algo.Calendar{Unit: algo.CalendarMinute}) }
		case "concurrency":
			limitOf = weir.AtOnce
		case "chain", "adaptive":
			continue
		}
		clocked := k.clocked
		k.name, k.keyed = "key with a "+k.name, true // see of
		k.build = func(o setup) (weir.Acquirer, error) {
			of := weir.KeyedOptions{Name: o.name, QueueLimit: o.queue, NewestFirst: o.order, MaxDebt: o.maxDebt, Clock: o.clock}
			if clocked {
				of.Clock = bubbleClock{}
			}
			l, err := anyKeyed(limitOf(o.limit), of, nil)
			if k.timed {
				return timedKey{oneKey{l}}, err
			}
			return oneKey{l}, err
		}
		keyed = append(keyed, k)
	}
	return keyed
}

// anyKeyed is a limiter of any limit, as rules have it.
func anyKeyed(limit weir.Limit, o weir.KeyedOptions, limitOf func(string) weir.Limit) (*weir.Keyed[string], error) {
	//nolint:forcetypeassert // package weir has set it
	return inside.Keyed.(func(weir.Limit, weir.KeyedOptions, func(string) weir.Limit) (*weir.Keyed[string], error))(limit, o, limitOf)
}
