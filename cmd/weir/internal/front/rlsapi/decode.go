package rlsapi

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
)

// question is what a RateLimitRequest says. Its strings are parts of one string, and it is used again.
type question struct {
	domain      string
	hits        uint32
	ascii       bool // all strings are
	descriptors []descriptor
	entries     []ratelimitconfig.Entry // of all descriptors
}

// descriptor is what a RateLimitDescriptor says.
type descriptor struct {
	from, to int // of its entries
	// override reports whether there is a limit, of so many requests in so many units.
	override   bool
	requests   uint32
	unit       int32
	multiplied bool
	multiplier uint32
	// own reports whether it has hits of its own.
	own      bool
	hits     uint64
	negative bool
}

// entriesOf are those of a descriptor.
func (q *question) entriesOf(d *descriptor) []ratelimitconfig.Entry { return q.entries[d.from:d.to] }

func (q *question) reset() {
	clear(q.entries) // they hold on to a message
	*q = question{descriptors: q.descriptors[:0], entries: q.entries[:0]}
}

var (
	errMalformed   = &unfit{"the message is not a RateLimitRequest"}
	errNotUTF8     = &unfit{"the message has a string that is not UTF-8"}
	errDescriptors = &unfit{"descriptors has more than " + strconv.Itoa(maxDescriptors) + " items: there must be from 1 to " +
		strconv.Itoa(maxDescriptors)}
	errEntries = &unfit{"a descriptor has more than " + strconv.Itoa(maxEntries) + " entries: there must be from 1 to " +
		strconv.Itoa(maxEntries)}
)

// The numbers of the fields.
const (
	requestDomain      = 1
	requestDescriptors = 2
	requestHits        = 3

	descriptorEntries  = 1
	descriptorLimit    = 2
	descriptorHits     = 3
	descriptorNegative = 4

	entryKey   = 1
	entryValue = 2

	limitRequests   = 1
	limitUnit       = 2
	limitMultiplier = 3

	wrapperValue = 1
)

// field is one field of a message: a number, or bytes.
type field struct {
	number protowire.Number
	kind   protowire.Type
	varint uint64
	bytes  string
}

// is reports whether the field is that of a number and a type. Others are skipped, as all decoders of protocol buffers do.
func (f *field) is(number protowire.Number, kind protowire.Type) bool {
	return f.number == number && f.kind == kind
}

// next takes the first field off a message.
func (f *field) next(message string) (rest string, err error) {
	tag, n := consumeVarint(message)
	if n < 0 {
		return "", errMalformed
	}
	if number := tag >> 3; number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		return "", errMalformed
	}
	f.number, f.kind = protowire.Number(tag>>3), protowire.Type(tag&7)
	message = message[n:]
	switch f.kind {
	case protowire.VarintType:
		f.varint, n = consumeVarint(message)
	case protowire.BytesType:
		var length uint64
		if length, n = consumeVarint(message); n < 0 || length > uint64(len(message)-n) {
			return "", errMalformed
		}
		f.bytes = message[n : n+int(length)]
		n += int(length)
	case protowire.Fixed32Type:
		n = 4
	case protowire.Fixed64Type:
		n = 8
	case protowire.StartGroupType:
		return skipGroup(message, f.number, protowire.DefaultRecursionLimit)
	default:
		return "", errMalformed
	}
	if n < 0 || n > len(message) {
		return "", errMalformed
	}
	return message[n:], nil
}

// skipGroup takes a group off a message, of which no message has one that is looked for.
func skipGroup(message string, number protowire.Number, depth int) (rest string, err error) {
	for depth > 0 {
		tag, n := consumeVarint(message)
		if n < 0 {
			return "", errMalformed
		}
		inner := field{number: protowire.Number(tag >> 3)}
		switch protowire.Type(tag & 7) {
		case protowire.EndGroupType:
			if inner.number != number {
				return "", errMalformed
			}
			return message[n:], nil
		case protowire.StartGroupType:
			message, err = skipGroup(message[n:], inner.number, depth-1)
		default:
			message, err = inner.next(message)
		}
		if err != nil {
			return "", err
		}
	}
	return "", errMalformed
}

