package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// The call that all servers of the rate limit service answer.
const (
	rateLimitService = "envoy.service.ratelimit.v3.RateLimitService"
	shouldRateLimit  = "ShouldRateLimit"
)

// bytesCodec leaves messages as they are: no server of grpc-go can do less.
type bytesCodec struct{}

// Name is that of messages of this service on the wire.
func (bytesCodec) Name() string { return "proto" }

// Marshal returns what was given.
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("bench: %T is no message", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

// Unmarshal copies a message if the caller wants it.
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if b, ok := v.(*[]byte); ok {
		*b = data.Materialize()
	}
	return nil
}

// rateLimitServer serves one method. answer gets a function that decodes the request.
func rateLimitServer(answer func(ctx context.Context, request func(v any) error) (*[]byte, error)) *grpc.Server {
	s := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: rateLimitService, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: shouldRateLimit,
			Handler: func(_ any, ctx context.Context, request func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				return answer(ctx, request)
			},
		}},
	}, nil)
	return s
}

// serveGRPC is the bare server: it answers every call with the same bytes, and does not look at the request.
func (m *wireMember) serveGRPC(l net.Listener) error {
	s := rateLimitServer(func(_ context.Context, request func(any) error) (*[]byte, error) {
		return &m.Reply, request(nil)
	})
	return s.Serve(l) //nolint:wrapcheck // it ends the process
}

// serveRateLimit works as envoyproxy/ratelimit says that it does: a counter in Redis for each descriptor and window, which is
// added to and given its expiry in one pipeline. It makes the key of the counter and waits for it, and then answers the same as
// the bare server does; it compares nothing, keeps no statistics and makes no messages.
func (m *wireMember) serveRateLimit(l net.Listener) error {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{m.Redis}, DisableCache: true, DisableRetry: true, ConnWriteTimeout: redisTimeout,
	})
	if err != nil {
		return fmt.Errorf("connect to Redis: %w", err)
	}
	defer client.Close()
	const window = int64(time.Hour / time.Second)
	s := rateLimitServer(func(ctx context.Context, request func(any) error) (*[]byte, error) {
		var message []byte
		if err := request(&message); err != nil {
			return nil, err
		}
		key, err := counterKey(make([]byte, 0, 64), message) //nolint:mnd // longer ones are moved
		if err != nil {
			return nil, err
		}
		name := string(protowire.AppendVarint(key, uint64(time.Now().Unix()/window)))
		for _, r := range client.DoMulti(ctx, client.B().Incrby().Key(name).Increment(1).Build(),
			client.B().Expire().Key(name).Seconds(window).Build()) {
			if err := r.Error(); err != nil {
				return nil, fmt.Errorf("count in Redis: %w", err)
			}
		}
		return &m.Reply, nil
	})
	return s.Serve(l) //nolint:wrapcheck // it ends the process
}

var errNoRequest = errors.New("bench: this is no RateLimitRequest")

// counterKey appends the texts of a RateLimitRequest: the domain, and keys and values of its descriptors.
func counterKey(to, message []byte) ([]byte, error) {
	const depth = 2 // of entries in descriptors in the request
	return counterTexts(to, message, depth)
}

func counterTexts(to, message []byte, depth int) ([]byte, error) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, errNoRequest
		}
		message = message[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return nil, errNoRequest
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return nil, errNoRequest
		}
		message = message[n:]
		// The request has its domain as field 1 and descriptors as field 2, a descriptor entries as field 1.
		if inner := depth == 2 && number == 2 || depth == 1 && number == 1; inner {
			var err error
			if to, err = counterTexts(to, value, depth-1); err != nil {
				return nil, err
			}
			continue
		}
		to = append(append(to, value...), '_')
	}
	return to, nil
}

// askRateLimit calls a server of the rate limit service about a key, and returns the message that it sent.
func askRateLimit(ctx context.Context, address, key string) (reply []byte, err error) {
	c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
	if err != nil {
		return nil, fmt.Errorf("bench: a client of gRPC: %w", err)
	}
	defer c.Close() //nolint:errcheck // it has answered
	text := func(b []byte, number protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
	}
	entry := text(text(nil, 1, "key"), 2, key)
	request := text(text(nil, 1, "weir"), 2, string(text(nil, 1, string(entry))))
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	if err := c.Invoke(ctx, "/"+rateLimitService+"/"+shouldRateLimit, &request, &reply); err != nil {
		return nil, fmt.Errorf("bench: %s: %w", shouldRateLimit, err)
	}
	return reply, nil
}
