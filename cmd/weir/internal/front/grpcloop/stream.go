package grpcloop

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/cmd/weir/internal/front/room"
)

// messagePrefix is what stands before each message: whether it is compressed, and its length.
const messagePrefix = 5

// streamPrice is what a stream costs in memory, beside its header and its message.
const streamPrice = 512

// fresh is a call of the loop whose header was the last frame. Nearly always the next frame is its whole message, and the call is
// decided without ever becoming a stream.
type fresh struct {
	id   uint32
	head head
}

// stream is a call that is not answered yet. c.mu guards it.
type stream struct {
	id     uint32
	head   head
	ended  bool  // the client sends no more
	gone   bool  // it is not one of the connection any more
	window int64 // how much the client takes
	credit int   // how much the client may send
	taken  int   // bytes of DATA that have come

	message []byte    // of a unary call, as far as it has come
	since   time.Time // when the call began, while its message is waited for
	begun   time.Time // when its message began, while it is not complete
	held    int       // its part of Unread
	waits   bool      // it is counted as one that waits for its message
	hurried bool      // there were many others, so that it must not wait for long
	cancel  context.CancelFunc

	pending []byte // what is to be sent when the window allows it
	owed    int    // its part of Unread
	trailer []byte // the block that ends the reply, nil if it is not known yet

	other *other // of a call that the loop does not serve itself
}

// isIdle reports whether a stream was never opened.
func (c *conn) isIdle(id uint32) bool { return id%2 == 0 || id > c.last }

// headers processes HEADERS.
func (c *conn) headers(f frame, b []byte) *failure {
	c.touched = true
	if f.stream%2 == 0 {
		return protocol("HEADERS of a stream that clients cannot open")
	}
	b, failed := unpad(f, http2.FlagHeadersPadded, b)
	if failed != nil {
		return failed
	}
	if f.flags.Has(http2.FlagHeadersPriority) {
		if len(b) < 5 {
			return frameSize("HEADERS have no priority")
		}
		b = b[5:]
	}
	c.ends = f.flags.Has(http2.FlagHeadersEndStream)
	if !f.flags.Has(http2.FlagHeadersEndHeaders) {
		c.continued, c.frames9 = f.stream, 0
		return c.gatherHeader(b)
	}
	return c.header(f.stream, b)
}

// gatherHeader adds to a header that is continued.
func (c *conn) gatherHeader(b []byte) *failure {
	c.block = append(c.block, b...)
	if !c.hold(len(b)) {
		return flooded("too much has arrived of headers that are not complete")
	}
	return nil
}

// continuation processes CONTINUATION.
func (c *conn) continuation(f frame, b []byte) *failure {
	if c.continued == 0 {
		return protocol("CONTINUATION of nothing")
	}
	if c.frames9++; c.frames9 > maxContinuations || len(c.block)+len(b) > 2*maxHeader {
		return flooded("a header is too long")
	}
	failed := c.gatherHeader(b)
	if failed != nil || !f.flags.Has(http2.FlagContinuationEndHeaders) {
		return failed
	}
	c.continued = 0
	block := c.block
	c.block = nil
	c.hold(-len(block))
	return c.header(f.stream, block)
}

// header processes a whole header.
func (c *conn) header(id uint32, block []byte) *failure {
	h, ok := c.blocks.read(block)
	if !ok {
		return &failure{code: http2.ErrCodeCompression, text: "a header cannot be decoded"}
	}
	failed := c.begin(id, h)
	c.blocks.forget()
	return failed
}

// begin processes a header that was read.
func (c *conn) begin(id uint32, h head) *failure {
	if s := c.streams[id]; s != nil {
		return c.trailers(s, &h)
	}
	if id <= c.last {
		return protocol("HEADERS of a stream that has ended")
	}
	if c.last = id; c.leaving == left {
		return nil // the client has been told, and calls again elsewhere
	}
	c.taken = id
	switch {
	case h.refused != nil && h.refused.reset != 0:
		return c.fault(id, h.refused.reset)
	case h.refused == nil && c.ends && !h.fits(0):
		return c.fault(id, http2.ErrCodeProtocol)
	case len(c.streams) >= c.s.o.MaxStreams:
		return c.fault(id, http2.ErrCodeRefusedStream)
	case h.refused != nil:
		c.appendError(id, h.refused.http, h.subtype, h.refused.err)
		if !c.ends {
			c.reset(id, http2.ErrCodeNo)
		}
		return c.mayFlood()
	case h.method == none:
		return c.serveOther(id, h)
	}
	c.fresh = fresh{id, h}
	if c.ends {
		s := c.park()
		s.ended = true
		return c.complete(s)
	}
	return nil
}

