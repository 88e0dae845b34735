//go:build linux && !race

package main_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
)

// frames are what a client of gRPC sends, as it likes.
type frames struct {
	t     *testing.T
	all   bytes.Buffer
	w     *http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder
	last  uint32 // the last stream
}

// greeting begins a connection of gRPC.
func greeting(t *testing.T, settings ...http2.Setting) *frames {
	t.Helper()
	f := &frames{t: t}
	f.w, f.enc = http2.NewFramer(&f.all, nil), hpack.NewEncoder(&f.block)
	f.w.AllowIllegalWrites = true
	f.all.WriteString(http2.ClientPreface)
	f.must(f.w.WriteSettings(settings...))
	return f
}

func (f *frames) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

const shouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// head is the header block of a call, which changes no table.
func (f *frames) head(path string) []byte {
	f.block.Reset()
	for _, field := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", path},
		{":authority", "weir"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		f.must(f.enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true}))
	}
	return f.block.Bytes()
}

// begin begins a call.
func (f *frames) begin(path string) uint32 {
	f.last = max(f.last+2, 1) | 1
	f.must(f.w.WriteHeaders(http2.HeadersFrameParam{StreamID: f.last, BlockFragment: f.head(path), EndHeaders: true}))
	return f.last
}

// data is DATA of a call, in frames of 16 KiB.
func (f *frames) data(id uint32, b []byte, end bool) {
	const most = 16 << 10
	for ; len(b) > most; b = b[most:] {
		f.must(f.w.WriteData(id, false, b[:most]))
	}
	f.must(f.w.WriteData(id, end, b))
}

// calls are n calls, each of so many descriptors.
func (f *frames) calls(n, descriptors int) {
	r := &ratelimitv3.RateLimitRequest{Domain: "shop"}
	for range descriptors {
		r.Descriptors = append(r.Descriptors, &commonratelimitv3.RateLimitDescriptor{
			Entries: []*commonratelimitv3.RateLimitDescriptor_Entry{{Key: "key", Value: "v"}},
		})
	}
	text, err := proto.Marshal(r)
	f.must(err)
	for range n {
		f.data(f.begin(shouldRateLimit), prefixed(text, len(text)), true)
	}
}

// prefixed is a message, or the beginning of one of length bytes.
func prefixed(b []byte, length int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), b...)
}

var measuredPing = [8]byte{'m', 'e', 'a', 's', 'u', 'r', 'e', 'd'}

// crowd is many clients that do the same at once.
type crowd struct {
	name string
	// sent is what each sends after its greeting.
	sent     func(f *frames)
	settings []http2.Setting
	// cut is how many bytes of the end are not sent.
	cut int
	// stays says that the clients are served: a ping comes back. Otherwise they read nothing, and are cut off. Of those that have
	// what is bounded for all together, as many are served as find room at a time.
	stays bool
	// each is how many KiB a client may cost the server in memory, beside what is bounded for all together.
	each int64
	// together says that they have what is bounded for all together.
	together bool
}

// room is what the server may keep for all clients of gRPC together, in KiB, and as much that the collector has not freed yet.
const room = 2 * 64 << 10

// filler is what a client sends that never comes to the point.
var filler = make([]byte, 64<<10)

func crowds() []crowd {
	const frame = 16 << 10
	ping := func(f *frames) { f.must(f.w.WritePing(false, measuredPing)) }
	header := func(f *frames, more int) {
		f.must(f.w.WriteRawFrame(http2.FrameHeaders, 0, 1, filler[:frame]))
		for range more {
			f.must(f.w.WriteRawFrame(http2.FrameContinuation, 0, 1, filler[:frame]))
		}
	}
	return []crowd{
		{name: "silent", stays: true, sent: ping, each: 16},
		{name: "silent after a call", stays: true, each: 24, sent: func(f *frames) {
			f.calls(1, 1)
			ping(f)
		}},
		{name: "silent after a call of 40 KiB", stays: true, each: 24, together: true, sent: func(f *frames) {
			f.calls(1, 3000)
			ping(f)
		}},
		{name: "a stream each (health watch)", stays: true, each: 64, sent: func(f *frames) {
			f.data(f.begin("/grpc.health.v1.Health/Watch"), prefixed(nil, 0), true)
			ping(f)
		}},
		{name: "within a frame of 16 KiB", cut: 1, each: 48, together: true, sent: func(f *frames) { header(f, 0) }},
		{name: "within a header of 128 KiB", cut: 1, each: 48, together: true, sent: func(f *frames) { header(f, 8) }},
		{name: "within a message of 64 KiB", cut: 1, each: 48, together: true, sent: func(f *frames) {
			f.data(f.begin(shouldRateLimit), prefixed(filler, len(filler)), false)
		}},
		{name: "within 4 messages of 64 KiB", cut: 1, each: 48, together: true, sent: func(f *frames) {
			for range 4 {
				f.data(f.begin(shouldRateLimit), prefixed(filler[:60<<10], len(filler)), false)
			}
		}},
		{name: "within 1,000 messages of 5 bytes", each: 48, together: true, sent: func(f *frames) {
			for range 1000 {
				f.data(f.begin(shouldRateLimit), prefixed(nil, 1), false)
			}
		}},
		{name: "20,000 SETTINGS", each: 48, together: true, sent: func(f *frames) {
			for range 20_000 {
				f.must(f.w.WriteSettings())
			}
		}},
		{name: "20,000 PING", each: 48, together: true, sent: func(f *frames) {
			for range 20_000 {
				ping(f)
			}
		}},
		{name: "20,000 calls given up", each: 48, together: true, sent: func(f *frames) {
			for range 20_000 {
				f.must(f.w.WriteRSTStream(f.begin(shouldRateLimit), http2.ErrCodeCancel))
			}
		}},
		{name: "1,000 replies for which there is no window", each: 48, together: true, settings: noWindow, sent: func(f *frames) {
			f.calls(1000, 1)
		}},
		{name: "replies that are not read", each: 48, together: true, sent: func(f *frames) { f.calls(40, 64) }},
	}
}

