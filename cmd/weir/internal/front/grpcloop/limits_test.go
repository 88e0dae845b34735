package grpcloop_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/cmd/weir/internal/front/grpcloop"
)

// bubble serves pipes in a bubble, and returns what connects to them.
func bubble(t *testing.T, change func(*grpcloop.Options)) (s *grpcloop.Server, connect func() *peer) {
	t.Helper()
	pipes := fronttest.Pipes()
	o := optionsOf(t, newEchoes(false))
	change(&o)
	return serve(t, o, pipes), func() *peer {
		nc, err := pipes.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return newPeer(t, nc)
	}
}

// until reads until the connection ends, and returns how long that took. Pings of the server are acknowledged if the client is there.
func (p *peer) until(there bool) (took time.Duration, s *seen) {
	p.t.Helper()
	start := time.Now()
	s = &seen{calls: map[uint32]*result{}}
	var out bytes.Buffer // another goroutine may be writing by p
	w := http2.NewFramer(&out, nil)
	for {
		f, err := p.r.ReadFrame()
		if err != nil {
			return time.Since(start), s
		}
		switch f := f.(type) {
		case *http2.PingFrame:
			if there && !f.IsAck() {
				out.Reset()
				p.must(w.WritePing(true, f.Data))
				_, _ = p.nc.Write(out.Bytes()) // reading tells if the connection has ended
			}
		case *http2.GoAwayFrame:
			copied := *f
			s.goAways = append(s.goAways, &copied)
		}
	}
}

func within(t *testing.T, what string, took, least time.Duration) {
	t.Helper()
	if took < least || took > least+time.Second {
		t.Errorf("%s: after %v, want %v", what, took, least)
	}
}

// TestTimeLimits: connections end when they should, and not before.
func TestTimeLimits(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*grpcloop.Options)
		client  func(p *peer)
		there   bool
		after   time.Duration
		goAways int
	}{
		"nothing is sent": {after: 10 * time.Second, client: func(*peer) {}},
		"no SETTINGS":     {after: 10 * time.Second, client: func(p *peer) { p.out.WriteString(http2.ClientPreface); p.send() }},
		"silence":         {after: 80 * time.Second, client: func(p *peer) { p.greet().send() }},
		"idle": {
			change: func(o *grpcloop.Options) { o.IdleTimeout = 5 * time.Minute }, there: true, after: 5 * time.Minute, goAways: 2,
			client: func(p *peer) { p.greet().call(1, "hello").send() },
		},
		"idle, and does not acknowledge": {
			change: func(o *grpcloop.Options) { o.IdleTimeout = 30 * time.Second }, after: 35 * time.Second, goAways: 2,
			client: func(p *peer) { p.greet().send() },
		},
		"half a message": {
			there: true, after: 30 * time.Second,
			client: func(p *peer) {
				p.greet().headers(1, p.head(echoMethod), false)
				p.must(p.w.WriteData(1, false, message("hello")[:7]))
				p.send()
			},
		},
		"half a frame": {
			there: true, after: 30 * time.Second,
			client: func(p *peer) {
				p.greet().headers(1, p.head(echoMethod), false)
				p.must(p.w.WriteData(1, true, message(strings.Repeat("x", 100))))
				p.slowly(100, 1)
			},
		},
		"half a header": {
			after: 30 * time.Second,
			client: func(p *peer) {
				p.must(p.greet().w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.head(echoMethod)}))
				for range 20 {
					p.must(p.w.WriteContinuation(1, false, nil))
				}
				p.slowly(20*9, 1)
			},
		},
		"a reply that is not taken": {
			there: true, after: 30 * time.Second,
			client: func(p *peer) {
				p.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}).call(1, "hello").send()
			},
		},
		"half a message of a stream": {
			there: true, after: 30 * time.Second,
			client: func(p *peer) {
				p.greet().headers(1, p.head("/grpc.health.v1.Health/Watch"), false)
				p.must(p.w.WriteData(1, false, message("hello")[:7]))
				p.send()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				change := c.change
				if change == nil {
					change = func(*grpcloop.Options) {}
				}
				_, connect := bubble(t, change)
				p := connect()
				sent := make(chan struct{})
				go func() {
					c.client(p)
					close(sent)
				}()
				took, s := p.until(c.there)
				<-sent
				if within(t, name, took, c.after); len(s.goAways) != c.goAways {
					t.Errorf("%v, want %d", s.goAways, c.goAways)
				}
			})
		})
	}
}

