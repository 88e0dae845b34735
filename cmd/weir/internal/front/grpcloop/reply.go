package grpcloop

import (
	"encoding/binary"
	"io"
	"net/http"
	"strconv"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/front"
)

var errRoom = status.Error(codes.Unavailable, "weir: the connection had to make room for another one")

// incomplete is the error of a call that has ended before its message.
func incomplete(arrived int) error {
	err := io.EOF
	if arrived > 0 {
		err = io.ErrUnexpectedEOF
	}
	return status.Errorf(codes.Internal, "weir: the request is not complete: %v", err)
}

// Blocks are literals that are not indexed, as a table that both sides keep would save less than it costs.
const (
	noTable     = 0x20 // the table has no bytes from here on
	okStatus    = 0x88 // the field of the static table ":status: 200"
	nameStatus  = 8    // its places of names
	nameType    = 31
	maxIndex4   = 15
	maxLength7  = 127
	continues   = 0x80
	trailerOK   = "\x00\x0bgrpc-status\x010"
	headerPlain = "\x88\x0f\x10\x10" + grpcType
)

// appendNumber appends an integer with a prefix of which all bits but these are 0.
func appendNumber(b []byte, limit, n int) []byte {
	if n < limit {
		return append(b, byte(n))
	}
	b = append(b, byte(limit))
	for n -= limit; n >= continues; n /= continues {
		b = append(b, byte(n%continues|continues))
	}
	return append(b, byte(n))
}

func appendString(b []byte, s string) []byte {
	return append(appendNumber(b, maxLength7, len(s)), s...)
}

// appendField appends a field to a block.
func appendField(b []byte, name, value string) []byte {
	return appendString(appendString(append(b, 0), name), value)
}

// appendHead appends the header block of a reply.
func appendHead(b []byte, code int, subtype string) []byte {
	if code == http.StatusOK && subtype == "" {
		return append(b, headerPlain...)
	}
	b = appendNumber(appendStatusCode(b, code), maxIndex4, nameType)
	if subtype == "" {
		return appendString(b, grpcType)
	}
	return appendString(b, grpcType+"+"+subtype)
}

// appendStatusCode appends the status of HTTP.
func appendStatusCode(b []byte, code int) []byte {
	if code == http.StatusOK {
		return append(b, okStatus)
	}
	return appendString(appendNumber(b, maxIndex4, nameStatus), strconv.Itoa(code))
}

// appendStatus appends the fields of the trailer that say what an error is.
func appendStatus(b []byte, err error) []byte {
	s := status.Convert(err)
	b = appendField(b, "grpc-status", strconv.Itoa(int(s.Code())))
	if m := s.Message(); m != "" {
		b = appendField(b, "grpc-message", front.GRPCMessage(m))
	}
	return b
}

// appendBlock appends a block as HEADERS, and CONTINUATION if it is long.
func (c *conn) appendBlock(id uint32, flags http2.Flags, block []byte) {
	kind := http2.FrameHeaders
	if c.shrunk {
		c.shrunk, block = false, append([]byte{noTable}, block...)
	}
	for len(block) > maxFrame {
		c.out = append(appendFrame(c.out, maxFrame, kind, flags, id), block[:maxFrame]...)
		block, kind, flags = block[maxFrame:], http2.FrameContinuation, 0
	}
	c.out = append(appendFrame(c.out, len(block), kind, flags|http2.FlagHeadersEndHeaders, id), block...)
}

// appendError appends the whole reply to a call that has failed.
func (c *conn) appendError(id uint32, code int, subtype string, err error) {
	c.appendBlock(id, http2.FlagHeadersEndStream, appendStatus(appendHead(nil, code, subtype), err))
}

