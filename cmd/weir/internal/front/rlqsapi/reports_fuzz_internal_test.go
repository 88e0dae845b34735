package rlqsapi

import (
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
)

// FuzzReports compares what is decoded of any bytes with proto.Unmarshal. That fails of a whole message if one of its reports is
// malformed.
func FuzzReports(f *testing.F) {
	whole := messageOf(f, 3)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add([]byte("\x0a\x01a\x0a\x01\xff"))
	f.Add([]byte("\x08\x07\x12\x02\x12\x00\x15\x01\x02\x03\x04\x10\x00"))
	f.Add([]byte("\x12\x04\x0a\x02\x0a\x00\x13\x0a\x01a\x14"))
	f.Add([]byte("\x12\x03\x10\x80\x80\x12\x0e\x0a\x0c\x0a\x04\x0a\x02\xff\xff\x0a\x04\x12\x02bc"))
	f.Add(protowire.AppendTag(nil, protowire.MaxValidNumber+1, protowire.VarintType))
	f.Fuzz(func(t *testing.T, wire []byte) {
		var want ratelimitquotav3.RateLimitQuotaUsageReports
		wrong := proto.Unmarshal(wire, &want)
		var m reports
		if err := m.UnmarshalWire(wire); err != nil {
			if wrong == nil {
				t.Fatalf("%x: %v", wire, err)
			}
			return
		}
		var got []*usage
		unread := false
		for u := range m.usages {
			unread = unread || u == nil
			got = append(got, u)
			if u != nil {
				if key, err := identify(u.GetBucketId()); err == nil && !utf8.ValidString(key) {
					t.Fatalf("%x: the bucket %q", wire, key)
				}
			}
		}
		if unread != (wrong != nil) || wrong == nil && m.domain != want.GetDomain() {
			t.Fatalf("%x: %q and %v, want %v (%v)", wire, m.domain, got, &want, wrong)
		}
		if all := want.GetBucketQuotaUsages(); wrong == nil {
			if len(got) != len(all) {
				t.Fatalf("%x: %d reports, want %d", wire, len(got), len(all))
			}
			for i := range got {
				if !proto.Equal(got[i], all[i]) {
					t.Fatalf("%x: report %d: %v, want %v", wire, i, got[i], all[i])
				}
			}
		}
	})
}
