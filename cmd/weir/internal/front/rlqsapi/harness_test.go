package rlqsapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/typev3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// codec has messages decode themselves that can, as that of the server of the program.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(interface{ UnmarshalWire(wire []byte) error }); ok {
		return m.UnmarshalWire(data.Materialize())
	}
	return c.CodecV2.Unmarshal(data, v)
}

// server is a service on a real socket, in a time that the test moves.
type server struct {
	t       *testing.T
	clock   *manualclock.Clock
	limits  *live.Limits
	service *rlqsapi.Service
	address string
	log     *lines
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func serve(t *testing.T, set *policy.Set) *server {
	t.Helper()
	return serveWith(t, set, rlqsapi.Options{Grace: 2 * time.Second})
}

func serveWith(t *testing.T, set *policy.Set, o rlqsapi.Options) *server {
	t.Helper()
	return servePatiently(t, set, o, time.Hour)
}

func servePatiently(t *testing.T, set *policy.Set, o rlqsapi.Options, patience time.Duration) *server {
	t.Helper()
	s := &server{t: t, clock: manualclock.New(0), log: &lines{}}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	var err error
	if s.limits, err = live.Fixed(set, policy.EngineOptions{Clock: s.clock}, log); err != nil {
		t.Fatal(err)
	}
	o.Limits, o.Logger, o.Clock = s.limits, log, s.clock
	s.service = rlqsapi.New(o)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.service.Patient(patience)
	g := grpc.NewServer(grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}))
	ratelimitquotav3.RegisterRateLimitQuotaServiceServer(g, s.service)
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	s.address = listener.Addr().String()
	t.Cleanup(func() {
		s.service.Close()
		g.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // it may not have begun
			t.Error(err)
		}
		if err := s.limits.Engine().Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client is a proxy with one stream.
type client struct {
	t      *testing.T
	stream grpc.BidiStreamingClient[ratelimitquotav3.RateLimitQuotaUsageReports, ratelimitquotav3.RateLimitQuotaResponse]
	marks  int
}

func (s *server) connect(o ...grpc.DialOption) *client {
	s.t.Helper()
	conn, err := grpc.NewClient(s.address, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	stream, err := ratelimitquotav3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		cancel()
		if err := conn.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return &client{t: s.t, stream: stream}
}

func usage(id map[string]string, elapsed time.Duration, allowed, denied uint64) *ratelimitquotav3.RateLimitQuotaUsageReports {
	return &ratelimitquotav3.RateLimitQuotaUsageReports{
		Domain: "shop",
		BucketQuotaUsages: []*ratelimitquotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{{
			BucketId: &ratelimitquotav3.BucketId{Bucket: id}, TimeElapsed: durationpb.New(elapsed),
			NumRequestsAllowed: allowed, NumRequestsDenied: denied,
		}},
	}
}

func (c *client) report(id map[string]string, elapsed time.Duration, allowed, denied uint64) {
	c.t.Helper()
	if err := c.stream.Send(usage(id, elapsed, allowed, denied)); err != nil {
		c.t.Fatal(err)
	}
}

// next is the last action for the bucket of the tests among all that have been sent until now; nil if there was none. What has been
// sent is known by the answer to a first report of another bucket.
func (c *client) next() (last *ratelimitquotav3.RateLimitQuotaResponse_BucketAction) {
	c.t.Helper()
	c.marks++
	mark := strconv.Itoa(c.marks)
	c.report(map[string]string{"mark": mark}, 0, 0, 0)
	for {
		m, err := c.stream.Recv()
		if err != nil {
			c.t.Fatal(err)
		}
		for _, a := range m.GetBucketAction() {
			switch a.GetBucketId().GetBucket()["mark"] {
			case mark:
				return last
			case "":
				last = a
			}
		}
	}
}

// rate is that of an action that assigns a token bucket, 0 of one that denies everything.
func rate(t *testing.T, a *ratelimitquotav3.RateLimitQuotaResponse_BucketAction) float64 {
	t.Helper()
	q := a.GetQuotaAssignmentAction()
	if ttl := q.GetAssignmentTimeToLive(); ttl == nil || ttl.GetSeconds() < 1 || ttl.GetNanos() != 0 {
		t.Fatalf("TTL of %v: Envoy takes whole seconds only, and none for 0", ttl)
	}
	switch x := q.GetRateLimitStrategy().GetStrategy().(type) {
	case *typev3.RateLimitStrategy_TokenBucket:
		b := x.TokenBucket
		if b.GetMaxTokens() < 1 || b.GetTokensPerFill().GetValue() < 1 || b.GetFillInterval().GetSeconds() < 1 {
			t.Fatalf("not a bucket that Envoy can use: %v", b)
		}
		return float64(b.GetTokensPerFill().GetValue()) / float64(b.GetFillInterval().GetSeconds())
	case *typev3.RateLimitStrategy_BlanketRule_:
		if x.BlanketRule == typev3.RateLimitStrategy_DENY_ALL {
			return 0
		}
	}
	t.Fatalf("neither a token bucket nor a refusal: %v", a)
	return 0
}

// one is a set with one rule for everything.
func one(p policy.Policy) *policy.Set {
	return &policy.Set{
		Policies: []policy.Policy{p},
		Rules:    []policy.Rule{{Name: "all", Match: policy.Match{Protocols: []string{"rlqs"}, Paths: []string{"/env/name"}}, Limits: []policy.Use{{Policy: p.Name}}}},
	}
}

func limited(l weir.Limit) policy.Policy {
	return policy.Policy{Name: "p", Limits: []policy.Limit{{Limit: l}}}
}
