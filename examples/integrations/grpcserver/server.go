// Package grpcserver limits a gRPC service on both sides. The server limits by the API key of its clients, and in streams by
// message. The client has a pace of its own, and obeys the server.
package grpcserver

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/grpclimit"
)

// NewServer returns a server without services. Each API key may make 3 calls at once and one every 10 seconds for ever. On its
// streams it may send 20 messages at once and 2 a second for ever; the client is told when it sends more. Calls without a known
// key are refused before they are charged.
func NewServer(known func(key string) bool) (*grpc.Server, error) {
	perKey, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerMinute(6), 3), weir.KeyedOptions{Name: "per-key"})
	if err != nil {
		return nil, err
	}
	messages, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(2), 20), weir.KeyedOptions{Name: "messages"})
	if err != nil {
		return nil, err
	}
	byKey := grpclimit.ByMetadata(keyName)
	calls, err := grpclimit.NewServer(grpclimit.ServerOptions{Keyed: perKey, Key: byKey})
	if err != nil {
		return nil, err
	}
	streams, err := grpclimit.NewServer(grpclimit.ServerOptions{
		Keyed: messages, Key: byKey, MessageCost: grpclimit.Each(1),
		Cost: func(context.Context, *grpclimit.Call) int64 { return 0 }, // calls have a limit of their own
	})
	if err != nil {
		return nil, err
	}
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(checkUnary(known), calls.Unary()),
		grpc.ChainStreamInterceptor(checkStream(known), calls.Stream(), streams.Stream()),
	), nil
}

// Dial returns a connection for one API key. It sends no more than 100 calls a second, waits as long as the server asks for, and
// tries refused calls again.
func Dial(target, key string) (*grpc.ClientConn, error) {
	pace, err := weir.New(weir.TokenBucket(weir.PerSecond(100), 0), weir.Options{Name: "pace", QueueLimit: 10_000})
	if err != nil {
		return nil, err
	}
	limit, err := grpclimit.NewClient(grpclimit.ClientOptions{Limiter: pace, MaxRetries: 3})
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(apiKey(key)),
		grpc.WithChainUnaryInterceptor(limit.Unary()),
		grpc.WithChainStreamInterceptor(limit.Stream()),
	)
}

const keyName = "x-api-key"

// apiKey is the metadata of a client.
type apiKey string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (k apiKey) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{keyName: string(k)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. A real server has TLS.
func (apiKey) RequireTransportSecurity() bool { return false }

func check(ctx context.Context, known func(string) bool) error {
	if values := metadata.ValueFromIncomingContext(ctx, keyName); len(values) != 1 || !known(values[0]) {
		return status.Error(codes.Unauthenticated, "the API key is not known")
	}
	return nil
}

func checkUnary(known func(string) bool) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := check(ctx, known); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

func checkStream(known func(string) bool) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if err := check(stream.Context(), known); err != nil {
			return err
		}
		return handler(srv, stream)
	}
}
