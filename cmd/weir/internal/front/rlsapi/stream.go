package rlsapi

import (
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/front/grpcloop"
)

// stream ends streams when the server shuts down, as their clients would never do. What still serves one then finds its
// context canceled. One that panics ends alone.
func (s *Server) stream(srv any, ss grpc.ServerStream, of *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	served := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				s.service.o.Logger.Error("a gRPC stream has panicked", "method", of.FullMethod, "panic", p,
					"stack", string(debug.Stack()))
				served <- status.Error(codes.Internal, "weir: the stream has panicked")
			}
		}()
		served <- handler(srv, asking{ss})
	}()
	select {
	case err := <-served:
		return err
	case <-s.closing:
		return status.Error(codes.Unavailable, "weir: the server shuts down")
	}
}

// asking is a stream that tells the loop when it asks for a message.
type asking struct{ grpc.ServerStream }

// RecvMsg implements [grpc.ServerStream].
func (s asking) RecvMsg(m any) error {
	grpcloop.Wants(s.Context())
	return s.ServerStream.RecvMsg(m)
}
