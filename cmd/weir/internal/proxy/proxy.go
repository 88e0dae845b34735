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
	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// Options configure a [Proxy].
type Options struct {
	// Upstream is where admitted requests go. Required.
	Upstream Upstream
	// Limit is asked for one permit for each request. Required.
	Limit *weir.Keyed[string]
	// By is whose permit that is. Default: all requests share one key.
	By flags.Key
	// UpstreamHost is the Host that the upstream sees. Default: the one that the client sent.
	UpstreamHost string
	// UpstreamRoots are the certificate authorities of an https upstream. Default: those of the system.
	UpstreamRoots *x509.CertPool
	// UpstreamTimeout is how long the upstream may take for the header of its response once it has the request, and for
	// each piece of a request body. Default: 0, for ever.
	UpstreamTimeout time.Duration
	// TrustedProxies are the networks whose X-Forwarded headers are believed. Default: none.
	TrustedProxies []netip.Prefix
	// Concurrency is how many requests the upstream gets at a time, and Queue how many more wait for that in the order in
	// which they came. Default: 0, no bound.
	Concurrency, Queue int64
	// Connections is how many connections of clients there may be at a time: when there are as many, one on which no request is
	// under way makes room for the next. ConnectionsPerAddress is how many of them one address may have, or one /64 of IPv6.
	// Default: 0, no bound.
	Connections, ConnectionsPerAddress int
	// MaxBody is the largest body of a request in bytes. Default: 0, no bound.
	MaxBody int64
	// TLS makes the proxy speak TLS. It needs a certificate. Default: nil, plain HTTP.
	TLS *tls.Config
	// ShutdownTimeout is how long requests may take to finish once Serve has been told to stop. Default: 0, they are cut.
	ShutdownTimeout time.Duration
	// LogRequests makes a line of each request. Default: false.
	LogRequests bool
	// Logger gets the log. Required.
	Logger *slog.Logger
}

// Proxy is a handler that passes requests on to an upstream as far as its limits allow.
type Proxy struct {
	o           Options
	clients     *clientip.Resolver
	concurrency *weir.Concurrency // nil: no bound
	limits      limits
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
	case o.Limit == nil:
		return nil, errors.New("weir: proxy: Options.Limit is missing")
	case o.Logger == nil:
		return nil, errors.New("weir: proxy: Options.Logger is missing")
	}
	clients, err := clientip.New(clientip.Options{TrustedProxies: o.TrustedProxies})
	if err != nil {
		return nil, err
	}
	p := &Proxy{o: o, clients: clients}
	if o.Concurrency > 0 {
		if p.concurrency, err = weir.NewConcurrency(o.Concurrency, weir.Options{
			Name: crowdedPolicy, QueueLimit: o.Queue,
		}); err != nil {
			return nil, err
		}
	}
	if p.limits, err = newLimits(o.Limit, p.concurrency); err != nil {
		return nil, err
	}
	faults, err := newFaultLog(o.Logger.Handler())
	if err != nil {
		return nil, err
	}
	p.faults = slog.New(faults)
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
	return p, nil
}

// ServeHTTP passes a request on, or refuses it. It panics with [http.ErrAbortHandler] where the client must not take a
// part of a response for the whole.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.inFlight.Add(1)
	defer p.inFlight.Add(-1)
	x := exchange{proxy: p, in: r, out: responseWriter{ResponseWriter: w}}
	x.out.exchange = &x
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
	if in.URL.Path == "*" { // OPTIONS * is about the upstream as a whole
		out.URL.Path, out.URL.RawPath = "*", ""
	}
	// The proxy reads no parameter of the query, so there is none that the upstream could read differently.
	out.URL.RawQuery = in.URL.RawQuery
	out.Host = in.Host
	if p.o.UpstreamHost != "" {
		out.Host = p.o.UpstreamHost
	}
	// Trailers of a request would come past what the header is checked for.
	out.Trailer = nil
	forward(out, in, x.peer, x.trusted)
}

// Totals are what has become of the requests so far.
type Totals struct {
	// Admitted were passed on to the upstream, Refused by the limit with 429, and Crowded by the bound on concurrency
	// with 503.
	Admitted, Refused, Crowded int64
	// Rejected are those that no upstream may get: bodies that are too large or broken, and wrong methods and paths.
	Rejected int64
	// UpstreamErrors and Aborted are of those admitted, or that waited: the upstream failed; the client went away.
	UpstreamErrors, Aborted int64
}

type totals struct {
	admitted, refused, crowded, rejected, upstreamErrors, aborted atomic.Int64
}

// Totals returns the counts. They are not of one moment while requests are in flight.
func (p *Proxy) Totals() Totals {
	t := &p.totals
	return Totals{
		t.admitted.Load(), t.refused.Load(), t.crowded.Load(),
		t.rejected.Load(), t.upstreamErrors.Load(), t.aborted.Load(),
	}
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
