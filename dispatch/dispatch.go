package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/tiers"
)

// Handler handles one message of a connection.
type Handler[C, M any] func(ctx context.Context, conn C, msg M) error

// Middleware makes a handler that does something before or after another one, or in place of it.
type Middleware[C, M any] func(next Handler[C, M]) Handler[C, M]

// Notice is what a connection is told about a message that was refused.
type Notice struct {
	// Op is the opcode of the message.
	Op uint64
	// Decision is why it was refused, and when to come back. Its RetryAfter may be weir.Never, or 0 after Close.
	Decision weir.Decision
}

// Options configure a [Dispatcher] for connections of type C and messages of type M.
type Options[C, M any] struct {
	// Guard limits the messages of handlers without an attribute, and those with an unknown opcode, by their address, all
	// together. Required. The Dispatcher does not close it.
	Guard *guard.Guard
	// Tiers limit the messages of handlers with an attribute, by opcode and address. Required if there are any. The
	// Dispatcher does not close them.
	Tiers *tiers.Tiers
	// Op is the opcode of a message. Required.
	Op func(msg M) uint64
	// Peer is the peer of a connection, the same at every call. Required.
	Peer func(conn C) *Peer
	// Notify tells a connection that a message was refused. Dispatch calls it and waits for it, and returns its error. Default:
	// nil, nothing is sent.
	Notify func(ctx context.Context, conn C, n Notice) error
	// Cooldown is how long a connection is not told of further refusals of the same kind: from 1 ms to 1 h. There are two
	// kinds, those to slow down, and those where Reason.Hard is true. Default: 200 ms.
	Cooldown time.Duration
	// Clock replaces the monotonic clock of the process for the cooldown. Default: nil.
	Clock weir.Clock
}

var (
	// ErrUnknownOp is returned for a message whose opcode has no handler.
	ErrUnknownOp = errors.New("weir: unknown opcode")
	// ErrNoPeer is returned for a connection of which Options.Peer knows none.
	ErrNoPeer = errors.New("weir: connection without a peer")
)

// Dispatcher calls the handler of each message, unless its connection has sent too many: such a message is dropped before
// anything else is done with it. The connection is told at most once per cooldown and kind of refusal, so a flood does not cause
// another one.
//
// The attribute of a handler chooses the limit. With one, Tiers limit each opcode of an address by itself; without one, Guard
// limits the address. Both ignore the port of an address, so a new connection has no new limit.
//
// All methods are safe for concurrent use. A Dispatcher has no goroutine and nothing to close. It keeps nothing about a
// connection: that is in its [Peer]. A handler that panics does so through Dispatch, and no permit is lost. The zero Dispatcher
// is not usable: call [New].
type Dispatcher[C, M any] struct {
	o       Options[C, M]
	start   time.Time
	unknown *route[C, M]

	mu     sync.Mutex // held to register
	routes atomic.Pointer[map[uint64]*route[C, M]]

	notices, silent atomic.Int64
}

// route is a limited handler and its counts.
type route[C, M any] struct {
	tier    *tiers.Tier // nil without an attribute
	handler Handler[C, M]
	passed  atomic.Int64
	dropped [kinds]atomic.Int64
}

// New returns a dispatcher without handlers, or an error that names the option that cannot be used.
func New[C, M any](o Options[C, M]) (*Dispatcher[C, M], error) {
	const of = "dispatch.Options."
	for _, c := range []struct {
		name    string
		missing bool
	}{{"Guard", o.Guard == nil}, {"Op", o.Op == nil}, {"Peer", o.Peer == nil}} {
		if c.missing {
			return nil, &weir.OptionError{Option: of + c.name, Value: "nil", Accepted: "given"}
		}
	}
	if o.Cooldown == 0 {
		o.Cooldown = 200 * time.Millisecond
	}
	if o.Cooldown < time.Millisecond || o.Cooldown > time.Hour {
		return nil, &weir.OptionError{Option: of + "Cooldown", Value: o.Cooldown.String(), Accepted: "from 1ms to 1h"}
	}
	d := &Dispatcher[C, M]{o: o, start: time.Now()}
	d.routes.Store(&map[uint64]*route[C, M]{})
	d.unknown = &route[C, M]{handler: func(_ context.Context, _ C, msg M) error {
		return fmt.Errorf("%w %d", ErrUnknownOp, o.Op(msg))
	}}
	return d, nil
}

