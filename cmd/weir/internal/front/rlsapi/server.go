package rlsapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/grpcloop"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/ratelimitfields"
)

// Options configure a [Server].
type Options struct {
	// Limits decide. Without a Tree, each descriptor is a request to their rules with Protocol "rls", the domain as Host, the
	// keys of its entries joined by "/" as Path, its entries as Attributes, and as Client the first address among its entries
	// remote_address, client_ip and masked_remote_address. Required.
	Limits *live.Limits
	// Tree returns the configuration of envoyproxy/ratelimit that is in force. If it is not nil, and as long as it does not
	// answer nil, it tells the policies of descriptors instead of the rules. It is called for each request. Default: nil.
	Tree func() *ratelimitconfig.Config
	// Clock is that of Limits: it says when a window of a calendar ends of which nothing is used. Default: nil, the wall clock.
	Clock weir.Clock
	// Quotas serves the rate limit quota service. Default: nil, that service is not offered.
	Quotas ratelimitquotav3.RateLimitQuotaServiceServer
	// TLS makes the server speak TLS. Default: nil, it does not.
	TLS *tls.Config
	// Fields are the header fields that the proxy is told to add to responses. Envoy itself can make those of X-RateLimit out
	// of the answer, by enable_x_ratelimit_headers, so they are not the default. Default: ratelimitfields.RateLimit11, with
	// Retry-After on refusals; ratelimitfields.NoFields tells of none, Retry-After included.
	Fields ratelimitfields.Fields
	// LimitFields are the names of fields for the limit of which the least is left, as envoyproxy/ratelimit has them: for how
	// many requests it has, how many are left, and in how many seconds all are back. They name no policy. Default: none.
	LimitFields []string
	// NoMetadata leaves the dynamic metadata out that tell what has decided. Default: false.
	NoMetadata bool
	// MaxConnections is how many clients may be connected at a time, from 1 to 1,000,000. When there are as many and one more
	// comes, one of which no decision is being made makes room: one that has not begun a call, or else the one that has sent
	// nothing of a call for the longest time. Default: 1,000.
	MaxConnections int
	// ConnectionsPerAddress is how many of them one address may have, or one /64 of IPv6. Default: 0, nine in ten.
	ConnectionsPerAddress int
	// IdleTimeout is how long a client may have no call in flight before it is told to go away. Default: 0, forever.
	IdleTimeout time.Duration
	// MaxAge is how long a client may be connected before it is told to go away, a tenth more or less by chance, so that clients
	// spread over servers that were added. Default: 0, forever.
	MaxAge time.Duration
	// MaxStreams is how many calls of one connection may be in flight, from 1 to 65,536. A client waits before it begins more.
	// Default: 1,000.
	MaxStreams int
	// Logger logs the clients that are not served, at most once a minute. Default: nothing is logged.
	Logger *slog.Logger
}

const (
	defaultConnections = 1_000
	defaultStreams     = 1_000
)

// Server answers Envoy and others that speak its protocols. All methods are safe for concurrent use.
type Server struct {
	loop    *grpcloop.Server
	grpc    *grpc.Server // of streams, health and reflection
	health  *health.Server
	service *service
	bound   *front.Bounded

	closing   chan struct{} // closed when streams have to end
	closeOnce sync.Once
}

// New makes a server that does not listen yet.
func New(o Options) (*Server, error) {
	o.MaxConnections, o.MaxStreams = cmp.Or(o.MaxConnections, defaultConnections), cmp.Or(o.MaxStreams, defaultStreams)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if n := len(o.LimitFields); n != 0 && n != limitFields {
		return nil, fmt.Errorf("weir: Options.LimitFields are %d: must be %d, or none", n, limitFields)
	}
	fields := ratelimitfields.Headers{Fields: o.Fields}
	if err := fields.Check(); err != nil {
		return nil, err
	}
	s := &Server{
		health: health.NewServer(), service: newService(o), closing: make(chan struct{}),
		bound: front.NewBounded(o.MaxConnections, front.OfOne(o.MaxConnections, o.ConnectionsPerAddress), o.Logger),
	}
	s.grpc = grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec()), grpc.MaxRecvMsgSize(maxReports), grpc.StreamInterceptor(s.stream),
		grpc.WaitForHandlers(true),
	)
	s.loop = grpcloop.New(grpcloop.Options{
		Calls: s.service, Others: s.grpc, TLS: o.TLS, IdleTimeout: o.IdleTimeout, Age: o.MaxAge,
		MaxStreams: o.MaxStreams, MaxMessage: maxMessage, MaxOther: maxReports, Log: o.Logger,
	})
	s.service.register(s.grpc)
	if o.Quotas != nil {
		ratelimitquotav3.RegisterRateLimitQuotaServiceServer(s.grpc, o.Quotas)
	}
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	for name := range s.grpc.GetServiceInfo() {
		s.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	s.health.SetServingStatus("ratelimit", healthv1.HealthCheckResponse_SERVING) // as envoyproxy/ratelimit calls itself
	return s, nil
}

// Serve serves the clients of a listener, which it closes, until [Server.Shutdown]: then it returns nil.
func (s *Server) Serve(l net.Listener) error { return s.loop.Serve(s.bound.On(l)) }

// Drain tells those who ask for the server's health that it does not serve: it is about to shut down. Everything is still
// answered. Calls in flight are not counted.
func (s *Server) Drain() (inFlight int64) {
	s.health.Shutdown()
	return 0
}

// Shutdown ends the server: it accepts no more calls, answers those that it has accepted, ends streams with code
// Unavailable, and closes the connections. If ctx ends before, those that are left are cut off, and its error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	s.closeOnce.Do(func() { close(s.closing) })
	err := s.loop.Shutdown(ctx)
	s.grpc.Stop()
	return err
}

// Status tells of the server, for people: connections, calls by method with what they were answered, and calls that were not
// understood.
func (s *Server) Status() map[string]any {
	status := s.service.status()
	status["connections"], status["connections_evicted"], status["connections_refused"] = s.bound.Counts()
	status["connections_cut_off"], status["arriving_bytes"] = s.loop.Unread.CutOff(), s.loop.Unread.Bytes()
	status["waiting"] = s.loop.Waiting.Calls()
	return status
}
