//go:build linux

package soak

import (
	"context"
	"fmt"
	"net"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// grpcFront is the rate limit service of Envoy.
type grpcFront struct {
	conn   *grpc.ClientConn
	client ratelimitv3.RateLimitServiceClient
}

func newGRPCFront(address string, c *connections) (*grpcFront, error) {
	dial := func(ctx context.Context, address string) (net.Conn, error) { return c.dial(ctx, "tcp", address) }
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(), grpc.WithContextDialer(dial))
	if err != nil {
		return nil, fmt.Errorf("a client of gRPC: %w", err)
	}
	return &grpcFront{conn, ratelimitv3.NewRateLimitServiceClient(conn)}, nil
}

func (f *grpcFront) close() { _ = f.conn.Close() }

func (f *grpcFront) speaks(r *request) bool {
	return r.wait == 0 && (r.verb == take || r.verb == takeAll || r.verb == refund)
}

func (f *grpcFront) do(ctx context.Context, r *request) answer {
	ask := &ratelimitv3.RateLimitRequest{Domain: "soak"}
	for _, c := range r.charges {
		ask.Descriptors = append(ask.Descriptors, &commonv3.RateLimitDescriptor{
			Entries:        []*commonv3.RateLimitDescriptor_Entry{{Key: c.policy, Value: c.key}},
			HitsAddend:     wrapperspb.UInt64(uint64(c.n)),
			IsNegativeHits: r.verb == refund,
		})
	}
	got, err := f.client.ShouldRateLimit(ctx, ask)
	if err != nil {
		return failed(err)
	}
	if got.GetOverallCode() == ratelimitv3.RateLimitResponse_OK {
		return answer{outcome: granted, reason: reasonNone}
	}
	told := got.GetDynamicMetadata().GetFields()["weir"].GetStructValue().GetFields()
	a := said(false, told["reason"].GetStringValue())
	a.binding, a.retryAfter = told["policy"].GetStringValue(), seconds(told["retry_after"].GetNumberValue())
	return a
}