// slowly sends what was written: all but the last bytes, and those in parts of so many, a second apart.
func (p *peer) slowly(last, part int) {
	b := p.out.Bytes()
	_, err := p.nc.Write(b[:len(b)-last])
	for b = b[len(b)-last:]; len(b) > 0 && err == nil; b = b[min(part, len(b)):] {
		<-time.After(time.Second)
		_, err = p.nc.Write(b[:min(part, len(b))])
	}
}

// TestSlowSenders: a client may take its time as long as no frame does.
func TestSlowSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, connect := bubble(t, func(*grpcloop.Options) {})
		p := connect()
		p.greet()
		greeting := p.out.Len()
		for id := uint32(1); id < 100; id += 2 {
			p.call(id, "x")
		}
		start := time.Now()
		go p.slowly(p.out.Len()-greeting, 10) // nearly always the last frame has come in part
		if p.result(99).want(t, "x"); time.Since(start) < time.Minute {
			t.Errorf("all was sent within %v", time.Since(start))
		}
	})
}

// TestAge: connections end when they are old enough, at different times.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, connect := bubble(t, func(o *grpcloop.Options) { o.Age = 10 * time.Minute })
		ages := map[time.Duration]bool{}
		for range 5 {
			p := connect()
			go p.greet().call(1, "hello").send()
			took, s := p.until(true)
			if took < 9*time.Minute || took > 11*time.Minute+time.Second || len(s.goAways) != 2 {
				t.Errorf("after %v, %v", took, s.goAways)
			}
			ages[took] = true
		}
		if len(ages) < 3 {
			t.Errorf("%v: all end at the same time", ages)
		}
	})
}

// TestSlowReaders: a client that does not read is not read either, and cut off in time.
func TestSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connect := bubble(t, func(*grpcloop.Options) {})
		p := connect()
		start := time.Now()
		p.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		sent := 0
		for id := uint32(1); ; id += 2 {
			p.call(id, "size:1000")
			n, err := p.nc.Write(p.out.Bytes())
			p.out.Reset()
			if sent += n; err != nil {
				break
			}
		}
		within(t, "it is cut off", time.Since(start), 30*time.Second)
		if sent > 1<<20 || s.Unread.CutOff() != 1 {
			t.Errorf("%d bytes were read of it, %d are cut off", sent, s.Unread.CutOff())
		}
	})
}

