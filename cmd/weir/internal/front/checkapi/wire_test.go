package checkapi_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// BenchmarkWire: a check over loopback, and net/http itself with the same answer to every request.
func BenchmarkWire(b *testing.B) {
	const asked = "POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 43\r\n\r\n" +
		`{"policy":"default","key":"alice","cost":1}`
	b.Run("bare", func(b *testing.B) {
		answer := []byte(`{"allowed":true,"reason":"ok","policy":"default","limit":1000000000,"remaining":999999999,"retry_after":0,"reset_after":0.001}` + "\n")
		s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			h := w.Header()
			h["Content-Type"] = []string{"application/json"}
			h["Ratelimit"] = []string{`"default";r=999999999;t=1`}
			h["Ratelimit-Policy"] = []string{`"default";q=1000000000;w=1000000`}
			_, _ = w.Write(answer)
		})}
		askOver(b, s, asked)
	})
	b.Run("weir", func(b *testing.B) {
		handler := newFixed(b, manualclock.New(0), policy.Policy{
			Name: "default", Key: policy.NamedKey(), MaxKeys: 1000,
			Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(1000), 1e9)}},
		})
		askOver(b, front.NewHTTPServer(handler, nil, front.NewBounded(100, 0, nil), slog.New(slog.DiscardHandler)), asked)
	})
}

type wireServer interface {
	Serve(l net.Listener) error
	Close() error
}

// askOver asks a server the same over and over, on eight connections for each processor.
func askOver(b *testing.B, s wireServer, asked string) {
	b.Helper()
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		c, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", l.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		request, answer := []byte(asked), make([]byte, 1024)
		for p.Next() {
			if _, err = c.Write(request); err != nil {
				b.Error(err)
				return
			}
			for n := 0; !bytes.HasSuffix(answer[:n], []byte("}\n")); {
				more, err := c.Read(answer[n:])
				if err != nil {
					b.Error(err)
					return
				}
				n += more
			}
		}
	})
}

// TestRepliesOfHTTP2SayHowLongTheyAre: they have a Content-Length also where the server flushes them before the handler ends.
func TestRepliesOfHTTP2SayHowLongTheyAre(t *testing.T) {
	h, _ := newFront(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		_ = http.NewResponseController(w).Flush()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for path, body := range map[string]string{
		"/v1/check":   `{"policy":"default","key":"a","cost":20}`,
		"/v1/batch":   `{"checks":[{"policy":"default","key":"b","cost":20}]}`,
		"/v1/reserve": `{"policy":"default","key":"c","cost":20}`,
		"/healthz":    "",
		"/readyz":     "",
		"/":           "",
	} {
		method := http.MethodPost
		if body == "" {
			method = http.MethodGet
		}
		for range 2 { // the second check is refused
			asked, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			asked.Header.Set("Content-Type", "application/json")
			resp, err := server.Client().Do(asked)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.ProtoMajor != 2 || resp.Header.Get("Content-Length") != strconv.Itoa(len(text)) {
				t.Errorf("%s: %v, %s %s %v: %s", path, err, resp.Proto, resp.Status, resp.Header, text)
			}
			_ = resp.Body.Close()
		}
	}
}
