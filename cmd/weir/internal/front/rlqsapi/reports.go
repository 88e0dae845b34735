package rlqsapi

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
)

// usage is one report.
type usage = ratelimitquotav3.RateLimitQuotaUsageReports_BucketQuotaUsage

// reports is a message of a proxy: its domain, and the bytes of its reports. They are decoded one by one, as all at once would
// take many times the memory of the message, and as values of bucket ids are those of clients: they need not be UTF-8, and the
// error of a whole message would end the stream.
type reports struct {
	domain string
	wire   []byte
}

// The numbers of the fields of a message.
const (
	fieldDomain = 1
	fieldUsages = 2
)

// mostUsages is how many reports a message has at most.
const mostUsages = 100_000

var (
	errDomain = errors.New("weir: domain: must be UTF-8")
	errNumber = errors.New("weir: the number of a field: must be at most 536870911")
)

// UnmarshalWire decodes a message for the codec of the server, and keeps its bytes.
func (m *reports) UnmarshalWire(wire []byte) error {
	*m = reports{wire: wire}
	count := 0
	for len(wire) > 0 {
		number, kind, head := protowire.ConsumeTag(wire)
		if head < 0 {
			return protowire.ParseError(head)
		}
		if number > protowire.MaxValidNumber { // which no decoder of protocol buffers takes
			return errNumber
		}
		n := protowire.ConsumeFieldValue(number, kind, wire[head:])
		if n < 0 {
			return protowire.ParseError(n)
		}
		switch {
		case kind != protowire.BytesType:
		case number == fieldDomain:
			domain, _ := protowire.ConsumeBytes(wire[head:])
			if m.domain = string(domain); !utf8.ValidString(m.domain) {
				return errDomain
			}
		case number == fieldUsages:
			count++
		}
		wire = wire[head+n:]
	}
	if count > mostUsages {
		return fmt.Errorf("weir: bucket_quota_usages of %d: must be at most %d", count, mostUsages)
	}
	return nil
}

// usages are the reports of the message in order, nil for one that cannot be decoded.
func (m *reports) usages(yield func(*usage) bool) {
	for wire := m.wire; len(wire) > 0; {
		number, kind, head := protowire.ConsumeTag(wire)
		n := protowire.ConsumeFieldValue(number, kind, wire[head:])
		if number == fieldUsages && kind == protowire.BytesType {
			body, _ := protowire.ConsumeBytes(wire[head:])
			u := new(usage)
			if proto.Unmarshal(body, u) != nil {
				u = nil
			}
			if !yield(u) {
				return
			}
		}
		wire = wire[head+n:]
	}
}
