package rlqsapi_test

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/typev3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/policy"
)

type action = ratelimitquotav3.RateLimitQuotaResponse_BucketAction

// isDenied reports whether an action denies its bucket for some time.
func isDenied(a *action) bool {
	x, ok := a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetStrategy().(*typev3.RateLimitStrategy_BlanketRule_)
	return ok && x.BlanketRule == typev3.RateLimitStrategy_DENY_ALL && a.GetQuotaAssignmentAction().GetAssignmentTimeToLive().GetSeconds() > 0
}

// TestBadBucketIsDeniedAlone: a client chooses values of bucket ids. One that cannot be kept is denied, and the other buckets of the
// stream, also those of the same message, have their part.
func TestBadBucketIsDeniedAlone(t *testing.T) {
	s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))))
	many := map[string]string{}
	for i := range 100 {
		many["k"+strconv.Itoa(i)] = "v"
	}
	a := s.connect()
	for name, bad := range map[string]map[string]string{
		"long":         {"name": strings.Repeat("v", 10_000), "env": "staging"},
		"very long":    {"name": strings.Repeat("v", 1<<20), "env": "staging"},
		"many entries": many,
		"empty value":  {"name": "", "env": "staging"},
		"empty key":    {"": "v"},
	} {
		m := usage(bad, 0, 1, 0)
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, usage(id, 0, 1, 0).GetBucketQuotaUsages()...)
		for range 2 { // it is denied each time it is reported
			if err := a.stream.Send(m); err != nil {
				t.Fatal(err)
			}
			var denied, given bool
			for !denied || !given {
				got, err := a.stream.Recv()
				if err != nil {
					t.Fatalf("%s: the stream ends: %v", name, err)
				}
				for _, x := range got.GetBucketAction() {
					denied = denied || maps.Equal(x.GetBucketId().GetBucket(), bad) && isDenied(x)
					given = given || maps.Equal(x.GetBucketId().GetBucket(), id) && rate(t, x) > 0
				}
			}
			s.clock.Advance(5 * time.Second)
		}
	}
	if err := a.stream.Send(usage(nil, 0, 1, 0)); err != nil { // no action is about a bucket without entries
		t.Fatal(err)
	}
	a.report(id, 5*time.Second, 100, 0)
	if got := rate(t, a.next()); got < 500 {
		t.Errorf("%v of 1000/s afterwards", got)
	}
	if got := s.service.Status(); got["denied_reports"] != uint64(11) || got["protocol_errors"] != uint64(0) || got["streams"] != 1 {
		t.Errorf("%v", got)
	}
	if log := s.log.String(); strings.Count(log, "denied") < 1 || !strings.Contains(log, "bucket_id") || len(log) > 5000 {
		t.Errorf("the log: %.6000s", log)
	}
}

// TestBucketsThatARuleDenies are assigned nothing, although no limit applies to them.
func TestBucketsThatARuleDenies(t *testing.T) {
	set := one(limited(weir.TokenBucket(weir.PerSecond(1000), 0)))
	set.Rules = append(set.Rules, policy.Rule{Name: "no", Deny: true}, policy.Rule{Name: "free", Exempt: true})
	a := serve(t, set).connect()
	a.report(id, 0, 1, 0)
	if got := a.next(); !isDenied(got) {
		t.Errorf("%v", got)
	}
}

// TestTimeBelowZeroIsNone and ends no stream.
func TestTimeBelowZeroIsNone(t *testing.T) {
	s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))))
	a := s.connect()
	a.report(id, 0, 1, 0)
	a.next()
	for _, d := range []*durationpb.Duration{{Seconds: -1}, {Seconds: 1, Nanos: -1}, {Nanos: 2e9}, {Seconds: -1 << 62}} {
		s.clock.Advance(5 * time.Second)
		m := usage(id, 0, 5000, 0)
		m.BucketQuotaUsages[0].TimeElapsed = d
		if err := a.stream.Send(m); err != nil {
			t.Fatal(err)
		}
		if got := rate(t, a.next()); got < 500 || got > 1000 {
			t.Errorf("%v: %v of 1000/s", d, got)
		}
	}
}