// trailers processes a second header of a stream, which ends it.
func (c *conn) trailers(s *stream, h *head) *failure {
	if s.ended {
		return c.fault(s.id, http2.ErrCodeStreamClosed)
	}
	if !c.ends || h.method != none || !c.blocks.areTrailers() {
		return c.fault(s.id, http2.ErrCodeProtocol)
	}
	return c.end(s)
}

// open makes a call a stream.
func (c *conn) open(id uint32, h head) *stream {
	s := &stream{id: id, head: h, window: c.firstWindow, credit: streamWindow, ended: c.ends}
	c.streams[id] = s
	c.greedy = !c.hold(h.size+streamPrice) || c.greedy
	return s
}

// park makes the fresh call, if there is one, a stream whose message is waited for.
func (c *conn) park() *stream {
	if c.fresh.id == 0 {
		return nil
	}
	s := c.open(c.fresh.id, c.fresh.head)
	s.ended = false
	c.fresh = fresh{}
	s.waits, s.since = true, time.Now()
	w := &c.s.Waiting
	n, own := w.n.Add(1), c.owner.waiting.Add(1)
	if s.hurried = n > w.Few; s.hurried {
		c.hurried = true
	}
	switch {
	case n > w.Max:
		c.refuse(s, &FaultError{strconv.FormatInt(n-1, 10) + " calls wait for their requests"})
	case own > room.OfOne(w.Max):
		c.refuse(s, &FaultError{strconv.FormatInt(own-1, 10) + " calls of one address wait for their requests"})
	}
	return s
}

// refuseLate refuses calls that must not wait for long and whose message has not come in time.
func (c *conn) refuseLate(now time.Time) {
	if !c.hurried {
		return
	}
	w := &c.s.Waiting
	c.hurried = false
	for _, s := range c.streams {
		switch {
		case !s.hurried || !s.waits:
		case now.Sub(s.since) > w.Patience:
			c.refuse(s, &FaultError{"the request has not come within " + w.Patience.String()})
		default:
			c.hurried = true
		}
	}
	c.touch()
}

// data processes DATA.
func (c *conn) data(f frame, b []byte) *failure {
	c.touched = true
	if c.isIdle(f.stream) {
		return protocol("DATA of an idle stream")
	}
	length := len(b)
	if c.unread += length; c.unread >= connWindow/2 {
		if c.unread > connWindow {
			return &failure{code: http2.ErrCodeFlowControl, text: "more was sent than the window of the connection allows"}
		}
		c.out = appendWindowUpdate(c.out, 0, c.unread)
		c.unread = 0
	}
	b, failed := unpad(f, http2.FlagDataPadded, b)
	if failed != nil {
		return failed
	}
	ends := f.flags.Has(http2.FlagDataEndStream)
	if c.fresh.id != 0 {
		if ends && isMessage(b) && c.fresh.head.fits(len(b)) && !c.s.o.Calls.Waits() {
			c.fresh.id = 0
			c.answerNow(&c.fresh.head, f.stream, b[messagePrefix:])
			return nil
		}
		c.park()
	}
	s := c.streams[f.stream]
	switch {
	case f.stream > c.taken: // the client has been told that it is ignored
		return c.mayFlood()
	case s == nil || s.ended:
		return c.fault(f.stream, http2.ErrCodeStreamClosed)
	}
	if failed := c.take(s, b, length, ends); failed != nil || s.gone || !ends {
		return failed
	}
	return c.end(s)
}

// isMessage reports whether b is a whole message that is not compressed.
func isMessage(b []byte) bool {
	return len(b) >= messagePrefix && b[0] == 0 && uint64(binary.BigEndian.Uint32(b[1:])) == uint64(len(b)-messagePrefix)
}

// take takes DATA of a stream, whose frame had so many bytes with its padding.
func (c *conn) take(s *stream, b []byte, length int, ends bool) *failure {
	if s.credit -= length; s.credit < 0 {
		return c.fault(s.id, http2.ErrCodeFlowControl)
	}
	if s.taken += len(b); s.head.length != none && s.taken > s.head.length {
		return c.fault(s.id, http2.ErrCodeProtocol)
	}
	if len(b) == 0 && !ends {
		if failed := c.mayFlood(); failed != nil {
			return failed
		}
	}
	if s.other != nil {
		return s.other.arrived(b, length-len(b))
	}
	return c.gather(s, b)
}

