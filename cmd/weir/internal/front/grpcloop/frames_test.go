package grpcloop_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// raw is a frame of any kind.
func (p *peer) raw(kind http2.FrameType, flags http2.Flags, id uint32, payload string) {
	p.must(p.w.WriteRawFrame(kind, flags, id, []byte(payload)))
}

const endAll = http2.FlagHeadersEndHeaders | http2.FlagHeadersEndStream

// TestConnectionErrors is a table of RFC 9113: what ends a connection, and with which code.
func TestConnectionErrors(t *testing.T) {
	address := listen(t)
	serve(t, optionsOf(t, newEchoes(false)), address)
	const (
		protocol    = http2.ErrCodeProtocol
		size        = http2.ErrCodeFrameSize
		flow        = http2.ErrCodeFlowControl
		compression = http2.ErrCodeCompression
		calm        = http2.ErrCodeEnhanceYourCalm
	)
	for name, c := range map[string]struct {
		code http2.ErrCode
		send func(p *peer)
	}{
		"3.4 a second preface":                   {size, func(p *peer) { p.out.WriteString(http2.ClientPreface) }},
		"4.1 a stream whose reserved bit is set": {protocol, func(p *peer) { p.out.WriteString("\x00\x00\x01\x00\x00\x80\x00\x00\x01x") }},
		"5.4.1 an unknown code of an error":      {protocol, func(p *peer) { p.raw(http2.FrameRSTStream, 0, 1, "\xff\xff\xff\xff") }},
		"4.2 a frame above MAX_FRAME_SIZE":       {size, func(p *peer) { p.raw(http2.FrameData, 0, 1, strings.Repeat("x", 16385)) }},
		"RFC 7541 4.2 a table that shrinks late": {compression, func(p *peer) { p.raw(http2.FrameHeaders, endAll, 1, "\x40\x01a\x01b\x20") }},
		"RFC 7541 5.2 padding of 11 bits":        {compression, func(p *peer) { p.raw(http2.FrameHeaders, endAll, 1, "\x00\x01a\x82\x1f\xff") }},
		"RFC 7541 5.2 the end of a string in it": {compression, func(p *peer) { p.raw(http2.FrameHeaders, endAll, 1, "\x00\x01a\x84\xff\xff\xff\xff") }},
		"RFC 7541 6.1 index 0":                   {compression, func(p *peer) { p.raw(http2.FrameHeaders, endAll, 1, "\x80") }},
		"RFC 7541 6.1 an index of no field":      {compression, func(p *peer) { p.raw(http2.FrameHeaders, endAll, 1, "\xbe") }},
		"RFC 7541 6.3 a table of 4097 bytes":     {compression, func(p *peer) { p.raw(http2.FrameHeaders, endAll, 1, "\x3f\xe2\x1f\x82") }},
		"4.3 a block that cannot be decoded":     {compression, func(p *peer) { p.raw(http2.FrameHeaders, endAll, 1, "\xff\xff\xff\xff\xff") }},
		"5.1 DATA of an idle stream":             {protocol, func(p *peer) { p.raw(http2.FrameData, 0, 1, "x") }},
		"5.1 RST_STREAM of an idle stream":       {protocol, func(p *peer) { p.raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08") }},
		"5.1 WINDOW_UPDATE of an idle stream":    {protocol, func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x08") }},
		"5.1 HEADERS after RST_STREAM": {protocol, func(p *peer) {
			p.headers(1, p.head(echoMethod), false).raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08")
			p.headers(1, p.head(echoMethod), true)
		}},
		"5.1 CONTINUATION after END_STREAM": {protocol, func(p *peer) {
			p.call(1, "a").raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "\x82")
		}},
		"5.1 CONTINUATION after RST_STREAM": {protocol, func(p *peer) {
			p.headers(1, p.head(echoMethod), false).raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08")
			p.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "\x82")
		}},
		"5.5 an unknown frame within a header": {protocol, func(p *peer) { p.raw(http2.FrameHeaders, 0, 1, "\x82"); p.raw(0xbe, 0, 1, "what") }},
		"5.1.1 an even stream":                 {protocol, func(p *peer) { p.headers(2, p.head(echoMethod), true) }},
		"5.1.1 a stream below the last":        {protocol, func(p *peer) { p.call(5, "a").headers(3, p.head(echoMethod), true) }},
		"5.1.1 a stream that has ended":        {protocol, func(p *peer) { p.call(5, "a").headers(5, p.head(echoMethod), true) }},
		"6.1 DATA of no stream":                {protocol, func(p *peer) { p.raw(http2.FrameData, 0, 0, "x") }},
		"6.1 padding longer than DATA": {protocol, func(p *peer) {
			p.headers(1, p.head(echoMethod), false).raw(http2.FrameData, http2.FlagDataPadded, 1, "\x05abcd")
		}},
		"6.1 DATA without the length of padding": {size, func(p *peer) {
			p.headers(1, p.head(echoMethod), false).raw(http2.FrameData, http2.FlagDataPadded, 1, "")
		}},
		"6.2 HEADERS of no stream":               {protocol, func(p *peer) { p.raw(http2.FrameHeaders, endAll, 0, "\x82") }},
		"6.2 padding longer than HEADERS":        {protocol, func(p *peer) { p.raw(http2.FrameHeaders, endAll|http2.FlagHeadersPadded, 1, "\x05\x82\x86") }},
		"6.2 HEADERS without its priority":       {size, func(p *peer) { p.raw(http2.FrameHeaders, endAll|http2.FlagHeadersPriority, 1, "\x82") }},
		"6.3 PRIORITY of no stream":              {protocol, func(p *peer) { p.raw(http2.FramePriority, 0, 0, "\x00\x00\x00\x01\x05") }},
		"6.4 RST_STREAM of no stream":            {protocol, func(p *peer) { p.raw(http2.FrameRSTStream, 0, 0, "\x00\x00\x00\x08") }},
		"6.4 RST_STREAM of 3 bytes":              {size, func(p *peer) { p.headers(1, p.head(echoMethod), false).raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x08") }},
		"6.5 SETTINGS of a stream":               {protocol, func(p *peer) { p.raw(http2.FrameSettings, 0, 1, "") }},
		"6.5 SETTINGS of 5 bytes":                {size, func(p *peer) { p.raw(http2.FrameSettings, 0, 0, "\x00\x01\x00\x00\x00") }},
		"6.5 an acknowledgment with a payload":   {size, func(p *peer) { p.raw(http2.FrameSettings, http2.FlagSettingsAck, 0, "\x00\x01\x00\x00\x10\x00") }},
		"6.5.2 ENABLE_PUSH 2":                    {protocol, func(p *peer) { p.raw(http2.FrameSettings, 0, 0, "\x00\x02\x00\x00\x00\x02") }},
		"6.5.2 INITIAL_WINDOW_SIZE above 2^31-1": {flow, func(p *peer) { p.raw(http2.FrameSettings, 0, 0, "\x00\x04\x80\x00\x00\x00") }},
		"6.5.2 MAX_FRAME_SIZE 16383":             {protocol, func(p *peer) { p.raw(http2.FrameSettings, 0, 0, "\x00\x05\x00\x00\x3f\xff") }},
		"6.5.2 MAX_FRAME_SIZE 2^24":              {protocol, func(p *peer) { p.raw(http2.FrameSettings, 0, 0, "\x00\x05\x01\x00\x00\x00") }},
		"6.6 PUSH_PROMISE": {protocol, func(p *peer) {
			p.raw(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, "\x00\x00\x00\x02\x82")
		}},
		"6.7 PING of a stream":         {protocol, func(p *peer) { p.raw(http2.FramePing, 0, 1, "12345678") }},
		"6.7 PING of 7 bytes":          {size, func(p *peer) { p.raw(http2.FramePing, 0, 0, "1234567") }},
		"6.8 GOAWAY of a stream":       {protocol, func(p *peer) { p.raw(http2.FrameGoAway, 0, 1, "\x00\x00\x00\x00\x00\x00\x00\x00") }},
		"6.8 GOAWAY of 7 bytes":        {size, func(p *peer) { p.raw(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00") }},
		"6.9 WINDOW_UPDATE of 3 bytes": {size, func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x01") }},
		"6.9 WINDOW_UPDATE of 0":       {protocol, func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00") }},
		"6.9.1 a window above 2^31-1":  {flow, func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 0, "\x7f\xff\xff\xff") }},
		"6.9.2 SETTINGS make a window too large": {flow, func(p *peer) {
			p.headers(1, p.head(echoMethod), false).raw(http2.FrameWindowUpdate, 0, 1, "\x7f\xff\x00\x00")
			p.raw(http2.FrameSettings, 0, 0, "\x00\x04\x7f\xff\xff\xff")
		}},
		"6.10 CONTINUATION of nothing":        {protocol, func(p *peer) { p.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "\x82") }},
		"6.10 CONTINUATION of another stream": {protocol, func(p *peer) { p.raw(http2.FrameHeaders, 0, 1, "\x82"); p.raw(http2.FrameContinuation, 0, 3, "\x82") }},
		"6.10 another frame within a header":  {protocol, func(p *peer) { p.raw(http2.FrameHeaders, 0, 1, "\x82"); p.raw(http2.FramePing, 0, 0, "12345678") }},
		"CONTINUATION without end": {calm, func(p *peer) {
			p.raw(http2.FrameHeaders, 0, 1, "\x82")
			for range 1000 {
				p.raw(http2.FrameContinuation, 0, 1, "")
			}
		}},
		"a header that grows without end": {calm, func(p *peer) {
			p.raw(http2.FrameHeaders, 0, 1, "\x82")
			for range 20 {
				p.raw(http2.FrameContinuation, 0, 1, strings.Repeat("\x82", 16000))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, address.Addr().String()).greet()
			c.send(p)
			s := p.send().read(func(*seen) bool { return false })
			if n := len(s.goAways); n != 1 || s.goAways[0].ErrCode != c.code {
				t.Errorf("%v, want %v", s.goAways, c.code)
			}
		})
	}
}

// TestFirstFrames: what does not begin as HTTP/2 does is closed.
func TestFirstFrames(t *testing.T) {
	l := listen(t)
	serve(t, optionsOf(t, newEchoes(false)), l)
	for name, sent := range map[string]string{
		"HTTP/1.1":           "GET / HTTP/1.1\r\n\r\n",
		"a cut-off preface":  http2.ClientPreface[:10] + "x",
		"no SETTINGS":        http2.ClientPreface + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678",
		"SETTINGS with ACK":  http2.ClientPreface + "\x00\x00\x00\x04\x01\x00\x00\x00\x00",
		"HEADERS come first": http2.ClientPreface + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\x82",
	} {
		p := connect(t, l.Addr().String())
		p.out.WriteString(sent)
		if s := p.send().read(func(*seen) bool { return false }); !s.closed || len(s.calls) > 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestStreamErrors is a table of RFC 9113 and of gRPC: what ends a call, and how. The connection goes on.
func TestStreamErrors(t *testing.T) {
	l := listen(t)
	o := optionsOf(t, newEchoes(false))
	o.MaxStreams = 2
	serve(t, o, l)
	const (
		protocol = http2.ErrCodeProtocol
		refused  = http2.ErrCodeRefusedStream
	)
	type outcome struct {
		reset        http2.ErrCode
		http, status string
	}
	reset := func(code http2.ErrCode) outcome { return outcome{reset: code} }
	fields := func(pairs ...string) func(p *peer) {
		return func(p *peer) { p.headers(1, p.headOf(pairs...), true) }
	}
	with := func(more ...string) func(p *peer) {
		return func(p *peer) { p.headers(1, p.head(echoMethod, more...), true) }
	}
	const (
		m, post, s, http, path, a, c, g = ":method", "POST", ":scheme", "http", ":path", ":authority", "content-type", "application/grpc"
	)
	for name, c := range map[string]struct {
		want outcome
		send func(p *peer)
	}{
		"5.1 DATA after END_STREAM": {outcome{0, "200", "0"}, func(p *peer) { p.call(1, "a").raw(http2.FrameData, 0, 1, "x") }},
		"5.1 DATA after RST_STREAM": {outcome{0, "200", "0"}, func(p *peer) {
			p.headers(1, p.head(echoMethod), false).headers(3, p.head(echoMethod), false)
			p.raw(http2.FrameRSTStream, 0, 3, "\x00\x00\x00\x08")
			p.raw(http2.FrameData, 0, 3, "x")
			p.must(p.w.WriteData(1, true, message("a")))
		}},
		"8.1.1 more DATA than content-length": {reset(protocol), func(p *peer) {
			p.headers(1, p.head(echoMethod, "content-length", "5"), false)
			p.must(p.w.WriteData(1, true, message("a")))
		}},
		"8.1.1 less DATA than content-length": {reset(protocol), func(p *peer) {
			p.headers(1, p.head(echoMethod, "content-length", "7"), false)
			p.must(p.w.WriteData(1, true, message("a")))
		}},
		"8.1.1 less until trailers": {reset(protocol), func(p *peer) {
			p.headers(1, p.head(echoMethod, "content-length", "7"), false)
			p.must(p.w.WriteData(1, false, message("a")))
			p.headers(1, p.headOf("a", "b"), true)
		}},
		"8.1.1 less, for grpc-go": {reset(protocol), func(p *peer) {
			p.headers(1, p.head("/grpc.health.v1.Health/Check", "content-length", "7"), false)
			p.must(p.w.WriteData(1, true, message("")))
		}},
		"8.1.1 no DATA, but content-length":   {reset(protocol), with("content-length", "5")},
		"8.1.1 a content-length that is none": {reset(protocol), with("content-length", "-1")},
		"8.1.1 two values of content-length":  {reset(protocol), with("content-length", "0", "content-length", "1")},
		"8.3.1 an empty path":                 {reset(protocol), fields(m, post, s, http, path, "", a, "x", c, g)},
		"8.2.1 a capital in a name":           {reset(protocol), with("Big", "x")},
		"8.2.1 a space in a name":             {reset(protocol), with("a b", "x")},
		"8.2.1 a line break in a value":       {reset(protocol), with("name", "a\nb")},
		"8.2.2 connection":                    {reset(protocol), with("connection", "close")},
		"8.2.2 transfer-encoding":             {reset(protocol), with("transfer-encoding", "chunked")},
		"8.2.2 te: gzip":                      {reset(protocol), with("te", "gzip")},
		"8.3 an unknown pseudo-header":        {reset(protocol), fields(m, post, s, http, path, echoMethod, a, "x", ":what", "x", c, g)},
		"8.3 one of responses":                {reset(protocol), fields(":status", "200", m, post, s, http, path, echoMethod, a, "x", c, g)},
		"8.3 a pseudo-header at the end":      {reset(protocol), fields(m, post, s, http, path, echoMethod, c, g, a, "x")},
		"8.3.1 two methods":                   {reset(protocol), fields(m, post, m, post, s, http, path, echoMethod, a, "x", c, g)},
		"8.3.1 no method":                     {reset(protocol), fields(s, http, path, echoMethod, a, "x", c, g)},
		"8.3.1 no scheme":                     {reset(protocol), fields(m, post, path, echoMethod, a, "x", c, g)},
		"8.3.1 no path":                       {reset(protocol), fields(m, post, s, http, a, "x", c, g)},
		"two hosts":                           {outcome{0, "400", "13"}, fields(m, post, s, http, path, echoMethod, "host", "x", "host", "y", c, g)},
		"no authority":                        {outcome{0, "400", "13"}, fields(m, post, s, http, path, echoMethod, c, g)},
		"GET":                                 {outcome{0, "405", "13"}, fields(m, "GET", s, http, path, echoMethod, a, "x", c, g)},
		"another content type":                {outcome{0, "415", "3"}, fields(m, post, s, http, path, echoMethod, a, "x", c, "text/html")},
		"no content type":                     {outcome{0, "415", "3"}, fields(m, post, s, http, path, echoMethod, a, "x")},
		"a timeout that cannot be":            {outcome{0, "400", "13"}, with("grpc-timeout", "soon")},
		"a timeout that has passed":           {outcome{0, "200", "4"}, with("grpc-timeout", "0m")},
		"metadata that are not in base64":     {outcome{0, "400", "13"}, with("x-bin", "?")},
		"an unknown encoding":                 {outcome{0, "200", "12"}, with("grpc-encoding", "snappy")},
		"an unknown method":                   {outcome{0, "200", "12"}, func(p *peer) { p.headers(1, p.head("/test.Echo/Other"), true) }},
		"no request":                          {outcome{0, "200", "13"}, with()},
		"a request that is cut off": {outcome{0, "200", "13"}, func(p *peer) {
			p.headers(1, p.head(echoMethod), false)
			p.must(p.w.WriteData(1, true, message("abc")[:6]))
		}},
		"a header that is too long": {reset(http2.ErrCodeFrameSize), func(p *peer) { p.longHeader(1) }},
		"6.3 PRIORITY of 4 bytes":   {reset(http2.ErrCodeFrameSize), func(p *peer) { p.headers(1, p.head(echoMethod), false).raw(http2.FramePriority, 0, 1, "1234") }},
		"6.9 WINDOW_UPDATE of 0": {reset(protocol), func(p *peer) {
			p.headers(1, p.head(echoMethod), false).raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00")
		}},
		"6.9.1 a window above 2^31-1": {reset(http2.ErrCodeFlowControl), func(p *peer) {
			p.headers(1, p.head(echoMethod), false).raw(http2.FrameWindowUpdate, 0, 1, "\x7f\xff\xff\xff")
		}},
		"8.1 trailers without END_STREAM": {reset(protocol), func(p *peer) { p.headers(1, p.head(echoMethod), false).headers(1, p.headOf("a", "b"), false) }},
		"8.1 a pseudo-header in trailers": {reset(protocol), func(p *peer) { p.headers(1, p.head(echoMethod), false).headers(1, p.headOf(path, "/"), true) }},
		"8.1 a header for trailers": {reset(protocol), func(p *peer) {
			p.headers(1, p.head(echoMethod), false).call(3, "a").call(5, "a").headers(1, p.head(echoMethod), true)
		}},
		"8.2.1 a capital in trailers":    {reset(protocol), func(p *peer) { p.headers(1, p.head(echoMethod), false).headers(1, p.headOf("Big", "x"), true) }},
		"5.1.2 more than MAX_CONCURRENT": {outcome{0, "200", "0"}, func(p *peer) { p.refusedThird(refused) }},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, l.Addr().String()).greet()
			c.send(p)
			p.send()
			r := p.result(1)
			if r.reset != c.want.reset && c.want.http == "" || r.http != c.want.http || r.status != c.want.status {
				t.Errorf("%+v, want %+v", r, c.want)
			}
			p.call(101, "afterwards").send().result(101).want(t, "afterwards")
		})
	}
}

// TestFramesAfterTheEnd is a table of RFC 9113: what a client sends of a stream that has ended is an error of that stream, and the
// connection goes on.
func TestFramesAfterTheEnd(t *testing.T) {
	l := listen(t)
	serve(t, optionsOf(t, newEchoes(false)), l)
	for name, c := range map[string]struct {
		want http2.ErrCode
		send func(p *peer)
	}{
		"6.1 DATA":             {http2.ErrCodeStreamClosed, func(p *peer) { p.raw(http2.FrameData, 0, 1, "x") }},
		"6.1 DATA of no bytes": {http2.ErrCodeStreamClosed, func(p *peer) { p.raw(http2.FrameData, 0, 1, "") }},
		"6.1 DATA after a reset": {http2.ErrCodeStreamClosed, func(p *peer) {
			p.raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08")
			p.raw(http2.FrameData, 0, 1, "x")
		}},
		"6.9 WINDOW_UPDATE of 0": {http2.ErrCodeProtocol, func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00") }},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, l.Addr().String()).greet()
			p.call(1, "a").send().result(1).want(t, "a")
			c.send(p)
			s := p.send().read(func(s *seen) bool { return s.call(1).wasReset })
			if got := s.call(1).reset; got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			p.call(3, "afterwards").send().result(3).want(t, "afterwards")
		})
	}
}

// TestSmallerTables: a client that has a smaller table of HPACK, as with "hpack_table_size: 0" of Envoy, takes no header block until
// one has said that the server keeps to it (RFC 7541, 4.2): each call would fail, and Envoy let its request pass.
func TestSmallerTables(t *testing.T) {
	for _, waits := range []bool{false, true} {
		l := listen(t)
		serve(t, optionsOf(t, newEchoes(waits)), l)
		for name, send := range map[string]func(p *peer){
			"a call":         func(p *peer) { p.call(1, "a") },
			"one that fails": func(p *peer) { p.call(1, "fail") },
			"one in two frames": func(p *peer) {
				p.headers(1, p.head(echoMethod), false)
				p.must(p.w.WriteData(1, false, message("a")))
				p.must(p.w.WriteData(1, true, nil))
			},
			"one of grpc-go": func(p *peer) {
				p.headers(1, p.head("/grpc.health.v1.Health/Check"), false)
				p.must(p.w.WriteData(1, true, message("")))
			},
			"one that is refused": func(p *peer) {
				p.headers(1, p.headOf(":method", "GET", ":scheme", "http", ":path", echoMethod, ":authority", "x",
					"content-type", "application/grpc"), true)
			},
		} {
			for size, want := range map[uint32]bool{0: true, 4095: true, 4096: false} {
				p := connect(t, l.Addr().String()).greet(http2.Setting{ID: http2.SettingHeaderTableSize, Val: size},
					http2.Setting{ID: http2.SettingHeaderTableSize, Val: 4096})
				send(p)
				if p.send().result(1); p.shrunk != want {
					t.Errorf("%s, a table of %d bytes: the first block says %v, want %v", name, size, p.shrunk, want)
				}
				p.call(3, "afterwards").send().result(3).want(t, "afterwards")
			}
		}
	}
}

// longHeader sends a header that is longer than a server takes, in several frames.
func (p *peer) longHeader(id uint32) {
	var more []string
	for i := range 20 {
		more = append(more, "long", strings.Repeat(string(rune('a'+i)), 6000))
	}
	block := p.head(echoMethod, more...)
	p.must(p.w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:16000], EndStream: true}))
	for block = block[16000:]; len(block) > 16000; block = block[16000:] {
		p.must(p.w.WriteContinuation(id, false, block[:16000]))
	}
	p.must(p.w.WriteContinuation(id, true, block))
}

