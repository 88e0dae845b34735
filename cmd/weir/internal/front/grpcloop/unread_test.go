package grpcloop_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/cmd/weir/internal/front/grpcloop"
)

// TestUnreadIsBounded: what is kept of messages that are not complete is bounded, in all and of each connection, and forgotten.
func TestUnreadIsBounded(t *testing.T) {
	for _, path := range []string{echoMethod, "/grpc.health.v1.Health/Watch"} {
		l := listen(t)
		s := serve(t, optionsOf(t, newEchoes(false)), l)
		s.Unread.Max, s.Unread.Own = 200_000, 10_000
		begin := func(n int) *peer {
			p := connect(t, l.Addr().String()).greet()
			for i := range n {
				id := uint32(2*i + 1)
				p.headers(id, p.head(path), false)
				p.must(p.w.WriteData(id, false, message(strings.Repeat("x", 9000))[:8000]))
			}
			return p.send()
		}
		cut := func(n uint64) {
			t.Helper()
			for deadline := time.Now().Add(time.Minute); s.Unread.CutOff() != n; runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Fatalf("%s: %d are cut off, want %d", path, s.Unread.CutOff(), n)
				}
			}
		}
		kept := func(from, to int64) { // a connection has what it sent a moment later, and has it no more a moment after its end
			t.Helper()
			for deadline := time.Now().Add(time.Minute); s.Unread.Bytes() < from || s.Unread.Bytes() > to; runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Fatalf("%s: %d bytes are kept, want %d to %d", path, s.Unread.Bytes(), from, to)
				}
			}
		}
		begin(50)
		cut(1)
		kept(0, 10_000)
		one := begin(20)
		kept(150_000, 200_000)
		begin(50)
		cut(2)
		kept(150_000, 200_000)
		begin(1).call(101, "a connection with little to say").send().result(101).want(t, "a connection with little to say")
		_ = one.nc.Close()
		kept(0, 10_000)
	}
}

// TestOneAddressLeavesRoom: of what is kept one address, or a /64 of IPv6, has nine in ten, however many connections it has. So a
// client elsewhere may have more than a connection has in any case.
func TestOneAddressLeavesRoom(t *testing.T) {
	for name, begin := range map[string]func(p *peer, n int){
		"messages": func(p *peer, n int) {
			p.headers(1, p.head(echoMethod), false)
			p.must(p.w.WriteData(1, false, message(strings.Repeat("x", n))[:n]))
		},
		"parts of frames": func(p *peer, n int) {
			p.raw(http2.FrameHeaders, 0, 1, strings.Repeat("x", n+1-9))
			p.out.Truncate(p.out.Len() - 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := addressed{listen(t), make(chan string, 1)}
			s := serve(t, optionsOf(t, newEchoes(false)), l)
			s.Unread.Max, s.Unread.Own = 100_000, 100
			keep := func(address string, n int) *peer {
				l.addresses <- address
				p := connect(t, l.Addr().String()).greet()
				begin(p, n)
				return p.send()
			}
			var all []*peer
			for range 6 {
				all = append(all, keep("2001:db8::1", 14_000))
			}
			kept(t, s, "nearly as much as one may have", 0, 84_000, 88_000)
			keep("2001:db8::2", 7_000)
			kept(t, s, "one more of the /64", 1, 84_000, 88_000)
			all = append(all, keep("2001:db8:0:1::1", 7_000))
			kept(t, s, "another address", 1, 91_000, 96_000)
			for _, p := range all {
				_ = p.nc.Close()
			}
			kept(t, s, "they have gone", 1, 0, 0)
			keep("2001:db8::1", 14_000)
			kept(t, s, "it is back", 1, 14_000, 15_000)
		})
	}
}

// TestMessagesOfStreamsCountUntilTheyAreDone: a message of a stream is kept until its handler asks for the next one.
func TestMessagesOfStreamsCountUntilTheyAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps, end := make(chan int), make(chan struct{})
		s, connect := bubble(t, func(o *grpcloop.Options) {
			o.Others = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for n := range steps {
					grpcloop.Wants(r.Context())
					_, _ = io.ReadFull(r.Body, make([]byte, n))
				}
				<-end
			})
		})
		p := connect().greet()
		go func() { _, _ = io.Copy(io.Discard, p.nc) }()
		p.headers(1, p.head("/test.Other/Other"), false).send()
		synctest.Wait()
		head := s.Unread.Bytes()
		kept := func(what string, want int64) {
			t.Helper()
			if synctest.Wait(); s.Unread.Bytes()-head != want {
				t.Errorf("%s: %d bytes are kept, want %d", what, s.Unread.Bytes()-head, want)
			}
		}
		first, second, third := message(strings.Repeat("x", 1000)), message(""), message("xyz")
		for _, m := range [][]byte{first, second, third} {
			p.must(p.w.WriteData(1, false, m))
		}
		p.send()
		kept("all have arrived", 1005+5+8)
		steps <- len(first)
		kept("the first is read", 1005+5+8)
		steps <- len(second)
		kept("the first is done", 5+8)
		steps <- len(third)
		kept("the second is done", 8)
		close(steps)
		p.must(p.w.WriteRSTStream(1, http2.ErrCodeCancel))
		p.send()
		kept("the call is given up", -head)
		close(end)
		kept("the handler has ended", -head)
	})
}

