package grpcloop_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/internal/race"
)

// texts sends strings as they are.
type texts struct{}

// Name implements [encoding.CodecV2].
func (texts) Name() string { return "proto" }

// Marshal implements [encoding.CodecV2].
func (texts) Marshal(v any) (mem.BufferSlice, error) {
	s, _ := v.(string)
	return mem.BufferSlice{mem.SliceBuffer(s)}, nil
}

// Unmarshal implements [encoding.CodecV2].
func (texts) Unmarshal(data mem.BufferSlice, v any) error {
	s, _ := v.(*string)
	*s = string(data.Materialize())
	return nil
}

func dial(
	t testing.TB, l net.Listener, transport credentials.TransportCredentials, o ...grpc.DialOption,
) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), append(o, grpc.WithTransportCredentials(transport))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func call(ctx context.Context, conn *grpc.ClientConn, text string, o ...grpc.CallOption) (reply string, err error) {
	err = conn.Invoke(ctx, echoMethod, text, &reply, append(o, grpc.ForceCodecV2(texts{}))...)
	return reply, err
}

// TestClientsAtOnce: many calls on few connections, of all sizes and with large metadata, beside streams and health checks, each
// get the reply to their own request, whether calls may wait or not.
func TestClientsAtOnce(t *testing.T) {
	calls := 30
	if race.Enabled {
		calls = 10
	}
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits: ", waits), func(t *testing.T) {
			l := listen(t)
			s := serve(t, optionsOf(t, newEchoes(waits)), l)
			var all sync.WaitGroup
			for c := range 3 {
				conn := dial(t, l, insecure.NewCredentials())
				for g := range 20 {
					all.Go(func() {
						for i := range calls {
							text := fmt.Sprint(c, " ", g, " ", i, " ", strings.Repeat("x", 1<<((g+i)%18)))
							ctx := metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("m", 1<<((g+i)%15)))
							if got, err := call(ctx, conn, text); err != nil || got != text {
								t.Errorf("%.20q, %v, want %.20q", got, err, text)
							}
						}
					})
				}
				all.Go(func() {
					health := healthv1.NewHealthClient(conn)
					watching, leave := context.WithCancel(t.Context())
					defer leave()
					watch, err := health.Watch(watching, &healthv1.HealthCheckRequest{})
					if err == nil {
						_, err = watch.Recv()
					}
					for i := 0; i < 30 && err == nil; i++ {
						_, err = health.Check(t.Context(), &healthv1.HealthCheckRequest{})
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			kept(t, s, "the watches were left", 0, 0, 0)
			if n := s.Waiting.Calls(); n != 0 {
				t.Errorf("%d calls wait", n)
			}
		})
	}
}

// TestStatusesOfClients: what a call ends with is what a client of grpc-go is told.
func TestStatusesOfClients(t *testing.T) {
	l := listen(t)
	e := newEchoes(true)
	serve(t, optionsOf(t, e), l)
	conn := dial(t, l, insecure.NewCredentials())
	want := func(err error, code codes.Code, text string) {
		t.Helper()
		if s := status.Convert(err); s.Code() != code || !strings.Contains(s.Message(), text) {
			t.Errorf("%v, want %v %s", err, code, text)
		}
	}
	_, err := call(t.Context(), conn, "fail")
	want(err, codes.FailedPrecondition, "100 % ünfit\n")
	err = conn.Invoke(t.Context(), "/test.Echo/Other", "x", new(string), grpc.ForceCodecV2(texts{}))
	want(err, codes.Unimplemented, "unknown service test.Echo")
	got, err := call(t.Context(), conn, "hello", grpc.UseCompressor(gzip.Name))
	if want(err, codes.OK, ""); got != "fault: the request is compressed: it must not be" {
		t.Errorf("%q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-e.asked
		cancel()
	}()
	_, err = call(ctx, conn, "wait")
	want(err, codes.Canceled, "")
	<-e.asked
	_, err = call(metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("m", 70<<10)), conn, "x")
	if err == nil {
		t.Error("70 KiB of metadata are taken")
	}
	got, err = call(t.Context(), conn, "afterwards")
	if want(err, codes.OK, ""); got != "afterwards" {
		t.Errorf("%q", got)
	}
}

// TestDeadlinesOfClients: a call ends at the deadline of its client, on both sides.
func TestDeadlinesOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the call arrives before its deadline
		l := fronttest.Pipes()
		e := newEchoes(true)
		serve(t, optionsOf(t, e), l)
		conn := dial(t, l, insecure.NewCredentials(), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.Dial(ctx)
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := call(ctx, conn, "wait"); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%v", err)
		}
		<-e.asked // it was asked
		<-e.asked // its context has ended
		if got, err := call(t.Context(), conn, "afterwards"); got != "afterwards" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestTLSOfClients: with TLS, clients have to speak h2, and show a certificate if they must.
func TestTLSOfClients(t *testing.T) {
	own := fronttest.SelfSigned(t, "weir")
	for _, mutual := range []bool{false, true} {
		l := listen(t)
		o := optionsOf(t, newEchoes(false))
		o.TLS = &tls.Config{Certificates: []tls.Certificate{own.Pair}, MinVersion: tls.VersionTLS13}
		if mutual {
			o.TLS.ClientCAs, o.TLS.ClientAuth = own.Pool, tls.RequireAndVerifyClientCert
		}
		serve(t, o, l)
		client := &tls.Config{RootCAs: own.Pool, ServerName: "localhost", MinVersion: tls.VersionTLS13}
		if _, err := call(t.Context(), dial(t, l, credentials.NewTLS(client.Clone())), "hello"); (err != nil) != mutual {
			t.Errorf("without a certificate, mutual %v: %v", mutual, err)
		}
		client.Certificates = []tls.Certificate{own.Pair}
		conn := dial(t, l, credentials.NewTLS(client.Clone()))
		for _, text := range []string{"hello", "size:300000"} {
			if got, err := call(t.Context(), conn, text); err != nil || got != text && len(got) != 300_000 {
				t.Errorf("mutual %v: %.20q, %v", mutual, got, err)
			}
		}
		if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		client.NextProtos = []string{"http/1.1"}
		if nc, err := (&tls.Dialer{Config: client}).DialContext(t.Context(), "tcp", l.Addr().String()); err == nil {
			if _, err = nc.Read(make([]byte, 1)); err == nil {
				t.Error("a client of HTTP/1.1 is served")
			}
			_ = nc.Close()
		}
	}
}
