package grpclimit

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Stream is the interceptor of streams. The opening is charged like a unary call, and its permits are in use until the handler
// returns or panics. With MessageCost each message of a client that streams is charged as well, when the handler asks for it; its
// permits are in use until the handler asks for the next one. A message that is refused ends the stream: RecvMsg returns the
// refusal from then on, the context of the handler is canceled, and the client gets the refusal whatever the handler returns.
func (s *Server) Stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := ss.Context()
		if s.passes(ctx, info.FullMethod) {
			return handler(srv, ss)
		}
		var h hold
		w := &stream{ServerStream: ss, server: s, ctx: charged{Context: ctx, by: s}}
		w.call.fill(ctx, s, info.FullMethod)
		w.call.ClientStreams, w.call.ServerStreams = info.IsClientStream, info.IsServerStream
		if err := s.open(ctx, &w.call, &h, streamAnswer{ss}); err != nil {
			return err
		}
		defer h.release()
		w.ctx.over = h.over()
		if s.o.MessageCost == nil || !info.IsClientStream {
			err := handler(srv, w)
			h.end(err)
			return err
		}
		m := newCountedStream(w)
		defer m.end()
		err := handler(srv, m)
		if refused := m.refusal(); refused != nil {
			h.release()
			return refused
		}
		h.end(err)
		return err
	}
}

type streamAnswer struct{ grpc.ServerStream }

func (a streamAnswer) SetHeader(_ context.Context, md metadata.MD) error {
	return a.ServerStream.SetHeader(md)
}

func (a streamAnswer) SetTrailer(_ context.Context, md metadata.MD) error {
	a.ServerStream.SetTrailer(md)
	return nil
}

// stream is a stream whose opening was charged.
type stream struct {
	grpc.ServerStream

	server *Server
	ctx    charged
	call   Call
}

// Context implements [grpc.ServerStream].
func (s *stream) Context() context.Context { return &s.ctx }

// countedStream is a stream whose messages are charged.
type countedStream struct {
	*stream

	cancel context.CancelCauseFunc

	mu      sync.Mutex
	held    hold // by the message that the handler has
	refused error
	ended   bool
}

// newCountedStream counts the messages of w, and gives it a context that ends with a refusal.
func newCountedStream(w *stream) *countedStream {
	m := &countedStream{stream: w}
	ctx, cancel := context.WithCancelCause(w.ServerStream.Context())
	w.ctx.Context, m.cancel = ctx, cancel //nolint:fatcontext // once for each stream
	return m
}

// RecvMsg implements [grpc.ServerStream]. Like that it is called by one goroutine at a time, which may outlive the handler.
func (s *countedStream) RecvMsg(m any) error {
	s.mu.Lock()
	s.held.release()
	s.held = hold{}
	refused := s.refused
	s.mu.Unlock()
	if refused != nil {
		return refused
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	c := &s.call
	c.Protocol, c.Message = ProtocolMessage, m
	cost := s.server.o.MessageCost(&s.ctx, c)
	c.Cost = cost
	var h hold
	err := s.server.decide(&s.ctx, c, cost, s.server.o.MessageMaxWait, &h, streamAnswer{s.ServerStream})
	c.Message = nil
	s.ctx.received(&h)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.refused = err
		s.cancel(err)
	case s.ended:
		h.release()
	default:
		s.held = h
	}
	return err
}

func (s *countedStream) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// end releases what the last message holds.
func (s *countedStream) end() {
	s.mu.Lock()
	s.ended = true
	s.held.release()
	s.held = hold{}
	s.mu.Unlock()
	s.cancel(nil)
}