var noWindow = []http2.Setting{{ID: http2.SettingInitialWindowSize}}

// attackers is how many clients a crowd has: WEIR_CONNECTIONS, or a few.
func attackers(t *testing.T) (n int, few bool) {
	t.Helper()
	text := os.Getenv("WEIR_CONNECTIONS")
	if text == "" {
		return 500, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("WEIR_CONNECTIONS %q: must be a number from 1", text)
	}
	return n, false
}

// TestAttackMemory: many clients of gRPC at once cost the server no more memory than its bounds say, whatever they send, and
// however long they take none of its replies. It logs a row of a table for each crowd. Those with what is bounded for all together
// are for make crowds: a few clients cannot reach that.
func TestAttackMemory(t *testing.T) {
	n, few := attackers(t)
	for _, c := range crowds() {
		if !c.together || !few {
			t.Run(c.name, func(t *testing.T) { c.attack(t, n) })
		}
	}
}

// attack has n clients do it, and compares how much memory the server has had for them with the bound.
func (c *crowd) attack(t *testing.T, n int) {
	t.Helper()
	most := strconv.Itoa(n + 1)
	s := attack(t, "--limit", "1000000/s", "--burst", "1000000", "--grpc-connections", most,
		"--grpc-connections-per-address", most)
	if _, err := descriptor(t.Context(), s.dial(), "shop", "key", "v"); err != nil {
		t.Fatal(err)
	}
	pid := s.cmd.Process.Pid
	before, _ := memoryOf(t, pid, "VmRSS:")
	f := greeting(t, c.settings...)
	c.sent(f)
	sent := f.all.Bytes()[:f.all.Len()-c.cut]
	var all sync.WaitGroup
	var served atomic.Int64
	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i] = connectSparingly(t, s.grpc)
		all.Go(func() {
			_, err := conns[i].Write(sent)
			if !c.stays {
				return // it may have been cut off
			}
			if err == nil {
				err = readPing(conns[i])
			}
			switch {
			case err == nil:
				served.Add(1)
			case !c.together:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if least := min(n, room/2*1024/len(sent)); c.stays && served.Load() < int64(least) {
		t.Errorf("%d of %d were served, want at least %d", served.Load(), n, least)
	}
	if !c.stays {
		eventually(t, "they are cut off", func() bool {
			<-time.After(time.Second / 4) // the status may not be asked for more often
			return s.connections()["grpc"].Connections <= 1
		})
	}
	peak, known := memoryOf(t, pid, "VmHWM:")
	if !known {
		t.Fatal("the system does not tell how much memory the server has had")
	}
	had, bound := (peak-before)>>10, c.each*int64(n)
	if c.together {
		bound += room
	}
	t.Logf("| %s | %d MiB | %.1f KiB | %d MiB |", c.name, had>>10, float64(had)/float64(n), bound>>10)
	if had > bound {
		t.Errorf("%d clients cost %d MiB, want %d or less", n, had>>10, bound>>10)
	}
	for _, nc := range conns {
		_ = nc.Close()
	}
	s.end()
}

// connectSparingly is connect for one of many clients, whose system keeps little of what they do not read.
func connectSparingly(t *testing.T, address string) net.Conn {
	t.Helper()
	const buffer = 4 << 10
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		wrong := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, buffer) })
		return errors.Join(wrong, err)
	}}
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = tcp.SetLinger(0) // no port is kept for it afterwards
	}
	if err = errors.Join(err, conn.SetDeadline(time.Now().Add(3*time.Minute))); err != nil {
		t.Fatal(err)
	}
	return conn
}

// readPing reads until the ping has come back.
func readPing(conn net.Conn) error {
	var all []byte
	for b := make([]byte, 1<<10); ; {
		n, err := conn.Read(b)
		if err != nil {
			return fmt.Errorf("the ping has not come back, after %d bytes: %w", len(all), err)
		}
		if all = append(all, b[:n]...); bytes.Contains(all, measuredPing[:]) {
			return nil
		}
	}
}
