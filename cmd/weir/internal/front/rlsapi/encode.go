package rlsapi

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
)

const (
	codeOK        = uint64(ratelimitv3.RateLimitResponse_OK)
	codeOverLimit = uint64(ratelimitv3.RateLimitResponse_OVER_LIMIT)
)

// The numbers of the fields.
const (
	responseOverall  = 1
	responseStatuses = 2
	responseHeaders  = 3
	requestHeaders   = 4
	responseMetadata = 6

	statusCode      = 1
	statusLimit     = 2
	statusRemaining = 3
	statusReset     = 4

	currentRequests   = 1
	currentUnit       = 2
	currentName       = 3
	currentMultiplier = 4

	durationSeconds = 1

	headerKey   = 1
	headerValue = 2

	structFields = 1
	mapKey       = 1
	mapValue     = 2
	valueNull    = 1
	valueNumber  = 2
	valueString  = 3
	valueBool    = 4
	valueStruct  = 5
	valueList    = 6
	listValues   = 1
)

// encoder appends a message.
type encoder []byte

// tag appends the tag of a field. The numbers of all fields are below 16, so that it is one byte.
func (e *encoder) tag(field protowire.Number, kind protowire.Type) {
	*e = append(*e, byte(field)<<3|byte(kind))
}

// number appends a field unless it is 0, as proto3 does.
func (e *encoder) number(field protowire.Number, v uint64) {
	if v != 0 {
		e.tag(field, protowire.VarintType)
		*e = protowire.AppendVarint(*e, v)
	}
}

// text appends a field.
func (e *encoder) text(field protowire.Number, v string) {
	e.tag(field, protowire.BytesType)
	if len(v) < longLength {
		*e = append(append(*e, byte(len(v))), v...)
		return
	}
	*e = protowire.AppendString(*e, v)
}

// longLength is from which on a length needs more than a byte.
const longLength = 0x80

// begin begins a field that is a message, and returns what end needs.
func (e *encoder) begin(field protowire.Number) (at int) {
	*e = append(*e, byte(field)<<3|byte(protowire.BytesType), 0)
	return len(*e)
}

// end ends a field that was begun. One byte was left for its length, which is moved if it needs more.
func (e *encoder) end(at int) {
	length := uint64(len(*e) - at)
	if length < longLength {
		(*e)[at-1] = byte(length)
		return
	}
	*e = slices.Insert(*e, at, make([]byte, protowire.SizeVarint(length)-1)...)
	binary.PutUvarint((*e)[at-1:], length)
}

// encode makes the reply.
func (c *call) encode() {
	e := encoder(c.reply)
	code := codeOK
	if c.over {
		code = codeOverLimit
	}
	e.number(responseOverall, code)
	for i := range c.statuses {
		at := e.begin(responseStatuses)
		c.statuses[i].encode(&e)
		e.end(at)
	}
	c.encodeHeaders(&e)
	c.encodeOver(&e)
	c.encodeMetadata(&e)
	c.reply = e
}

func (t *told) encode(e *encoder) {
	code := codeOK
	if t.over {
		code = codeOverLimit
	}
	e.number(statusCode, code)
	if t.unlimited {
		e.number(statusRemaining, math.MaxUint32)
		return
	}
	if !t.limited {
		return
	}
	at := e.begin(statusLimit)
	e.number(currentRequests, clamped(t.limit.requests))
	e.number(currentUnit, uint64(t.limit.unit))
	if t.limit.name != "" {
		e.text(currentName, t.limit.name)
	}
	if t.limit.multiplier > 1 {
		multiplied := e.begin(currentMultiplier)
		e.number(wrapperValue, clamped(t.limit.multiplier))
		e.end(multiplied)
	}
	e.end(at)
	e.number(statusRemaining, clamped(t.remaining))
	if t.reset > 0 {
		at := e.begin(statusReset)
		e.number(durationSeconds, uint64((t.reset+time.Second-1)/time.Second))
		e.end(at)
	}
}

// clamped is n as a uint32.
func clamped(n int64) uint64 { return uint64(min(max(n, 0), math.MaxUint32)) }
