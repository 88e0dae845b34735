package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/internal/regularfile"
)

// policy is the name under which clients are told of the limit.
const policy = "default"

const (
	defaultListen          = "127.0.0.1:8080"
	defaultUpstreamTimeout = time.Minute
	defaultShutdownTimeout = 30 * time.Second
	longest                = 24 * time.Hour
	mostPlaces             = 1_000_000 // of --concurrency and --queue
	defaultConnections     = 10_000
	mostConnections        = 1_000_000
)

// settings are what the flags say.
type settings struct {
	listen           string
	upstream         upstreamValue
	limit            flags.Limit
	log              flags.Log
	certFile         string
	keyFile          string
	upstreamHost     string
	upstreamCA       string
	upstreamTimeout  time.Duration
	trusted          proxiesValue
	concurrency      int64
	queue            int64
	connections      int
	ofOne            int
	maxBody          sizeValue
	shutdownTimeout  time.Duration
	logRequests      bool
	upstreamCertPool *x509.CertPool
	certificate      *tls.Config
}

// long is the help of the command.
const long = `proxy passes requests on to an HTTP service and refuses those beyond the limit
with 429, a Retry-After header and a body of type application/problem+json.
Those never reach the service. All other answers get RateLimit headers that say
how much is left. Those that the service itself sends stay and come first; if they
are of a form that cannot be added to (limit=10, remaining=9), they stay alone.

Bodies are streamed both ways and not changed. WebSockets and other upgrades
pass, and count as one request; an upgrade to HTTP/2 (h2c) is not passed on, as
requests within it would not be limited. If the client goes away, so does its
request to the service. No path is taken: /healthz is that of the service.

TRACE is refused with 405 and CONNECT with 501. Trailers of requests are dropped;
those of answers pass, as gRPC needs them. A connection of HTTP/1.1 ends with the
answer to a request whose body came in chunks, so that nothing hidden behind the
body is served.

A client is the address of its connection, and with --by client each /64 of IPv6
is one. The proxy sets X-Forwarded-For, -Host and -Proto, and drops what the
client says in them and in all other fields by which proxies tell about the client
and the original request: X-Forwarded-*, X-Original-*, X-Rewrite-*, X-Envoy-*,
X-Azure-*, X-Real-IP, X-Client-IP, True-Client-IP, CF-Connecting-IP, X-Host and
their like, also with underscores. Behind other proxies, name those by
--trusted-proxies: then these fields are kept, and the client is the last address
in X-Forwarded-For that is not one of theirs. Forwarded and Proxy never pass.

With --concurrency the service gets only so many requests at a time. Others wait
in their order if there is a --queue, and are refused with 503 if it is full.
They have used up their permit of the limit.

SIGINT or SIGTERM stops the proxy: it takes no more requests, finishes those it
has, closes upgraded connections, and logs how many requests it has seen. A
second signal ends it at once.`

