package grpclimit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy"
)

// decide asks the limits for a call or a message. The error is a status; if it is nil, h has what must be released.
func (s *Server) decide(ctx context.Context, c *Call, cost int64, wait time.Duration, h *hold, a answer) error {
	switch {
	case ctx.Err() != nil:
		return gone(ctx)
	case cost < 0:
		return s.fail(ctx, c, "grpclimit: the cost is negative", slog.Int64("cost", cost))
	case cost == 0:
		if s.o.Engine != nil && s.o.Engine.Denies(&c.Request) != nil {
			d := weir.Decision{Reason: weir.ReasonDenied, RetryAfter: weir.Never}
			return s.refuse(ctx, &Refusal{Call: c, Decision: d}, nil, a)
		}
		return nil
	}
	if s.o.Shedder != nil {
		priority := overload.PriorityNormal
		if s.o.Priority != nil {
			priority = s.o.Priority(ctx, c)
		}
		if d := s.o.Shedder.Decide(priority); !d.Allowed {
			return s.refuse(ctx, &Refusal{Call: c, Decision: d, Cost: cost}, nil, a)
		}
	}
	switch {
	case s.o.Engine != nil:
		return s.byEngine(ctx, c, wait, h, a)
	case s.o.Limiter != nil || s.o.Keyed != nil:
		return s.byLimiter(ctx, c, cost, wait, h, a)
	}
	return nil // there is only a shedder
}

// waiting bounds ctx by wait. The timer is spared where ctx ends earlier anyway.
func waiting(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); wait == weir.Never || ok && time.Until(deadline) <= wait {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, wait)
}

func (s *Server) byLimiter(ctx context.Context, c *Call, cost int64, wait time.Duration, h *hold, a answer) error {
	var key string
	if s.o.Keyed != nil {
		var err error
		if key, err = s.o.Key(ctx, c); err != nil {
			return s.fail(ctx, c, "grpclimit: the key could not be told", slog.Any("error", err))
		}
		key = keytext.Whole(key)
	}
	l, d, err := s.acquire(ctx, key, cost, wait)
	switch {
	case err != nil && ctx.Err() != nil:
		return gone(ctx)
	case err != nil:
		return s.fail(ctx, c, "grpclimit: the limiter failed", slog.Any("error", err))
	case d.Allowed:
		h.lease = l
		if s.o.Headers != nil && c.Protocol == ProtocolCall {
			s.told.allowed(ctx, &s.o, a, s.told.one(&d, key))
		}
		return nil
	case d.Reason == weir.ReasonInvalid:
		return s.fail(ctx, c, "grpclimit: the limiter does not accept the call", slog.Int64("cost", cost))
	}
	refusal := &Refusal{Call: c, Decision: d, Cost: cost, Key: key, Refused: []weir.Decision{d}}
	return s.refuse(ctx, refusal, s.told.one(&d, key), a)
}

func (s *Server) acquire(
	ctx context.Context, key string, cost int64, wait time.Duration,
) (l weir.Lease, _ weir.Decision, err error) {
	if wait == 0 {
		l = s.try(key, cost)
		return l, l.Decision(), nil
	}
	bounded, cancel := waiting(ctx, wait)
	defer cancel()
	if s.o.Keyed != nil {
		l, err = s.o.Keyed.Acquire(bounded, key, cost)
	} else {
		l, err = s.o.Limiter.Acquire(bounded, cost)
	}
	switch {
	case errors.Is(err, weir.ErrRefused):
		return l, l.Decision(), nil
	case err == nil || ctx.Err() != nil || bounded.Err() == nil:
		return l, l.Decision(), err
	}
	// MaxWait is over, and the client is still there.
	var d weir.Decision
	if s.o.Keyed != nil {
		d = s.o.Keyed.Peek(key, cost)
	} else {
		d = s.o.Limiter.Peek(cost)
	}
	if d.Allowed { // perhaps it was over before anything was tried
		if l = s.try(key, cost); l.Allowed() {
			return l, l.Decision(), nil
		}
	}
	return l, late(d), nil
}

func (s *Server) try(key string, cost int64) weir.Lease {
	if s.o.Keyed != nil {
		return s.o.Keyed.TryAcquire(key, cost)
	}
	return s.o.Limiter.TryAcquire(cost)
}

// late makes of what the limit would decide now the refusal of a call that has waited as long as it may.
func late(d weir.Decision) weir.Decision {
	if d.Allowed {
		d.RetryAfter = 1 // a permit came too late
	}
	d.Allowed, d.Reason = false, weir.ReasonDeadline
	return d
}

func (s *Server) byEngine(ctx context.Context, c *Call, wait time.Duration, h *hold, a answer) error {
	v := verdicts.Get().(*policy.Verdict)
	free := func() {
		v.Release()
		verdicts.Put(v)
	}
	var err error
	if wait == 0 {
		s.o.Engine.Take(&c.Request, v)
	} else {
		bounded, cancel := waiting(ctx, wait)
		if err = s.o.Engine.Wait(bounded, &c.Request, v); errors.Is(err, weir.ErrRefused) {
			err = nil // the verdict says so
		}
		cancel()
	}
	switch {
	case err == nil && v.Allowed:
		h.verdict = v
		if s.o.Headers != nil && c.Protocol == ProtocolCall {
			s.told.allowed(ctx, &s.o, a, s.told.parts(v))
		}
		return nil
	case (wait > 0 || v.Decision().Reason == weir.ReasonCanceled) && ctx.Err() != nil:
		free()
		return gone(ctx)
	case err != nil:
		free()
		return s.fail(ctx, c, "grpclimit: the engine failed", slog.Any("error", err))
	}
	defer free()
	return s.refuse(ctx, refusalOf(c, v), s.told.parts(v), a)
}

// refusalOf is what a verdict says of a call that it refuses.
func refusalOf(c *Call, v *policy.Verdict) *Refusal {
	r := &Refusal{Call: c, Decision: v.Decision(), Cost: max(c.Cost, 1)}
	if p, ok := v.BindingPart(); ok {
		r.Cost = p.Cost
		r.Key = string(p.Key)
	}
	r.Decision.Allowed = false
	for i := range v.Parts {
		if d := v.Parts[i].Decision; !d.Allowed {
			r.Refused = append(r.Refused, d)
		}
	}
	return r
}
