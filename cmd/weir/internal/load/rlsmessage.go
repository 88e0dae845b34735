package load

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// rlsTemplate is a RateLimitRequest, but for the key. It is encoded without generated messages, which would allocate for each.
type rlsTemplate struct {
	domain      string
	descriptors [][]rlsEntry
	hits        uint64
	sizes       []int // of the descriptors, for the key that is encoded
}

// rlsEntry is an entry of a descriptor. Where keyed is set its value is before, the key, and after.
type rlsEntry struct {
	name          string
	before, after string
	keyed         bool
}

func newRLSEntry(name, value string) rlsEntry {
	before, after, keyed := strings.Cut(value, keyMark)
	return rlsEntry{name, before, after, keyed}
}

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

func (e *rlsEntry) valueSize(key []byte) int {
	n := len(e.before) + len(e.after)
	if e.keyed {
		n += len(key)
	}
	return n
}

func (e *rlsEntry) size(key []byte) int {
	return protowire.SizeTag(entryKey) + protowire.SizeBytes(len(e.name)) +
		protowire.SizeTag(entryValue) + protowire.SizeBytes(e.valueSize(key))
}

func (e *rlsEntry) append(b, key []byte) []byte {
	b = protowire.AppendTag(b, entryKey, protowire.BytesType)
	b = protowire.AppendString(b, e.name)
	b = protowire.AppendTag(b, entryValue, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(e.valueSize(key)))
	b = append(b, e.before...)
	if e.keyed {
		b = append(b, key...)
	}
	return append(b, e.after...)
}

// size is how long the request about a key is. It must be called before append with the same key.
func (t *rlsTemplate) size(key []byte) int {
	n := protowire.SizeTag(requestDomain) + protowire.SizeBytes(len(t.domain))
	t.sizes = t.sizes[:0]
	for _, entries := range t.descriptors {
		size := 0
		for i := range entries {
			size += protowire.SizeTag(descriptorEntries) + protowire.SizeBytes(entries[i].size(key))
		}
		t.sizes = append(t.sizes, size)
		n += protowire.SizeTag(requestDescriptors) + protowire.SizeBytes(size)
	}
	if t.hits != 1 {
		n += protowire.SizeTag(requestHits) + protowire.SizeVarint(t.hits)
	}
	return n
}

func (t *rlsTemplate) append(b, key []byte) []byte {
	b = protowire.AppendTag(b, requestDomain, protowire.BytesType)
	b = protowire.AppendString(b, t.domain)
	for i, entries := range t.descriptors {
		b = protowire.AppendTag(b, requestDescriptors, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(t.sizes[i]))
		for j := range entries {
			b = protowire.AppendTag(b, descriptorEntries, protowire.BytesType)
			b = protowire.AppendVarint(b, uint64(entries[j].size(key)))
			b = entries[j].append(b, key)
		}
	}
	if t.hits != 1 {
		b = protowire.AppendTag(b, requestHits, protowire.VarintType)
		b = protowire.AppendVarint(b, t.hits)
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
