package rlsapi

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/kuadrantv1"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/front/grpcloop"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// service answers the calls for decisions.
type service struct {
	o       Options
	fields  answer.Fields
	formed  bool // replies can be made by forms
	calls   calls
	methods [len(methodNames)]method
	waits   atomic.Pointer[waits]

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
	mostKeptBytes = 4 << 10
)

func (p *calls) put(c *call) {
	if cap(c.descriptors) > mostKept || cap(c.q.entries) > mostKept*mostKept || c.length > mostKeptBytes {
		return
	}
	c.release()
	p.pool.Put(c)
}

func newService(o Options) *service {
	s := &service{o: o, fields: answer.Fields{Headers: ratelimitfields.Headers{Fields: o.Fields}}, formed: o.formed()}
	s.calls.service = s
	s.makeMethods()
	return s
}

// register has the services known to reflection and health. Their methods are answered by the loop.
func (s *service) register(to *grpc.Server) {
	for _, d := range [...]grpc.ServiceDesc{ratelimitv3.RateLimitService_ServiceDesc, kuadrantv1.RateLimitService_ServiceDesc} {
		d.HandlerType, d.Methods = (*any)(nil), nil
		to.RegisterService(&d, s)
	}
}

// method is one that asks the engine in its way.
type method struct {
	counts *methodCounts
	ask    func(*call, context.Context) error
	// refuses says that a request on which nothing can be decided is refused; elsewhere that is an error.
	refuses bool
}

// methodNames are the methods, by their numbers.
var methodNames = [...]string{
	ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, kuadrantv1.RateLimitService_CheckRateLimit_FullMethodName,
	kuadrantv1.RateLimitService_Report_FullMethodName,
}

func (s *service) makeMethods() {
	s.methods = [len(methodNames)]method{
		{&s.should, (*call).decide, true}, {&s.checked, (*call).peek, true}, {&s.reported, (*call).report, false},
	}
}

// Method implements [grpcloop.Calls].
func (s *service) Method(name string) (number int, ok bool) {
	number = slices.Index(methodNames[:], name)
	return number, number >= 0
}

// waits is whether the policies of a set may have calls wait.
type waits struct {
	set    *policy.Set
	shared bool
}

// Waits implements [grpcloop.Calls].
func (s *service) Waits() bool {
	set := s.o.Limits.Engine().Set()
	w := s.waits.Load()
	if w == nil || w.set != set {
		shared := slices.ContainsFunc(set.Policies, func(p policy.Policy) bool { return p.Shared() })
		w = &waits{set, shared}
		s.waits.Store(w)
	}
	return w.shared
}

// Answer implements [grpcloop.Calls].
func (s *service) Answer(
	ctx context.Context, number int, request []byte, fault *grpcloop.FaultError, reply []byte,
) ([]byte, error) {
	m, c := &s.methods[number], s.calls.get()
	defer s.calls.put(c)
	c.reply = reply
	var err error
	if fault != nil {
		err = &unfit{fault.Reason}
	} else {
		c.length = len(request)
		if err = c.q.decode(c.texts.keep(request), isASCII(request)); err == nil {
			err = c.answer(ctx, m.ask)
		}
	}
	if err != nil {
		u, ok := errors.AsType[*unfit](err)
		if !ok || !m.refuses {
			m.counts.failed.Add(1)
			return nil, err
		}
		c.refuse(u)
	}
	if c.over {
		m.counts.over.Add(1)
	} else {
		m.counts.ok.Add(1)
	}
	return c.reply, nil
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
	if c.fill() {
		return nil
	}
	from := len(c.reply)
	c.conclude(ctx)
	c.encode()
	c.learn(from)
	return nil
}

func (s *service) status() map[string]any {
	of := func(m *methodCounts) map[string]uint64 {
		return map[string]uint64{"ok": m.ok.Load(), "over_limit": m.over.Load(), "failed": m.failed.Load()}
	}
	return map[string]any{
		"unfit_requests":    s.unfit.Load(),
		"should_rate_limit": of(&s.should), "check_rate_limit": of(&s.checked), "report": of(&s.reported),
	}
}
