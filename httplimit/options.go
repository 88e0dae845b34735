package httplimit

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/nils"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/ratelimitfields"
)

// Keyed is a limiter with one limit for each key. It is a [KeyedQueue], whose permits are released when the handler returns, or
// has Take(key string, n int64) weir.Decision, for permits that come back with time. If it has the methods Limit and LimitOf like
// a [weir.Keyed], the policy in the header fields is made from them.
type Keyed interface {
	Peek(key string, n int64) weir.Decision
}

// taker is a Keyed whose permits come back with time.
type taker interface {
	Take(key string, n int64) weir.Decision
}

// KeyedQueue is a [Keyed] whose permits can be released and waited for. A [weir.Keyed] or [weir.KeyedConcurrency] of strings is
// one.
type KeyedQueue interface {
	Keyed
	TryAcquire(key string, n int64) weir.Lease
	Acquire(ctx context.Context, key string, n int64) (weir.Lease, error)
}

// Limit is one of the Limits of a middleware.
type Limit struct {
	// Keyed limits the requests of each key: a [weir.Keyed] or a [weir.KeyedConcurrency] of strings, whose permits are released
	// when the handler returns. Required.
	Keyed keyset.Limiter
	// Key returns the key of a request. One that always returns "" makes it a limit of all requests together. Default: that
	// of the Options.
	Key KeyFunc
}

// Options configure a middleware. One of Limiter, Keyed and Limits is required.
type Options struct {
	// Limiter limits all requests together. A [weir.Chain] applies several limits to each request, all or nothing. An
	// overload.Adaptive learns from the time until the handler returns, and that a request was lost if its context has run into a
	// deadline by then. It does not see the status: see docs/adaptive.md for handlers that fail at once.
	Limiter weir.Acquirer
	// Keyed limits the requests of each key, such as those of each client. It excludes Limiter.
	Keyed Keyed
	// Limits are several limits that apply to each request, such as 10 a second for each client and 10,000 a month for each API
	// key. A request is charged to all of them or to none, as one step: one that its monthly limit refuses has not used up a
	// permit of its client. At most 64. It excludes Limiter and Keyed.
	Limits []Limit
	// Key returns the key of a request, for Keyed and for Limits. Default: ByClient(ClientOptions{}), the network address of
	// the peer.
	Key KeyFunc
	// Cost is how many permits a request takes. A request that costs 0 passes, whatever the state of the limiter. A
	// negative cost is a programming error: it is logged, and the status is 500. Default: every request costs 1.
	Cost func(*http.Request) int64
	// MaxWait is how long a request may wait in the queue of Limiter or of its key, if there is one, instead of being refused at
	// once; weir.Never for as long as the client waits. If a client goes away while it waits, the handler is not called, and the
	// response, which is not received, has status 499. Default: 0, requests do not wait.
	MaxWait time.Duration
	// Skip reports whether a request is not limited, and its response has no fields. Default: none.
	Skip func(*http.Request) bool
	// Status is the status code of refusals: from 400 to 599. Default: 429 (Too Many Requests) if the client used up its limit.
	// It is 503 (Service Unavailable) if the server has no permits for any client: all permits of a weir.Concurrency are in use,
	// the table of keys is full, or the limiter is closed.
	Status int
	// OnRefused is called with each refusal before it is written, and may change it. One for a [KeyError] has a Decision with
	// ReasonInvalid. Default: nil.
	OnRefused func(*http.Request, *Refusal)
	// Policies are the content of RateLimit-Policy. A decision belongs to the policy with the name of the limiter that made it,
	// or to the only one. Default: those of the limiters, which then must have different names.
	Policies []ratelimitfields.Policy
	// PartitionKey returns the share of the server that a request belongs to, which clients are told for all policies. key is ""
	// for Limiter, and that of each limit for Limits. It must not contain anything secret. Nil, and what is longer than 1024
	// bytes, is left out. Default: nothing is told.
	PartitionKey func(r *http.Request, key string) []byte
	// Headers are how limits are told. Default: the fields of the current draft.
	Headers ratelimitfields.Headers
	// Logger logs the requests that could not be decided because an option is misused. Refusals are not logged. Default: nil,
	// nothing is logged.
	Logger *slog.Logger
}

func (o *Options) check() error {
	if err := o.checkLimiters(); err != nil {
		return err
	}
	switch {
	case o.MaxWait < 0:
		return optionError("Options.MaxWait", o.MaxWait.String(), "0 or more, or weir.Never")
	case o.MaxWait > 0 && o.Keyed != nil && !queues(o.Keyed):
		return optionError("Options.MaxWait", o.MaxWait.String(), "0 with a Keyed that has no queues")
	case o.Status != 0 && (o.Status < 400 || o.Status > 599):
		return statusError("Options.Status", o.Status)
	}
	return o.Headers.Check()
}

// checkLimiters wants one of Limiter, Keyed and Limits.
func (o *Options) checkLimiters() error {
	keyed, limiter := o.Keyed != nil, o.Limiter != nil
	switch {
	case o.Limits != nil:
		return o.checkLimits()
	case keyed && nils.Is(o.Keyed):
		return optionError("Options.Keyed", fmt.Sprintf("a nil %T", o.Keyed), "a limiter")
	case limiter && nils.Is(o.Limiter):
		return optionError("Options.Limiter", fmt.Sprintf("a nil %T", o.Limiter), "a limiter")
	case keyed && !queues(o.Keyed) && !takes(o.Keyed):
		return optionError("Options.Keyed", fmt.Sprintf("a %T", o.Keyed), "a KeyedQueue, or have the method Take")
	case keyed && limiter:
		return optionError("Options.Keyed", "set beside Limiter", "the only one of the two")
	case !keyed && !limiter:
		return optionError("Options.Limiter", "nil", "a limiter, or else Keyed or Limits must be set")
	case o.Key != nil && !keyed:
		return optionError("Options.Key", "set", "nil with a Limiter")
	}
	return nil
}

func (o *Options) checkLimits() error {
	switch {
	case o.Limiter != nil || o.Keyed != nil:
		return optionError("Options.Limits", "set beside Limiter or Keyed", "the only one of them")
	case len(o.Limits) == 0 || len(o.Limits) > keyset.MostCharges:
		return optionError("Options.Limits", fmt.Sprintf("%d limits", len(o.Limits)), "from 1 to 64")
	}
	for i := range o.Limits {
		if nils.Is(o.Limits[i].Keyed) {
			return optionError(fmt.Sprintf("Options.Limits[%d].Keyed", i), "nil", "a limiter")
		}
	}
	return nil
}

func statusError(option string, status int) error {
	return optionError(option, fmt.Sprint(status), "from 400 to 599, or 0 for 429 and 503")
}

func queues(k Keyed) bool {
	_, ok := k.(KeyedQueue)
	return ok
}

func takes(k Keyed) bool {
	_, ok := k.(taker)
	return ok
}

func (o *Options) policies() (*ratelimitfields.Policies, error) {
	switch {
	case len(o.Policies) > 0:
		return ratelimitfields.NewPolicies(o.Policies...)
	case o.Limiter != nil:
		return ratelimitfields.NewPolicies(policiesOf(o.Limiter)...)
	case o.Keyed != nil:
		return ratelimitfields.NewPolicies(policyOfKeyed(o.Keyed))
	}
	policies := make([]ratelimitfields.Policy, len(o.Limits))
	for i := range o.Limits {
		policies[i] = policyOfKeyed(o.Limits[i].Keyed)
	}
	return ratelimitfields.NewPolicies(policies...)
}
