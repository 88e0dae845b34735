package rlsapi

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/kuadrantv1"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/httplimit"
)

// service answers the calls for decisions.
type service struct {
	o         Options
	fields    answer.Fields
	calls     calls
	receiving *receiving

	should, checked, reported methodCounts
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
	mostKeptReply = 16 << 10
)

func (p *calls) put(c *call) {
	if cap(c.descriptors) > mostKept || cap(c.q.entries) > mostKept*mostKept || cap(c.reply) > mostKeptReply {
		return
	}
	c.release()
	p.pool.Put(c)
}

func newService(o Options) *service {
	s := &service{o: o, receiving: newReceiving(), fields: answer.Fields{Headers: httplimit.Headers{Fields: o.Fields}}}
	s.calls.service = s
	return s
}

// register offers the services. Their methods are not those that were generated, which decode and encode in another way.
func (s *service) register(to *grpc.Server) {
	envoy := ratelimitv3.RateLimitService_ServiceDesc
	envoy.HandlerType = (*any)(nil)
	envoy.Methods = []grpc.MethodDesc{s.method("ShouldRateLimit", &s.should, (*call).decide)}
	to.RegisterService(&envoy, s)
	kuadrant := kuadrantv1.RateLimitService_ServiceDesc
	kuadrant.HandlerType = (*any)(nil)
	kuadrant.Methods = []grpc.MethodDesc{
		s.method("CheckRateLimit", &s.checked, (*call).peek),
		s.method("Report", &s.reported, (*call).report),
	}
	to.RegisterService(&kuadrant, s)
}

// method is a method that asks the engine in one way.
func (s *service) method(name string, counts *methodCounts, ask func(*call, context.Context) error) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			c, err := s.receiving.receive(s, dec)
			if err != nil {
				counts.failed.Add(1)
				return nil, err
			}
			seat := seatOf(ctx)
			if !seat.Use() {
				counts.failed.Add(1)
				s.calls.put(c)
				return nil, status.Error(codes.Unavailable, "weir: the connection had to make room for another one")
			}
			defer seat.Rest()
			if err := c.answer(ctx, ask); err != nil {
				counts.failed.Add(1)
				s.calls.put(c)
				return nil, err
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

// mostTries is how often a call is decided on anew, a millisecond later, if its configuration is no longer the one in force.
const mostTries = 100

// answer makes the reply to a call.
func (c *call) answer(ctx context.Context, ask func(*call, context.Context) error) error {
	for tries := 0; ; tries++ {
		if err := c.prepare(ctx); err != nil {
			return err
		}
		if err := ask(c, ctx); err != nil {
			return err
		}
		if !c.outdated() {
			break
		}
		if tries == mostTries {
			return status.Error(codes.Unavailable, "weir: the configuration is being replaced")
		}
		if err := c.again(ctx); err != nil {
			return err
		}
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
		"waiting":           s.receiving.waiting.Load(),
		"should_rate_limit": of(&s.should), "check_rate_limit": of(&s.checked), "report": of(&s.reported),
	}
}