// TestBucketsBeyondTheBoundsAreDeniedAlone: there are only so many streams and buckets, and a bucket too many ends no stream.
func TestBucketsBeyondTheBoundsAreDeniedAlone(t *testing.T) {
	s := serveWith(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))), rlqsapi.Options{
		MostStreams: 2, MostBuckets: 2, MostShares: 3,
	})
	a, b := s.connect(), s.connect()
	expect := func(c *client, bucket map[string]string, denied bool) {
		t.Helper()
		c.report(bucket, 0, 1, 0)
		for told := false; !told; {
			m, err := c.stream.Recv()
			if err != nil {
				t.Fatalf("%v: %v", bucket, err)
			}
			for _, x := range m.GetBucketAction() {
				if told = maps.Equal(x.GetBucketId().GetBucket(), bucket); told && isDenied(x) != denied {
					t.Fatalf("%v: %v, want denied %v", bucket, x, denied)
				}
			}
		}
	}
	more := map[string]string{"one": "more"}
	expect(a, id, false)
	expect(a, map[string]string{"mark": "1"}, false)
	expect(a, more, true) // a third one of this stream
	expect(b, id, false)
	expect(b, more, true) // a fourth one in all
	s.clock.Advance(5 * time.Second)
	expect(a, id, false)
	expect(b, id, false)
	if _, err := s.connect().stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream too many: %v", err)
	}
}

// TestReloadDeniesWhatCannotBeKept: a bucket for which there is no room under other limits is denied, and the stream goes on.
func TestReloadDeniesWhatCannotBeKept(t *testing.T) {
	s := serveWith(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))), rlqsapi.Options{Grace: 2 * time.Second, MostShares: 1})
	a := s.connect()
	a.report(id, 0, 1, 0)
	if m, err := a.stream.Recv(); err != nil || isDenied(m.GetBucketAction()[0]) {
		t.Fatal(m, err)
	}
	if _, err := s.limits.Engine().Load(one(policy.Policy{
		Name: "other", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(100), 0)}},
	})); err != nil {
		t.Fatal(err)
	}
	s.clock.Advance(time.Second)
	if m, err := a.stream.Recv(); err != nil || !isDenied(m.GetBucketAction()[0]) {
		t.Fatal(m, err)
	}
	for range 40 { // until what it had has expired
		s.clock.Advance(5 * time.Second)
		a.report(id, 0, 1, 0)
		m, err := a.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(m.GetBucketAction(), func(x *action) bool { return !isDenied(x) }) {
			return
		}
	}
	t.Error("it is denied for ever")
}

// rawCodec sends bytes as they are, and receives messages.
type rawCodec struct{ encoding.CodecV2 }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	wire, _ := v.([]byte)
	return mem.BufferSlice{mem.SliceBuffer(wire)}, nil
}

// TestValuesThatAreNotUTF8EndNoStream: no answer can be about such a bucket, but the others of the stream have theirs.
func TestValuesThatAreNotUTF8EndNoStream(t *testing.T) {
	s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))))
	front, err := rlsapi.New(rlsapi.Options{Limits: s.limits, Quotas: s.service})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- front.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = front.Shutdown(t.Context())
		<-served
	})
	desc := &ratelimitquotav3.RateLimitQuotaService_ServiceDesc.Streams[0]
	stream, err := conn.NewStream(t.Context(), desc, ratelimitquotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName,
		grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")}))
	if err != nil {
		t.Fatal(err)
	}
	m := usage(map[string]string{"name": "VALUE", "env": "staging"}, 0, 1, 0)
	m.BucketQuotaUsages = append(m.BucketQuotaUsages, usage(id, 0, 1, 0).GetBucketQuotaUsages()...)
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := stream.SendMsg([]byte(strings.ReplaceAll(string(wire), "VALUE", "\xff\xfe\xfd\xfc\xfb"))); err != nil {
			t.Fatal(err)
		}
		var got ratelimitquotav3.RateLimitQuotaResponse
		if err := stream.RecvMsg(&got); err != nil || len(got.GetBucketAction()) != 1 || rate(t, got.GetBucketAction()[0]) == 0 {
			t.Fatalf("call %d: %v, %v", i, &got, err)
		}
		s.clock.Advance(5 * time.Second)
	}
	if got := s.service.Status()["denied_reports"]; got != uint64(2) {
		t.Errorf("%v reports are counted", got)
	}
	if err := stream.SendMsg([]byte("\xff\xff\xff")); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(new(ratelimitquotav3.RateLimitQuotaResponse)); status.Code(err) == codes.OK {
		t.Error("a message that is none ends no stream")
	}
}
