package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// Options configure a [Proxy].
type Options struct {
	// Upstream is where allowed requests go. Required.
	Upstream Upstream
	// Engine decides on each request. Required.
	Engine *policy.Engine
	// Fields are the header fields in which limits are told. With ratelimitfields.NoFields the bodies of refusals name no policy
	// either. Default: ratelimitfields.RateLimit11.
	Fields ratelimitfields.Fields
	// UpstreamHost is the Host that the upstream sees. Default: the one that the client sent.
	UpstreamHost string
	// UpstreamRoots are the certificate authorities of an https upstream. Default: those of the system.
	UpstreamRoots *x509.CertPool
	// UpstreamTimeout is how long the upstream may take for the header of its response once it has the request, and for
	// each piece of a request body. Default: 0, for ever.
	UpstreamTimeout time.Duration
	// ClientTimeout is how long a client may keep the upstream waiting for its body, or for taking the response, with a second
	// more for each 500 bytes. Default: 0, for ever.
	ClientTimeout time.Duration
	// TrustedProxies are the networks whose X-Forwarded headers are believed. Default: none.
	TrustedProxies []netip.Prefix
	// Concurrency is how many requests the upstream gets at a time, and Queue how many more wait for that in the order in
	// which they came. Default: 0, no bound.
	Concurrency, Queue int64
	// Bound bounds the connections of clients. Default: nil, any number may be open.
	Bound *front.Bounded
	// MaxBody is the largest body of a request in bytes. Default: 0, no bound.
	MaxBody int64
	// TLS makes the proxy speak TLS. It needs a certificate. Default: nil, plain HTTP.
	TLS *tls.Config
	// Traced puts the trace that requests belong to into their contexts. Default: nil, they belong to none.
	Traced func(http.Handler) http.Handler
	// LogRequests makes a line of each request. Default: false.
	LogRequests bool
	// Logger gets the log. Required.
	Logger *slog.Logger
}

// Proxy is a [front.Front] that passes requests on to an upstream as far as their limits allow.
type Proxy struct {
	o           Options
	clients     *clientip.Resolver
	limited     http.Handler      // asks the engine
	concurrency *weir.Concurrency // nil: no bound
	crowded     *ratelimitfields.Policies
	headers     ratelimitfields.Headers
	server      *front.HTTP
	cut         func() // ends all requests
	stopped     atomic.Bool
	transport   transport
	reverse     *httputil.ReverseProxy
	faults      *slog.Logger
	totals      totals
	upgrades    upgrades
	inFlight    atomic.Int64
}

// flushInterval is how long a part of a response of known length may wait for the next one. All others are not kept at
// all.
const flushInterval = 50 * time.Millisecond

// New returns a proxy, or an error that names the option that cannot be used.
func New(o Options) (*Proxy, error) {
	switch {
	case o.Upstream.URL == nil:
		return nil, errors.New("weir: proxy: Options.Upstream is missing")
	case o.Engine == nil:
		return nil, errors.New("weir: proxy: Options.Engine is missing")
	case o.Logger == nil:
		return nil, errors.New("weir: proxy: Options.Logger is missing")
	}
	clients, err := clientip.New(clientip.Options{TrustedProxies: o.TrustedProxies})
	if err != nil {
		return nil, err
	}
	p := &Proxy{o: o, clients: clients, headers: ratelimitfields.Headers{Fields: o.Fields}}
	gate, err := httplimit.NewGate(httplimit.GateOptions{
		Engine: o.Engine, Clients: clients, Wait: true, Headers: p.headers, OnRefused: toldOf, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	p.limited = gate.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, _ := w.(*responseWriter) // which the gate hands on as it is
		out.exchange.pass(r)          //nolint:contextcheck // r has the context
	}))
	if wrong := p.boundUpstream(); wrong != nil {
		return nil, wrong
	}
	p.faults = front.FaultLog(o.Logger)
	p.transport = newTransport(o.Upstream, o.UpstreamTimeout, o.UpstreamRoots)
	p.reverse = &httputil.ReverseProxy{
		Rewrite:       p.rewrite,
		Transport:     p.transport,
		FlushInterval: flushInterval,
		// Each failure is one line, written where the request ends.
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
		BufferPool:     buffers{},
		ModifyResponse: func(res *http.Response) error { return exchangeOf(res.Request).answered(res) },
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			exchangeOf(r).failed(r, err)
		},
	}
	p.server = p.newServer()
	return p, nil
}

