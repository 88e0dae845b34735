package rlsapi

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/typev3"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
)

// sameQuestion compares what was decoded with a message.
func sameQuestion(t *testing.T, q *question, m *ratelimitv3.RateLimitRequest) {
	t.Helper()
	if q.domain != m.GetDomain() || q.hits != m.GetHitsAddend() || len(q.descriptors) != len(m.GetDescriptors()) {
		t.Fatalf("%+v of %v", q, m)
	}
	for i, want := range m.GetDescriptors() {
		d := &q.descriptors[i]
		var entries []ratelimitconfig.Entry
		for _, e := range want.GetEntries() {
			entries = append(entries, ratelimitconfig.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		limit := want.GetLimit()
		if !slices.Equal(q.entriesOf(d), entries) ||
			d.override != (limit != nil) || d.requests != limit.GetRequestsPerUnit() || d.unit != int32(limit.GetUnit()) ||
			d.multiplied != (limit.GetUnitMultiplier() != nil) || d.multiplier != limit.GetUnitMultiplier().GetValue() ||
			d.own != (want.GetHitsAddend() != nil) || d.hits != want.GetHitsAddend().GetValue() ||
			d.negative != want.GetIsNegativeHits() {
			t.Fatalf("descriptor %d: %+v of %v", i, d, want)
		}
	}
}

// everything is a request with all that one can say.
func everything() *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{
		Domain: "edge", HitsAddend: 3, Descriptors: []*commonratelimitv3.RateLimitDescriptor{
			{
				Entries: []*commonratelimitv3.RateLimitDescriptor_Entry{
					{Key: "remote_address", Value: "192.0.2.7"}, {Key: "path", Value: "/größe"}, {Key: "empty"},
				},
				HitsAddend: wrapperspb.UInt64(1 << 40),
			},
			{},
			{
				Entries: []*commonratelimitv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}},
				Limit: &commonratelimitv3.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: 10, Unit: typev3.RateLimitUnit_MONTH, UnitMultiplier: wrapperspb.UInt32(7),
				},
				HitsAddend: wrapperspb.UInt64(0), IsNegativeHits: true,
			},
		},
	}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func TestDecode(t *testing.T) {
	var q question
	for _, m := range []*ratelimitv3.RateLimitRequest{everything(), {}, {Domain: "d"}, everything()} {
		wire := marshal(t, m)
		if err := q.decode(string(wire), isASCII(wire)); err != nil {
			t.Fatal(err)
		}
		sameQuestion(t, &q, m)
	}
}

// FuzzDecode compares what is decoded with proto.Unmarshal, for any bytes.
func FuzzDecode(f *testing.F) {
	whole := marshal(f, everything())
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(append(slices.Clone(whole), whole...))
	f.Add([]byte("\x0a\x01\xff"))                                             // not UTF-8
	f.Add([]byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))             // a length that overflows
	f.Add([]byte("\x08\x07\x12\x00\x15\x01\x02\x03\x04"))                     // of other types
	f.Add([]byte("\x23\x23\x24\x24"))                                         // groups
	f.Add([]byte("\x23" + strings.Repeat("\x23", 200) + "\x24"))              // groups that do not end
	f.Add([]byte("\x00\x00"))                                                 // a field without number
	f.Add([]byte("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"))             // more than 64 bits
	f.Add([]byte("\x12\x0c\x12\x02\x08\x01\x12\x02\x10\x02\x1a\x02\x08\x05")) // a limit in pieces
	f.Add(protowire.AppendTag(nil, protowire.MaxValidNumber+1, protowire.VarintType))
	var q question
	f.Fuzz(func(t *testing.T, wire []byte) {
		var m ratelimitv3.RateLimitRequest
		want := proto.Unmarshal(wire, &m)
		err := q.decode(string(wire), isASCII(wire))
		if errors.Is(err, errDescriptors) || errors.Is(err, errEntries) {
			return // proto.Unmarshal has no such bounds
		}
		if (err != nil) != (want != nil) {
			t.Fatalf("%x: %v, want %v", wire, err, want)
		}
		if want == nil {
			sameQuestion(t, &q, &m)
		}
	})
}