// Handle registers the handler of an opcode, with the limit that it asks for, or nil. Middlewares are called after the limit, the
// first one first. The error is about an opcode that is registered twice, a missing handler or middleware, or an attribute that
// is not a number or for which there are no Tiers.
func (d *Dispatcher[C, M]) Handle(op uint64, a *tiers.Attribute, h Handler[C, M], around ...Middleware[C, M]) error {
	if h == nil {
		return fmt.Errorf("weir: handler of opcode %d is nil: must be given", op)
	}
	for i, m := range slices.Backward(around) {
		if m != nil {
			h = m(h)
		}
		if m == nil || h == nil {
			return fmt.Errorf("weir: middleware %d of opcode %d is nil, or makes a handler that is: must be given", i+1, op)
		}
	}
	_, err := d.register(op, a, h)
	return err
}

// Limit is the limit of an opcode as a middleware, for programs that find the handlers of their messages themselves. It registers
// the opcode like [Dispatcher.Handle], for the counts, but without a handler for Dispatch. The handlers that the middleware makes
// are limited as op, whatever opcode a message has.
func (d *Dispatcher[C, M]) Limit(op uint64, a *tiers.Attribute) (Middleware[C, M], error) {
	r, err := d.register(op, a, nil)
	if err != nil {
		return nil, err
	}
	return func(next Handler[C, M]) Handler[C, M] {
		return func(ctx context.Context, conn C, msg M) error {
			return d.serve(ctx, conn, msg, op, r, next)
		}
	}, nil
}

func (d *Dispatcher[C, M]) register(op uint64, a *tiers.Attribute, h Handler[C, M]) (*route[C, M], error) {
	r := &route[C, M]{handler: h}
	if a != nil {
		if d.o.Tiers == nil {
			return nil, fmt.Errorf("weir: opcode %d has an attribute, but dispatch.Options.Tiers is nil: must be given", op)
		}
		tier, err := d.o.Tiers.Tier(a)
		if err != nil {
			return nil, fmt.Errorf("weir: opcode %d: %w", op, err)
		}
		r.tier = &tier
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	routes := maps.Clone(*d.routes.Load())
	if routes[op] != nil {
		return nil, fmt.Errorf("weir: opcode %d is registered twice: must be once", op)
	}
	routes[op] = r
	d.routes.Store(&routes)
	return r, nil
}

// Dispatch calls the handler of msg and returns its error. A message beyond its limit is dropped, which is no error: it returns
// nil, or the error of Notify. Guard limits a message with an unknown opcode, and the error is then [ErrUnknownOp]. Tiers refuse
// a connection without an address; for Guard it is an error.
func (d *Dispatcher[C, M]) Dispatch(ctx context.Context, conn C, msg M) error {
	op := d.o.Op(msg)
	r := (*d.routes.Load())[op]
	if r == nil || r.handler == nil {
		r = d.unknown
	}
	return d.serve(ctx, conn, msg, op, r, r.handler)
}

func (d *Dispatcher[C, M]) serve(ctx context.Context, conn C, msg M, op uint64, r *route[C, M], next Handler[C, M]) error {
	peer := d.o.Peer(conn)
	if peer == nil {
		return ErrNoPeer
	}
	decision, err := d.decide(op, r, peer) //nolint:contextcheck // what limiters do by themselves outlives the message
	switch {
	case err != nil:
		return err
	case decision.Allowed:
		r.passed.Add(1)
		return next(ctx, conn, msg)
	}
	k := kindOf(decision.Reason)
	r.dropped[k].Add(1)
	if d.o.Notify == nil || !peer.tell(k, d.now(), d.o.Cooldown) {
		d.silent.Add(1)
		return nil
	}
	d.notices.Add(1)
	return d.o.Notify(ctx, conn, Notice{op, decision})
}

func (d *Dispatcher[C, M]) decide(op uint64, r *route[C, M], peer *Peer) (weir.Decision, error) {
	switch {
	case r.tier != nil:
		return r.tier.Check(op, peer.addr), nil
	case peer.addr.IsValid():
		return d.o.Guard.CheckAddr(peer.addr)
	default:
		return d.o.Guard.Check(peer.name)
	}
}

func (d *Dispatcher[C, M]) now() int64 {
	if d.o.Clock != nil {
		return d.o.Clock.Now()
	}
	return int64(time.Since(d.start))
}
