package grpcloop_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
)

// FuzzHeads sends any header of a call to the loop, and to the server of grpc-go: both answer the same, or the loop resets a stream
// whose header is malformed to net/http.
func FuzzHeads(f *testing.F) {
	const call = ":method: POST\n:scheme: http\n:path: " + echoMethod + "\n:authority: test\ncontent-type: application/grpc\n"
	f.Add(call + "te: trailers\ngrpc-timeout: 1H\nx-bin: AAE")
	f.Add(strings.Replace(call, "POST", "GET", 1) + "grpc-timeout: 0n\nuser-agent: x")
	f.Add(strings.Replace(call, ":authority", "host", 1) + "content-length: 5\ngrpc-encoding: gzip")
	f.Add(call + "host: other\nconnection: close\ngrpc-encoding: identity\ngrpc-accept-encoding: x")
	f.Add(strings.Replace(call, "Echo/Echo", "Echo/Other", 1) + "grpc-tags-bin: =\ncontent-type: application/grpc+proto")
	pipes, theirs, plain := fronttest.Pipes(), fronttest.Pipes(), fronttest.Pipes()
	serve(f, optionsOf(f, newEchoes(false)), pipes)
	g := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if name, _ := grpc.MethodFromServerStream(stream); name != echoMethod {
			return status.Error(codes.Unimplemented, "unknown")
		}
		var m emptypb.Empty
		if err := stream.RecvMsg(&m); err != nil {
			return err
		}
		return stream.SendMsg(&m)
	}))
	netHTTP := newNetHTTP()
	netHTTP.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	served := make(chan error, 2)
	go func() { served <- g.Serve(theirs) }()
	go func() { served <- netHTTP.Serve(plain) }()
	f.Cleanup(func() {
		g.Stop()
		_ = netHTTP.Close()
		<-served
		<-served
	})
	f.Fuzz(func(t *testing.T, lines string) {
		if strings.Count(lines, "content-type: ") > 1 || strings.Count(lines, "content-length: ") > 1 {
			return // which of them counts differs from server to server
		}
		done := func(r *result) bool { return r.ended || r.wasReset }
		got, want := answerOf(t, pipes, lines, done), answerOf(t, theirs, lines, done)
		if got == want {
			return
		}
		second := answerOf(t, plain, lines, func(r *result) bool { return r.http != "" || r.wasReset })
		if !got.reset || !second.reset && second.http != "400" {
			t.Errorf("%q: %+v, grpc-go %+v, net/http %+v", lines, got, want, second)
		}
	})
}

// answer is what is said of a call.
type answer struct {
	http, status string
	reset        bool
	code         http2.ErrCode
	closed       bool
}

// answerOf sends a call with a header of lines, and returns what becomes of it.
func answerOf(t *testing.T, pipes *fronttest.Listener, lines string, done func(*result) bool) (a answer) {
	t.Helper()
	nc, err := pipes.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(t, nc).greet()
	var fields []string
	for line := range strings.SplitSeq(lines, "\n") {
		at := strings.Index(line[min(1, len(line)):], ": ") + 1
		if at < 1 || line[:at] == "te" { // of which the others also let pass what HTTP/2 does not
			continue
		}
		fields = append(fields, line[:at], line[at+2:])
	}
	p.headers(1, p.headOf(fields...), false)
	p.must(p.w.WriteData(1, true, message("")))
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = nc.Write(p.out.Bytes()) // the server may close the connection first
	}()
	s := p.read(func(s *seen) bool { r := s.calls[1]; return r != nil && done(r) })
	_ = nc.Close()
	<-written
	r := s.call(1)
	a = answer{r.http, r.status, false, 0, s.closed}
	if !r.ended && r.wasReset {
		a.reset, a.code = true, r.reset
	}
	return a
}
