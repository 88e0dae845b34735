package proxy

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/internal/regularfile"
	"github.com/weirhq/weir/ratelimitfields"
)

const (
	defaultListen          = "127.0.0.1:8080"
	defaultConnections     = 10_000
	defaultUpstreamTimeout = time.Minute
	defaultClientTimeout   = time.Minute
	longest                = 24 * time.Hour
	mostPlaces             = 1_000_000 // of --concurrency and --queue
)

// What --headers may be.
const (
	headersNone = "none"
	headersIETF = "ietf"
)

// kind are the flags of the front.
type kind struct {
	upstream        Upstream
	upstreamHost    string
	upstreamCA      string
	upstreamRoots   *x509.CertPool // of upstreamCA
	upstreamTimeout time.Duration
	clientTimeout   time.Duration
	trusted         []netip.Prefix
	concurrency     int64
	queue           int64
	maxBody         int64
	headers         string
	logRequests     bool
}

// Kind is the front as weir proxy has it.
func Kind() *front.Kind {
	k := kind{upstreamTimeout: defaultUpstreamTimeout, clientTimeout: defaultClientTimeout, headers: headersIETF}
	return &front.Kind{
		Name: "listen", Bare: true, Default: defaultListen, Usual: defaultListen,
		Usage:       "address of the traffic: clients send here what is for --upstream",
		Connections: defaultConnections, Bounded: "clients", Register: k.register, Check: k.check, New: k.make,
	}
}

func (k *kind) register(fs *pflag.FlagSet) {
	fs.Var(flags.Of("URL", &k.upstream, Upstream.String, ParseUpstream), "upstream",
		"the service: http://host:port, https://host:port, or h2c://host:port for HTTP/2 without TLS, with a path "+
			"that is put before all others if you like, or unix:///path/of.sock (default: none, it must be given)")
	fs.Var(flags.Networks(&k.trusted), "trusted-proxies",
		"addresses or networks whose X-Forwarded headers are believed, joined by commas (default: none)")
	fs.Var(flags.Int(&k.concurrency, 0, mostPlaces), "concurrency",
		"requests that the service gets at a time, up to 1000000; 0 for any number")
	fs.Var(flags.Int(&k.queue, 0, mostPlaces), "queue", "requests that wait for --concurrency, in their order, up to 1000000")
	fs.Var(flags.TextOf("HOST", &k.upstreamHost, word), "upstream-host",
		"Host header for the service (default: the one that the client sent)")
	fs.Var(flags.File(&k.upstreamCA), "upstream-ca",
		"certificate authorities of an https service, in PEM (default: those of the system)")
	fs.Var(flags.Duration(&k.upstreamTimeout, 0, longest), "upstream-timeout",
		"how long the service may take to begin its answer, before the client gets 504; up to 24h, 0 for ever")
	fs.Var(flags.Duration(&k.clientTimeout, 0, longest), "client-timeout",
		"how long a client may keep the service waiting for a body, which gets it 408, or not take the answer, with a second "+
			"more for each 500 bytes; up to 24h, 0 for ever")
	fs.Var(flags.Of("size", &k.maxBody, flags.Unset, parseSize), "max-body",
		"largest body of a request, such as 512KiB or 10MiB; 0 for any (default 0)")
	fs.Var(flags.OneOf(&k.headers, headersNone, headersIETF), "headers",
		"header fields of answers: RateLimit and RateLimit-Policy, which name policies to\nclients, as bodies of refusals "+
			"do, or none, without names in bodies")
	fs.BoolVar(&k.logRequests, "log-requests", false, "log a line for each request")
}

// check finds flags that do not go together, and reads the authorities of the service.
func (k *kind) check(fs *pflag.FlagSet) error {
	switch {
	case k.upstream.URL == nil:
		return flags.Errorf("--upstream is missing: must be the service, such as http://127.0.0.1:3000")
	case k.queue > 0 && k.concurrency == 0:
		return flags.Errorf("--queue needs --concurrency")
	case k.upstreamHost != "" && !isHost(k.upstreamHost):
		return flags.BadValue("upstream-host", k.upstreamHost, "must be a host, with a port or not")
	case k.upstreamCA != "" && k.upstream.URL.Scheme != schemeHTTPS:
		return flags.Errorf("--upstream-ca needs an --upstream that begins with https://")
	}
	if err := k.apart(fs); err != nil || k.upstreamCA == "" {
		return err
	}
	pem, err := regularfile.Read(k.upstreamCA, maxPEM)
	if err != nil {
		return flags.Inputf("weir: --upstream-ca: %s", err)
	}
	k.upstreamRoots = x509.NewCertPool()
	if !k.upstreamRoots.AppendCertsFromPEM(pem) {
		return flags.Inputf("weir: --upstream-ca %s: has no certificate", k.upstreamCA)
	}
	return nil
}

