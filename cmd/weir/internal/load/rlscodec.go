package load

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
)

const rlsMethod = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// rlsCodec calls ShouldRateLimit over gRPC: one HTTP/2 stream for each call, and as many at once as there are in flight. A
// client of grpc-go costs as much as a server of it, and would be measured with it; all that a unary call needs is here. The
// head of every request is the same bytes, and so are those of most responses, because neither side may keep a table of header
// fields.
type rlsCodec struct {
	template template // of both frames, without the stream
	head     int      // how long the first of them is, which has the header fields
	largest  int64    // how long the frames are about the longest key
	calls    map[uint32]*rlsCall
	free     []*rlsCall
	stream   uint32 // the next one

	window       int64  // how many bytes of messages the server takes now
	firstWindow  int64  // and how many of one stream
	most         uint32 // streams at once
	frameSize    int
	unread       uint32 // bytes of messages that were read, and that the server has not been told of
	leaving      bool   // the server takes no more streams
	answer       []byte // frames to be sent
	decoder      *hpack.Decoder
	success      []byte // the block of trailers that was last seen to mean success
	pendingBlock []byte // of a block that is continued
	pendingCall  uint32
	pendingEnd   bool
}

// rlsCall is a call without its answer.
type rlsCall struct {
	slot    uint32
	message []byte
	status  string // of gRPC, "" if it was not there yet
	detail  string
	http    string
}

const (
	frameHead   = 9
	messageHead = 5
	usualWindow = 65535
	ourWindow   = 1 << 30 // that the server may send without being told that it was read
	usualFrame  = 16384
	firstStream = 1
	unsettled   = 16                // streams at once before the server has said how many it takes
	lastStream  = math.MaxInt32 - 2 // a connection can have no more than these
)

// longestKey is how long a key is at most: a prefix and a number.
const longestKey = longestPrefix + 20

func newRLSCodec(o *options) *rlsCodec {
	c := &rlsCodec{}
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSizeLimit(0)
	scheme := "http"
	if o.tls.on {
		scheme = "https"
	}
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: scheme},
		{Name: ":path", Value: rlsMethod},
		{Name: ":authority", Value: o.address},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
		{Name: "user-agent", Value: "weir-bench"},
	} {
		_ = e.WriteField(f) // a bytes.Buffer takes everything
	}
	head := append(appendFrame(nil, block.Len(), http2.FrameHeaders, http2.FlagHeadersEndHeaders), block.Bytes()...)
	c.head = len(head)
	c.template.encode = func(key string) []byte {
		message := o.rateLimitRequest(key)
		b := appendFrame(head[:c.head:c.head], messageHead+len(message), http2.FrameData, http2.FlagDataEndStream)
		b = binary.BigEndian.AppendUint32(append(b, 0), uint32(len(message)))
		return append(b, message...)
	}
	c.largest = int64(len(c.template.of(longestKey).text))
	return c
}

func (c *rlsCodec) open(nc net.Conn) ([]byte, error) {
	*c = rlsCodec{
		template: c.template, head: c.head, largest: c.largest, calls: map[uint32]*rlsCall{}, stream: firstStream,
		window: usualWindow, firstWindow: usualWindow, most: unsettled, frameSize: usualFrame, decoder: hpack.NewDecoder(0, nil),
	}
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	// A bytes.Buffer takes everything.
	_ = f.WriteSettings(
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}, http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: ourWindow},
	)
	_ = f.WriteWindowUpdate(0, ourWindow)
	_, err := nc.Write(b.Bytes())
	return nil, err
}

func (c *rlsCodec) room() int {
	if c.leaving || c.stream > lastStream {
		return 0
	}
	room := int64(c.most) - int64(len(c.calls))
	return int(max(0, min(room, c.window/c.largest)))
}

func (c *rlsCodec) request(b, key []byte, slot uint32) []byte {
	var call *rlsCall
	if n := len(c.free); n > 0 {
		call, c.free = c.free[n-1], c.free[:n-1]
		*call = rlsCall{message: call.message[:0]}
	} else {
		call = &rlsCall{}
	}
	call.slot = slot
	c.calls[c.stream] = call

	start := len(b)
	b = c.template.append(b, key)
	data := start + c.head
	binary.BigEndian.PutUint32(b[start+frameHead-4:], c.stream)
	binary.BigEndian.PutUint32(b[data+frameHead-4:], c.stream)
	c.window -= int64(len(b) - data - frameHead)
	c.stream += 2
	return b
}

