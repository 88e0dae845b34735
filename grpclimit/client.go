package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/keytext"
)

// Client paces the calls of gRPC clients by two interceptors, and obeys servers that ask to come back later. All methods are
// safe for concurrent use; one Client may serve several connections. It has no goroutine and nothing to close; what it asks
// stays the caller's. The zero Client is not usable: call [NewClient].
type Client struct {
	o     ClientOptions
	holds holds
}

// NewClient returns a Client, or an error that names the option that cannot be used.
func NewClient(o ClientOptions) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.defaults()
	return &Client{o: o}, nil
}

// NotSentError is the error of a call or a message that was not sent: a limit of the client refuses it, or a server has asked for
// no calls until after its context ends. Its status has the code of [Code], and the same details as that of a server.
type NotSentError struct {
	// Target and Method say which call it was.
	Target, Method string
	// Held is true if a server has asked for it. Then Decision has no policy, and ReasonDeadline.
	Held bool
	// Decision is that of the limit. Its RetryAfter is when the same call can be sent.
	Decision weir.Decision
	// Cost is how many permits it asked for.
	Cost int64

	cause error // what the refusal of the limiter wraps
}

// Error is what was not sent, and why, in words.
func (e *NotSentError) Error() string { return "weir: " + e.Method + " was not sent: " + e.why() }

// Unwrap returns a [*weir.RefusedError] with the decision, which matches [weir.ErrNoQueue] if the limiter has no queue, and
// [weir.ErrClosed] if it is closed.
func (e *NotSentError) Unwrap() error {
	return &weir.RefusedError{Decision: e.Decision, Permits: e.Cost, Err: e.cause}
}

func (e *NotSentError) why() string {
	switch {
	case e.Held:
		return "the server has asked to hold back" + comeBack(&e.Decision)
	case e.Decision.Reason == weir.ReasonClosed: // by the client: the server may go on
		return "the limiter is closed"
	}
	d := e.told()
	return message(&d, e.Cost, false)
}

// told is the decision in words: where there is no queue, no other call waits in it.
func (e *NotSentError) told() weir.Decision {
	d := e.Decision
	if errors.Is(e.cause, weir.ErrNoQueue) {
		d.Reason = weir.ReasonLimited
	}
	return d
}

// GRPCStatus is the error as a status, for package status.
func (e *NotSentError) GRPCStatus() *status.Status {
	r := Refusal{Decision: e.Decision, Cost: e.Cost}
	if !e.Held {
		r.Refused = []weir.Decision{e.told()}
	}
	st := newStatus(&r, false).Proto()
	st.Message = e.Error()
	return status.FromProto(st)
}

// Unary is the interceptor of unary calls. A call waits until no server holds it back and the limits allow it, and is sent. If it
// is refused, it is tried again up to MaxRetries times.
func (c *Client) Unary() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		out := Outgoing{Target: cc.Target(), Method: method, Message: req}
		if c.o.Skip != nil && c.o.Skip(ctx, &out) {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		for try := 0; ; try++ {
			lease, err := c.open(ctx, &out)
			if err != nil {
				return err
			}
			err = c.send(lease, func() error { return invoker(ctx, method, req, reply, cc, opts...) })
			if err == nil {
				return nil
			}
			delay := c.obey(ctx, &out, err)
			if delay == 0 || try >= c.o.MaxRetries || !c.pause(ctx, delay) {
				return err
			}
		}
	}
}

// send makes a call and ends its lease, also if it panics.
func (c *Client) send(lease weir.Lease, call func() error) (err error) {
	defer lease.Release()
	err = call()
	c.learn(lease, err)
	return err
}

// learn ends the lease of a call that was sent, by what became of it: a limit that adapts learns whether the server was
// overloaded, and nothing from a call that was canceled.
func (c *Client) learn(lease weir.Lease, err error) {
	if err != nil {
		switch codeOf(err) {
		case codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded:
			lease.Drop()
		case codes.Canceled:
			ignore(lease) // Cancel would give back what the call has cost
		default:
		}
	}
	lease.Release()
}

//nolint:errcheck,forcetypeassert,gochecknoglobals // package weir has set it, which is initialized before
var ignore = inside.Ignore.(func(weir.Lease))

// obey holds calls back if a server has asked for it, and returns when a call may be tried again: 0 if it may not.
func (c *Client) obey(ctx context.Context, out *Outgoing, err error) time.Duration {
	delay := retryDelay(err)
	if delay == 0 {
		return 0
	}
	if c.o.HoldBy != HoldNone {
		hold := min(delay, c.o.MaxHold)
		c.holds.add(c.held(out), hold)
		if c.o.OnHold != nil {
			c.o.OnHold(ctx, out, hold, err)
		}
	}
	if delay > c.o.MaxHold {
		return 0
	}
	return delay
}

func (c *Client) held(out *Outgoing) held {
	if c.o.HoldBy == HoldTarget {
		return held{target: out.Target}
	}
	return held{out.Target, out.Method}
}

