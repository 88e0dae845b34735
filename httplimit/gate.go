package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
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
// policies in code. All methods are safe for concurrent use.
type Gate struct {
	options GateOptions
	texts   toldTexts
	passes  sync.Pool // of *pass

	admitted, refused, exempt, aborted, failed atomic.Uint64
}

// GateStats counts what became of requests.
type GateStats struct {
	// Admitted counts the requests whose handler was called because their limits allowed them. Exempt counts those that a rule
	// has exempted from all limits.
	Admitted uint64
	Exempt   uint64
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
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gate{options: o}
	g.passes.New = func() any { return new(pass) }
	return g, nil
}

// Stats returns the counts so far.
func (g *Gate) Stats() GateStats {
	return GateStats{
		Admitted: g.admitted.Load(), Exempt: g.exempt.Load(), Refused: g.refused.Load(),
		Aborted: g.aborted.Load(), Failed: g.failed.Load(),
	}
}

// Handler is the gate in front of next.
func (g *Gate) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("weir: httplimit: the handler is nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
}

// pass is the memory of one request in a gate.
type pass struct {
	request  policy.Request
	verdict  policy.Verdict
	policies ratelimitfields.Policies
	states   []ratelimitfields.State
	recent   recentTexts
}

// admission is the context of a request that was decided.
type admission struct {
	context.Context //nolint:containedctx // it is a context

	engine   *policy.Engine
	reserved Reserved
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
	}
	return a.Context.Value(key)
}

func (g *Gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	o := &g.options
	if o.Skip != nil && o.Skip(r) || r.Context().Value(o.Engine) != nil {
		next.ServeHTTP(w, r)
		return
	}
	cost := int64(1)
	if o.Cost != nil {
		cost = o.Cost(r)
	}
	if cost < 0 {
		g.fail(w, r, "httplimit: the cost is negative", slog.Int64("cost", cost))
		return
	}
	p := g.passes.Get().(*pass)
	defer g.end(p)
	g.describe(&p.request, r, cost)
	v := &p.verdict
	if err := g.decide(r.Context(), p, cost); err != nil {
		g.abandon(w, r, err)
		return
	}
	switch d := v.Decision(); {
	case v.Allowed || cost == 0 && d.Reason != weir.ReasonDenied:
		g.tellAdmitted(w.Header(), p)
		if v.Exempt {
			g.exempt.Add(1)
		} else {
			g.admitted.Add(1)
		}
		a := &admission{Context: r.Context(), engine: o.Engine}
		if o.Reserve && cost > 0 {
			a.reserved.verdict, a.reserved.made = v, true
			defer a.reserved.end()
		}
		next.ServeHTTP(w, r.WithContext(a)) //nolint:contextcheck // it inherits
	case d.Reason == weir.ReasonInvalid:
		g.fail(w, r, "httplimit: the engine does not accept the request", slog.Int64("cost", cost))
	default:
		g.refuse(w, r, p, cost, d)
	}
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

// decide asks the engine. An error means that nobody is there to be answered any more.
func (g *Gate) decide(ctx context.Context, p *pass, cost int64) error {
	o := &g.options
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
			return err
		}
		return nil
	case o.Reserve:
		o.Engine.Reserve(&p.request, &p.verdict)
	default:
		o.Engine.Take(&p.request, &p.verdict)
	}
	if p.verdict.Decision().Reason == weir.ReasonCanceled {
		return ctx.Err()
	}
	return nil
}

// end gives back what the request holds, and its memory.
func (g *Gate) end(p *pass) {
	p.verdict.Release()
	r := &p.request
	r.Method, r.Host, r.Path, r.RawPath, r.Query, r.Route = "", "", "", "", "", ""
	r.Header, r.Attributes, r.Context = nil, nil, nil
	g.passes.Put(p)
}

func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, p *pass, cost int64, d weir.Decision) {
	g.refused.Add(1)
	refusal := g.refusal(w.Header(), p, cost, d)
	if g.options.Status != 0 && d.Reason != weir.ReasonDenied {
		refusal.Status, refusal.Problem.Status = g.options.Status, g.options.Status
	}
	if g.options.OnRefused != nil {
		g.options.OnRefused(r, &refusal)
	}
	g.send(&refusal, w, r)
}

// badStatus is logged of a hook that is wrong.
const badStatus = "httplimit: the hook set a status that is not from 200 to 599"

func (g *Gate) send(f *Refusal, w http.ResponseWriter, r *http.Request) {
	status := f.Status
	if f.Send(w, r) != nil {
		g.options.Logger.ErrorContext(r.Context(), badStatus, "status", status)
	}
}

// abandon ends a request for which the engine answered an error instead of a verdict.
func (g *Gate) abandon(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		g.aborted.Add(1)
		w.WriteHeader(StatusClientClosedRequest)
		return
	}
	g.fail(w, r, "httplimit: the engine failed", slog.Any("error", err))
}

// fail serves a request that cannot be decided. Clients are not told why.
func (g *Gate) fail(w http.ResponseWriter, r *http.Request, message string, why slog.Attr) {
	g.failed.Add(1)
	g.options.Logger.LogAttrs(r.Context(), slog.LevelError, message, why)
	status := http.StatusInternalServerError
	f := Refusal{Status: status, Problem: Problem{Type: aboutBlank, Title: http.StatusText(status)}}
	g.send(&f, w, r)
}
