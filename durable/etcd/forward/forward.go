// Package forward carries the requests of nodes to the owner of durable limits: one gRPC stream for each pair of nodes, shared by
// all requests, with the flow control of HTTP/2.
package forward

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd/internal/strangers"
)

// The messages are those of durable.AppendMessage, as they are.

const (
	service = "weir.durable.v1.Owner"
	method  = "Exchange"
	path    = "/" + service + "/" + method
	codec   = "weir-durable"
)

// raw is a codec of messages that are bytes already.
type raw struct{}

func (raw) Name() string { return codec }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("weir: %T is not a message between nodes", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("weir: %T is not a message between nodes", v)
	}
	*b = data.Materialize()
	return nil
}

func init() { //nolint:gochecknoinits // how gRPC learns of codecs
	encoding.RegisterCodecV2(raw{})
}

const (
	mostStreams     = 4
	mostHeaderBytes = 8 << 10
	handshakeTime   = 5 * time.Second
	leastPingsEvery = 500 * time.Millisecond
	pingEvery       = time.Second
)

// NewServer is a server for [Register], with TLS unless that is nil. It limits messages, headers, streams of a connection and
// pings, so that a hostile peer does little harm, and how many connections have shown no certificate yet. A peer that is silent
// for 3 s is given up, and its requests are withdrawn.
func NewServer(t *tls.Config) *grpc.Server {
	secure := insecure.NewCredentials()
	if t != nil {
		secure = &strangers.Credentials{TransportCredentials: credentials.NewTLS(t)}
	}
	return grpc.NewServer(grpc.Creds(secure),
		grpc.MaxRecvMsgSize(durable.MostMessageBytes), grpc.MaxSendMsgSize(durable.MostMessageBytes),
		grpc.MaxConcurrentStreams(mostStreams), grpc.MaxHeaderListSize(mostHeaderBytes), grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPingsEvery, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: silence}),
	)
}

var description = grpc.StreamDesc{StreamName: method, ServerStreams: true, ClientStreams: true}

// Register makes a server of gRPC serve the requests of other nodes.
func Register(s grpc.ServiceRegistrar, n *durable.Node) {
	d := description
	d.Handler = func(_ any, stream grpc.ServerStream) error {
		err := n.Serve(stream.Context(), newServerStream(stream))
		if err != nil && stream.Context().Err() == nil {
			return status.Error(codes.Aborted, err.Error())
		}
		return nil
	}
	s.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{d}}, n)
}

// serverStream implements durable.Stream. The stream ends with its handler; until then Receive is let go by done.
type serverStream struct {
	grpc.ServerStream

	once sync.Once
	done chan struct{}
	got  chan []byte
	err  error
}

func newServerStream(s grpc.ServerStream) *serverStream {
	x := &serverStream{ServerStream: s, done: make(chan struct{}), got: make(chan []byte)}
	go x.read() // ends with the stream, which ends with its handler
	return x
}

func (s *serverStream) read() {
	defer close(s.got)
	for {
		var b []byte
		if s.err = s.RecvMsg(&b); s.err != nil {
			return
		}
		select {
		case s.got <- b:
		case <-s.done:
			return
		}
	}
}

// Send implements [durable.Stream].
func (s *serverStream) Send(m []byte) error { return s.SendMsg(&m) } //nolint:wrapcheck // it ends the stream

// Receive implements [durable.Stream].
func (s *serverStream) Receive() ([]byte, error) {
	select {
	case b, ok := <-s.got:
		if !ok {
			return nil, s.err
		}
		return b, nil
	case <-s.done:
		return nil, context.Canceled
	}
}

// Close implements [durable.Stream].
func (s *serverStream) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}

// clientStream implements durable.Stream.
type clientStream struct {
	stream grpc.ClientStream
	conn   *grpc.ClientConn
	cancel context.CancelFunc
}

func (s *clientStream) Send(m []byte) error { return s.stream.SendMsg(&m) } //nolint:wrapcheck // it ends the stream

func (s *clientStream) Receive() (b []byte, err error) {
	err = s.stream.RecvMsg(&b)
	return b, err //nolint:wrapcheck // it ends the stream
}

func (s *clientStream) Close() error {
	s.cancel()
	return s.conn.Close() //nolint:wrapcheck // it says what it is
}

// DialOptions configure [Dial].
type DialOptions struct {
	// Credentials are those of TLS. Default: none: a plain connection.
	Credentials credentials.TransportCredentials
}

// DialTCP connects, for grpc.WithContextDialer. The kernel notices a silent host in about 2.5 s, which is earlier than gRPC does.
func DialTCP(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: time.Second, Interval: silence / 4, Count: 3, //nolint:mnd // three probes after the first second
	}}
	return d.DialContext(ctx, "tcp", address) //nolint:wrapcheck // gRPC says what it is
}

// silence is how long what was sent may be without a sign that it has arrived.
const silence = 2 * time.Second

// ConnectParams are how connections are tried again: soon, as permits wait for them.
var ConnectParams = grpc.ConnectParams{ //nolint:gochecknoglobals // a constant
	Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: silence,
}

// Dial returns a function that connects to an owner, for durable.NodeOptions.Dial.
func Dial(o DialOptions) func(ctx context.Context, address string) (durable.Peer, error) {
	if o.Credentials == nil {
		o.Credentials = insecure.NewCredentials()
	}
	return func(ctx context.Context, address string) (durable.Peer, error) {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(o.Credentials),
			grpc.WithDefaultCallOptions(grpc.CallContentSubtype(codec), grpc.MaxCallRecvMsgSize(durable.MostMessageBytes)),
			grpc.WithContextDialer(DialTCP), grpc.WithConnectParams(ConnectParams), grpc.WithDisableServiceConfig(),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{ // 10 s is the least that it accepts
				Time: 10 * time.Second, Timeout: silence, PermitWithoutStream: true,
			}),
		)
		if err != nil {
			return nil, fmt.Errorf("weir: the owner at %s: %w", address, err)
		}
		if err = ready(ctx, conn); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("weir: the owner at %s cannot be reached: %w", address, err)
		}
		live, cancel := context.WithCancel(context.Background())
		stream, err := conn.NewStream(live, &description, path) //nolint:contextcheck // it outlasts the dialing
		if err != nil {
			cancel()
			_ = conn.Close()
			return nil, fmt.Errorf("weir: the owner at %s: %w", address, err)
		}
		return durable.NewStreamPeer(&clientStream{stream, conn, cancel}), nil
	}
}

// ready waits for the connection.
func ready(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure: // a stream fails at once, and says why
			short, cancel := context.WithCancel(ctx)
			_, err := conn.NewStream(short, &description, path)
			if cancel(); err != nil {
				return errors.New(status.Convert(err).Message()) //nolint:err113 // it is told, not compared
			}
			continue // it is ready by now
		case connectivity.Shutdown:
			return fmt.Errorf("weir: the connection is in the state %v", state)
		case connectivity.Idle, connectivity.Connecting: // it goes on
		}
		if !conn.WaitForStateChange(ctx, state) {
			return ctx.Err() //nolint:wrapcheck // of the caller
		}
	}
}
