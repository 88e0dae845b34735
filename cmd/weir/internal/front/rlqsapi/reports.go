package rlqsapi

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
)

// reports is a message of a proxy. It decodes what it can: values of bucket ids are those of clients, which need not be UTF-8,
// and the error of a whole message would end the stream.
type reports struct {
	ratelimitquotav3.RateLimitQuotaUsageReports

	unread int // reports that cannot be decoded
}

const (
	// fieldUsages is the number of bucket_quota_usages.
	fieldUsages = 2
	// mostUsages is how many reports a message has at most. A report takes two bytes at least, and more than a hundred in memory.
	mostUsages = 100_000
)

// UnmarshalWire decodes a message for the codec of the server.
func (m *reports) UnmarshalWire(wire []byte) error {
	if n := countOf(wire, fieldUsages); n > mostUsages {
		return fmt.Errorf("weir: bucket_quota_usages of %d: must be at most %d", n, mostUsages)
	}
	err := proto.Unmarshal(wire, &m.RateLimitQuotaUsageReports)
	if err == nil {
		return nil
	}
	var rest []byte // all but the usages
	m.Reset()
	var usages []*ratelimitquotav3.RateLimitQuotaUsageReports_BucketQuotaUsage
	for len(wire) > 0 {
		number, kind, head := protowire.ConsumeTag(wire)
		n := protowire.ConsumeFieldValue(number, kind, wire[max(head, 0):])
		if head < 0 || n < 0 {
			return err
		}
		if number == fieldUsages && kind == protowire.BytesType {
			body, _ := protowire.ConsumeBytes(wire[head:])
			u := new(ratelimitquotav3.RateLimitQuotaUsageReports_BucketQuotaUsage)
			if proto.Unmarshal(body, u) == nil {
				usages = append(usages, u)
			} else {
				m.unread++
			}
		} else {
			rest = append(rest, wire[:head+n]...)
		}
		wire = wire[head+n:]
	}
	if err := proto.Unmarshal(rest, &m.RateLimitQuotaUsageReports); err != nil {
		return err
	}
	m.BucketQuotaUsages = usages
	return nil
}

// countOf is how often a message has a field.
func countOf(wire []byte, field protowire.Number) (count int) {
	for len(wire) > 0 {
		number, _, n := protowire.ConsumeField(wire)
		if n < 0 {
			break
		}
		if number == field {
			count++
		}
		wire = wire[n:]
	}
	return count
}
