package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/policy"
)

// BenchmarkServe sends checks over one kept connection on the loopback interface, beside a server of net/http that reads
// the same requests and writes a fixed answer: the floor. Client and server share the processors.
func BenchmarkServe(b *testing.B) {
	limits, err := live.Fixed(&policy.Set{Policies: []policy.Policy{{
		Name: "default", Key: policy.NamedKey(),
		Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(10), 20)}},
	}}}, policy.EngineOptions{}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer limits.Engine().Close()
	handler := checkapi.NewHandler(checkapi.Options{Limits: limits})
	b.Run("check", func(b *testing.B) { benchmark(b, handler) })
	b.Run("floor", func(b *testing.B) {
		answer := `{"allowed":true,"reason":"none","policy":"default","limit":20,"remaining":19,"retry_after":0,"reset_after":0.1}` + "\n"
		benchmark(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var space [512]byte
			for {
				if _, err := r.Body.Read(space[:]); err != nil {
					break
				}
			}
			w.Header()["Content-Type"] = []string{"application/json"}
			_, _ = io.WriteString(w, answer)
		}))
	})
}

func benchmark(b *testing.B, h http.Handler) {
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() {
		log := slog.New(slog.DiscardHandler)
		f := front.Group{All: []front.Listening{{Name: "http", Made: front.Made{Front: front.NewHTTPServer(h, nil, nil, log)}, Listener: l}}, Log: log, Timeout: time.Minute}
		ended <- f.Serve(ctx)
	}()
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	const body = `{"policy":"default","key":"alice","cost":1}`
	request := fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	reader := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.WriteString(conn, request); err != nil {
			b.Fatal(err)
		}
		if err := skipAnswer(reader); err != nil {
			b.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		b.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

// skipAnswer reads an answer whose body is one line that ends in }.
func skipAnswer(r *bufio.Reader) error {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil || strings.HasSuffix(string(line), "}\n") {
			return err
		}
	}
}