// appendFrame appends the head of a frame of the connection, or of a stream that is put in later.
func appendFrame(b []byte, length int, kind http2.FrameType, flags http2.Flags) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags), 0, 0, 0, 0)
}

func (c *rlsCodec) control() []byte {
	if c.unread >= ourWindow/4 {
		c.answer = appendFrame(c.answer, 4, http2.FrameWindowUpdate, 0)
		c.answer = binary.BigEndian.AppendUint32(c.answer, c.unread)
		c.unread = 0
	}
	answer := c.answer
	c.answer = nil
	return answer
}

var errNotGRPC = &protocolError{"the answer is not gRPC over HTTP/2"}

func (c *rlsCodec) replies(b []byte, to []reply) (int, []reply, error) {
	read := 0
	for len(b)-read >= frameHead {
		head := b[read:]
		length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if length > usualFrame {
			return read, to, errNotGRPC
		}
		if len(head) < frameHead+length {
			break
		}
		stream := binary.BigEndian.Uint32(head[5:]) & math.MaxInt32
		var err error
		to, err = c.frame(http2.FrameType(head[3]), http2.Flags(head[4]), stream, head[frameHead:frameHead+length], to)
		if err != nil {
			return read, to, err
		}
		read += frameHead + length
	}
	if (c.leaving || c.stream > lastStream) && len(c.calls) == 0 {
		return read, to, &goneError{"the server ends the connection"}
	}
	return read, to, nil
}

// frame reads one.
func (c *rlsCodec) frame(kind http2.FrameType, flags http2.Flags, stream uint32, b []byte, to []reply) ([]reply, error) {
	switch kind {
	case http2.FrameData:
		return c.data(flags, stream, b, to)
	case http2.FrameHeaders:
		if flags.Has(http2.FlagHeadersPriority) || flags.Has(http2.FlagHeadersPadded) {
			return to, &protocolError{"a server that sends padding or priorities is not supported"}
		}
		if !flags.Has(http2.FlagHeadersEndHeaders) {
			c.pendingBlock = append(c.pendingBlock[:0], b...)
			c.pendingCall, c.pendingEnd = stream, flags.Has(http2.FlagHeadersEndStream)
			return to, nil
		}
		return c.headers(stream, b, flags.Has(http2.FlagHeadersEndStream), to)
	case http2.FrameContinuation:
		if c.pendingBlock = append(c.pendingBlock, b...); stream != c.pendingCall || len(c.pendingBlock) > longestHead {
			return to, errNotGRPC
		}
		if !flags.Has(http2.FlagContinuationEndHeaders) {
			return to, nil
		}
		return c.headers(stream, c.pendingBlock, c.pendingEnd, to)
	case http2.FrameRSTStream:
		if len(b) != 4 {
			return to, errNotGRPC
		}
		kind := "stream " + http2.ErrCode(binary.BigEndian.Uint32(b)).String()
		return c.finish(stream, to, reply{outcome: failed, fault: &fault{kind, "the server has reset the stream"}}), nil
	case http2.FrameGoAway:
		if len(b) < 8 {
			return to, errNotGRPC
		}
		c.leaving = true
		if code := http2.ErrCode(binary.BigEndian.Uint32(b[4:])); code != http2.ErrCodeNo {
			return to, &goneError{fmt.Sprintf("the server ends the connection: %s %s", code, strconv.Quote(string(b[8:])))}
		}
		return to, nil
	case http2.FrameWindowUpdate:
		if len(b) != 4 {
			return to, errNotGRPC
		}
		if stream == 0 {
			c.window += int64(binary.BigEndian.Uint32(b) & math.MaxInt32)
		}
		return to, nil
	case http2.FrameSettings, http2.FramePing:
		return to, c.settingsOrPing(kind, flags, b)
	default:
		return to, nil
	}
}

// goneError is about a server that says goodbye.
type goneError struct{ text string }

func (e *goneError) Error() string { return e.text }

func (c *rlsCodec) settingsOrPing(kind http2.FrameType, flags http2.Flags, b []byte) error {
	if flags.Has(http2.FlagSettingsAck) { // that of a ping is the same bit
		return nil
	}
	if kind == http2.FramePing {
		c.answer = append(appendFrame(c.answer, len(b), http2.FramePing, http2.FlagPingAck), b...)
		return nil
	}
	if c.most == unsettled {
		c.most = math.MaxUint32
	}
	for ; len(b) >= 6; b = b[6:] {
		value := binary.BigEndian.Uint32(b[2:])
		switch http2.SettingID(binary.BigEndian.Uint16(b)) {
		case http2.SettingMaxConcurrentStreams:
			c.most = value
		case http2.SettingInitialWindowSize:
			if c.firstWindow = int64(value); c.firstWindow < c.largest {
				return &protocolError{"the server takes too few bytes of a stream"}
			}
		default:
			// The rest does not matter to calls that are as small, and that use no table of header fields.
		}
	}
	c.answer = appendFrame(c.answer, 0, http2.FrameSettings, http2.FlagSettingsAck)
	return nil
}

