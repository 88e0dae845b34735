package grpclimit

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// Keyed is a limiter with one limit for each key. A [weir.Keyed] or [weir.KeyedConcurrency] of strings is one.
type Keyed interface {
	TryAcquire(key string, n int64) weir.Lease
	Acquire(ctx context.Context, key string, n int64) (weir.Lease, error)
	Reserve(ctx context.Context, key string, n int64) (weir.Lease, error)
	TryReserve(key string, n int64) weir.Lease
	Peek(key string, n int64) weir.Decision
}

// ServerOptions configure a [Server]. Exactly one of Engine, Limiter and Keyed is required, or else a Shedder.
type ServerOptions struct {
	// Engine decides by rules and policies. See [Call] for what rules see of a call.
	Engine *policy.Engine
	// Limiter limits all calls together. A [weir.Chain] applies several limits to each call, all or nothing.
	Limiter weir.Acquirer
	// Keyed limits the calls of each key, such as those of each client.
	Keyed Keyed
	// Key returns the key of a call, for Keyed. Default: the network address of the client, which Clients finds.
	Key KeyFunc
	// Shedder is asked before the limits, and refuses calls with codes.Unavailable while the server is under pressure. It
	// excludes Engine, which has its own. Default: nil, none.
	Shedder *overload.Shedder
	// Priority is that of a call, for Shedder. Default: all calls are overload.PriorityNormal.
	Priority func(ctx context.Context, c *Call) overload.Priority
	// Prepare is called once for each call before it is decided, and may complete what rules, keys and costs see of it: set
	// Attributes such as the user of a token that an earlier interceptor has checked, a Route, or a Cost. Default: nil.
	Prepare func(ctx context.Context, c *Call)
	// Cost is how many permits a call takes: a unary call, of which Message is the request, or the opening of a stream, of which
	// no message is known yet. A call that costs 0 is allowed, whatever the state of the limits, unless a rule denies it. A
	// negative cost is a programming error: it is logged, and the client gets codes.Internal. Default: every call costs 1, or
	// what Prepare has set.
	Cost func(ctx context.Context, c *Call) int64
	// MessageCost is how many permits each message takes that the server receives on a stream of the client, in addition to what
	// the opening has cost: see Cost for 0 and negative ones. The one request of a call that only the server streams is part of
	// its opening. Default: nil, messages are free. [Each] charges all the same.
	MessageCost func(ctx context.Context, c *Call) int64
	// MaxWait is how long a call may wait in the queues of the limits, if they have some, instead of being refused at once:
	// weir.Never for as long as its deadline allows. A call whose deadline comes before its turn is refused at once. With an
	// Engine the MaxWait of its policies applies as well. A server that stops gracefully waits for the calls that wait, unless
	// their limiter is closed first, which refuses them with codes.Unavailable. Default: 0, calls do not wait.
	MaxWait time.Duration
	// MessageMaxWait is the same for messages. While one waits, the server reads no further ones, so that flow control slows down
	// a client that sends faster. A message that is refused ends its stream. Default: 0, messages do not wait.
	MessageMaxWait time.Duration
	// Skip reports by its full method whether a call is not limited. Default: SkipHealth, so that a server which is busy does not
	// look dead. See [SkipNone].
	Skip func(ctx context.Context, fullMethod string) bool
	// OnRefused is called with each refusal before it is sent, and may change it. Default: nil.
	OnRefused func(ctx context.Context, r *Refusal)
	// Clients finds the address of the client: by default that of the peer, whatever is in the metadata. Behind trusted proxies
	// it is their entry in x-forwarded-for. It also sets how many bits of an address make a client, for the default of Key; rules
	// get the whole address.
	Clients clientip.Options
	// Headers sends the state of the limits in metadata, ratelimit and ratelimit-policy, with the same text as the header fields
	// of HTTP: in the header of allowed calls, in the trailer of refused ones. With ratelimitfields.NoFields no numbers are sent
	// at all, not in the details of a refusal either, except when to come back. Default: nil, refusals have all in their details,
	// and allowed calls nothing.
	Headers *ratelimitfields.Headers
	// Logger logs the calls that could not be decided because an option is misused. Refusals are not logged. Default: nil,
	// silent.
	Logger *slog.Logger
}

func optionError(option, value, accepted string) error {
	return &weir.OptionError{Option: "grpclimit." + option, Value: value, Accepted: accepted}
}

// isNil reports whether v is a nil pointer in an interface, which is how a forgotten error check arrives here.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

func checkLimiters(of string, limiter weir.Acquirer, keyed Keyed) error {
	if limiter != nil && isNil(limiter) {
		return optionError(of+"Limiter", fmt.Sprintf("a nil %T", limiter), "a limiter")
	}
	if keyed != nil && isNil(keyed) {
		return optionError(of+"Keyed", fmt.Sprintf("a nil %T", keyed), "a limiter")
	}
	return nil
}

func (o *ServerOptions) check() error {
	const of = "ServerOptions."
	deciders := 0
	for _, set := range []bool{o.Engine != nil, o.Limiter != nil, o.Keyed != nil} {
		if set {
			deciders++
		}
	}
	if err := checkLimiters(of, o.Limiter, o.Keyed); err != nil {
		return err
	}
	switch {
	case deciders > 1:
		return optionError(of+"Engine, Limiter and Keyed", fmt.Sprintf("%d of them", deciders), "exactly one of the three")
	case deciders == 0 && o.Shedder == nil:
		return optionError(of+"Limiter", "nil", "a limiter, or else Engine, Keyed or Shedder must be set")
	case o.Key != nil && o.Keyed == nil:
		return optionError(of+"Key", "set", "nil without Keyed")
	case o.Shedder != nil && o.Engine != nil:
		return optionError(of+"Shedder", "set", "nil beside Engine, whose options have one")
	case o.Priority != nil && o.Shedder == nil:
		return optionError(of+"Priority", "set", "nil without Shedder")
	case o.MaxWait < 0:
		return optionError(of+"MaxWait", o.MaxWait.String(), "0 or more, or weir.Never")
	case o.MessageMaxWait < 0:
		return optionError(of+"MessageMaxWait", o.MessageMaxWait.String(), "0 or more, or weir.Never")
	case o.MessageMaxWait > 0 && o.MessageCost == nil:
		return optionError(of+"MessageMaxWait", o.MessageMaxWait.String(), "0 without MessageCost")
	}
	if o.Headers != nil {
		return o.Headers.Check()
	}
	return nil
}

// Each charges n permits for each message: for MessageCost.
func Each(n int64) func(context.Context, *Call) int64 {
	return func(context.Context, *Call) int64 { return n }
}
