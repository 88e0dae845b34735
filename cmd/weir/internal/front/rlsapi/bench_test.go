package rlsapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/corev3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// The servers that BenchmarkShouldRateLimit measures are processes of their own: this test program, told by a variable which
// of them to be.
const benchServer = "WEIR_BENCH_SERVER"

func TestMain(m *testing.M) {
	if name := os.Getenv(benchServer); name != "" {
		serveBench(name)
		return
	}
	os.Exit(m.Run())
}

// benchServers are the servers: weir, and an echo of grpc-go that answers the same messages with what was generated.
var benchServers = map[string]func(l net.Listener) error{
	"weir": func(l net.Listener) error { return serveWeir(l, rlsapi.Options{}) },
	"weir-brief": func(l net.Listener) error {
		return serveWeir(l, rlsapi.Options{Fields: ratelimitfields.NoFields, NoMetadata: true})
	},
	"echo":       func(l net.Listener) error { return serveEcho(l, true) },
	"echo-brief": func(l net.Listener) error { return serveEcho(l, false) },
}

func serveBench(name string) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	if _, err := fmt.Fprintln(os.Stdout, l.Addr()); err != nil {
		panic(err)
	}
	go func() { // ends with the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := benchServers[name](l); err != nil {
		panic(err)
	}
}

func benchSet() *policy.Set {
	set := usersAndTenants()
	for i := range set.Policies {
		l := &set.Policies[i].Limits[0]
		l.Limit = weir.TokenBucket(weir.Per(1_000_000_000, l.Rate().Period), 0)
	}
	return set
}

func serveWeir(l net.Listener, o rlsapi.Options) error {
	var err error
	o.Limits, err = live.Fixed(benchSet(), policy.EngineOptions{}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	server, err := rlsapi.New(o)
	if err != nil {
		return err
	}
	return server.Serve(l)
}

// echo answers without deciding.
type echo struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	headers []*corev3.HeaderValue
}

func (e echo) ShouldRateLimit(_ context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	reply := &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK, ResponseHeadersToAdd: e.headers,
		Statuses: make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(r.GetDescriptors())),
	}
	for i := range reply.GetStatuses() {
		reply.Statuses[i] = &ratelimitv3.RateLimitResponse_DescriptorStatus{
			Code: ratelimitv3.RateLimitResponse_OK, LimitRemaining: 999_999_999, DurationUntilReset: &durationpb.Duration{Seconds: 1},
			CurrentLimit: &ratelimitv3.RateLimitResponse_RateLimit{
				Name: "user", RequestsPerUnit: 1_000_000_000, Unit: ratelimitv3.RateLimitResponse_RateLimit_DAY,
			},
		}
	}
	return reply, nil
}

func serveEcho(l net.Listener, headers bool) error {
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.NumStreamWorkers(256))
	var e echo
	if headers {
		e.headers = []*corev3.HeaderValue{
			{Key: "ratelimit-policy", Value: `"user";q=1000000000;w=86400, "tenant";q=1000000000;w=86400`},
			{Key: "ratelimit", Value: `"user";r=999999999;t=1, "tenant";r=999999999;t=1`},
		}
	}
	ratelimitv3.RegisterRateLimitServiceServer(server, e)
	return server.Serve(l)
}

// BenchmarkShouldRateLimit measures calls with two descriptors, so many at a time on one connection, to a server that has
// one core, by a client that has another.
func BenchmarkShouldRateLimit(b *testing.B) {
	message, err := proto.Marshal(request("edge", []string{"user", "u-1234567"}, []string{"tenant", "t-42"}))
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"echo", "weir", "echo-brief", "weir-brief"} {
		for _, inFlight := range []int{1, 32, 256} {
			b.Run(fmt.Sprintf("server=%s/inflight=%d", name, inFlight), func(b *testing.B) {
				address, process := startBenchServer(b, name)
				c := newLoadClient(b, address, message)
				c.run(b, min(b.N, 100), inFlight) // the first calls make what later ones use again
				before := cpuTime(b, process)
				b.ResetTimer()
				c.run(b, b.N, inFlight)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
				b.ReportMetric(float64(cpuTime(b, process)-before)/float64(b.N), "server-cpu-ns/op")
			})
		}
	}
}