// gather adds to the message of a unary call.
func (c *conn) gather(s *stream, b []byte) *failure {
	if s.credit < streamWindow/2 {
		c.out = appendWindowUpdate(c.out, s.id, streamWindow-s.credit)
		s.credit = streamWindow
	}
	if len(b) == 0 {
		return nil
	}
	if s.begun.IsZero() {
		s.begun = time.Now()
	}
	s.held += len(b)
	if !c.hold(len(b)) {
		return flooded("too much has arrived of messages that are not complete")
	}
	s.message = append(s.message, b...)
	if len(s.message) < messagePrefix {
		return nil
	}
	switch n := binary.BigEndian.Uint32(s.message[1:]); {
	case s.message[0] != 0:
		c.refuse(s, &FaultError{"the request is compressed: it must not be"})
	case n > uint32(c.s.o.MaxMessage):
		c.refuse(s, &FaultError{"the request has " + strconv.FormatUint(uint64(n), 10) + " bytes: must have at most " +
			strconv.Itoa(c.s.o.MaxMessage)})
	case len(s.message)-messagePrefix > int(n):
		c.refuse(s, &FaultError{"there is a second request: a call has one"})
	}
	return nil
}

// end is called when the client has sent all of a stream.
func (c *conn) end(s *stream) *failure {
	if !s.head.fits(s.taken) {
		return c.fault(s.id, http2.ErrCodeProtocol)
	}
	s.ended = true
	if s.other != nil {
		s.other.end()
		return nil
	}
	return c.complete(s)
}

// complete replies to a unary call whose client has sent all.
func (c *conn) complete(s *stream) *failure {
	if s.gone {
		return nil
	}
	c.arrived(s)
	if len(s.message) < messagePrefix || len(s.message)-messagePrefix < int(binary.BigEndian.Uint32(s.message[1:])) {
		c.finishWith(s, incomplete(len(s.message)))
		return nil
	}
	c.answer(s, s.message[messagePrefix:], nil)
	return nil
}

// refuse replies to a unary call whose message did not come as it should.
func (c *conn) refuse(s *stream, fault *FaultError) {
	c.arrived(s)
	c.answer(s, nil, fault)
}

// forget forgets the message of a stream.
func (c *conn) forget(s *stream) {
	c.hold(-s.held)
	s.held, s.message = 0, nil
}

// arrived notes that the message of a stream is not waited for any more.
func (c *conn) arrived(s *stream) {
	s.begun = time.Time{}
	if s.waits {
		s.waits = false
		c.s.Waiting.n.Add(-1)
		c.owner.waiting.Add(-1)
	}
}

// answer decides a unary call: now, or in a goroutine if it may wait.
func (c *conn) answer(s *stream, message []byte, fault *FaultError) {
	if fault != nil || !c.s.o.Calls.Waits() {
		if !c.use() {
			c.finishWith(s, errRoom)
			return
		}
		reply, err := c.s.o.Calls.Answer(c.ctx, s.head.method, message, fault, nil)
		c.reply(s, reply, err)
		return
	}
	ctx, cancel := c.ctx, context.CancelFunc(nil)
	if s.head.timeout != none {
		ctx, cancel = context.WithTimeout(ctx, s.head.timeout)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	s.cancel = cancel
	c.s.conns.Running.Go(func() {
		defer c.recovered()
		defer cancel()
		var (
			reply []byte
			err   = errRoom
		)
		if c.seat.Use() {
			defer c.seat.Rest()
			reply, err = c.s.o.Calls.Answer(ctx, s.head.method, message, nil, nil)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if !s.gone {
			c.prepare()
			c.reply(s, reply, err)
			c.flush()
			c.finished()
		}
	})
}

// fault ends a stream whose client has broken a rule. It is counted: what was begun for the call may go on for a moment, so that
// MaxStreams does not bound how many are begun.
func (c *conn) fault(id uint32, code http2.ErrCode) *failure {
	c.reset(id, code)
	return c.mayFlood()
}

// reset ends a stream by RST_STREAM.
func (c *conn) reset(id uint32, code http2.ErrCode) {
	if s := c.streams[id]; s != nil {
		c.drop(s)
	}
	c.out = binary.BigEndian.AppendUint32(appendFrame(c.out, 4, http2.FrameRSTStream, 0, id), uint32(code))
}

// drop forgets a stream.
func (c *conn) drop(s *stream) {
	if s.gone {
		return
	}
	s.gone = true
	delete(c.streams, s.id)
	c.hold(-s.head.size - streamPrice)
	c.arrived(s)
	c.forget(s)
	if len(s.pending) > 0 {
		c.blocked--
	}
	s.pending = nil
	c.owe(s)
	if s.cancel != nil {
		s.cancel()
	}
	if s.other != nil {
		s.other.drop()
	}
}