// TestFloods: frames that ask nothing are bounded: a client that sends them without end is cut off, and one that sends few is not.
func TestFloods(t *testing.T) {
	for name, flood := range map[string]func(p *peer, n uint32){
		"SETTINGS": func(p *peer, _ uint32) { p.must(p.w.WriteSettings()) },
		"PRIORITY": func(p *peer, n uint32) { p.raw(http2.FramePriority, 0, 2*n+1, "\x00\x00\x00\x00\x05") },
		"unknown":  func(p *peer, _ uint32) { p.raw(0x99, 0, 0, "") },
		"resets": func(p *peer, n uint32) {
			p.headers(2*n+3, p.head(echoMethod), false)
			p.must(p.w.WriteRSTStream(2*n+3, 8))
		},
		"no DATA": func(p *peer, _ uint32) { p.must(p.w.WriteData(1, false, nil)) },
		"padding": func(p *peer, _ uint32) { p.must(p.w.WriteDataPadded(1, false, nil, make([]byte, 10))) },
		"a window of the connection that opens by a byte": func(p *peer, n uint32) {
			if n == 0 { // the first reply uses up all windows
				p.call(3, "size:65530").call(5, "size:60000")
				p.must(p.w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			}
			p.must(p.w.WriteWindowUpdate(0, 1))
			p.must(p.w.WriteWindowUpdate(5, 1))
		},
		"malformed": func(p *peer, n uint32) { p.headers(2*n+3, p.headOf(":method", "POST"), true) },
		"streams whose window is opened by 0": func(p *peer, n uint32) {
			p.headers(2*n+3, p.head(echoMethod), false).raw(http2.FrameWindowUpdate, 0, 2*n+3, "\x00\x00\x00\x00")
		},
		"streams whose window is too large": func(p *peer, n uint32) {
			p.headers(2*n+3, p.head(echoMethod), false).raw(http2.FrameWindowUpdate, 0, 2*n+3, "\x7f\xff\xff\xff")
		},
		"trailers that do not end": func(p *peer, n uint32) {
			p.headers(2*n+3, p.head(echoMethod), false).headers(2*n+3, p.headOf("a", "b"), false)
		},
		"DATA after the answer": func(p *peer, n uint32) {
			p.headers(2*n+3, p.head("/test.Echo/Other"), true).raw(http2.FrameData, 0, 2*n+3, "x")
		},
		"DATA after the end": func(p *peer, n uint32) { // of a stream that is not answered yet
			p.headers(2*n+3, p.head("/test.Other/Other"), false)
			p.must(p.w.WriteData(2*n+3, true, message("")))
			p.raw(http2.FrameData, 0, 2*n+3, "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // no time passes, which would allow more
				s, connect := bubble(t, func(o *grpcloop.Options) {
					o.Others = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
				})
				p := connect().greet()
				p.headers(1, p.head(echoMethod), false)
				go func() { _, _ = io.Copy(io.Discard, p.nc) }()
				for n := range uint32(5000) {
					flood(p, n)
				}
				p.send()
				if synctest.Wait(); s.Unread.CutOff() != 0 {
					t.Error("5000 are too many")
				}
				for n := uint32(5000); s.Unread.CutOff() == 0 && n < 20_000; n++ {
					if flood(p, n); n%100 == 0 {
						p.send()
					}
				}
				if synctest.Wait(); s.Unread.CutOff() != 1 {
					t.Error("the connection goes on")
				}
			})
		})
	}
}

// TestManyStreamsMakeFramesDear: a frame that has the server look at all streams counts for as many as there are.
func TestManyStreamsMakeFramesDear(t *testing.T) {
	for name, flood := range map[string]func(p *peer, n uint32){
		"windows of streams": func(p *peer, n uint32) {
			p.must(p.w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: n%2 + 1}))
		},
		"the window of the connection": func(p *peer, _ uint32) { p.must(p.w.WriteWindowUpdate(0, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // no time passes, which would allow more
				s, connect := bubble(t, func(o *grpcloop.Options) { o.MaxStreams = 1600 })
				s.Unread.Own = 64 << 20
				p := connect().greet()
				go func() { _, _ = io.Copy(io.Discard, p.nc) }()
				p.call(1, "size:65530") // which uses up the window of the connection
				for i := range uint32(1599) {
					p.call(2*i+3, "a reply that waits")
				}
				for n := range uint32(90) {
					flood(p, n)
				}
				p.send()
				if synctest.Wait(); s.Unread.CutOff() != 0 {
					t.Error("90 are too many")
				}
				for n := range uint32(20) {
					flood(p, n)
				}
				p.send()
				if synctest.Wait(); s.Unread.CutOff() != 1 {
					t.Error("110 are not too many")
				}
			})
		})
	}
}

// TestPanics: a call that panics ends its connection alone, and the log says where it was.
func TestPanics(t *testing.T) {
	for _, waits := range []bool{false, true} {
		l, said := listen(t), new(bytes.Buffer)
		o := optionsOf(t, newEchoes(waits))
		o.Log = slog.New(slog.NewTextHandler(said, nil))
		server := serve(t, o, l)
		other := connect(t, l.Addr().String()).greet()
		other.call(1, "a").send().result(1).want(t, "a")
		p := connect(t, l.Addr().String()).greet()
		if s := p.call(1, "panic").send().read(func(*seen) bool { return false }); !s.closed || len(s.calls) > 0 {
			t.Errorf("waits %v: %+v", waits, s)
		}
		other.call(3, "afterwards").send().result(3).want(t, "afterwards")
		_ = other.nc.Close()
		if err := server.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if log := said.String(); strings.Count(log, "has panicked") != 1 || !strings.Contains(log, "echoes).Answer") {
			t.Errorf("waits %v: %s", waits, log)
		}
	}
}

