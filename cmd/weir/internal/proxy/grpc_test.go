package proxy_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// TestCallsAreRefusedAsCalls: a gRPC client sees the code of a refusal and how long to wait, and does not take it for a server
// that is away. Other requests with a similar type get a refusal of HTTP.
func TestCallsAreRefusedAsCalls(t *testing.T) {
	pair, pool := certificate(t)
	release := make(chan struct{})
	defer close(release)
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/waits" {
			<-release
		}
		ok(w, r)
	})
	secure := func(o *proxy.Options) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	}
	limited := start(t, to, func(o *proxy.Options) {
		secure(o)
		o.Engine = limit(t, 1)
	})
	crowded := start(t, to, func(o *proxy.Options) {
		secure(o)
		o.Concurrency = 1
	})
	for _, p := range []*running{limited, crowded} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		p.client.Transport = transport
	}
	limited.get(t, "/")
	waits := request(t, http.MethodGet, crowded.url+"/waits", nil)
	go func() {
		if res, err := crowded.client.Do(waits); err == nil {
			_ = res.Body.Close()
		}
	}()
	until(t, "the place to be taken", func() bool { return crowded.Concurrency().Remaining == 0 })
	for name, p := range map[string]*running{"a limit": limited, "all places": crowded} {
		client, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool})))
		if err != nil {
			t.Fatal(err)
		}
		var header, trailer metadata.MD
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err = client.Invoke(ctx, "/package.Service/Method", new(emptypb.Empty), new(emptypb.Empty),
			grpc.Header(&header), grpc.Trailer(&trailer))
		cancel()
		_ = client.Close()
		if got := status.Convert(err); got.Code() != codes.ResourceExhausted || !strings.HasPrefix(got.Message(), "The limit ") {
			t.Errorf("%s: %v", name, err)
		}
		fields := metadata.Join(header, trailer)
		wait, err := strconv.Atoi(strings.Join(fields["grpc-retry-pushback-ms"], ""))
		if p == limited && (err != nil || wait <= 0 || wait > 86_400_000 || len(fields["ratelimit"]) != 1) {
			t.Errorf("%s: %v", name, fields)
		}
	}
	for contentType, method := range map[string]string{
		"application/grpc-web": http.MethodPost, "application/json": http.MethodPost, "application/grpc": http.MethodPut,
	} {
		r := request(t, method, limited.url, strings.NewReader("{}"))
		r.Header.Set("Content-Type", contentType)
		res := limited.do(t, r)
		if res.ProtoMajor != 2 || res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Grpc-Status") != "" {
			t.Errorf("%s: %s %s", contentType, res.Proto, res.Status)
		}
	}
}