// TestUntakenRepliesAreBounded: what is kept of replies that clients do not take is bounded as what is kept of messages.
func TestUntakenRepliesAreBounded(t *testing.T) {
	for _, waits := range []bool{false, true} {
		l := listen(t)
		s := serve(t, optionsOf(t, newEchoes(waits)), l)
		s.Unread.Max, s.Unread.Own = 1_100_000, 50_000
		of := map[bool]string{false: "calls are answered at once: ", true: "calls may wait: "}[waits]
		ask := func(calls int) *peer {
			p := connect(t, l.Addr().String()).greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
			for i := range calls {
				p.call(uint32(2*i+1), "size:20000")
			}
			return p.send()
		}
		const call = 20_004 + 512 // which a stream costs beside its reply
		one := ask(45)
		kept(t, s, of+"as many as may be", 0, 45*call, 45*call)
		ask(2)
		kept(t, s, of+"little", 0, 47*call, 47*call)
		ask(90)
		kept(t, s, of+"too many", 1, 47*call, 47*call)
		one.must(one.w.WriteWindowUpdate(0, 1<<20))
		for i := range 45 {
			one.must(one.w.WriteWindowUpdate(uint32(2*i+1), 1<<20))
		}
		one.send().result(89)
		kept(t, s, of+"they were taken", 1, 2*call, 2*call)
	}
}

// kept waits until as many connections were cut off, and as many bytes are kept.
func kept(t *testing.T, s *grpcloop.Server, what string, cutOff uint64, from, to int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		cut, unread := s.Unread.CutOff(), s.Unread.Bytes()
		if cut == cutOff && unread >= from && unread <= to {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d are cut off, want %d; %d bytes are kept, want %d to %d", what, cut, cutOff, unread, from, to)
		}
	}
}

// manyFields are those of a header that is longer in memory than as it is sent: a byte for each.
var manyFields = strings.Split(strings.Repeat("a,b,", 1500)+"a,b", ",")

// TestHeadersAreCounted: a client that begins streams with long headers, which last for as long as it likes, is cut off.
func TestHeadersAreCounted(t *testing.T) {
	l := listen(t)
	s := serve(t, optionsOf(t, newEchoes(false)), l)
	s.Unread.Max, s.Unread.Own = 200_000, 10_000
	begin := func(n int) *peer {
		p := connect(t, l.Addr().String()).greet()
		for i := range uint32(n) {
			p.headers(2*i+1, p.head("/grpc.health.v1.Health/Watch", manyFields...), false)
			p.must(p.w.WriteData(2*i+1, true, message("")))
		}
		return p.send()
	}
	one := begin(3)
	kept(t, s, "headers", 0, 150_000, 160_000)
	begin(5)
	kept(t, s, "headers", 1, 150_000, 160_000)
	_ = one.nc.Close()
	kept(t, s, "headers", 1, 0, 0)
}

// TestPartsAreCounted: what has come of a header or a frame counts until the rest has come, and a client beyond what there may be is
// cut off.
func TestPartsAreCounted(t *testing.T) {
	const part = 16_000
	for name, begin := range map[string]func(p *peer){
		"a header": func(p *peer) { p.raw(http2.FrameHeaders, 0, 1, strings.Repeat("x", part)) },
		"a header in two frames": func(p *peer) {
			p.raw(http2.FrameHeaders, 0, 1, strings.Repeat("x", part/2))
			p.raw(http2.FrameContinuation, 0, 1, strings.Repeat("x", part/2))
		},
		"a frame": func(p *peer) {
			p.raw(http2.FrameHeaders, 0, 1, strings.Repeat("x", part+1-9))
			p.out.Truncate(p.out.Len() - 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t)
			s := serve(t, optionsOf(t, newEchoes(false)), l)
			s.Unread.Max, s.Unread.Own = 12*part, part/2 // and one address has nine in ten
			var all []*peer
			for range 10 {
				p := connect(t, l.Addr().String()).greet()
				begin(p)
				all = append(all, p.send())
			}
			kept(t, s, "as many as may be", 0, 10*part, 10*part)
			p := connect(t, l.Addr().String()).greet()
			begin(p)
			p.send()
			kept(t, s, "one more", 1, 10*part, 10*part)
			connect(t, l.Addr().String()).greet().call(1, "a client with little to say").send().result(1).
				want(t, "a client with little to say")
			for _, p := range all {
				_ = p.nc.Close()
			}
			kept(t, s, "they have gone", 1, 0, 0)
		})
	}
}

