package rlsapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/kuadrantv1"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/ratelimitfields"
)

// service answers the calls for decisions.
type service struct {
	o         Options
	fields    answer.Fields
	calls     calls
	receiving *receiving

	should, checked, reported methodCounts

	unfit     atomic.Uint64 // requests that were refused, as nothing could be decided on them
	toldUnfit atomic.Int64  // when the log was told of one last, in seconds
}

// methodCounts count the calls of a method by their answers.
type methodCounts struct{ ok, over, failed atomic.Uint64 }

// calls are those that can be used again.
type calls struct {
	service *service
	pool    sync.Pool
}

func (p *calls) get() *call {
	if c, ok := p.pool.Get().(*call); ok {
		return c
	}
	return &call{service: p.service}
}

// The most that a call holds on to when it is used again.
const (
	mostKept      = 16
	mostKeptBytes = 16 << 10
)

func (p *calls) put(c *call) {
	if cap(c.descriptors) > mostKept || cap(c.q.entries) > mostKept*mostKept || cap(c.reply) > mostKeptBytes ||
		c.length > mostKeptBytes {
		return
	}
	c.release()
	p.pool.Put(c)
}

func newService(o Options) *service {
	s := &service{o: o, receiving: newReceiving(), fields: answer.Fields{Headers: ratelimitfields.Headers{Fields: o.Fields}}}
	s.calls.service = s
	return s
}

// register offers the services. Their methods are not those that were generated, which decode and encode in another way.
func (s *service) register(to *grpc.Server) {
	envoy := ratelimitv3.RateLimitService_ServiceDesc
	envoy.HandlerType = (*any)(nil)
	envoy.Methods = []grpc.MethodDesc{s.method("ShouldRateLimit", &s.should, (*call).decide, (*call).refuse)}
	to.RegisterService(&envoy, s)
	kuadrant := kuadrantv1.RateLimitService_ServiceDesc
	kuadrant.HandlerType = (*any)(nil)
	kuadrant.Methods = []grpc.MethodDesc{
		s.method("CheckRateLimit", &s.checked, (*call).peek, (*call).refuse),
		s.method("Report", &s.reported, (*call).report, nil),
	}
	to.RegisterService(&kuadrant, s)
}

// method is a method that asks the engine in one way. Where there is a refuse, a request on which nothing can be decided is
// refused by it; elsewhere that is an error.
func (s *service) method(
	name string, counts *methodCounts, ask func(*call, context.Context) error, refuse func(*call, *unfit),
) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(_ any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			c, err := s.receiving.receive(ctx, s)
			seat := seatOf(ctx)
			if !seat.Use() {
				counts.failed.Add(1)
				s.calls.put(c)
				return nil, status.Error(codes.Unavailable, "weir: the connection had to make room for another one")
			}
			defer seat.Rest()
			if err == nil {
				err = c.answer(ctx, ask)
			}
			if err != nil {
				u, ok := errors.AsType[*unfit](err)
				if !ok || refuse == nil {
					counts.failed.Add(1)
					s.calls.put(c)
					return nil, err
				}
				refuse(c, u)
			}
			if c.over {
				counts.over.Add(1)
			} else {
				counts.ok.Add(1)
			}
			return c, nil // the codec ends it
		},
	}
}

// refuse makes the reply to a request on which nothing can be decided.
func (c *call) refuse(u *unfit) {
	c.service.tell(u)
	c.forget()
	c.unfit, c.over, c.statuses = true, true, c.statuses[:0]
	for range c.q.descriptors {
		c.statuses = append(c.statuses, told{over: true})
	}
	c.encode()
}

// tell tells the log of a request on which nothing could be decided, at most once a minute.
func (s *service) tell(u *unfit) {
	n := s.unfit.Add(1)
	now, last := time.Now().Unix(), s.toldUnfit.Load()
	if now-last >= 60 && s.toldUnfit.CompareAndSwap(last, now) {
		s.o.Logger.Warn("a request on which nothing can be decided was refused", "error", u.reason, "refused_in_all", n)
	}
}

// maxTries is how often a call is decided on at most, if another configuration comes into force each time.
const maxTries = 10

var errReplaced = &unfit{"the configuration is being replaced"}

// answer makes the reply to a call.
func (c *call) answer(ctx context.Context, ask func(*call, context.Context) error) error {
	for tries := 1; ; tries++ {
		if err := c.prepare(ctx); err != nil {
			return err
		}
		err := ask(c, ctx)
		if c.outdated() {
			if tries == maxTries {
				return errReplaced
			}
			c.forget()
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	c.conclude(ctx)
	c.encode()
	return nil
}

func (s *service) status() map[string]any {
	of := func(m *methodCounts) map[string]uint64 {
		return map[string]uint64{"ok": m.ok.Load(), "over_limit": m.over.Load(), "failed": m.failed.Load()}
	}
	return map[string]any{
		"waiting": s.receiving.waiting.Load(), "unfit_requests": s.unfit.Load(),
		"should_rate_limit": of(&s.should), "check_rate_limit": of(&s.checked), "report": of(&s.reported),
	}
}