// TestPings: a client may ping seldom, or when it was sent something.
func TestPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		_, connect := bubble(t, func(o *grpcloop.Options) {
			o.Others = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for range more {
					_, _ = w.Write(message("x"))
					_ = http.NewResponseController(w).Flush()
				}
			})
		})
		p := connect()
		ended := make(chan *seen, 1)
		go func() {
			_, s := p.until(true)
			ended <- s
		}()
		ping := func() {
			p.must(p.w.WritePing(false, [8]byte{2}))
			p.send()
		}
		p.greet().send()
		for range 10 {
			ping()
			<-time.After(11 * time.Second)
		}
		for id := uint32(1); id < 20; id += 2 {
			p.call(id, "x").send()
			ping()
		}
		p.headers(21, p.head("/test.Other/Other"), false).send()
		for range 10 { // messages of one stream, to each of which a client of grpc-go pings
			more <- struct{}{}
			synctest.Wait()
			ping()
		}
		close(more)
		synctest.Wait()
		ping()
		select {
		case s := <-ended:
			t.Fatalf("%v", s.goAways)
		default:
		}
		for range 10 {
			ping()
		}
		if s := <-ended; len(s.goAways) != 1 || s.goAways[0].ErrCode != http2.ErrCodeEnhanceYourCalm {
			t.Errorf("%v", s.goAways)
		}
	})
}

// TestStreamsAreBounded: streams of all connections together are few, as each costs goroutines. Other calls go on.
func TestStreamsAreBounded(t *testing.T) {
	l := listen(t)
	s := serve(t, optionsOf(t, newEchoes(false)), l)
	s.Streams.Max = 5
	const watch = "/grpc.health.v1.Health/Watch"
	begin := func(n int) *peer {
		p := connect(t, l.Addr().String()).greet()
		for i := range n {
			id := uint32(2*i + 1)
			p.headers(id, p.head(watch), false)
			p.must(p.w.WriteData(id, true, message("")))
		}
		return p.send()
	}
	one, other := begin(3), begin(0)
	one.read(func(s *seen) bool { return len(s.calls) == 3 }) // all have been begun
	for i := range 3 {
		id := uint32(2*i + 1)
		other.headers(id, other.head(watch), false)
		other.must(other.w.WriteData(id, true, message("")))
	}
	if r := other.send().result(5); r.reset != http2.ErrCodeRefusedStream {
		t.Errorf("one more stream than there may be: %+v", r)
	}
	other.call(7, "a call").send().result(7).want(t, "a call")
	_ = one.nc.Close()
	for id := uint32(9); ; id += 2 { // until the streams of the first have ended
		other.headers(id, other.head("/grpc.health.v1.Health/Check"), false)
		other.must(other.w.WriteData(id, true, message("")))
		if r := other.send().result(id); !r.wasReset {
			r.want(t, "\b\x01")
			break
		} else if r.reset != http2.ErrCodeRefusedStream || id > 15_000 {
			t.Fatalf("call %d: %+v", id, r)
		}
	}
}

// addressed is a listener whose clients have the addresses that are sent to it.
type addressed struct {
	net.Listener

	addresses chan string
}

// Accept implements [net.Listener].
func (l addressed) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return from{nc, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(<-l.addresses), 4711))}, nil
}

// from is a connection from an address.
type from struct {
	net.Conn

	remote net.Addr
}

// RemoteAddr implements [net.Conn].
func (f from) RemoteAddr() net.Addr { return f.remote }

