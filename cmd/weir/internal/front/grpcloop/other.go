package grpcloop

import (
	"context"
	"encoding/binary"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/front/room"
)

// other is a call that an http.Handler serves: its request body and its response. c.mu guards it.
type other struct {
	c *conn
	s *stream

	body   []byte // what has arrived and was not read
	eof    bool
	prefix [messagePrefix]byte // of the message that is read next
	got    int                 // bytes of prefix
	left   int                 // bytes of the message after it that are to be read
	read   int                 // messages that were begun to be read
	wanted int                 // messages that the handler has asked for
	whole  [2]int              // bytes of the messages that the handler has or gets next, which count until it asks for one more

	owner  *owner
	begins bool // the handler is at its beginning

	header  http.Header
	started bool
	closed  bool // the handler reads no more
}

// begin waits until few enough handlers of the owner are at their beginning: until they have waited for a message, answered or
// ended. Thousands at once would have all other calls wait until each of them has had a processor. It is false if the call ends
// before.
func (o *other) begin(ctx context.Context) bool {
	select {
	case o.owner.beginning <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	o.begins = true
	runtime.Gosched() // it goes on at once otherwise, before others that wait for a processor
	return true
}

// begun is called when the handler is beyond its beginning. c.mu is held.
func (o *other) begun() {
	if o.begins {
		o.begins = false
		<-o.owner.beginning
	}
}

// want lets the handler read another message.
func (o *other) want() {
	o.c.mu.Lock()
	if o.wanted++; o.wanted > 2 { // it is done with the one before
		o.c.hold(-o.whole[0])
		o.s.held -= o.whole[0]
		o.whole = [2]int{o.whole[1]}
	}
	o.c.room.Broadcast()
	o.c.mu.Unlock()
}

type otherKey struct{}

// Wants is to be called whenever a stream of the handler asks for a message, with the context of the stream. The body of its
// request has no more messages than it has asked for, and one: what reads ahead of a handler, as that of grpc-go does, would
// keep all.
func Wants(ctx context.Context) {
	if o, ok := ctx.Value(otherKey{}).(*other); ok {
		o.want()
	}
}

// serveOther has the handler serve a call. c.mu is held.
func (c *conn) serveOther(id uint32, h head) *failure {
	streams, owner := &c.s.Streams, c.s.own(c.owner.network)
	ended := func() {
		streams.n.Add(-1)
		owner.streams.Add(-1)
		c.s.disown(owner)
	}
	if n, own := streams.n.Add(1), owner.streams.Add(1); n > streams.Max || own > room.OfOne(streams.Max) {
		ended()
		return c.fault(id, http2.ErrCodeRefusedStream)
	}
	s := c.open(id, h)
	o := &other{c: c, s: s, owner: owner, eof: s.ended, header: make(http.Header), wanted: 1}
	s.other = o
	ctx, cancel := context.WithCancel(context.WithValue(c.ctx, otherKey{}, o))
	s.cancel = cancel
	r := (&http.Request{
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: make(http.Header, len(c.blocks.fields)), Body: body{o}, ContentLength: -1,
		RemoteAddr: c.nc.RemoteAddr().String(), TLS: c.tls, URL: new(url.URL),
	}).WithContext(ctx)
	asRequest(r, c.blocks.fields)
	c.s.conns.Running.Go(func() {
		if o.begin(ctx) {
			c.s.o.Others.ServeHTTP(response{o}, r)
		}
		ended()
		o.finish()
		cancel()
	})
	return nil
}

// asRequest makes fields those of a request.
func asRequest(r *http.Request, fields []hpack.HeaderField) {
	for _, f := range fields {
		switch f.Name {
		case ":method":
			r.Method = f.Value
		case ":path":
			r.URL.Path = f.Value
		case ":authority":
			r.Host = f.Value
		case ":scheme":
		case "host":
			if r.Host == "" {
				r.Host = f.Value
			}
		default:
			name := textproto.CanonicalMIMEHeaderKey(f.Name)
			r.Header[name] = append(r.Header[name], f.Value)
		}
	}
}

// arrived takes DATA. The padding is not read, so that the client may send as much again.
func (o *other) arrived(b []byte, padding int) *failure {
	s := o.s
	if o.closed {
		o.credit(len(b) + padding)
		return nil
	}
	s.held += len(b)
	if !o.c.hold(len(b)) {
		return flooded("too much has arrived of messages that are not complete")
	}
	o.body = append(o.body, b...)
	o.credit(padding)
	o.c.room.Broadcast()
	return nil
}

// credit lets the client send n bytes more.
func (o *other) credit(n int) {
	s := o.s
	if n > 0 && !s.ended && !s.gone {
		s.credit += n
		o.c.out = appendWindowUpdate(o.c.out, s.id, n)
	}
}

// end notes that the client sends no more.
func (o *other) end() {
	o.eof = true
	o.c.room.Broadcast()
}

// drop ends the waiting of the handler.
func (o *other) drop() {
	o.whole = [2]int{}
	o.c.room.Broadcast()
}

// body is what the handler reads.
type body struct{ *other }

// Read implements [io.Reader].
func (b body) Read(to []byte) (int, error) {
	o := b.other
	c, s := o.c, o.s
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case s.gone || c.closed:
			return 0, status.Error(codes.Canceled, "weir: the call has ended")
		case o.closed:
			return 0, http.ErrBodyReadAfterClose
		case len(o.body) > 0 && (o.got > 0 || o.left > 0 || o.read < o.wanted):
			n := o.take(to)
			o.credit(n)
			c.flush()
			return n, nil
		case len(o.body) == 0 && o.eof:
			return 0, io.EOF
		}
		o.begun()
		c.room.Wait()
	}
}