// TestStuckRepliesAreCounted: what a client leaves in the network counts as what it does not take for its windows.
func TestStuckRepliesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connect := bubble(t, func(*grpcloop.Options) {})
		s.Unread.Max, s.Unread.Own = 52_000, 10_000 // and one address has nine in ten
		ask := func() *peer {
			p := connect()
			for range 2 { // SETTINGS and WINDOW_UPDATE, as a pipe holds nothing
				_, err := p.r.ReadFrame()
				p.must(err)
			}
			go p.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}).call(1, "size:15000").send()
			<-time.After(time.Second)
			return p
		}
		all := []*peer{ask(), ask(), ask()}
		if n := s.Unread.Bytes(); n < 45_000 || n > 46_000 || s.Unread.CutOff() != 0 {
			t.Errorf("%d bytes are kept, %d are cut off", n, s.Unread.CutOff())
		}
		if ask(); s.Unread.CutOff() != 1 {
			t.Errorf("%d are cut off, want one more than there may be", s.Unread.CutOff())
		}
		for _, p := range all {
			p.result(1).want(t, strings.Repeat("x", 15_000))
		}
		if synctest.Wait(); s.Unread.Bytes() != 0 {
			t.Errorf("%d bytes are kept of what was taken", s.Unread.Bytes())
		}
	})
}

// TestMessagesCountUntilTheyAreAnswered: that of a call that waits for a store is kept meanwhile.
func TestMessagesCountUntilTheyAreAnswered(t *testing.T) {
	l := listen(t)
	e := newEchoes(true)
	s := serve(t, optionsOf(t, e), l)
	p := connect(t, l.Addr().String()).greet().call(1, "wait").send()
	<-e.asked
	kept(t, s, "it waits", 0, 512+5+4, 512+5+4)
	close(e.answer)
	p.result(1).want(t, "wait")
	kept(t, s, "it is answered", 0, 0, 0)
}

// TestWithoutBuffers: where all buffers are lent, calls are served as ever: long ones, many at once, in pieces, and with TLS.
func TestWithoutBuffers(t *testing.T) {
	grpcloop.LendAll(t)
	own := fronttest.SelfSigned(t, "weir")
	for _, secure := range []bool{false, true} {
		l := listen(t)
		o := optionsOf(t, newEchoes(false))
		if secure {
			o.TLS = &tls.Config{Certificates: []tls.Certificate{own.Pair}, MinVersion: tls.VersionTLS13}
		}
		serve(t, o, l)
		p := connect(t, l.Addr().String())
		if secure {
			p = newPeer(t, tls.Client(p.nc, &tls.Config{
				RootCAs: own.Pool, ServerName: "localhost", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13,
			}))
		}
		p.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		p.must(p.w.WriteWindowUpdate(0, 1<<20))
		long := strings.Repeat("y", 40_000)
		p.headers(1, p.head(echoMethod, manyFields...), false)
		for m := message(long); ; m = m[16<<10:] {
			if len(m) <= 16<<10 {
				p.must(p.w.WriteData(1, true, m))
				break
			}
			p.must(p.w.WriteData(1, false, m[:16<<10]))
		}
		p.call(3, "size:200000")
		for id := uint32(5); id < 1000; id += 2 {
			p.call(id, strconv.Itoa(int(id)))
		}
		go func() {
			for b := p.out.Bytes(); len(b) > 0; {
				n := min(1+len(b)%3001, len(b))
				if _, err := p.nc.Write(b[:n]); err != nil {
					return // which the test finds
				}
				b = b[n:]
			}
		}()
		s := p.read(func(s *seen) bool { return len(s.calls) == 500 && s.calls[999].ended && s.calls[3].ended })
		s.call(1).want(t, long)
		s.call(3).want(t, strings.Repeat("x", 200_000))
		for id := uint32(5); id < 1000; id += 2 {
			s.call(id).want(t, strconv.Itoa(int(id)))
		}
	}
}
