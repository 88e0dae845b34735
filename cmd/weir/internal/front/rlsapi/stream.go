package rlsapi

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/front/grpcloop"
)

// stream ends streams when the server shuts down, as their clients would never do. What still serves one then finds its
// context canceled.
func (s *Server) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	served := make(chan error, 1)
	go func() { served <- handler(srv, asking{ss}) }()
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