// boundUpstream makes the bound of how many requests the upstream gets at a time, if there is one.
func (p *Proxy) boundUpstream() (err error) {
	if p.o.Concurrency == 0 {
		return nil
	}
	p.concurrency, err = weir.NewConcurrency(p.o.Concurrency, weir.Options{Name: crowdedPolicy, QueueLimit: p.o.Queue})
	if err != nil {
		return err
	}
	p.crowded, err = ratelimitfields.NewPolicies(ratelimitfields.PolicyOf(crowdedPolicy, p.concurrency.Limit()))
	return err
}

// ServeHTTP passes a request on, or refuses it. It panics with [http.ErrAbortHandler] where the client must not take a
// part of a response for the whole.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.inFlight.Add(1)
	defer p.inFlight.Add(-1)
	x := exchange{proxy: p, in: r, out: responseWriter{ResponseWriter: w}, outcome: refused}
	x.out.exchange = &x
	x.out.patience = patience{max: p.o.ClientTimeout, left: p.o.ClientTimeout}
	if p.o.LogRequests {
		x.start = time.Now()
	}
	defer x.end() //nolint:contextcheck // an exchange has the context of its request
	x.serve()     //nolint:contextcheck // so it has
	x.returned = true
}

// rewrite makes a request to the upstream from one to the proxy.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	x := exchangeOf(pr.In)
	out, in := pr.Out, pr.In
	pr.SetURL(p.o.Upstream.URL)
	if x.whole {
		out.URL.Path, out.URL.RawPath = "*", ""
	}
	// As the client sent it, also what the rules could not read.
	out.URL.RawQuery = in.URL.RawQuery
	out.Host = in.Host
	if p.o.UpstreamHost != "" {
		out.Host = p.o.UpstreamHost
	}
	// Trailers of a request would come past what the header is checked for.
	out.Trailer = nil
	forward(out, in, x.peer, x.trusted)
	if over := httplimit.Over(in.Context()); len(over) > 0 {
		out.Header.Set(answer.OverField, answer.FormatOver(over))
	}
}

// Totals are what has become of the requests so far.
type Totals struct {
	// Allowed were passed on to the upstream, Refused by a limit or a rule, and OverConcurrency by the bound on concurrency, with
	// 503.
	Allowed         int64
	Refused         int64
	OverConcurrency int64
	// Rejected are those that no upstream may get: bodies that are too large or broken, wrong methods and paths, and what cannot
	// be decided.
	Rejected int64
	// UpstreamErrors and Aborted are of those allowed, or that waited: the upstream failed; the client went away.
	UpstreamErrors int64
	Aborted        int64
}

type totals struct {
	allowed, refused, crowded, rejected, upstreamErrors, aborted atomic.Int64
}

// Totals returns the counts. They are not of one moment while requests are in flight.
func (p *Proxy) Totals() Totals {
	t := &p.totals
	return Totals{
		t.allowed.Load(), t.refused.Load(), t.crowded.Load(),
		t.rejected.Load(), t.upstreamErrors.Load(), t.aborted.Load(),
	}
}

// total is what the log says of them.
func (p *Proxy) total() []any {
	t := p.Totals()
	return []any{
		"allowed", t.Allowed, "refused", t.Refused, "over_concurrency", t.OverConcurrency, "rejected", t.Rejected,
		"upstream_errors", t.UpstreamErrors, "aborted", t.Aborted,
	}
}

// Status is the state of the proxy by names, for the status and the metrics of the server.
func (p *Proxy) Status() map[string]any {
	t, c := p.Totals(), p.Concurrency()
	status := map[string]any{
		"requests": map[string]any{
			"allowed": t.Allowed, "refused": t.Refused, "over_concurrency": t.OverConcurrency, "rejected": t.Rejected,
		},
		"upstream_errors": t.UpstreamErrors, "aborted": t.Aborted, "in_flight": p.inFlight.Load(),
		"upgraded": p.upgrades.count(), "waiting": c.Waiters,
	}
	if p.o.Bound != nil {
		p.o.Bound.TellRequests(status)
	}
	return status
}

// Concurrency returns the state of the bound on concurrency, the zero Stats if there is none.
func (p *Proxy) Concurrency() weir.Stats {
	if p.concurrency == nil {
		return weir.Stats{}
	}
	return p.concurrency.Stats()
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}