// TestOneAddressLeavesSome: of streams, and of calls that wait for their requests, one address has nine in ten of all.
func TestOneAddressLeavesSome(t *testing.T) {
	l := addressed{listen(t), make(chan string, 1)}
	s := serve(t, optionsOf(t, newEchoes(false)), l)
	s.Streams.Max, s.Waiting.Max = 10, 10
	connectFrom := func(address string) *peer {
		l.addresses <- address
		return connect(t, l.Addr().String()).greet()
	}
	refused := func(p *peer, id uint32) bool {
		p.headers(id, p.head("/grpc.health.v1.Health/Watch"), false)
		p.must(p.w.WriteData(id, true, message("")))
		r := p.send().read(func(s *seen) bool { return s.call(id).http != "" || s.call(id).wasReset }).call(id)
		return r.wasReset && r.reset == http2.ErrCodeRefusedStream
	}
	one, same, other := connectFrom("2001:db8::1"), connectFrom("2001:db8::2"), connectFrom("2001:db8:0:1::1")
	for i := range uint32(6) {
		if refused(one, 2*i+1) {
			t.Errorf("stream %d is refused", i)
		}
	}
	for i := range uint32(4) {
		if got, want := refused(same, 2*i+1), i == 3; got != want {
			t.Errorf("stream %d of the /64: refused %v", 6+i, got)
		}
	}
	for i := range uint32(2) {
		if got, want := refused(other, 2*i+1), i == 1; got != want {
			t.Errorf("stream %d of another: refused %v", i, got)
		}
	}

	wait := func(p *peer, first, n uint32) {
		for i := range n {
			p.headers(first+2*i, p.head(echoMethod), false)
		}
		p.must(p.w.WritePing(false, lastPing))
		s := p.send().read(func(s *seen) bool { return s.pings > 0 })
		for i := range n {
			if r := s.calls[first+2*i]; r != nil {
				t.Errorf("a call that waits is answered: %q", r.message)
			}
		}
	}
	wait(one, 101, 9)
	if r := same.headers(101, same.head(echoMethod), false).send().result(101); !strings.Contains(string(r.message), "9 calls of one address") {
		t.Errorf("one call more of the /64: %q", r.message)
	}
	wait(other, 101, 1)
	if r := other.headers(103, other.head(echoMethod), false).send().result(103); !strings.Contains(string(r.message), "10 calls wait") {
		t.Errorf("one call more of another: %q", r.message)
	}
	_ = one.nc.Close()
	for refused(same, 201) { // until it is noted
		same = connectFrom("2001:db8::3")
	}
	wait(same, 301, 9)
}

// TestStreamsBeginInTurn: of calls that a handler serves, 32 of one address begin at once, and the next when one waits for a message,
// responds, or ends. Those of another address do not wait for them.
func TestStreamsBeginInTurn(t *testing.T) {
	const most, streams = 32, 50
	synctest.Test(t, func(t *testing.T) {
		pipes := fronttest.Pipes()
		l := addressed{pipes, make(chan string, 1)}
		var begun, ended atomic.Int64
		steps, end := make(chan func(http.ResponseWriter, *http.Request)), make(chan struct{})
		o := optionsOf(t, newEchoes(false))
		o.Others = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun.Add(1)
			defer ended.Add(1)
			select {
			case step := <-steps:
				step(w, r)
			case <-end:
			}
		})
		serve(t, o, l)
		connectFrom := func(address string) *peer {
			l.addresses <- address
			nc, err := pipes.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p := newPeer(t, nc).greet()
			go func() { _, _ = io.Copy(io.Discard, nc) }()
			return p
		}
		want := func(what string, n int64) {
			t.Helper()
			if synctest.Wait(); begun.Load() != n {
				t.Errorf("%s: %d have begun, want %d", what, begun.Load(), n)
			}
		}
		one, other := connectFrom("2001:db8::1"), connectFrom("2001:db8:0:1::1")
		for i := range uint32(streams) {
			one.headers(2*i+1, one.head("/test.Other/Other"), false)
		}
		one.send()
		want("as many as may be", most)
		other.headers(1, other.head("/test.Other/Other"), false).send()
		want("another address", most+1)
		steps <- func(http.ResponseWriter, *http.Request) {}
		want("one has ended", most+2)
		steps <- func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }
		want("one waits for a message", most+3)
		steps <- func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			<-end
		}
		want("one has answered", most+4)
		steps <- func(_ http.ResponseWriter, r *http.Request) { _ = r.Body.Close() }
		want("one more has ended", most+5)
		_ = one.nc.Close()
		want("those that wait for their turn have gone", most+5)
		close(end)
		if synctest.Wait(); begun.Load() != most+5 || ended.Load() != most+5 {
			t.Errorf("%d have begun and %d ended, want %d", begun.Load(), ended.Load(), most+5)
		}
	})
}