func (c *rlsCodec) data(flags http2.Flags, stream uint32, b []byte, to []reply) ([]reply, error) {
	c.unread += uint32(len(b))
	call := c.calls[stream]
	if call == nil {
		return to, nil
	}
	if flags.Has(http2.FlagDataPadded) || len(call.message)+len(b) > longestHead {
		return to, errNotGRPC
	}
	call.message = append(call.message, b...)
	if flags.Has(http2.FlagDataEndStream) {
		return c.finish(stream, to, reply{outcome: failed, fault: &fault{"no status", "the answer has no status of gRPC"}}), nil
	}
	return to, nil
}

// headers reads a block of header fields: those of the response, or the trailers, or both in one.
func (c *rlsCodec) headers(stream uint32, block []byte, end bool, to []reply) ([]reply, error) {
	call := c.calls[stream]
	if call == nil {
		return to, nil
	}
	if end && len(call.message) > 0 && c.success != nil && bytes.Equal(block, c.success) {
		return c.finish(stream, to, decided(call.message)), nil
	}
	if len(call.message) == 0 && !end {
		return to, nil // what counts is in the trailers, and without a table a block need not be read
	}
	fields, err := c.decoder.DecodeFull(block)
	if err != nil {
		return to, errNotGRPC
	}
	for _, f := range fields {
		switch f.Name {
		case ":status":
			call.http = f.Value
		case "grpc-status":
			call.status = f.Value
		case "grpc-message":
			call.detail = f.Value
		}
	}
	if !end {
		return to, nil
	}
	if call.status == "0" && len(call.message) > 0 {
		c.success = append(c.success[:0], block...)
		return c.finish(stream, to, decided(call.message)), nil
	}
	return c.finish(stream, to, call.failure()), nil
}

func (call *rlsCall) failure() reply {
	code, err := strconv.ParseUint(call.status, 10, 8)
	switch {
	case call.status == "" && call.http != "":
		return reply{outcome: failed, fault: &fault{"status " + call.http, "status " + call.http + ", and none of gRPC"}}
	case err != nil:
		return reply{outcome: failed, fault: &fault{"no status", "the answer has no status of gRPC"}}
	case code == 0:
		return reply{outcome: failed, fault: &fault{"no message", "the answer has no message"}}
	}
	kind := codes.Code(code).String()
	if plain, err := url.PathUnescape(call.detail); err == nil {
		call.detail = plain
	}
	return reply{outcome: failed, fault: &fault{kind, kind + ": " + call.detail}}
}

// decided is what a response says.
func decided(message []byte) reply {
	const ok, overLimit = 1, 2
	if len(message) >= messageHead && message[0] == 0 &&
		int(binary.BigEndian.Uint32(message[1:])) == len(message)-messageHead {
		switch code, valid := overallCode(message[messageHead:]); {
		case valid && code == ok:
			return reply{outcome: allowed}
		case valid && code == overLimit:
			return reply{outcome: refused}
		}
	}
	return reply{outcome: failed, fault: &fault{"not a decision", "the answer is not a RateLimitResponse with an overall_code"}}
}

// finish ends a call.
func (c *rlsCodec) finish(stream uint32, to []reply, r reply) []reply {
	call := c.calls[stream]
	if call == nil {
		return to
	}
	r.slot = call.slot
	delete(c.calls, stream)
	c.free = append(c.free, call)
	return append(to, r)
}

// rateLimitRequest is the RateLimitRequest about a key.
func (o *options) rateLimitRequest(key string) []byte {
	r := &ratelimitv3.RateLimitRequest{Domain: o.domain}
	for _, entries := range o.descriptors.list {
		d := &commonratelimitv3.RateLimitDescriptor{}
		for _, e := range entries {
			d.Entries = append(d.Entries, &commonratelimitv3.RateLimitDescriptor_Entry{
				Key: e.name, Value: strings.ReplaceAll(e.value, keyMark, key),
			})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	if o.cost != 1 {
		r.HitsAddend = uint32(o.cost)
	}
	b, _ := proto.Marshal(r) // texts that print can be encoded
	return b
}

// responseCode is the number of the field overall_code.
const responseCode = 1

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