// refusedThird opens a call more than there may be, and then ends the first.
func (p *peer) refusedThird(want http2.ErrCode) {
	for _, id := range []uint32{1, 3, 5} {
		p.headers(id, p.head(echoMethod), false)
	}
	if r := p.send().result(5); r.reset != want {
		p.t.Errorf("%+v", r)
	}
	p.must(p.w.WriteRSTStream(3, http2.ErrCodeCancel))
	p.must(p.w.WriteData(1, true, message("x")))
}

// TestFramesOfClients: what clients of all kinds may send means the same.
func TestFramesOfClients(t *testing.T) {
	l := listen(t)
	serve(t, optionsOf(t, newEchoes(false)), l)
	for name, send := range map[string]func(p *peer){
		"in one": func(p *peer) { p.call(1, "hello") },
		"content-length": func(p *peer) {
			p.headers(3, p.head(echoMethod, "content-length", "10"), false)
			p.must(p.w.WriteData(3, true, message("hello")))
			p.headers(5, p.head(echoMethod, "content-length", "10"), false)
			p.must(p.w.WriteData(5, false, message("hello")[:3]))
			p.must(p.w.WriteDataPadded(5, true, message("hello")[3:], make([]byte, 9)))
			p.send()
			p.result(5).want(p.t, "hello")
			p.headers(15, p.head(echoMethod, "content-length", "10"), false)
			p.must(p.w.WriteData(15, true, message("hello")))
		},
		"padding": func(p *peer) {
			p.must(p.w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.head(echoMethod), EndHeaders: true, PadLength: 100}))
			p.must(p.w.WriteDataPadded(1, true, message("hello"), make([]byte, 255)))
		},
		"priority": func(p *peer) {
			p.must(p.w.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, BlockFragment: p.head(echoMethod), EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 11, Weight: 3},
			}))
			p.must(p.w.WriteData(1, true, message("hello")))
		},
		"an empty DATA at the end": func(p *peer) {
			p.headers(1, p.head(echoMethod), false)
			p.must(p.w.WriteData(1, false, message("hello")))
			p.must(p.w.WriteData(1, true, nil))
		},
		"trailers at the end": func(p *peer) {
			p.headers(1, p.head(echoMethod), false)
			p.must(p.w.WriteData(1, false, message("hello")))
			p.headers(1, p.headOf("x-trailer", "x"), true)
		},
		"a byte in each frame": func(p *peer) {
			p.headers(1, p.head(echoMethod), false)
			for _, b := range message("hello") {
				p.must(p.w.WriteData(1, false, []byte{b}))
			}
			p.must(p.w.WriteData(1, true, nil))
		},
		"a byte in each CONTINUATION": func(p *peer) {
			block := p.head(echoMethod)
			cut := len(block) - 20
			p.must(p.w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:cut]}))
			for i, b := range block[cut:] {
				p.must(p.w.WriteContinuation(1, i == 19, []byte{b}))
			}
			p.must(p.w.WriteData(1, true, message("hello")))
		},
		"frames that mean nothing": func(p *peer) {
			p.headers(1, p.head(echoMethod), false)
			p.raw(0xbe, 0xff, 1, "what")
			p.raw(http2.FramePriority, 0, 1, "\x00\x00\x00\x00\x05")
			p.raw(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00bye")
			p.raw(http2.FrameSettings, 0, 0, "\x00\x99\x00\x00\x00\x02")
			p.must(p.w.WriteData(1, true, message("hello")))
		},
		"a table that changes its size": func(p *peer) {
			p.fields.SetMaxDynamicTableSize(0)
			p.call(3, "first")
			p.fields.SetMaxDynamicTableSize(4096)
			p.call(5, "second").call(7, "third").call(9, "fourth")
			p.headers(11, p.head(echoMethod, "x-new", "x"), true)
			p.headers(13, p.head(echoMethod), false)
			p.must(p.w.WriteData(13, true, message("hello")))
			p.send()
			p.result(13).want(p.t, "hello")
			p.call(15, "hello")
		},
		"what Envoy sends": func(p *peer) {
			p.headers(1, p.headOf(":method", "POST", ":scheme", "http", ":path", echoMethod, ":authority", "rate_limit",
				"te", "trailers", "grpc-timeout", "20m", "content-type", "application/grpc", "x-request-id", strings.Repeat("ab-", 12),
				"x-envoy-internal", "true", "x-forwarded-for", "10.1.2.3", "x-envoy-expected-rq-timeout-ms", "20",
				"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "user-agent", "envoy"), false)
			p.must(p.w.WriteData(1, true, message("hello")))
		},
		"a subtype": func(p *peer) {
			p.headers(1, p.headOf(":method", "POST", ":scheme", "https", ":path", echoMethod, "host", "x",
				"content-type", "application/grpc+proto", "grpc-encoding", "identity", "grpc-accept-encoding", "gzip", "x-bin", "AAE"), false)
			p.must(p.w.WriteData(1, true, message("hello")))
		},
	} {
		for _, pieces := range []int{1, 7, 1 << 20} {
			p := connect(t, l.Addr().String()).greet()
			send(p)
			b := bytes.Clone(p.out.Bytes())
			p.out.Reset()
			for len(b) > 0 {
				n := min(pieces, len(b))
				if _, err := p.nc.Write(b[:n]); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				b = b[n:]
			}
			last := uint32(1)
			if strings.HasPrefix(name, "a table") || name == "content-length" {
				last = 15
			}
			p.result(last).want(t, "hello")
		}
	}
}

// TestEnvoysConnection: a connection as Envoy has it, with its SETTINGS and windows, header fields that differ from call to call and
// push one another out of the table of HPACK, pings for keepalive, calls that it gives up, and frames that are cut anywhere.
func TestEnvoysConnection(t *testing.T) {
	l := listen(t)
	serve(t, optionsOf(t, newEchoes(false)), l)
	p := connect(t, l.Addr().String()).greet(
		http2.Setting{ID: http2.SettingEnablePush, Val: 0}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1 << 29},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 256 << 20},
	)
	p.must(p.w.WriteWindowUpdate(0, 256<<20-65535))
	random := rand.New(rand.NewPCG(1, 2))
	const calls = 400
	go func() {
		for i := range calls {
			id, text := uint32(2*i+1), strconv.Itoa(i)
			fields := []string{
				":method", "POST", ":scheme", "http", ":path", echoMethod, ":authority", "rate_limit_cluster", "te", "trailers",
				"grpc-timeout", "20m", "content-type", "application/grpc", "x-envoy-internal", "true", "x-forwarded-for", "10.1.2.3",
				"x-envoy-expected-rq-timeout-ms", "20",
			}
			if i%3 > 0 {
				fields = append(fields, "traceparent", fmt.Sprintf("00-%032x-%016x-01", random.Uint64(), random.Uint64()),
					"tracestate", strings.Repeat("a=1,", random.IntN(40)), "x-request-id", fmt.Sprintf("%036x", random.Uint64()))
			}
			p.headers(id, p.headOf(fields...), false)
			switch i % 50 {
			case 7:
				p.must(p.w.WriteRSTStream(id, http2.ErrCodeCancel))
				continue
			case 11:
				p.must(p.w.WriteData(id, false, message(text)))
				p.must(p.w.WriteData(id, true, nil))
			default:
				p.must(p.w.WriteData(id, true, message(text)))
			}
			if i%100 == 50 {
				p.must(p.w.WritePing(false, [8]byte{9}))
			}
			for b := p.out.Bytes(); len(b) > 0; {
				n := min(1+random.IntN(300), len(b))
				if _, err := p.nc.Write(b[:n]); err != nil {
					t.Errorf("call %d: %v", i, err)
					return
				}
				b = b[n:]
			}
			p.out.Reset()
		}
	}()
	s := p.read(func(s *seen) bool { r := s.calls[2*calls-1]; return r != nil && r.ended })
	for i := range calls {
		r := s.calls[uint32(2*i+1)]
		switch {
		case i%50 == 7 && r == nil:
		case r == nil:
			t.Errorf("call %d has no reply: %v", i, s.goAways)
		default:
			r.want(t, strconv.Itoa(i))
		}
	}
}