// cpuTime is how long a process has computed, as Linux tells in hundredths of seconds; elsewhere it is 0. It tells servers
// apart also where others use the machine.
func cpuTime(b *testing.B, process int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		b.Fatal(err)
	}
	system, err := strconv.Atoi(fields[12])
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * time.Second / 100
}

func startBenchServer(b *testing.B, name string) (address string, process int) {
	b.Helper()
	args := []string{os.Args[0]}
	if taskset, err := exec.LookPath("taskset"); err == nil && runtime.NumCPU() > 1 {
		args = []string{taskset, "-c", "0", os.Args[0]}
		pin := exec.CommandContext(b.Context(), taskset, "-apc", "1", strconv.Itoa(os.Getpid()))
		if out, err := pin.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	server := exec.CommandContext(b.Context(), args[0], args[1:]...)
	server.Env = append(os.Environ(), benchServer+"="+name)
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err = server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close() // that ends it
		_ = server.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line), server.Process.Pid
}

// loadClient is a client of HTTP/2 that costs much less than a server: every call is the same bytes but for the number of
// the stream.
type loadClient struct {
	conn   net.Conn
	framer *http2.Framer
	out    bytes.Buffer
	block  []byte
	body   []byte
	next   uint32
	reader *bufio.Reader
}

func newLoadClient(b *testing.B, address string, message []byte) *loadClient {
	b.Helper()
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	c := &loadClient{conn: conn, next: 1}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSize(0)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName},
		{":authority", "weir"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
			b.Fatal(err)
		}
	}
	c.block = block.Bytes()
	c.body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	c.reader = bufio.NewReaderSize(conn, 64<<10)
	c.framer = http2.NewFramer(&c.out, c.reader)
	c.framer.SetReuseFrames()
	c.out.WriteString(http2.ClientPreface)
	c.must(b, c.framer.WriteSettings(
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20},
	))
	c.must(b, c.framer.WriteWindowUpdate(0, 1<<30))
	return c
}

func (*loadClient) must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// call adds a call to what is written next.
func (c *loadClient) call(b *testing.B) {
	c.must(b, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next, BlockFragment: c.block, EndHeaders: true}))
	c.must(b, c.framer.WriteData(c.next, true, c.body))
	c.next += 2
}

// run makes n calls, so many at a time.
func (c *loadClient) run(b *testing.B, n, inFlight int) {
	b.Helper()
	begun, ended := 0, 0
	received := 0
	for ended < n {
		for begun < n && begun-ended < inFlight {
			c.call(b)
			begun++
		}
		if c.out.Len() > 0 {
			if _, err := c.conn.Write(c.out.Bytes()); err != nil {
				b.Fatal(err)
			}
			c.out.Reset()
		}
		before := ended
		for ended == before || c.buffered() {
			f, err := c.framer.ReadFrame()
			c.must(b, err)
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
			case *http2.HeadersFrame:
				if f.StreamEnded() {
					ended++
				}
			case *http2.DataFrame:
				if received += int(f.Length); received > 1<<20 {
					c.must(b, c.framer.WriteWindowUpdate(0, uint32(received)))
					received = 0
				}
			case *http2.SettingsFrame:
				if !f.IsAck() {
					c.must(b, c.framer.WriteSettingsAck())
				}
			case *http2.PingFrame:
				if !f.IsAck() {
					c.must(b, c.framer.WritePing(true, f.Data))
				}
			case *http2.RSTStreamFrame, *http2.GoAwayFrame:
				b.Fatalf("the server answered %v", f)
			}
			if ended == n {
				break
			}
		}
	}
}

// buffered reports whether there is another frame to be read without waiting.
func (c *loadClient) buffered() bool { return c.reader.Buffered() >= 9 }
