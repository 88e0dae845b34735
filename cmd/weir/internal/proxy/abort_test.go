package proxy_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// TestClientGoesAway has clients that leave at each stage of a request.
func TestClientGoesAway(t *testing.T) {
	for _, c := range []struct {
		name string
		// handle is what the upstream does before it waits for the request to be canceled.
		handle func(http.ResponseWriter, *http.Request)
		send   string
		read   int // bytes of the response before the client leaves
	}{
		{"before the response", nil, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0},
		{
			"after the whole body", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", 0,
		},
		{"within the response", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
		}, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1},
		{"within the body", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, 4))
		}, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nbody", 0},
		{"between chunks", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, 4))
		}, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", 0},
		{"within both", func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			_ = c.EnableFullDuplex()
			_, _ = io.ReadFull(r.Body, make([]byte, 4))
			_ = c.Flush()
		}, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nbody", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			waits, canceled := make(chan struct{}), make(chan struct{})
			p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(canceled)
				if c.handle != nil {
					c.handle(w, r)
				}
				close(waits)
				if c.name == "within the body" || c.name == "between chunks" || c.name == "within both" {
					_, _ = io.Copy(io.Discard, r.Body) // net/http cancels only once the body is read
					return
				}
				<-r.Context().Done()
			}), func(o *proxy.Options) { o.Concurrency, o.UpstreamTimeout = 1, patience })
			conn, reader := p.raw(t, c.send)
			receive(t, waits, "the request to arrive")
			if _, err := io.ReadFull(reader, make([]byte, c.read)); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			receive(t, canceled, "the request to be canceled")
			until(t, "the place to be free", func() bool { return p.Concurrency().Remaining == 1 })
			p.expectTotals(t, proxy.Totals{Allowed: 1, Aborted: 1})
			if strings.Contains(p.log.String(), "level=WARN") {
				t.Errorf("the log says %s", p.log)
			}
		})
	}
}

// TestUpstreamGoesAway has an upstream that ends its connection within the response: the client must notice, and have the part
// that came. Clients send a request again that has ended without an answer.
func TestUpstreamGoesAway(t *testing.T) {
	for name, header := range map[string]http.Header{
		"of known length":   {"Content-Length": {"100"}},
		"of unknown length": {},
		"of a stream":       {"Content-Type": {"text/event-stream"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
				maps.Copy(w.Header(), header)
				_, _ = io.WriteString(w, "part")
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}), func(o *proxy.Options) { o.Concurrency = 1 })
			conn, reader := p.raw(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if all, err := io.ReadAll(reader); err != nil || !strings.Contains(string(all), "part") ||
				strings.HasSuffix(string(all), "\r\n0\r\n\r\n") {
				t.Errorf("the client got %q and %v, want a part of the response without its end", all, err)
			}
			_ = conn.Close()
			p.expectTotals(t, proxy.Totals{Allowed: 1, UpstreamErrors: 1})
			if len(p.log.with("upstream failed")) != 1 || len(p.log.with("level=")) != 1 {
				t.Errorf("the log says %s", p.log)
			}
			if p.Concurrency().Remaining != 1 {
				t.Error("the place is not free")
			}
		})
	}
}

func TestUpstreamIsDown(t *testing.T) {
	p := start(t, "http://127.0.0.1:1", func(o *proxy.Options) { o.Concurrency = 1 })
	res := p.get(t, "/path")
	if got := problemOf(t, res); res.StatusCode != http.StatusBadGateway || got.Type != "about:blank" || got.Title != "Bad Gateway" ||
		strings.Contains(res.body, "127.0.0.1") {
		t.Errorf("%s %s", res.Status, res.body)
	}
	if res.Header.Get("Ratelimit") == "" {
		t.Errorf("no RateLimit in %v", res.Header)
	}
	p.expectTotals(t, proxy.Totals{Allowed: 1, UpstreamErrors: 1})
	if lines := p.log.with("level="); len(lines) != 1 || !strings.Contains(lines[0], "/path") || !strings.Contains(lines[0], "refused") {
		t.Errorf("the log says %s", p.log)
	}
	failures := int64(1)
	until(t, "most of these lines to be left out", func() bool {
		p.get(t, "/")
		failures++
		return failures-int64(len(p.log.with("level="))) >= 30
	})
	p.expectTotals(t, proxy.Totals{Allowed: failures, UpstreamErrors: failures})
}

// TestUpstreamAnswersNonsense has an upstream whose status is none of HTTP, which no server can pass on.
func TestUpstreamAnswersNonsense(t *testing.T) {
	for _, status := range []string{"000", "042", "99"} {
		p := start(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 "+status+" Odd\r\nContent-Length: 2\r\n\r\nok")
			_ = conn.Close()
		}), nil)
		if res := p.get(t, "/"); res.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %s, want 502", status, res.Status)
		}
		p.expectTotals(t, proxy.Totals{Allowed: 1, UpstreamErrors: 1})
	}
}

// TestAbortsGiveEveryPlaceBack has many clients that leave while others wait for their places.
func TestAbortsGiveEveryPlaceBack(t *testing.T) {
	const places, clients = 4, 64
	p := start(t, upstream(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		func(o *proxy.Options) { o.Concurrency, o.Queue = places, clients })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, clients)
	for range clients {
		go func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, http.NoBody)
			if err == nil {
				var res *http.Response
				if res, err = p.client.Do(req); err == nil {
					_ = res.Body.Close()
				}
			}
			done <- err
		}()
	}
	until(t, "all others to wait", func() bool { return p.Concurrency().Waiters == clients-places })
	cancel()
	for range clients {
		if err := receive(t, done, "a client"); !errors.Is(err, context.Canceled) {
			t.Errorf("a client got %v", err)
		}
	}
	until(t, "all places to be free", func() bool {
		st := p.Concurrency()
		return st.Remaining == places && st.Waiters == 0 && st.Queued == 0
	})
	until(t, "the aborts to be counted", func() bool { return p.Totals().Aborted == clients })
	if got := p.Totals(); got.UpstreamErrors+got.Refused+got.OverConcurrency != 0 {
		t.Errorf("totals are %+v", got)
	}
}
