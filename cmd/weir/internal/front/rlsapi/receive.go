package rlsapi

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// receiving bounds the calls whose request has not come yet. It comes with the header of the call as a rule, so there are
// hardly ever several; but a client can begin calls and never say what it wants.
type receiving struct {
	waiting  atomic.Int64
	few      int64 // calls that may wait as long as they like
	most     int64 // beyond that they are refused
	patience time.Duration
}

func newReceiving() *receiving { return &receiving{few: 64, most: 10_000, patience: 10 * time.Second} }

// incoming is the stream of a call below gRPC's own receiving, which ends the call with an error where a message is too long or
// cannot be decoded.
type incoming interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// errNoStream is the error of a server of another make. There is none (TestUnfitRequestsAreRefused).
var errNoStream = &unfit{"the stream of the call cannot be read"}

// receive receives the request of a call. The call that it returns is never nil: after an error it has no request.
func (r *receiving) receive(ctx context.Context, s *service) (*call, error) {
	c := s.calls.get()
	in, ok := grpc.ServerTransportStreamFromContext(ctx).(incoming)
	if !ok {
		return c, errNoStream
	}
	n := r.waiting.Add(1)
	defer r.waiting.Add(-1)
	switch {
	case n > r.most:
		return c, unfitf("%d calls wait for their requests", n-1)
	case n > r.few:
		return r.receiveSoon(ctx, s, c, in)
	}
	err := c.receive(ctx, in)
	return c, err
}

// receiveSoon waits for a request as long as there is patience. What still waits for it ends with the call.
func (r *receiving) receiveSoon(ctx context.Context, s *service, c *call, in incoming) (*call, error) {
	received := make(chan error, 1)
	go func() { received <- c.receive(ctx, in) }()
	timer := time.NewTimer(r.patience)
	defer timer.Stop()
	select {
	case err := <-received:
		return c, err
	case <-timer.C:
		return s.calls.get(), unfitf("the request has not come within %v", r.patience)
	}
}

// receive receives the only message of a call.
func (c *call) receive(ctx context.Context, in incoming) error {
	if err := in.ReadMessageHeader(c.prefix[:]); err != nil {
		return c.broken(ctx, err)
	}
	switch n := binary.BigEndian.Uint32(c.prefix[1:]); {
	case c.prefix[0] != 0:
		return unfitf("the request is compressed: it must not be")
	case n > maxMessage:
		return unfitf("the request has %d bytes: must have at most %d", n, maxMessage)
	default:
		c.length = int(n)
	}
	data, err := in.Read(c.length)
	if err != nil {
		return c.broken(ctx, err)
	}
	if len(data) == 1 {
		err = c.q.decode(string(data[0].ReadOnlyData()))
	} else {
		err = c.q.decode(string(data.Materialize()))
	}
	data.Free()
	if err != nil {
		return err
	}
	switch err := in.ReadMessageHeader(c.prefix[:]); {
	case err == nil:
		return unfitf("there is a second request: a call has one")
	case !errors.Is(err, io.EOF):
		return c.broken(ctx, err)
	}
	return nil
}

// broken is the error of a call that ends before its request is complete.
func (*call) broken(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return status.FromContextError(ended).Err()
	}
	return status.Errorf(codes.Internal, "weir: the request is not complete: %v", err)
}