// consumeVarint is protowire.ConsumeVarint, for strings.
func consumeVarint(s string) (v uint64, n int) {
	for n < len(s) && n < 10 {
		b := s[n]
		v |= uint64(b&0x7f) << (7 * n)
		n++
		if b < 0x80 {
			if n == 10 && b > 1 {
				return 0, -1 // more than 64 bits
			}
			return v, n
		}
	}
	return 0, -1
}

// isASCII reports whether all bytes are ASCII: then so are all strings among them. That is so of most requests, and is found out
// faster than whether each string is UTF-8.
func isASCII(b []byte) bool {
	const high = 0x8080808080808080
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b)&high != 0 {
			return false
		}
	}
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// decode makes q what a message says, as proto.Unmarshal would (FuzzDecode), except that there are bounds. ascii says that all
// of its bytes are ASCII.
func (q *question) decode(message string, ascii bool) error {
	q.reset()
	q.ascii = ascii
	var f field
	for message != "" {
		var err error
		if message, err = f.next(message); err != nil {
			return err
		}
		switch {
		case f.is(requestDomain, protowire.BytesType):
			if !q.isText(f.bytes) {
				return errNotUTF8
			}
			q.domain = f.bytes
		case f.is(requestDescriptors, protowire.BytesType):
			if err := q.decodeDescriptor(f.bytes); err != nil {
				return err
			}
		case f.is(requestHits, protowire.VarintType):
			q.hits = uint32(f.varint)
		}
	}
	return nil
}

// isText reports whether a string is UTF-8.
func (q *question) isText(s string) bool { return q.ascii || utf8.ValidString(s) }

func (q *question) decodeDescriptor(message string) error {
	if len(q.descriptors) == maxDescriptors {
		return errDescriptors
	}
	d := descriptor{from: len(q.entries)}
	var f field
	for message != "" {
		var err error
		if message, err = f.next(message); err != nil {
			return err
		}
		switch {
		case f.is(descriptorEntries, protowire.BytesType):
			if len(q.entries)-d.from == maxEntries {
				return errEntries
			}
			err = q.decodeEntry(f.bytes)
		case f.is(descriptorLimit, protowire.BytesType):
			d.override = true
			err = d.decodeLimit(f.bytes)
		case f.is(descriptorHits, protowire.BytesType):
			d.own = true
			err = decodeWrapper(f.bytes, &d.hits)
		case f.is(descriptorNegative, protowire.VarintType):
			d.negative = f.varint != 0
		}
		if err != nil {
			return err
		}
	}
	d.to = len(q.entries)
	q.descriptors = append(q.descriptors, d)
	return nil
}

func (q *question) decodeEntry(message string) error {
	var (
		e ratelimitconfig.Entry
		f field
	)
	for message != "" {
		var err error
		if message, err = f.next(message); err != nil {
			return err
		}
		to := &e.Value
		switch {
		case f.is(entryKey, protowire.BytesType):
			to = &e.Key
		case f.is(entryValue, protowire.BytesType):
		default:
			continue
		}
		if !q.isText(f.bytes) {
			return errNotUTF8
		}
		*to = f.bytes
	}
	q.entries = append(q.entries, e)
	return nil
}

// decodeLimit adds to a limit what a message says: one that is sent in pieces is put together.
func (d *descriptor) decodeLimit(message string) error {
	var f field
	for message != "" {
		var err error
		if message, err = f.next(message); err != nil {
			return err
		}
		switch {
		case f.is(limitRequests, protowire.VarintType):
			d.requests = uint32(f.varint)
		case f.is(limitUnit, protowire.VarintType):
			d.unit = int32(f.varint)
		case f.is(limitMultiplier, protowire.BytesType):
			multiplier := uint64(d.multiplier)
			d.multiplied = true
			err = decodeWrapper(f.bytes, &multiplier)
			d.multiplier = uint32(multiplier)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decodeWrapper decodes a UInt64Value or a UInt32Value.
func decodeWrapper(message string, v *uint64) error {
	var f field
	for message != "" {
		var err error
		if message, err = f.next(message); err != nil {
			return err
		}
		if f.is(wrapperValue, protowire.VarintType) {
			*v = f.varint
		}
	}
	return nil
}
