package proxy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

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

// echoing serves calls without TLS until the test ends: each message goes back, and "fail" ends the call.
func echoing(t *testing.T) (address string) {
	t.Helper()
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		for {
			var message wrapperspb.StringValue
			if err := stream.RecvMsg(&message); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err //nolint:wrapcheck // it is a status
			}
			if message.GetValue() == "fail" {
				return status.Error(codes.NotFound, "it is not here")
			}
			if err := stream.SendMsg(&message); err != nil {
				return err //nolint:wrapcheck // it is a status
			}
		}
	}))
	ln := listen(t, "tcp", "127.0.0.1:0")
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)
	return ln.Addr().String()
}

// TestCallsPass has calls of gRPC, with one message and with many both ways, pass to a service without TLS: from clients with and
// without TLS. Requests of HTTP/1.1 come to the same address, and are held to the same limits.
func TestCallsPass(t *testing.T) {
	pair, pool := certificate(t)
	to := "h2c://" + echoing(t)
	for name, secure := range map[string]bool{"without TLS": false, "with TLS": true} {
		t.Run(name, func(t *testing.T) {
			with := insecure.NewCredentials()
			if secure {
				with = credentials.NewTLS(&tls.Config{RootCAs: pool})
			}
			p := start(t, to, func(o *proxy.Options) {
				o.Engine = limit(t, 5)
				if secure {
					o.TLS = &tls.Config{
						Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
					}
				}
			})
			client, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(with))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			call := func(text string) (answer string, s *status.Status) {
				var got wrapperspb.StringValue
				s = status.Convert(client.Invoke(ctx, "/package.Service/Method", wrapperspb.String(text), &got))
				return got.GetValue(), s
			}
			if got, s := call("hello"); got != "hello" || s.Code() != codes.OK {
				t.Errorf("%q, %v", got, s)
			}
			if _, s := call("fail"); s.Code() != codes.NotFound || s.Message() != "it is not here" {
				t.Error(s)
			}
			stream, err := client.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/package.Service/Stream")
			if err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				var answer wrapperspb.StringValue
				want := strings.Repeat("x", i*100)
				if err := stream.SendMsg(wrapperspb.String(want)); err != nil {
					t.Fatal(err)
				}
				if err := stream.RecvMsg(&answer); err != nil || answer.GetValue() != want {
					t.Fatalf("message %d: %d bytes, %v", i, len(answer.GetValue()), err)
				}
			}
			if err := stream.CloseSend(); err != nil {
				t.Error(err)
			}
			if err := stream.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			if secure {
				p.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
				defer p.client.CloseIdleConnections()
			}
			r := request(t, http.MethodGet, p.url, nil) // the service answers that it is no call
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			if res := p.do(t, r); res.ProtoMajor != 1 || res.StatusCode != http.StatusUnsupportedMediaType {
				t.Errorf("%s %s", res.Proto, res.Status)
			}
			if _, s := call("the fifth"); s.Code() != codes.OK {
				t.Error(s)
			}
			if _, s := call("one too many"); s.Code() != codes.ResourceExhausted {
				t.Error(s)
			}
			if res := p.get(t, "/"); res.StatusCode != http.StatusTooManyRequests {
				t.Error(res.Status)
			}
			p.expectTotals(t, proxy.Totals{Allowed: 5, Refused: 2})
			p.stop() // the client is told, and keeps its connection no longer
			if err := receive(t, p.done, "the end"); err != nil {
				t.Error(err)
			}
		})
	}
}
