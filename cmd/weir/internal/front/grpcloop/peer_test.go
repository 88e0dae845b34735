package grpcloop_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
)

// FuzzFrames sends frames to the loop, and to the server of net/http, which is that of golang.org/x/net: both find the same fault with the connection, or none.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 5, 1, 0})
	f.Add([]byte{0, 0, 1, 9, 1, 1, 7, 2, 0, 3, 1, 4, 5})
	f.Add([]byte{0, 4, 2, 0, 1, 200, 3, 1, 9, 9, 9, 4, 8, 6, 0, 7, 7})
	f.Add([]byte{10, 1, 11, 12, 3, 4, 13, 14, 15, 0, 0, 9, 9})
	pipes := fronttest.Pipes()
	serve(f, optionsOf(f, newEchoes(false)), pipes)
	other, theirs := fronttest.Pipes(), newNetHTTP()
	served := make(chan error, 1)
	go func() { served <- theirs.Serve(other) }()
	f.Cleanup(func() {
		_ = theirs.Close()
		<-served
	})
	f.Fuzz(func(t *testing.T, program []byte) {
		sent := framesOf(t, program)
		ours, err := pipes.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := newPeer(t, ours).outcome(sent)
		client, err := other.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		theirPeer := newPeer(t, client)
		theirPeer.decode = nil // net/http may change the size of its table within a block
		want := theirPeer.outcome(sent)
		if got.code == http2.ErrCodeEnhanceYourCalm { // net/http has no such bounds
			return
		}
		if got.alive != want.alive || !got.alive && want.told && got.code != want.code {
			t.Errorf("%+v, net/http %+v", got, want)
		}
	})
}

// newNetHTTP is a server of net/http that sends back what it gets.
func newNetHTTP() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		ReadHeaderTimeout: time.Minute, Protocols: protocols, HTTP2: &http.HTTP2Config{MaxReadFrameSize: 16 << 10},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }),
	}
}

// outcome is what has become of a connection.
type outcome struct {
	alive, told bool
	code        http2.ErrCode
}

// outcome sends frames, and closes the connection when it is known what has become of it.
func (p *peer) outcome(sent []byte) (o outcome) {
	p.t.Helper()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = p.nc.Write(sent) // the server may close the connection first
	}()
	s := p.read(func(s *seen) bool { return s.pings > 0 || len(s.goAways) > 0 })
	_ = p.nc.Close() // it was read to its end
	<-written
	if o.alive = s.pings > 0; len(s.goAways) > 0 {
		o.told, o.code = true, s.goAways[0].ErrCode
	}
	return o
}

// framesOf makes frames of a program. It has no frames on which servers may differ: those whose meaning depends on whether a call
// has been answered meanwhile, GOAWAY, and a few that RFC 9113 has stream errors for and x/net connection errors.
func framesOf(t *testing.T, program []byte) []byte {
	t.Helper()
	p := newPeer(t, nopConn{})
	p.greet()
	next := func() byte {
		if len(program) == 0 {
			return 0
		}
		b := program[0]
		program = program[1:]
		return b
	}
	last, known, begun, ended := uint32(1), uint32(0), uint32(0), map[uint32]bool{}
	other := func() uint32 { return uint32(next()) % (last + 3) }
	stream := func() uint32 {
		id := other()
		if known < id && id < last { // to x/net, which did not understand its header, it may be idle
			return known
		}
		return id
	}
	for n := 0; len(program) > 0 && n < 64; n++ {
		switch op := next() % 16; op {
		case 0, 1, 2: // a call
			flags, more := http2.Flags(next()), []string(nil)
			if flags&2 != 0 {
				more = []string{"x-more", "x"}
			}
			block := p.head(echoMethod, more...)
			p.raw(http2.FrameHeaders, flags&http2.FlagHeadersEndStream|http2.FlagHeadersEndHeaders, last, string(block))
			ended[last] = flags&http2.FlagHeadersEndStream != 0
			known, last = last, last+2
		case 3, 4, 5: // DATA, padded or not, of any stream that has not ended
			id, flags := stream(), http2.Flags(next())&(http2.FlagDataEndStream|http2.FlagDataPadded)
			if ended[id] {
				continue
			}
			p.raw(http2.FrameData, flags, id, string(bytes.Repeat([]byte{next()}, 1+int(next()))))
			ended[id] = flags.Has(http2.FlagDataEndStream)
		case 6:
			setting := []byte{0, next() % 8, next(), next(), next(), next()}
			if http2.SettingID(setting[1]) == http2.SettingInitialWindowSize { // of calls that have not been answered: none, or too much
				setting = []byte{0, setting[1], setting[2] & 0x80, 0, 0xff, 0xff}
			}
			p.raw(http2.FrameSettings, 0, 0, string(setting))
		case 7:
			p.raw(http2.FrameSettings, http2.Flags(next()&1), uint32(next()&1), string(bytes.Repeat([]byte{1}, int(next()%8))))
		case 8:
			p.raw(http2.FramePing, http2.Flags(next()&1), uint32(next()&1), "12345678"[:7+next()&1])
		case 9:
			p.raw(http2.FrameWindowUpdate, 0, stream(), string([]byte{next() & 0x7f, next(), next(), 1}))
		case 10:
			id := stream()
			p.raw(http2.FrameRSTStream, 0, id, "\x00\x00\x00\x08"[:3+next()&1])
			ended[id] = true
		case 11:
			p.raw(http2.FramePriority, 0, stream(), "\x00\x00\x00\x00\x05")
		case 12:
			flags, id := http2.Flags(next()), other()
			if id == begun { // x/net goes on with no block that is wrong already
				flags, begun = flags|http2.FlagContinuationEndHeaders, 0
			}
			p.raw(http2.FrameContinuation, flags, id, "\x82")
		case 13: // a header in pieces, of which the last may not come
			block, flags := p.head(echoMethod), http2.Flags(next())&http2.FlagContinuationEndHeaders
			p.raw(http2.FrameHeaders, 0, last, string(block[:5]))
			p.raw(http2.FrameContinuation, flags, last, string(block[5:]))
			if flags != 0 {
				known = last
			} else {
				begun = last
			}
			last += 2
		case 14:
			flags, padding, field := http2.FlagHeadersEndHeaders|http2.Flags(next())&http2.FlagHeadersPadded, next()&3, next()
			if field&0xe0 == 0x20 { // a smaller table: later blocks cannot be decoded, and x/net decodes before they are whole
				field |= 0x80
			}
			p.raw(http2.FrameHeaders, flags, last, string([]byte{padding, 0x82, 0x86, field}))
			last += 2
		case 15:
			p.raw(http2.FrameType(0x20|next()), http2.Flags(next()), stream(), "unknown")
		}
	}
	p.must(p.w.WritePing(false, lastPing))
	return p.out.Bytes()
}

// nopConn is no connection.
type nopConn struct{ net.Conn }

func (nopConn) Close() error { return nil }
