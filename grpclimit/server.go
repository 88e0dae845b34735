package grpclimit

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/policy"
)

// Server limits the calls of a gRPC server by two interceptors. All methods are safe for concurrent use. It has no goroutine
// and nothing to close; what it asks stays the caller's. The zero Server is not usable: call [NewServer].
type Server struct {
	o       ServerOptions
	clients *clientip.Resolver
	told    told
	host    bool // an option can see the Host of a Call
}

// NewServer returns a Server, or an error that names the option that cannot be used.
func NewServer(o ServerOptions) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	clients, err := clientip.New(o.Clients)
	if err != nil {
		return nil, err
	}
	sees := o.Engine != nil || o.Key != nil || o.Prepare != nil || o.Cost != nil || o.MessageCost != nil || o.Priority != nil ||
		o.OnRefused != nil
	if o.Keyed != nil && o.Key == nil {
		o.Key = ByClient
	}
	if o.Skip == nil {
		o.Skip = SkipHealth
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, clients: clients, host: sees}
	s.told.init(&s.o)
	return s, nil
}

// passes reports whether a call is not limited, or has been charged already.
func (s *Server) passes(ctx context.Context, fullMethod string) bool {
	return s.o.Skip(ctx, fullMethod) || ctx.Value(s) != nil
}

// Unary is the interceptor of unary calls. It allows a call or refuses it; permits such as those of a [weir.Concurrency] are in
// use until the handler returns or panics. A call is charged once, however often it passes the same Server. Two Servers charge
// independently of each other, and what the outer one took is not given back if the inner one refuses.
func (s *Server) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if s.passes(ctx, info.FullMethod) {
			return handler(ctx, req)
		}
		var h hold
		if err := s.openUnary(ctx, req, info.FullMethod, &h); err != nil {
			return nil, err
		}
		defer h.release()
		reply, err := handler(&charged{Context: ctx, by: s, over: h.over()}, req) //nolint:contextcheck // it inherits
		h.end(err)
		return reply, err
	}
}

func (s *Server) openUnary(ctx context.Context, req any, fullMethod string, h *hold) error {
	c := calls.Get().(*Call)
	c.fill(ctx, s, fullMethod)
	c.Message = req
	err := s.open(ctx, c, h, unaryAnswer{})
	*c = Call{}
	calls.Put(c)
	return err
}

// answer is where metadata for the client goes.
type answer interface {
	SetHeader(ctx context.Context, md metadata.MD) error
	SetTrailer(ctx context.Context, md metadata.MD) error
}

type unaryAnswer struct{}

func (unaryAnswer) SetHeader(ctx context.Context, md metadata.MD) error {
	return grpc.SetHeader(ctx, md)
}

func (unaryAnswer) SetTrailer(ctx context.Context, md metadata.MD) error {
	return grpc.SetTrailer(ctx, md)
}

// open decides on a call. The error is a status.
func (s *Server) open(ctx context.Context, c *Call, h *hold, a answer) error {
	if s.o.Prepare != nil {
		s.o.Prepare(ctx, c)
	}
	cost := int64(1)
	switch {
	case s.o.Cost != nil:
		cost = s.o.Cost(ctx, c)
		c.Cost = cost
	case c.Cost != 0:
		cost = c.Cost
	}
	return s.decide(ctx, c, cost, s.o.MaxWait, h, a)
}

// hold is what a call or a message holds while it is served.
type hold struct {
	lease   weir.Lease
	verdict *policy.Verdict
}

var verdicts = sync.Pool{New: func() any { return new(policy.Verdict) }}

func (h *hold) release() {
	h.lease.Release()
	if v := h.verdict; v != nil {
		h.verdict = nil
		v.Release()
		verdicts.Put(v)
	}
}

// end is release after a handler has answered: a limit that adapts learns whether what it protects was overloaded.
func (h *hold) end(err error) {
	if err != nil {
		switch codeOf(err) {
		case codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded:
			h.lease.Drop()
		case codes.Canceled:
			h.lease.Cancel()
		default:
		}
	}
	h.release()
}

// codeOf is the code that the client gets for the error of a handler: that of a context has one too.
func codeOf(err error) codes.Code {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	return st.Code()
}

// fail returns the status of what cannot be decided. Clients are not told why.
func (s *Server) fail(ctx context.Context, c *Call, message string, why slog.Attr) error {
	s.o.Logger.LogAttrs(ctx, slog.LevelError, message, slog.String("method", c.Path), why)
	return status.Error(codes.Internal, "the limits of this call could not be decided")
}

// gone returns the status for a client that has gone, or whose deadline has passed.
func gone(ctx context.Context) error {
	err := ctx.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		return status.Error(codes.DeadlineExceeded, "the deadline of the call has passed before it was allowed")
	}
	return status.Error(codes.Canceled, "the call was canceled before it was allowed")
}