// pause waits for d and some more, and never to the end of the context. It does not begin if there is not enough time.
func (c *Client) pause(ctx context.Context, d time.Duration) bool {
	more := time.Duration(c.o.Random() * c.o.Jitter * float64(d)) // d is at most 24 h
	if deadline, ok := ctx.Deadline(); ok {
		spare := time.Until(deadline) - d
		if spare <= 0 {
			return false
		}
		more = min(more, spare/2)
	}
	return clock.Sleep(ctx, d+more)
}

// open waits until a call may be sent. The lease must end with it.
func (c *Client) open(ctx context.Context, out *Outgoing) (weir.Lease, error) {
	wait, cancel := c.bounded(ctx)
	defer cancel()
	cost := int64(1)
	if c.o.Cost != nil {
		cost = c.o.Cost(ctx, out)
	}
	for {
		if err := c.outlast(ctx, wait, out); err != nil {
			return weir.Lease{}, err
		}
		lease, err := c.acquire(ctx, wait, out, cost)
		if err != nil {
			return weir.Lease{}, err
		}
		if c.rest(out) == 0 {
			return lease, nil
		}
		lease.Cancel() // a server has held the call back while it waited for its permits
	}
}

// bounded is ctx, bounded by MaxWait.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.o.MaxWait <= 0 {
		return ctx, func() {}
	}
	return waiting(ctx, c.o.MaxWait)
}

func (c *Client) rest(out *Outgoing) time.Duration {
	if c.o.HoldBy == HoldNone {
		return 0
	}
	return c.holds.rest(c.held(out))
}

// outlast waits until no server holds the call back.
func (c *Client) outlast(ctx, wait context.Context, out *Outgoing) error {
	for rest := c.rest(out); rest > 0; rest = c.rest(out) {
		if ctx.Err() != nil {
			return gone(ctx)
		}
		if c.o.MaxWait < 0 || !c.pause(wait, rest) {
			if ctx.Err() != nil {
				return gone(ctx)
			}
			e := c.notSent(out, weir.Decision{Reason: weir.ReasonDeadline, RetryAfter: rest}, 0)
			e.Held = true
			return e
		}
	}
	return nil
}

func (c *Client) notSent(out *Outgoing, d weir.Decision, cost int64) *NotSentError {
	return &NotSentError{Target: out.Target, Method: out.Method, Decision: d, Cost: cost}
}

// acquire reserves the permits of a call or a message, so that they can be given back as long as it was not sent.
func (c *Client) acquire(ctx, wait context.Context, out *Outgoing, cost int64) (l weir.Lease, err error) {
	switch {
	case ctx.Err() != nil:
		return l, gone(ctx)
	case cost < 0:
		text := fmt.Sprintf("weir: grpclimit: the cost of %s is %d: must be 0 or more", out.Method, cost)
		return l, status.Error(codes.Internal, text)
	case cost == 0 || c.o.Limiter == nil && c.o.Keyed == nil:
		return l, nil
	}
	var key string
	if c.o.Keyed != nil {
		key = keytext.Whole(c.o.Key(ctx, out))
	}
	l, err = c.reserve(wait, key, cost)
	switch {
	case err == nil && l.Allowed():
		return l, nil
	case err == nil, errors.Is(err, weir.ErrRefused):
		if l.Decision().Reason == weir.ReasonInvalid {
			return l, status.Error(codes.Internal, l.Err().Error())
		}
		e := c.notSent(out, l.Decision(), cost)
		if err == nil {
			err = l.Err()
		}
		if refused, ok := errors.AsType[*weir.RefusedError](err); ok {
			e.cause = refused.Err
		}
		return l, e
	case ctx.Err() != nil:
		return l, gone(ctx)
	case errors.Is(wait.Err(), context.DeadlineExceeded): // MaxWait is over
		d := c.peek(key, cost)
		if d.Allowed { // perhaps it was over before anything was tried
			if l = c.try(key, cost); l.Allowed() {
				return l, nil
			}
		}
		return l, c.notSent(out, late(d), cost)
	}
	return l, status.Error(codes.Internal, err.Error())
}

func (c *Client) peek(key string, cost int64) weir.Decision {
	if c.o.Keyed != nil {
		return c.o.Keyed.Peek(key, cost)
	}
	return c.o.Limiter.Peek(cost)
}

func (c *Client) reserve(wait context.Context, key string, cost int64) (weir.Lease, error) {
	switch {
	case c.o.MaxWait < 0:
		return c.try(key, cost), nil
	case c.o.Keyed != nil:
		return c.o.Keyed.Reserve(wait, key, cost)
	}
	return c.o.Limiter.Reserve(wait, cost)
}

func (c *Client) try(key string, cost int64) weir.Lease {
	if c.o.Keyed != nil {
		return c.o.Keyed.TryReserve(key, cost)
	}
	return c.o.Limiter.TryReserve(cost)
}