// answerNow decides a call that never was a stream. Its reply is made where it is written.
func (c *conn) answerNow(h *head, id uint32, message []byte) {
	if !c.use() {
		c.appendError(id, http.StatusOK, h.subtype, errRoom)
		return
	}
	at := len(c.out)
	b := appendFrame(c.out, 0, http2.FrameHeaders, http2.FlagHeadersEndHeaders, id)
	if c.shrunk {
		b = append(b, noTable)
	}
	b = appendHead(b, http.StatusOK, h.subtype)
	putLength(b[at:], len(b)-at-frameHeader)
	data := len(b)
	b = append(appendFrame(b, 0, http2.FrameData, 0, id), make([]byte, messagePrefix)...)
	from := len(b)
	b, err := c.s.o.Calls.Answer(c.ctx, h.method, message, nil, b)
	if err != nil {
		c.out = c.out[:at]
		c.appendError(id, http.StatusOK, h.subtype, err)
		return
	}
	c.shrunk = false
	length := len(b) - from
	n := length + messagePrefix
	binary.BigEndian.PutUint32(b[from-4:], uint32(length))
	c.replied = true
	if n > maxFrame || int64(n) > min(c.window, c.firstWindow) {
		s := c.open(id, *h)
		s.ended = true
		s.trailer = []byte(trailerOK)
		s.pending = append([]byte(nil), b[from-messagePrefix:]...)
		c.out = b[:data]
		c.blocked++
		c.pump(s)
		return
	}
	c.window -= int64(n)
	putLength(b[data:], n)
	c.out = appendFrame(b, len(trailerOK), http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, id)
	c.out = append(c.out, trailerOK...)
}

// putLength puts the length of a frame into its header.
func putLength(b []byte, n int) { b[0], b[1], b[2] = byte(n>>16), byte(n>>8), byte(n) }

// reply replies to a call that is a stream.
func (c *conn) reply(s *stream, message []byte, err error) {
	if err != nil {
		c.finishWith(s, err)
		return
	}
	c.forget(s)
	c.appendBlock(s.id, 0, appendHead(nil, http.StatusOK, s.head.subtype))
	c.replied = true
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	s.trailer = []byte(trailerOK)
	c.send(s, append(prefix, message...))
}

// finishWith ends a stream on which nothing was sent by an error.
func (c *conn) finishWith(s *stream, err error) {
	if s.gone {
		return
	}
	c.appendError(s.id, http.StatusOK, s.head.subtype, err)
	c.finish(s)
}

// finish forgets a stream that was answered. If the client still sends, it is told that it need not.
func (c *conn) finish(s *stream) {
	c.replied = true
	if s.ended {
		c.drop(s)
	} else {
		c.reset(s.id, http2.ErrCodeNo)
	}
}

// send sends bytes of a stream as DATA when the windows allow it.
func (c *conn) send(s *stream, b []byte) {
	if len(s.pending) == 0 && len(b) > 0 {
		c.blocked++
	}
	s.pending = append(s.pending, b...)
	c.pump(s)
}

// pump sends what the windows allow, and the trailer at the end.
func (c *conn) pump(s *stream) {
	for len(s.pending) > 0 {
		n := int(min(int64(min(len(s.pending), maxFrame)), s.window, c.window))
		if n <= 0 {
			c.owe(s)
			return
		}
		c.out = append(appendFrame(c.out, n, http2.FrameData, 0, s.id), s.pending[:n]...)
		s.window -= int64(n)
		c.window -= int64(n)
		c.clock.pumped, c.replied = true, true
		if s.pending = s.pending[n:]; len(s.pending) == 0 {
			c.blocked--
			s.pending = nil
			if s.other != nil {
				c.room.Broadcast()
			}
		}
	}
	c.owe(s)
	if s.trailer != nil {
		c.appendBlock(s.id, http2.FlagHeadersEndStream, s.trailer)
		c.finish(s)
	}
}

// owe counts what is kept of the reply of a stream. There may be too much: process ends the connection, or else sweep.
func (c *conn) owe(s *stream) {
	n := len(s.pending) - s.owed
	if s.owed += n; n != 0 && !c.hold(n) && n > 0 {
		c.greedy = true
	}
}

// pumpAll is pump for all streams that have something to send.
func (c *conn) pumpAll() {
	if c.blocked == 0 {
		return
	}
	for _, s := range c.streams {
		if c.window <= 0 {
			return
		}
		if len(s.pending) > 0 {
			c.pump(s)
		}
	}
}
