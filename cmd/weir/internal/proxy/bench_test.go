package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// caller sends requests over one connection and reads the answers as cheaply as it can, so that it is not the client that
// is measured.
type caller struct {
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
}

func newCaller(b *testing.B, addr, body string) *caller {
	b.Helper()
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	head := "GET /path HTTP/1.1\r\nHost: example.com\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n"
	if body != "" {
		head = strings.Replace(head, "GET", "POST", 1) + fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return &caller{conn, bufio.NewReaderSize(conn, 64<<10), []byte(head + "\r\n" + body)}
}

// call returns the status.
func (c *caller) call() (status string, err error) {
	if _, err := c.conn.Write(c.request); err != nil {
		return "", err
	}
	length := 0
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		switch {
		case status == "":
			status = string(line[9:12])
		case len(line) == 2:
			_, err := c.reader.Discard(length)
			return status, err
		case strings.HasPrefix(string(line), "Content-Length: "):
			_, err := fmt.Sscanf(string(line), "Content-Length: %d", &length)
			if err != nil {
				return "", err
			}
		}
	}
}

// bare is what the proxy is compared with: a reverse proxy with the same transport settings and nothing else.
func bare(b *testing.B, to string) string {
	b.Helper()
	target, err := url.Parse(to)
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		Transport: &http.Transport{
			DisableCompression: true, MaxIdleConnsPerHost: 1024, ResponseHeaderTimeout: time.Minute,
			WriteBufferSize: 16 << 10, ReadBufferSize: 16 << 10,
		},
	})
	b.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func small(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, "hello")
}

// limited is the address of a proxy with a limit of so many permits.
func limited(b *testing.B, to string, burst, concurrency int64) string {
	b.Helper()
	return start(b, to, func(o *proxy.Options) {
		o.Engine, o.UpstreamTimeout = limit(b, burst), time.Minute
		o.Concurrency, o.Queue = concurrency, concurrency
	}).addr
}

const plenty = 1_000_000_000_000

// BenchmarkProxy measures a request through the proxy, through a bare reverse proxy, and to the upstream directly.
func BenchmarkProxy(b *testing.B) {
	to := upstream(b, small)
	body := strings.Repeat("x", 1000)
	for _, c := range []struct{ name, addr, body, status string }{
		{"direct", strings.TrimPrefix(to, "http://"), "", "200"},
		{"bare", bare(b, to), "", "200"},
		{"weir", limited(b, to, plenty, 0), "", "200"},
		{"weir-concurrency", limited(b, to, plenty, 100), "", "200"},
		{"weir-refusing", limited(b, to, 1, 0), "", "429"},
		{"bare-body", bare(b, to), body, "200"},
		{"weir-body", limited(b, to, plenty, 0), body, "200"},
	} {
		b.Run(c.name, func(b *testing.B) {
			client := newCaller(b, c.addr, c.body)
			if _, err := client.call(); err != nil { // opens connections, and takes the only permit
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if status, err := client.call(); status != c.status || err != nil {
					b.Fatal(status, err)
				}
			}
		})
	}
}

// BenchmarkAddedLatency sends each request to a bare reverse proxy and to the proxy in turns, so that what else the
// machine does falls on both, and reports the medians and their difference.
func BenchmarkAddedLatency(b *testing.B) {
	to := upstream(b, small)
	clients := [2]*caller{newCaller(b, bare(b, to), ""), newCaller(b, limited(b, to, plenty, 0), "")}
	var times [2][]time.Duration
	for b.Loop() {
		for i, client := range clients {
			begin := time.Now()
			if status, err := client.call(); status != "200" || err != nil {
				b.Fatal(status, err)
			}
			times[i] = append(times[i], time.Since(begin))
		}
	}
	var median [2]float64
	for i := range times {
		slices.Sort(times[i])
		median[i] = float64(times[i][len(times[i])/2])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median[0], "bare-ns")
	b.ReportMetric(median[1], "weir-ns")
	b.ReportMetric(median[1]-median[0], "added-ns")
}
