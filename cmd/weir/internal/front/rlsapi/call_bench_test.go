package rlsapi

import (
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// BenchmarkCall measures what a call costs beside what gRPC does, next to decoding and encoding the same messages with what
// was generated.
func BenchmarkCall(b *testing.B) {
	day := weir.FixedWindow(weir.Rate{Permits: 1 << 40, Period: 24 * time.Hour})
	limits, err := live.Fixed(&policy.Set{
		Policies: []policy.Policy{
			{Name: "user", Key: policy.AttributeText("user"), Limits: []policy.Limit{{Limit: day}}},
			{Name: "tenant", Key: policy.AttributeText("tenant"), Limits: []policy.Limit{{Limit: day}}},
		},
		Rules: []policy.Rule{
			{Name: "u", Match: policy.Match{Paths: []string{"/user"}}, Limits: []policy.Use{{Policy: "user"}}},
			{Name: "t", Match: policy.Match{Paths: []string{"/tenant"}}, Limits: []policy.Use{{Policy: "tenant"}}},
		},
	}, policy.EngineOptions{}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	wire := marshal(b, &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonratelimitv3.RateLimitDescriptor{
		{Entries: []*commonratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "u-1234567"}}},
		{Entries: []*commonratelimitv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: "t-42"}}},
	}})
	data := mem.BufferSlice{mem.SliceBuffer(wire)}
	var reply []byte
	for name, o := range map[string]Options{
		"all": {Limits: limits}, "brief": {Limits: limits, NoMetadata: true, Fields: ratelimitfields.NoFields},
	} {
		b.Run(name, func(b *testing.B) {
			s := newService(o)
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if reply, err = s.Answer(b.Context(), 0, wire, nil, reply[:0]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"-generated", func(b *testing.B) {
			var answer ratelimitv3.RateLimitResponse
			if err := proto.Unmarshal(reply, &answer); err != nil {
				b.Fatal(err)
			}
			codec := newCodec()
			b.ReportAllocs()
			for b.Loop() {
				if err := codec.Unmarshal(data, new(ratelimitv3.RateLimitRequest)); err != nil {
					b.Fatal(err)
				}
				if _, err := codec.Marshal(&answer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
