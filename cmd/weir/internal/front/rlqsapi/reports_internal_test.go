package rlqsapi

import (
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
)

// messageOf is a message with so many reports, and fields that are not known before and after each.
func messageOf(t testing.TB, n int) []byte {
	t.Helper()
	unknown := protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "x")
	wire := append([]byte(nil), unknown...)
	for i := range n {
		m := &ratelimitquotav3.RateLimitQuotaUsageReports{BucketQuotaUsages: []*usage{{
			BucketId:           &ratelimitquotav3.BucketId{Bucket: map[string]string{"name": strconv.Itoa(i)}},
			NumRequestsAllowed: uint64(i), TimeElapsed: durationpb.New(time.Duration(i)),
		}}}
		if i == n/2 {
			m.Domain = "shop"
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		wire = append(append(wire, b...), unknown...)
	}
	return wire
}

// TestReportsEqualThoseOfProtocolBuffers, also of messages that are cut off anywhere.
func TestReportsEqualThoseOfProtocolBuffers(t *testing.T) {
	wire := messageOf(t, 5)
	for n := range len(wire) + 1 {
		var want ratelimitquotav3.RateLimitQuotaUsageReports
		var got reports
		err := got.UnmarshalWire(wire[:n])
		if wanted := proto.Unmarshal(wire[:n], &want); (err == nil) != (wanted == nil) {
			t.Fatalf("%d bytes: %v, want %v", n, err, wanted)
		}
		if err != nil {
			continue
		}
		i := 0
		for u := range got.usages {
			if i >= len(want.GetBucketQuotaUsages()) || !proto.Equal(u, want.GetBucketQuotaUsages()[i]) {
				t.Fatalf("%d bytes: report %d: %v, want %v", n, i, u, want.GetBucketQuotaUsages())
			}
			i++
		}
		if got.domain != want.GetDomain() || i != len(want.GetBucketQuotaUsages()) {
			t.Fatalf("%d bytes: %q and %d reports, want %v", n, got.domain, i, &want)
		}
	}
}

// TestReportsTakeTheBytesOfTheirMessage, however many they are, until each is taken.
func TestReportsTakeTheBytesOfTheirMessage(t *testing.T) {
	wire := messageOf(t, 50_000)
	got := testing.AllocsPerRun(10, func() {
		if err := new(reports).UnmarshalWire(wire); err != nil {
			t.Fatal(err)
		}
	})
	if got > 2 {
		t.Errorf("%v allocations", got)
	}
	if err := new(reports).UnmarshalWire(messageOf(t, mostUsages+1)); err == nil {
		t.Error("a message may have any number of reports")
	}
}