// take takes bytes of at most one message. What is read of it counts as kept until the handler is done with it.
func (o *other) take(to []byte) (n int) {
	if o.left == 0 {
		n = o.takePrefix(to)
	} else {
		n = copy(to[:min(len(to), o.left)], o.body)
		o.left -= n
	}
	if o.body = o.body[n:]; len(o.body) == 0 {
		o.body = nil
	}
	if o.left == 0 && o.got == 0 { // the message is complete
		o.s.begun = time.Time{}
		size := o.s.held - len(o.body) - o.whole[0]
		if o.whole[0] == 0 {
			o.whole[0] = size
		} else {
			o.whole[1] = size
		}
	}
	return n
}

// takePrefix takes bytes of the prefix of a message.
func (o *other) takePrefix(to []byte) int {
	if o.got == 0 {
		o.read++
		o.s.begun = time.Now()
	}
	n := copy(to[:min(len(to), messagePrefix-o.got)], o.body)
	copy(o.prefix[o.got:], to[:n])
	if o.got += n; o.got == messagePrefix {
		o.left = int(min(binary.BigEndian.Uint32(o.prefix[1:]), uint32(maxWindow)))
		o.got = 0
		if o.left > o.c.s.o.MaxOther {
			o.s.begun = time.Time{} // the handler refuses it
		}
	}
	return n
}

// Close implements [io.Closer].
func (b body) Close() error {
	o := b.other
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	o.closed = true
	if !o.s.gone {
		o.credit(len(o.body))
		o.c.arrived(o.s)
		o.c.forget(o.s)
	}
	o.body, o.whole = nil, [2]int{}
	o.c.room.Broadcast()
	return nil
}

// response is what the handler writes.
type response struct{ *other }

// Header implements [http.ResponseWriter].
func (r response) Header() http.Header { return r.header }

// WriteHeader implements [http.ResponseWriter].
func (r response) WriteHeader(code int) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.start(code)
}

// start sends the header, once. c.mu is held.
func (o *other) start(code int) {
	o.begun()
	if o.started || o.s.gone {
		return
	}
	o.started = true
	b := appendFields(appendStatusCode(nil, code), o.header, func(name string) (string, bool) {
		return name, !isTrailer(name) && name != "Trailer"
	})
	o.c.appendBlock(o.s.id, 0, b)
	o.c.replied = true
}

// Write implements [http.ResponseWriter]. It waits while the client does not take what was written before.
func (r response) Write(b []byte) (int, error) {
	o := r.other
	c, s := o.c, o.s
	c.mu.Lock()
	defer c.mu.Unlock()
	o.start(http.StatusOK)
	for (len(s.pending) > streamWindow || len(c.out) > maxOut) && !s.gone && !c.closed {
		c.flush()
		if len(s.pending) <= streamWindow && len(c.out) <= maxOut {
			break
		}
		c.room.Wait()
	}
	if s.gone || c.closed {
		return 0, errClosed
	}
	c.send(s, b)
	return len(b), nil
}

// Flush implements [http.Flusher].
func (r response) Flush() {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.start(http.StatusOK)
	r.c.flush()
}

// The trailers of gRPC, as a handler names them.
const (
	trailerStatus  = "Grpc-Status"
	trailerMessage = "Grpc-Message"
	trailerDetails = "Grpc-Status-Details-Bin"
)

func isTrailer(name string) bool {
	return name == trailerStatus || name == trailerMessage || name == trailerDetails ||
		strings.HasPrefix(name, http.TrailerPrefix)
}

// finish ends the response when the handler has ended.
func (o *other) finish() {
	c, s := o.c, o.s
	c.mu.Lock()
	defer c.mu.Unlock()
	o.closed = true
	o.begun()
	if s.gone || c.closed {
		return
	}
	switch {
	case len(o.header[trailerStatus]) > 0:
		o.start(http.StatusOK)
		s.trailer = appendFields(make([]byte, 0, len(trailerOK)), o.header, func(name string) (string, bool) {
			return strings.TrimPrefix(name, http.TrailerPrefix), isTrailer(name)
		})
		c.pump(s)
	case o.started || s.head.timeout != none: // it was given up
		c.reset(s.id, http2.ErrCodeCancel)
	default: // or never begun
		c.finishWith(s, status.Error(codes.Unavailable, "weir: the server shuts down"))
	}
	c.flush()
	c.finished()
}

// appendFields appends the fields that are chosen, by the names that they have then.
func appendFields(b []byte, fields http.Header, choose func(name string) (string, bool)) []byte {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		as, ok := choose(name)
		if !ok {
			continue
		}
		for _, v := range fields[name] {
			b = appendField(b, strings.ToLower(as), v)
		}
	}
	return b
}
