package grpclimit

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/weirhq/weir"
)

// Stream is the interceptor of streams. The opening waits like a unary call, and its permits are in use until the stream ends.
// With MessageCost, SendMsg waits on a stream that the client streams; its permits are in use until the next message is sent or
// the stream ends. A message that the limits refuse fails with a [NotSentError], and ends the stream, as every error of SendMsg
// does. Streams are not opened again after a refusal.
func (c *Client) Stream() grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer,
		opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		out := Outgoing{Target: cc.Target(), Method: method}
		if c.o.Skip != nil && c.o.Skip(ctx, &out) {
			return streamer(ctx, desc, cc, method, opts...)
		}
		lease, err := c.open(ctx, &out)
		if err != nil {
			return nil, err
		}
		if c.o.MessageCost == nil || !desc.ClientStreams {
			var stream grpc.ClientStream
			opened := false
			defer func() {
				if !opened { // a panic below
					lease.Release()
				}
			}()
			stream, err = streamer(ctx, desc, cc, method, append(slices.Clip(opts), grpc.OnFinish(func(err error) {
				c.obey(ctx, &out, err)
				c.learn(lease, err)
			}))...)
			opened = err == nil
			return stream, err
		}
		open := func(ctx context.Context, finished grpc.CallOption) (grpc.ClientStream, error) {
			return streamer(ctx, desc, cc, method, append(slices.Clip(opts), finished)...)
		}
		paced, err := c.pacedStream(ctx, &out, lease, open)
		if err != nil {
			return nil, err // and no pointer in the interface
		}
		return paced, nil
	}
}

// pacedStream opens a stream whose messages are paced.
func (c *Client) pacedStream(
	ctx context.Context, out *Outgoing, lease weir.Lease,
	open func(context.Context, grpc.CallOption) (grpc.ClientStream, error),
) (*pacedStream, error) {
	inner, cancel := context.WithCancel(ctx)
	s := &pacedStream{client: c, ctx: inner, cancel: cancel, out: *out}
	opened := false
	defer func() {
		if !opened {
			lease.Release()
			cancel()
		}
	}()
	stream, err := open(inner, grpc.OnFinish(func(err error) {
		c.obey(ctx, out, err)
		c.learn(lease, err)
		s.end()
	}))
	if err != nil {
		return nil, err
	}
	opened = true
	s.ClientStream = stream
	return s, nil
}

// pacedStream is a stream whose messages are paced.
type pacedStream struct {
	grpc.ClientStream

	client *Client
	ctx    context.Context // ends with the stream
	cancel context.CancelFunc
	out    Outgoing

	mu      sync.Mutex
	last    weir.Lease // of the last message
	refused error      // why a message was not sent
	ended   bool
}

// SendMsg implements [grpc.ClientStream]. Like that it is called by one goroutine at a time.
func (s *pacedStream) SendMsg(m any) error {
	c := s.client
	if err := s.keep(weir.Lease{}, nil); err != nil {
		return err
	}
	if s.ctx.Err() != nil {
		return s.ClientStream.SendMsg(m) // which says why the stream has ended
	}
	wait, cancel := c.bounded(s.ctx)
	defer cancel()
	out := s.out
	out.Message = m
	lease, err := c.acquire(s.ctx, wait, &out, c.o.MessageCost(s.ctx, &out))
	if s.ctx.Err() != nil {
		err = nil
	}
	if err = s.keep(lease, err); err != nil {
		s.cancel()
		return err
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements [grpc.ClientStream]. A stream that lacks a message ends with the error of that message, even if the server
// has responded to what came before.
func (s *pacedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if refused := s.refusal(); refused != nil {
		return refused
	}
	return err
}

// CloseSend implements [grpc.ClientStream]. A stream that lacks a message is not completed, only canceled.
func (s *pacedStream) CloseSend() error {
	if s.refusal() != nil {
		return nil //nolint:nilerr // SendMsg has told it, and RecvMsg will
	}
	return s.ClientStream.CloseSend()
}

func (s *pacedStream) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// keep releases what the last message holds, and keeps the lease of the next one, or why there is none.
func (s *pacedStream) keep(lease weir.Lease, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.Release()
	s.last = lease
	if s.ended {
		lease.Release()
	}
	if s.refused == nil {
		s.refused = err
	}
	return s.refused
}

func (s *pacedStream) end() {
	s.mu.Lock()
	s.ended = true
	s.last.Release()
	s.mu.Unlock()
	s.cancel()
}
