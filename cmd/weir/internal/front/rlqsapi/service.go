package rlqsapi

import (
	"errors"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
	"github.com/weirhq/weir/cmd/weir/internal/live"
)

// Options configure a [Service].
type Options struct {
	// Limits say which limits hold for a bucket. Required.
	Limits *live.Limits
	// Logger is told, at level Warn, of what cannot be assigned. Required.
	Logger *slog.Logger
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock weir.Clock
}

// Service is the rate limit quota service. All methods are safe for concurrent use.
type Service struct {
	ratelimitquotav3.UnimplementedRateLimitQuotaServiceServer

	o Options
}

// New answers a service.
func New(o Options) (*Service, error) {
	if o.Limits == nil || o.Logger == nil {
		return nil, errors.New("weir: rlqsapi.Options: Limits and Logger are required")
	}
	return &Service{o: o}, nil
}

// StreamRateLimitQuotas serves one proxy.
func (s *Service) StreamRateLimitQuotas(
	stream grpc.BidiStreamingServer[ratelimitquotav3.RateLimitQuotaUsageReports, ratelimitquotav3.RateLimitQuotaResponse],
) error {
	return s.UnimplementedRateLimitQuotaServiceServer.StreamRateLimitQuotas(stream)
}

// Close ends all streams.
func (s *Service) Close() {}

// Status is for people: streams, buckets, and the rates that are assigned.
func (s *Service) Status() map[string]any { return map[string]any{} }