// maxPEM is how long a file of authorities may be.
const maxPEM = 4 << 20

// apart makes sure that the service is none of the addresses that are listened on: a request would come back again and again, or
// get at the pages for operators of this machine.
func (k *kind) apart(fs *pflag.FlagSet) (err error) {
	fs.VisitAll(func(f *pflag.Flag) {
		if at := f.Value.String(); f.Value.Type() == flags.Address && at != "" && leadsTo(k.upstream.address(), at) {
			err = flags.BadValue("upstream", k.upstream.String(), "must not be the address that the proxy listens on, "+at)
		}
	})
	return err
}

// fields are the header fields of --headers.
func (k *kind) fields() ratelimitfields.Fields {
	if k.headers == headersNone {
		return ratelimitfields.NoFields
	}
	return ratelimitfields.RateLimit11
}

func (k *kind) make(s front.Shared) (front.Made, error) {
	o := Options{
		Upstream: k.upstream, Engine: s.Limits.Engine(), Fields: k.fields(),
		UpstreamHost: k.upstreamHost, UpstreamRoots: k.upstreamRoots, UpstreamTimeout: k.upstreamTimeout,
		ClientTimeout:  k.clientTimeout,
		TrustedProxies: k.trusted, Concurrency: k.concurrency, Queue: k.queue, MaxBody: k.maxBody,
		Bound: s.Bound(), TLS: s.TLS("h2", "http/1.1"), Traced: s.Traced, LogRequests: k.logRequests, Logger: s.Log,
	}
	p, err := New(o)
	if err != nil {
		return front.Made{}, err
	}
	if len(o.Engine.Set().Rules) == 0 {
		s.Log.Warn("no request is limited: the configuration has no rules, and policies alone apply to none")
	}
	// The transport has no logger of its own: it logs what an upstream sends without a request to the default one.
	slog.SetLogLoggerLevel(slog.LevelWarn)
	slog.SetDefault(p.faults)
	return front.Made{
		Front: p, Status: map[string]func() any{"proxy": func() any { return p.Status() }},
		Told: k.told(s.Address, o.TLS != nil), Total: p.total,
	}, nil
}

// told is what the log says when the proxy serves.
func (k *kind) told(at net.Addr, secure bool) []any {
	scheme := schemeHTTP
	if secure {
		scheme = schemeHTTPS
	}
	attributes := []any{"listen", scheme + "://" + at.String(), "upstream", k.upstream.String()}
	if k.concurrency > 0 {
		attributes = append(attributes, "concurrency", k.concurrency, "queue", k.queue)
	}
	return attributes
}

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// maxStreams is how many requests one HTTP/2 connection may have under way.
	maxStreams = 250
	// endTimeout is how long requests that have been cut may take to notice.
	endTimeout = 2 * time.Second
	endPoll    = 5 * time.Millisecond
)

// newServer returns the server of the proxy. Bodies take as long as they take.
func (p *Proxy) newServer() *front.HTTP {
	base, cancel := context.WithCancelCause(context.Background())
	p.cut = func() {
		p.stopped.Store(true) // first: requests hear of the other one after the other
		cancel(errStopped)
	}
	var handler http.Handler = p
	if p.o.Traced != nil {
		handler = p.o.Traced(p)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return front.NewHTTP(&http.Server{
		Protocols:                    protocols,
		Handler:                      handler,
		ReadHeaderTimeout:            readHeaderTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true, // OPTIONS * is for the upstream
		BaseContext:                  func(net.Listener) context.Context { return base },
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			// The end of a stream waits behind what its connection does not take.
			WriteByteTimeout: p.o.ClientTimeout,
		},
	}, p.o.TLS, p.o.Bound, p.o.Logger)
}

// Serve implements [front.Front].
func (p *Proxy) Serve(l net.Listener) error { return p.server.Serve(l) }

// Drain implements [front.Front]. Upgraded connections are not in flight: they may last for ever.
func (p *Proxy) Drain() (inFlight int64) {
	p.server.SetKeepAlivesEnabled(false)
	return p.inFlight.Load() - int64(p.upgrades.count())
}

// Shutdown implements [front.Front]. It takes no more requests, lets those in flight finish until ctx ends, and closes the
// upgraded connections.
func (p *Proxy) Shutdown(ctx context.Context) error {
	err := p.server.Shutdown(ctx)
	p.stop()
	p.transport.CloseIdleConnections()
	return err
}

// stop cuts everything that is still under way and waits until it has noticed.
func (p *Proxy) stop() {
	p.cut()
	_ = p.server.Close()
	p.upgrades.close()
	deadline := time.NewTimer(endTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(endPoll)
	defer poll.Stop()
	for p.inFlight.Load() > 0 {
		select {
		case <-poll.C:
		case <-deadline.C:
			return
		}
	}
}