// Command is weir proxy. It serves until the context of the command ends.
func Command() *cobra.Command {
	s := settings{
		listen:          defaultListen,
		upstreamTimeout: defaultUpstreamTimeout,
		shutdownTimeout: defaultShutdownTimeout,
		connections:     defaultConnections,
	}
	cmd := &cobra.Command{
		Use:   "proxy --upstream URL [flags]",
		Short: "Stand in front of an HTTP service and limit its requests",
		Long:  long,
		Example: `  weir proxy --upstream http://127.0.0.1:3000 --limit 10/s --burst 20
  weir proxy --upstream unix:///run/app.sock --listen :8443 --tls-cert c.pem --tls-key k.pem
  weir proxy --upstream https://api.example.com/v2 --upstream-host api.example.com --by header:X-Api-Key
  weir proxy --upstream http://app:3000 --listen :8080 --trusted-proxies 10.0.0.0/8 --by client,path
  weir proxy --upstream http://127.0.0.1:3000 --concurrency 8 --queue 100 --upstream-timeout 10s`,
		Args:              flags.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.run(cmd)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Var(&s.upstream, "upstream", "the service: http://host:port, https://host:port, with a path that is put before all "+
		"others if you like, or unix:///path/of.sock (default: none, it must be given)")
	s.limit.Register(fs)
	fs.Var(flags.Listen(&s.listen), "listen", "address to listen on; port 0 is any that is free, and is printed")
	fs.Var(&wordValue{&s.certFile, "FILE"}, "tls-cert",
		"certificate chain to serve HTTPS with, in PEM, read again when it changes (default: none, plain HTTP)")
	fs.Var(&wordValue{&s.keyFile, "FILE"}, "tls-key", "private key of the certificate, in PEM (default: none)")
	fs.Var(&s.trusted, "trusted-proxies",
		"addresses or networks whose X-Forwarded headers are believed, joined by commas (default: none)")
	fs.Var(flags.Int(&s.concurrency, 0, mostPlaces), "concurrency",
		"requests that the service gets at a time, up to 1000000; 0 for any number")
	fs.Var(flags.Int(&s.queue, 0, mostPlaces), "queue", "requests that wait for --concurrency, in their order, up to 1000000")
	fs.Var(flags.Int(&s.connections, 1, mostConnections), "connections",
		"connections of clients at a time, from 1 to 1000000; when there are as many,\none that is idle makes room")
	fs.Var(flags.Int(&s.ofOne, 0, mostConnections), "connections-per-address",
		"how many of these one address may have, or one /64 of IPv6; 0 is nine in ten")
	fs.Var(&wordValue{&s.upstreamHost, "HOST"}, "upstream-host",
		"Host header for the service (default: the one that the client sent)")
	fs.Var(&wordValue{&s.upstreamCA, "FILE"}, "upstream-ca",
		"certificate authorities of an https service, in PEM (default: those of the system)")
	fs.Var(flags.Duration(&s.upstreamTimeout, 0, longest), "upstream-timeout",
		"how long the service may take to begin its answer, before the client gets 504; up to 24h, 0 for ever")
	fs.Var(&s.maxBody, "max-body", "largest body of a request, such as 512KiB or 10MiB; 0 for any (default 0)")
	fs.Var(flags.Duration(&s.shutdownTimeout, 0, longest), "shutdown-timeout",
		"how long requests may take to finish after a signal before they are cut off, up to 24h")
	fs.BoolVar(&s.logRequests, "log-requests", false, "log a line for each request")
	s.log.Register(fs)
	return cmd
}

func (s *settings) run(cmd *cobra.Command) error {
	logger := s.log.New(cmd.ErrOrStderr())
	if err := s.check(); err != nil {
		return err
	}
	if err := s.readFiles(logger); err != nil {
		return err
	}
	limit, err := s.limit.New(policy, nil)
	if err != nil {
		return err
	}
	p, err := New(Options{
		Upstream: s.upstream.Upstream, Limit: limit, By: s.limit.By,
		UpstreamHost: s.upstreamHost, UpstreamRoots: s.upstreamCertPool, UpstreamTimeout: s.upstreamTimeout,
		TrustedProxies: s.trusted.proxies, Concurrency: s.concurrency, Queue: s.queue, MaxBody: int64(s.maxBody),
		Connections: s.connections, ConnectionsPerAddress: front.OfOne(s.connections, s.ofOne),
		TLS: s.certificate, ShutdownTimeout: s.shutdownTimeout, LogRequests: s.logRequests, Logger: logger,
	})
	if err != nil {
		return err
	}
	ln, err := front.Listen(cmd.Context(), "listen", s.listen, defaultListen)
	if err != nil {
		return err
	}
	if front.IsAnyPort(s.listen) {
		fmt.Fprintln(cmd.OutOrStdout(), ln.Addr())
	}
	// The transport has no logger of its own: what an upstream sends unasked goes to the default one.
	slog.SetLogLoggerLevel(slog.LevelWarn)
	slog.SetDefault(p.faults)
	s.announce(cmd.Context(), logger, ln)
	return p.Serve(cmd.Context(), ln)
}

// check finds what does not go together.
func (s *settings) check() error {
	switch {
	case s.upstream.URL == nil:
		return flags.Errorf("--upstream is missing: must be the service, such as http://127.0.0.1:3000")
	case leadsTo(s.upstream.address(), s.listen):
		return flags.BadValue("upstream", s.upstream.String(), "must not be the address that the proxy listens on, "+s.listen)
	case s.certFile == "" && s.keyFile != "":
		return flags.Errorf("--tls-key needs --tls-cert")
	case s.certFile != "" && s.keyFile == "":
		return flags.Errorf("--tls-cert needs --tls-key")
	case s.queue > 0 && s.concurrency == 0:
		return flags.Errorf("--queue needs --concurrency")
	case s.upstreamHost != "" && !isHost(s.upstreamHost):
		return flags.BadValue("upstream-host", s.upstreamHost, "must be a host, with a port or not")
	case s.upstreamCA != "" && s.upstream.URL.Scheme != schemeHTTPS:
		return flags.Errorf("--upstream-ca needs an --upstream that begins with https://")
	}
	return nil
}

func (s *settings) readFiles(log *slog.Logger) error {
	if s.certFile != "" {
		certificates, err := front.LoadCertificates(front.TLSFiles{Certificate: s.certFile, Key: s.keyFile}, log)
		if err != nil {
			return fmt.Errorf("weir: --tls-cert %s --tls-key %s: %s", s.certFile, s.keyFile,
				strings.TrimPrefix(err.Error(), "weir: "))
		}
		s.certificate = certificates.Config("h2", "http/1.1")
	}
	if s.upstreamCA != "" {
		pem, err := regularfile.Read(s.upstreamCA, maxPEM)
		if err != nil {
			return fmt.Errorf("weir: --upstream-ca: %w", err)
		}
		s.upstreamCertPool = x509.NewCertPool()
		if !s.upstreamCertPool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("weir: --upstream-ca %s: has no certificate", s.upstreamCA)
		}
	}
	return nil
}

// maxPEM is how long a file of authorities may be.
const maxPEM = 4 << 20

func (s *settings) announce(ctx context.Context, logger *slog.Logger, ln net.Listener) {
	scheme := schemeHTTP
	if s.certificate != nil {
		scheme = schemeHTTPS
	}
	attrs := []slog.Attr{
		slog.String("listen", scheme+"://"+ln.Addr().String()),
		slog.String("upstream", s.upstream.String()),
		slog.String("limit", s.limit.String()),
		slog.String("by", s.limit.By.String()),
	}
	if s.concurrency > 0 {
		attrs = append(attrs, slog.Int64("concurrency", s.concurrency), slog.Int64("queue", s.queue))
	}
	logger.LogAttrs(ctx, slog.LevelInfo, "proxying", attrs...)
}
