package rlsapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/kuadrantv1"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
)

type service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	o Options
}

func newService(o Options) *service { return &service{o: o} }

func newCodec() encoding.CodecV2 { return encoding.GetCodecV2(proto.Name) }

func (s *service) register(to *grpc.Server) {
	ratelimitv3.RegisterRateLimitServiceServer(to, s)
	kuadrantv1.RegisterRateLimitServiceServer(to, kuadrantv1.UnimplementedRateLimitServiceServer{})
}

// ShouldRateLimit decides.
func (*service) ShouldRateLimit(context.Context, *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return nil, status.Error(codes.Unimplemented, "weir: not there yet")
}

func (*service) status() map[string]any { return map[string]any{} }
