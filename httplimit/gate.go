package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/internal/memo"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// Gate is a middleware with a [policy.Engine] in place of a limiter: its rules choose the limits of a request, and a request is
// charged to all of them or to none.
//
//	gate, err := httplimit.NewGate(httplimit.GateOptions{Engine: engine, Routes: mux})
//	...
//	err = http.ListenAndServe(":8080", gate.Handler(mux))
//
// Every response has all limits of its request, the one at [policy.Verdict].Binding first. The body of a refusal names those that
// have refused. A request that a rule denies is refused with status 403, without a word of limits. Otherwise a Gate behaves as
// the middleware of [New] does: fields are set before the handler is called; the handler gets the ResponseWriter as it is;
// permits are given back when the handler returns or panics; the status of a refusal is set before the hook, which may change it.
//
// A request is charged once, also where it passes several gates with the same engine. [Mux] is a Gate whose handlers name their
// policies in code. All methods are safe for concurrent use. The zero Gate is not usable: call [NewGate].
type Gate struct {
	front

	options GateOptions
	texts   memo.Table[quotaKey, *ratelimitfields.Policies]
	passes  sync.Pool // of *pass

	allowed, exempt atomic.Uint64
}

// GateStats counts what became of requests.
type GateStats struct {
	// Allowed counts the requests whose handler was called because their limits allowed them. Exempt counts those that a rule
	// has exempted from all limits.
	Allowed uint64
	Exempt  uint64
	// Refused counts those that were refused, by a limit or a rule, and Aborted those whose client went away while they waited.
	// Failed counts those that could not be decided because an option is misused.
	Refused uint64
	Aborted uint64
	Failed  uint64
}

// NewGate returns a Gate, or an error that names the option that cannot be used.
func NewGate(o GateOptions) (*Gate, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Clients == nil {
		resolver, err := clientip.New(clientip.Options{})
		if err != nil {
			return nil, err
		}
		o.Clients = resolver
	}
	g := &Gate{options: o}
	g.passes.New = func() any { return &pass{gate: g} }
	g.front = front{
		skip: o.Skip, cost: o.Cost, status: o.Status, onRefused: o.OnRefused, logger: logger(o.Logger), decider: "engine",
		charged: o.Engine, begin: func() asker { return g.passes.Get().(*pass) },
	}
	return g, nil
}

// Stats returns the counts so far.
func (g *Gate) Stats() GateStats {
	return GateStats{
		Allowed: g.allowed.Load(), Exempt: g.exempt.Load(), Refused: g.refused.Load(),
		Aborted: g.aborted.Load(), Failed: g.failed.Load(),
	}
}

// Handler is the gate in front of next.
func (g *Gate) Handler(next http.Handler) http.Handler { return g.handler(next) }

// pass is the memory of one request in a gate.
type pass struct {
	gate     *Gate
	cost     int64
	request  policy.Request
	verdict  policy.Verdict
	policies ratelimitfields.Policies
	states   []ratelimitfields.State
	recent   recentTexts
	reserved *Reserved // nil if nothing is reserved
}

// admission is the context of a request that was decided.
type admission struct {
	context.Context //nolint:containedctx // it is a context

	engine   *policy.Engine
	reserved Reserved
	over     []string
}

// Value implements [context.Context]. The engine itself is the key.
func (a *admission) Value(key any) any {
	switch k := key.(type) {
	case *policy.Engine:
		if k == a.engine {
			return a
		}
	case reservationKey:
		if a.reserved.made {
			return &a.reserved
		}
	case overKey:
		if len(a.over) > 0 {
			return a.over
		}
	}
	return a.Context.Value(key)
}

// describe fills in what rules see of a request.
func (g *Gate) describe(to *policy.Request, r *http.Request, cost int64) {
	o := &g.options
	to.Protocol, to.Method, to.Host = "http", r.Method, r.Host
	to.Path, to.RawPath, to.Query = r.URL.Path, r.URL.RawPath, r.URL.RawQuery
	to.Header = r.Header
	to.Route = r.Pattern
	switch {
	case o.Route != nil:
		to.Route = o.Route(r)
	case to.Route == "" && o.Routes != nil:
		_, to.Route = o.Routes.Handler(r)
	}
	to.Client, _ = o.Clients.Client(r.RemoteAddr, r.Header["X-Forwarded-For"]) // the zero Addr if there is none
	to.Cost = cost
	to.Context = r.Context()
	if o.Attributes != nil {
		to.Attributes = o.Attributes(r)
	}
}

func (p *pass) ask(r *http.Request, cost int64) (weir.Reason, error) {
	o, ctx := &p.gate.options, r.Context()
	p.cost = cost
	p.gate.describe(&p.request, r, cost)
	switch {
	case cost == 0:
		o.Engine.Peek(&p.request, &p.verdict)
	case o.Wait:
		if o.MaxWait > 0 && o.MaxWait < weir.Never {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.MaxWait)
			defer cancel()
		}
		wait := o.Engine.Wait
		if o.Reserve {
			wait = o.Engine.WaitReserve
		}
		if err := wait(ctx, &p.request, &p.verdict); err != nil && !errors.Is(err, weir.ErrRefused) {
			return weir.ReasonNone, err
		}
		return p.reason(), nil
	case o.Reserve:
		o.Engine.Reserve(&p.request, &p.verdict)
	default:
		o.Engine.Take(&p.request, &p.verdict)
	}
	if reason := p.reason(); reason != weir.ReasonCanceled {
		return reason, nil
	}
	return weir.ReasonCanceled, ctx.Err()
}

// reason is why the request is refused, ReasonNone if it is not.
func (p *pass) reason() weir.Reason {
	if p.verdict.Allowed {
		return weir.ReasonNone
	}
	return p.verdict.Decision().Reason
}

func (p *pass) admit(dst http.Header, r *http.Request) context.Context {
	g := p.gate
	g.tellAdmitted(dst, p)
	if p.verdict.Exempt {
		g.exempt.Add(1)
	} else {
		g.allowed.Add(1)
	}
	a := &admission{Context: r.Context(), engine: g.options.Engine, over: p.verdict.Over(0)}
	if len(a.over) > 0 {
		a.over = append(a.over, Over(r.Context())...)
	}
	if g.options.Reserve && p.cost > 0 {
		a.reserved.verdict, a.reserved.made = &p.verdict, true
		p.reserved = &a.reserved
	}
	return a
}

func (p *pass) refuse(dst http.Header, _ *http.Request) *Refusal {
	refusal := p.gate.refusal(dst, p, p.cost, p.verdict.Decision())
	return &refusal
}

// end gives back what the request holds, and its memory.
func (p *pass) end() {
	if p.reserved != nil {
		p.reserved.end()
		p.reserved = nil
	}
	p.verdict.Release()
	r := &p.request
	r.Method, r.Host, r.Path, r.RawPath, r.Query, r.Route = "", "", "", "", "", ""
	r.Header, r.Attributes, r.Context = nil, nil, nil
	p.gate.passes.Put(p)
}