// TestFaults: a message that cannot be one is told to the calls, whatever its client sends after it.
func TestFaults(t *testing.T) {
	l := listen(t)
	serve(t, optionsOf(t, newEchoes(false)), l)
	for want, sent := range map[string][]byte{
		"compressed":               append([]byte{1}, message("hello")[1:]...),
		"has 1048577 bytes":        message(strings.Repeat("x", 1<<20+1))[:10_000],
		"there is a second":        append(message("hello"), message("hello")...),
		"there is a second reques": append(message("hello"), 0),
	} {
		for _, end := range []bool{false, true} {
			p := connect(t, l.Addr().String()).greet()
			p.headers(1, p.head(echoMethod), false)
			p.must(p.w.WriteData(1, end, sent))
			r := p.send().result(1)
			if r.status != "0" || !strings.Contains(string(r.message), want) {
				t.Errorf("%v: %q %s %s, want %s", end, r.message, r.status, r.text, want)
			}
			p.must(p.w.WriteData(1, true, []byte("more")))
			p.call(3, "afterwards").send().result(3).want(t, "afterwards")
		}
	}
	p := connect(t, l.Addr().String()).greet().call(1, "fail")
	if r := p.send().result(1); r.http != "200" || r.status != "9" || r.text != "100 %25 %C3%BCnfit%0A" || len(r.message) > 0 {
		t.Errorf("%+v", r)
	}
}
