package load

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of the fields.
const (
	requestDomain      = 1
	requestDescriptors = 2
	requestHits        = 3
	descriptorEntries  = 1
	entryKey           = 1
	entryValue         = 2
	responseCode       = 1
)

// rateLimitRequest is the RateLimitRequest about a key.
func (o *options) rateLimitRequest(key string) []byte {
	field := func(b []byte, number protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), content)
	}
	b := field(nil, requestDomain, []byte(o.domain))
	for _, entries := range o.descriptors.list {
		var descriptor []byte
		for _, e := range entries {
			entry := field(nil, entryKey, []byte(e.name))
			entry = field(entry, entryValue, []byte(strings.ReplaceAll(e.value, keyMark, key)))
			descriptor = field(descriptor, descriptorEntries, entry)
		}
		b = field(b, requestDescriptors, descriptor)
	}
	if o.cost != 1 {
		b = protowire.AppendVarint(protowire.AppendTag(b, requestHits, protowire.VarintType), uint64(o.cost))
	}
	return b
}

// overallCode is the field of that name of a RateLimitResponse, 0 if there is none. It is not ok if that is no message.
func overallCode(message []byte) (code uint64, ok bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0, false
		}
		message = message[n:]
		if number == responseCode && kind == protowire.VarintType {
			if code, n = protowire.ConsumeVarint(message); n < 0 {
				return 0, false
			}
		} else if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return 0, false
		}
		message = message[n:]
	}
	return code, true
}
