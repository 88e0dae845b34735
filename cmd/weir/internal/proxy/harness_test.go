package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/proxy"
	"github.com/weirhq/weir/policy"
)

// patience is how long tests wait for what must happen. It is never waited for if all is well.
const patience = 2 * time.Minute

// running is a proxy that serves.
type running struct {
	*proxy.Proxy

	url, addr string
	client    *http.Client
	log       *logLines
	// stop tells the proxy to stop; done has what Serve returned.
	stop context.CancelFunc
	done chan error
}

// logLines is a log that can be read while it is written.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// with are the lines that contain part.
func (l *logLines) with(part string) []string {
	var lines []string
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, part) {
			lines = append(lines, line)
		}
	}
	return lines
}

// upstream serves handler until the test ends.
func upstream(tb testing.TB, handler http.HandlerFunc) string {
	tb.Helper()
	server := httptest.NewServer(handler)
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// limit is a bucket for each client of burst permits, which regains none while a test runs.
func limit(tb testing.TB, burst int64) *policy.Engine {
	tb.Helper()
	return limitBy(tb, flags.Client(), burst)
}

// limitBy is limit for each key.
func limitBy(tb testing.TB, by flags.Key, burst int64) *policy.Engine {
	tb.Helper()
	return engine(tb, flags.Limit{By: by, Rate: weir.Per(burst, 24*time.Hour), Burst: burst, MaxKeys: 1_000_000})
}

func engine(tb testing.TB, l flags.Limit) *policy.Engine {
	tb.Helper()
	e, err := policy.NewEngine(l.Set("default"), policy.EngineOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = e.Close() })
	return e
}

func options(tb testing.TB, to string, log io.Writer) proxy.Options {
	tb.Helper()
	u, err := proxy.ParseUpstream(to)
	if err != nil {
		tb.Fatal(err)
	}
	return proxy.Options{
		Upstream: u, Engine: limit(tb, 1_000_000), Logger: slog.New(slog.NewTextHandler(log, nil)),
	}
}

// start runs a proxy before an upstream until the test ends.
func start(tb testing.TB, to string, change func(*proxy.Options)) *running {
	tb.Helper()
	return startFor(tb, patience, to, change)
}

// startFor is start with a time for requests to finish when it stops.
func startFor(tb testing.TB, timeout time.Duration, to string, change func(*proxy.Options)) *running {
	tb.Helper()
	r := &running{log: new(logLines), done: make(chan error, 1)}
	o := options(tb, to, r.log)
	scheme := "http://"
	if change != nil {
		change(&o)
	}
	if o.TLS != nil {
		scheme = "https://"
	}
	p, err := proxy.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	ln := listen(tb, "tcp", "127.0.0.1:0")
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.Proxy, r.addr, r.url = p, ln.Addr().String(), scheme+ln.Addr().String()
	transport := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(true)
	r.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		fronts := front.Group{
			All: []front.Listening{{Name: "listen", Made: front.Made{Front: p}, Listener: ln}}, Log: o.Logger, Timeout: timeout,
		}
		r.done <- fronts.Serve(ctx)
	}()
	tb.Cleanup(func() {
		transport.CloseIdleConnections()
		r.stop()
		receive(tb, finished, "Serve to return")
	})
	return r
}

// receive waits for a value.
func receive[T any](tb testing.TB, c <-chan T, what string) T {
	tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		tb.Fatalf("waited %v for %s", patience, what)
		panic("unreachable")
	}
}

// until polls a condition of the world outside.
func until(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !condition() {
		if <-poll.C; time.Now().After(deadline) {
			tb.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func request(tb testing.TB, method, url string, body io.Reader) *http.Request {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, url, body)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// answer is a response with its whole body.
type answer struct {
	*http.Response

	body string
}

// do sends a request and reads the response.
func (r *running) do(tb testing.TB, req *http.Request) answer {
	tb.Helper()
	res, err := r.client.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return answer{res, string(body)}
}

func (r *running) get(tb testing.TB, path string) answer {
	tb.Helper()
	return r.do(tb, request(tb, http.MethodGet, r.url+path, nil))
}

// read reads a response to a GET from a raw connection.
func read(tb testing.TB, reader *bufio.Reader) answer {
	tb.Helper()
	res, err := http.ReadResponse(reader, nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return answer{res, string(body)}
}

// listen listens on a free port of the loopback interface.
func listen(tb testing.TB, network, address string) net.Listener {
	tb.Helper()
	var config net.ListenConfig
	ln, err := config.Listen(tb.Context(), network, address)
	if err != nil {
		tb.Fatal(err)
	}
	return ln
}

// raw opens a connection and sends text over it.
func (r *running) raw(tb testing.TB, text string) (net.Conn, *bufio.Reader) {
	tb.Helper()
	dialer := net.Dialer{Timeout: patience}
	conn, err := dialer.DialContext(tb.Context(), "tcp", r.addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		tb.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		tb.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// expectTotals waits until the totals are as wanted: a client may have its answer before it is counted.
func (r *running) expectTotals(tb testing.TB, want proxy.Totals) {
	tb.Helper()
	var got proxy.Totals
	deadline := time.Now().Add(patience)
	for got = r.Totals(); got != want; got = r.Totals() {
		if time.Now().After(deadline) {
			tb.Fatalf("totals are %+v, want %+v", got, want)
		}
		runtime.Gosched()
	}
}

// fieldBlock is a header of HTTP/2 of names and values in turn.
func fieldBlock(pairs ...string) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for pair := range slices.Chunk(pairs, 2) {
		_ = e.WriteField(hpack.HeaderField{Name: pair[0], Value: pair[1]}) // a buffer takes all
	}
	return block.Bytes()
}
