package grpcloop_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/front/grpcloop"
)

// echoes are calls that say what the request says: "size:n" has n bytes, "fail" fails, "panic" panics, "wait" waits until it is told,
// or canceled.
type echoes struct {
	waits  bool
	asked  chan struct{}
	answer chan struct{}
}

const echoMethod = "/test.Echo/Echo"

// Method implements [grpcloop.Calls].
func (e *echoes) Method(name string) (int, bool) { return 0, name == echoMethod }

// Waits implements [grpcloop.Calls].
func (e *echoes) Waits() bool { return e.waits }

// Answer implements [grpcloop.Calls].
func (e *echoes) Answer(
	ctx context.Context, _ int, request []byte, fault *grpcloop.FaultError, reply []byte,
) ([]byte, error) {
	if fault != nil {
		return append(reply, "fault: "+fault.Reason...), nil //nolint:nilerr // it is the reply
	}
	text := string(request)
	size, sized := strings.CutPrefix(text, "size:")
	switch {
	case text == "panic":
		panic("as it was asked for")
	case text == "fail":
		return append(reply, "this is dropped"...), status.Error(codes.FailedPrecondition, "100 % ünfit\n")
	case sized:
		n, err := strconv.Atoi(size)
		if err != nil {
			return nil, err
		}
		return append(reply, bytes.Repeat([]byte("x"), n)...), nil
	case text == "wait":
		e.asked <- struct{}{}
		select {
		case <-e.answer:
		case <-ctx.Done():
			e.asked <- struct{}{}
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	return append(reply, request...), nil
}

func newEchoes(waits bool) *echoes {
	return &echoes{waits: waits, asked: make(chan struct{}, 1000), answer: make(chan struct{})}
}

// others serves what the loop does not.
func others(t testing.TB) *grpc.Server {
	t.Helper()
	g := grpc.NewServer(grpc.WaitForHandlers(true))
	healthv1.RegisterHealthServer(g, health.NewServer())
	t.Cleanup(g.Stop)
	return g
}

func optionsOf(t testing.TB, calls grpcloop.Calls) grpcloop.Options {
	t.Helper()
	return grpcloop.Options{
		Calls: calls, Others: others(t), MaxStreams: 100, MaxMessage: 1 << 20, MaxOther: 4 << 20,
		Log: slog.New(slog.DiscardHandler),
	}
}

// serve serves a listener until the test ends.
func serve(t testing.TB, o grpcloop.Options, l net.Listener) *grpcloop.Server {
	t.Helper()
	s := grpcloop.New(o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), <-served); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return s
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// peer is a client that writes frames as it likes.
type peer struct {
	t      testing.TB
	nc     net.Conn
	out    bytes.Buffer
	w, r   *http2.Framer
	block  bytes.Buffer
	fields *hpack.Encoder
	decode *hpack.Decoder
	heard  bool // a header block has come
	shrunk bool // the first one has begun with a smaller table
}

func connect(t testing.TB, address string) *peer {
	t.Helper()
	nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return newPeer(t, nc)
}

func newPeer(t testing.TB, nc net.Conn) *peer {
	t.Helper()
	t.Cleanup(func() { _ = nc.Close() })
	p := &peer{t: t, nc: nc, decode: hpack.NewDecoder(4096, nil)}
	p.w, p.r = http2.NewFramer(&p.out, nil), http2.NewFramer(nil, nc)
	p.w.AllowIllegalWrites = true
	p.fields = hpack.NewEncoder(&p.block)
	return p
}

func (p *peer) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// greet writes the preface and SETTINGS.
func (p *peer) greet(settings ...http2.Setting) *peer {
	p.out.WriteString(http2.ClientPreface)
	p.must(p.w.WriteSettings(settings...))
	return p
}

// head is the header block of a call, with more fields.
func (p *peer) head(path string, more ...string) []byte {
	return p.headOf(append([]string{
		":method", http.MethodPost, ":scheme", "http", ":path", path, ":authority", "test",
		"content-type", "application/grpc", "te", "trailers",
	}, more...)...)
}

func (p *peer) headOf(fields ...string) []byte {
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.must(p.fields.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(p.block.Bytes())
}

func (p *peer) headers(id uint32, block []byte, end bool) *peer {
	p.must(p.w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: end}))
	return p
}

// message is a message as it is sent.
func message(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

func (p *peer) call(id uint32, text string) *peer {
	p.headers(id, p.head(echoMethod), false)
	p.must(p.w.WriteData(id, true, message(text)))
	return p
}

// send sends what was written.
func (p *peer) send() *peer {
	_, err := p.nc.Write(p.out.Bytes())
	p.out.Reset()
	if err != nil && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, net.ErrClosed) {
		p.t.Log(err) // the server may have closed the connection
	}
	return p
}

// result is what the server has replied to a call.
type result struct {
	http, status, text string
	message            []byte
	reset              http2.ErrCode
	wasReset, ended    bool
}

// lastPing is the ping that tells that all frames before it were processed.
var lastPing = [8]byte{1}

// seen is what a server has sent.
type seen struct {
	calls   map[uint32]*result
	goAways []*http2.GoAwayFrame
	pings   int // acknowledgments of lastPing
	closed  bool
}

func (s *seen) call(id uint32) *result {
	if s.calls[id] == nil {
		s.calls[id] = &result{}
	}
	return s.calls[id]
}

// read reads until done reports that it has seen enough, or the connection ends.
func (p *peer) read(done func(*seen) bool) *seen {
	p.t.Helper()
	s := &seen{calls: map[uint32]*result{}}
	for !done(s) {
		f, err := p.r.ReadFrame()
		if err != nil {
			s.closed = true
			return s
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			p.fieldsOf(s.call(f.StreamID), f)
		case *http2.DataFrame:
			r := s.call(f.StreamID)
			r.message = append(r.message, f.Data()...)
		case *http2.RSTStreamFrame:
			r := s.call(f.StreamID)
			r.wasReset, r.reset = true, f.ErrCode
		case *http2.GoAwayFrame:
			copied := *f
			s.goAways = append(s.goAways, &copied)
		case *http2.PingFrame:
			if f.IsAck() && f.Data == lastPing {
				s.pings++
			}
		}
	}
	return s
}

func (p *peer) fieldsOf(r *result, f *http2.HeadersFrame) {
	p.t.Helper()
	if b := f.HeaderBlockFragment(); !p.heard {
		p.heard, p.shrunk = true, b[0]&0xe0 == 0x20
	}
	if p.decode == nil {
		return
	}
	fields, err := p.decode.DecodeFull(f.HeaderBlockFragment())
	p.must(err)
	for _, field := range fields {
		switch field.Name {
		case ":status":
			r.http = field.Value
		case "grpc-status":
			r.status = field.Value
		case "grpc-message":
			r.text = field.Value
		}
	}
	r.ended = r.ended || f.StreamEnded()
}

// result reads until a call has ended.
func (p *peer) result(id uint32) *result {
	p.t.Helper()
	s := p.read(func(s *seen) bool { r := s.calls[id]; return r != nil && (r.ended || r.wasReset) })
	if s.closed {
		p.t.Fatalf("the connection ended before call %d: %v", id, s.goAways)
	}
	return s.calls[id]
}

func (r *result) want(t testing.TB, text string) {
	t.Helper()
	if r.http != "200" || r.status != "0" || !bytes.Equal(r.message, message(text)) {
		t.Errorf("%.200q, status %s %s %s, want %.100q", r.message, r.http, r.status, r.text, text)
	}
}
