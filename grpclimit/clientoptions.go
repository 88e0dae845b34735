package grpclimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirhq/weir"
)

// HoldScope is which calls are held back when a server asks for it.
type HoldScope uint8

const (
	// HoldMethod holds back the calls of the same method to the same target.
	HoldMethod HoldScope = iota
	// HoldTarget holds back all calls to the same target.
	HoldTarget
	// HoldNone holds no calls back.
	HoldNone
)

// String is "method", "target" or "none".
func (h HoldScope) String() string {
	switch h {
	case HoldMethod:
		return "method"
	case HoldTarget:
		return "target"
	case HoldNone:
		return "none"
	}
	return fmt.Sprintf("HoldScope(%d)", uint8(h))
}

// Outgoing is a call that a client is about to make, or a message that it is about to send.
type Outgoing struct {
	// Target is that of the connection as it was dialed, and Method the full method, such as /package.Service/Method.
	Target, Method string
	// Message is the request of a unary call, or the message of a stream. It is nil at the opening of a stream.
	Message any
}

// ClientOptions configure a [Client]. The zero value obeys servers, and paces nothing by itself.
type ClientOptions struct {
	// Limiter paces all calls together. Give it a QueueLimit: without a queue a call that would have to wait is not sent. The
	// permit of a [weir.Concurrency] or [overload.Adaptive] is in use until the call ends; an Adaptive learns from calls that
	// servers refuse, or that take too long, and nothing from calls that are canceled. Default: nil, calls are not paced.
	Limiter weir.Acquirer
	// Keyed paces the calls of each key, such as those of each method. It excludes Limiter. Default: nil.
	Keyed Keyed
	// Key returns the key of a call, for Keyed. Default: the full method.
	Key func(ctx context.Context, o *Outgoing) string
	// Cost is how many permits a call takes: a unary call, or the opening of a stream. A call that costs 0 is not paced.
	// Default: 1.
	Cost func(ctx context.Context, o *Outgoing) int64
	// MessageCost is how many permits each message takes that is sent on a stream which the client streams, in addition to its
	// opening. SendMsg waits for them. Default: nil, messages are not paced.
	MessageCost func(ctx context.Context, o *Outgoing) int64
	// MaxWait is how long a call may wait before it is sent, for permits and while a server holds it back: not at all if it is
	// negative. A call whose time would not be enough is not sent, and fails at once with a [NotSentError]. The time until a call
	// is tried again does not count: MaxHold bounds it. Default: 0, as long as its context allows.
	MaxWait time.Duration
	// HoldBy is which calls are held back after a server has refused one with RetryInfo, until the time that it has named.
	// Default: HoldMethod.
	HoldBy HoldScope
	// MaxHold is the max time that a server can hold calls back: from 1 s to 24 h. What exceeds it is cut, and such a call is not
	// tried again. Default: 5 min.
	MaxHold time.Duration
	// Jitter is the max part of the time for which calls are held back that is added to it at random, so that they do not come
	// back together: from 0 to 1. Default: 0, which stands for 0.1.
	Jitter float64
	// MaxRetries is how often a unary call is tried again that a server has refused with RetryInfo, when its time has come: from
	// 0 to 10. A call that was refused without it is not tried again, as it may have been executed. Nor is one whose context ends
	// before. Each try is paced. Default: 0.
	MaxRetries int
	// Skip reports whether a call is neither paced nor held back. Default: none.
	Skip func(ctx context.Context, o *Outgoing) bool
	// OnHold is called when a server holds calls back, with its refusal. Default: nil.
	OnHold func(ctx context.Context, o *Outgoing, d time.Duration, err error)
	// Random is where jitter comes from: numbers from 0 up to, not including, 1. It must be safe for concurrent use.
	// Default: rand.Float64 of math/rand/v2.
	Random func() float64
}

const (
	defaultMaxHold = 5 * time.Minute
	defaultJitter  = 0.1
	mostHold       = 24 * time.Hour
	mostRetries    = 10
)

func (o *ClientOptions) check() error {
	const of = "ClientOptions."
	if err := checkLimiters(of, o.Limiter, o.Keyed); err != nil {
		return err
	}
	switch {
	case o.Limiter != nil && o.Keyed != nil:
		return optionError(of+"Keyed", "set beside Limiter", "the only one of the two")
	case o.Key != nil && o.Keyed == nil:
		return optionError(of+"Key", "set", "nil without Keyed")
	case o.Cost != nil && o.Keyed == nil && o.Limiter == nil:
		return optionError(of+"Cost", "set", "nil without Limiter and Keyed")
	case o.MessageCost != nil && o.Keyed == nil && o.Limiter == nil:
		return optionError(of+"MessageCost", "set", "nil without Limiter and Keyed")
	case o.HoldBy > HoldNone:
		return optionError(of+"HoldBy", o.HoldBy.String(), "HoldMethod, HoldTarget or HoldNone")
	case o.MaxHold != 0 && (o.MaxHold < time.Second || o.MaxHold > mostHold):
		return optionError(of+"MaxHold", o.MaxHold.String(), "from 1s to 24h, or 0 for 5m")
	case !(o.Jitter >= 0 && o.Jitter <= 1): // NaN included
		return optionError(of+"Jitter", fmt.Sprint(o.Jitter), "from 0 to 1")
	case o.MaxRetries < 0 || o.MaxRetries > mostRetries:
		return optionError(of+"MaxRetries", fmt.Sprint(o.MaxRetries), "from 0 to 10")
	}
	return nil
}

func (o *ClientOptions) defaults() {
	if o.MaxHold == 0 {
		o.MaxHold = defaultMaxHold
	}
	if o.Jitter == 0 {
		o.Jitter = defaultJitter
	}
	if o.Keyed != nil && o.Key == nil {
		o.Key = func(_ context.Context, out *Outgoing) string { return out.Method }
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
}
