package rlsapi

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// stream ends streams when the server shuts down, as their clients would never do. What still serves one then finds its
// context canceled.
func (s *Server) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	served := make(chan error, 1)
	go func() { served <- handler(srv, ss) }()
	select {
	case err := <-served:
		return err
	case <-s.closing:
		return status.Error(codes.Unavailable, "weir: the server shuts down")
	}
}