// TestSettingsOfOneFrame: the last of several windows in SETTINGS counts, and what is sent of replies is not sent in as many parts.
func TestSettingsOfOneFrame(t *testing.T) {
	l := listen(t)
	serve(t, optionsOf(t, newEchoes(false)), l)
	p := connect(t, l.Addr().String()).greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	p.call(1, "size:100")
	var windows []http2.Setting
	for n := range uint32(1000) {
		windows = append(windows, http2.Setting{ID: http2.SettingInitialWindowSize, Val: n + 1})
	}
	p.must(p.w.WriteSettings(windows...))
	p.send()
	for frames := 0; ; {
		f, err := p.r.ReadFrame()
		p.must(err)
		if d, ok := f.(*http2.DataFrame); ok {
			if frames++; frames > 1 || len(d.Data()) != 105 {
				t.Fatalf("frame %d has %d bytes, want 105", frames, len(d.Data()))
			}
		}
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
			return
		}
	}
}

// TestWindows: a reply that is longer than the windows comes in parts, as they open.
func TestWindows(t *testing.T) {
	l := listen(t)
	serve(t, optionsOf(t, newEchoes(false)), l)
	p := connect(t, l.Addr().String()).greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	p.call(1, "size:100000").call(3, "size:100000").send()
	var got [4]int
	more := func(n, of int) {
		t.Helper()
		for begin := got[1] + got[3]; got[1]+got[3] < begin+n; {
			f, err := p.r.ReadFrame()
			p.must(err)
			if d, ok := f.(*http2.DataFrame); ok {
				if got[d.StreamID] += len(d.Data()); len(d.Data()) > 16384 {
					t.Errorf("%v", d)
				}
			}
		}
		if of != 0 && got[of] < n {
			t.Errorf("%v", got)
		}
	}
	more(20, 0)
	p.must(p.w.WriteWindowUpdate(1, 1000))
	p.send()
	more(1000, 1)
	p.must(p.w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 40_000}))
	p.send()
	more(65535-got[1]-got[3], 0) // until the window of the connection is used up
	p.must(p.w.WriteWindowUpdate(0, 1<<20))
	p.must(p.w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	p.send()
	s := p.read(func(s *seen) bool { return s.call(1).ended && s.call(3).ended })
	for _, id := range []int{1, 3} {
		if n := got[id] + len(s.calls[uint32(id)].message); n != 100_005 || s.calls[uint32(id)].status != "0" {
			t.Errorf("call %d: %d bytes, %+v", id, n, s.calls[uint32(id)].status)
		}
	}
}

// TestNegativeWindow: SETTINGS can make the window of a stream negative (RFC 9113, 6.9.2). Nothing is sent until it is open again.
func TestNegativeWindow(t *testing.T) {
	l := listen(t)
	serve(t, optionsOf(t, newEchoes(false)), l)
	p := connect(t, l.Addr().String()).greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	p.call(1, "size:5000").send()
	got := 0
	read := func(until func(f http2.Frame) bool) {
		t.Helper()
		for {
			f, err := p.r.ReadFrame()
			p.must(err)
			if d, ok := f.(*http2.DataFrame); ok {
				got += len(d.Data())
			}
			if until(f) {
				return
			}
		}
	}
	read(func(http2.Frame) bool { return got == 1000 })
	acknowledged := func(f http2.Frame) bool { ping, ok := f.(*http2.PingFrame); return ok && ping.IsAck() }
	for _, step := range []struct {
		window, more uint32
		want         int
	}{
		{400, 600, 1000}, // -600, and then 0
		{100, 299, 1000}, // -300, and then -1
		{100, 6, 1005},
	} {
		p.must(p.w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: step.window}))
		p.must(p.w.WriteWindowUpdate(1, step.more))
		p.must(p.w.WritePing(false, lastPing))
		p.send()
		if read(acknowledged); got != step.want {
			t.Fatalf("%+v: %d bytes", step, got)
		}
	}
	p.must(p.w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	p.call(3, "afterwards").send()
	read(func(f http2.Frame) bool {
		h, ok := f.(*http2.HeadersFrame)
		return ok && h.StreamID == 1 && h.StreamEnded()
	})
	if got < 5005 {
		t.Errorf("%d bytes", got)
	}
}

// TestWindowsOfTheServer: a client that sends more than it may is told so, of a stream and of the connection.
func TestWindowsOfTheServer(t *testing.T) {
	l := listen(t)
	serve(t, optionsOf(t, newEchoes(false)), l)
	p := connect(t, l.Addr().String()).greet()
	p.headers(1, p.head("/grpc.health.v1.Health/Watch"), false)
	p.must(p.w.WriteData(1, false, binary.BigEndian.AppendUint32([]byte{0}, 0)))
	for range 5 { // it reads one message, and no more
		p.must(p.w.WriteData(1, false, append(message(""), make([]byte, 16000)...)))
	}
	if r := p.send().result(1); r.reset != http2.ErrCodeFlowControl && r.status == "0" {
		t.Errorf("%+v", r)
	}
	p.call(3, "afterwards").send().result(3).want(t, "afterwards")
}

// TestCallsAfterGoAway: calls that are on their way when the client is told to go are answered, and those after that are ignored:
// the client knows that they are not taken.
func TestCallsAfterGoAway(t *testing.T) {
	l := listen(t)
	e := newEchoes(true)
	s := serve(t, optionsOf(t, e), l)
	p := connect(t, l.Addr().String()).greet().call(1, "wait").send()
	<-e.asked
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	var first [8]byte
	for told := false; !told; {
		f, err := p.r.ReadFrame()
		p.must(err)
		if ping, ok := f.(*http2.PingFrame); ok {
			first, told = ping.Data, true
		}
	}
	p.call(3, "on its way")
	p.must(p.w.WritePing(true, first))
	p.call(5, "too late")
	p.must(p.w.WritePing(false, lastPing))
	got := p.send().read(func(s *seen) bool { return s.pings > 0 && s.call(3).ended })
	if got.calls[3].want(t, "on its way"); len(got.goAways) != 1 || got.goAways[0].LastStreamID != 3 || got.calls[5] != nil {
		t.Errorf("%v, %+v", got.goAways, got.calls[5])
	}
	close(e.answer)
	if got = p.read(func(*seen) bool { return false }); !got.closed {
		t.Error("the connection goes on")
	}
	got.calls[1].want(t, "wait")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestEndDoesNotWaitForSlowReaders: a client that takes nothing of its replies holds up the end of the server for little time only,
// whether it has no window for them or does not read at all.
func TestEndDoesNotWaitForSlowReaders(t *testing.T) {
	for name, window := range map[string]uint32{"no window": 0, "does not read": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, connect := bubble(t, func(*grpcloop.Options) {})
				p := connect().greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
				p.must(p.w.WritePing(false, lastPing))
				sent := make(chan struct{})
				go func() {
					p.send()
					close(sent)
				}()
				p.read(func(s *seen) bool { return s.pings > 0 })
				<-sent
				p.call(1, "size:1000").send()
				if window == 0 {
					go func() { _, _ = io.Copy(io.Discard, p.nc) }()
				}
				synctest.Wait()
				start := time.Now()
				if err := s.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				within(t, "it is cut off", time.Since(start), 2*time.Second)
			})
		})
	}
}

// TestGoroutinesEnd: when the server has ended, nothing of it goes on.
func TestGoroutinesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		pipes := fronttest.Pipes()
		e := newEchoes(true)
		s := grpcloop.New(optionsOf(t, e))
		served := make(chan error, 1)
		go func() { served <- s.Serve(pipes) }()
		for i := range 3 {
			nc, err := pipes.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p := newPeer(t, nc)
			go func() { _, _ = io.Copy(io.Discard, nc) }()
			p.greet().call(1, "wait").headers(3, p.head("/grpc.health.v1.Health/Watch"), false)
			p.must(p.w.WriteData(3, i == 0, message("")))
			p.headers(5, p.head(echoMethod), false)
			p.send()
			<-e.asked
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err == nil {
			t.Error("it has ended before its calls")
		}
		if err := <-served; err != nil || s.Waiting.Calls() != 0 || s.Unread.Bytes() != 0 {
			t.Errorf("%v, %d calls wait, %d bytes", err, s.Waiting.Calls(), s.Unread.Bytes())
		}
	})
}
