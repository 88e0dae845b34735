package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
)

// bench runs the command.
func bench(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, err error) { //nolint:revive // t first
	t.Helper()
	cmd := Command() //nolint:contextcheck // its context is that of ExecuteContext
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out, errOut bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	err = cmd.ExecuteContext(ctx)
	return out.String(), errOut.String(), err
}

// measured runs the command with --json, and with a patience for servers that are held up.
func measured(t *testing.T, args ...string) *report {
	t.Helper()
	stdout, stderr, err := bench(t, t.Context(), append([]string{args[0], "--timeout", "2m", "--json"}, args[1:]...)...)
	if err != nil || stderr != "" {
		t.Fatalf("%q: %v\n%s%s", args, err, stdout, stderr)
	}
	return decoded(t, stdout)
}

func decoded(t *testing.T, text string) *report {
	t.Helper()
	var p report
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return &p
}

// counts fails unless a report has these.
func (p *report) counts(t *testing.T, requests, wantAllowed, wantRefused, wantErrors int64) {
	t.Helper()
	if p.Allowed == nil || p.Refused == nil {
		t.Fatalf("there are no decisions: %+v", p)
	}
	if p.Requests != requests || *p.Allowed != wantAllowed || *p.Refused != wantRefused || p.Errors != wantErrors {
		t.Errorf("%d requests, %d allowed, %d refused, %d errors, want %d, %d, %d, %d: %v", p.Requests, *p.Allowed, *p.Refused,
			p.Errors, requests, wantAllowed, wantRefused, wantErrors, p.ErrorKinds)
	}
	if p.Response.Count != requests-wantErrors || !p.Complete {
		t.Errorf("%d latencies of %d requests, complete %t", p.Response.Count, requests, p.Complete)
	}
}

// tally counts the keys that a server was asked for.
type tally struct {
	mu   sync.Mutex
	keys map[string]int
	n    int
}

func (c *tally) add(key string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = map[string]int{}
	}
	c.keys[key]++
	c.n++
	return c.n
}

// every tells what is done with request number n: the first is that before the run.
func every(n int) outcome {
	switch {
	case n == 1:
		return allowed
	case n%10 == 0:
		return failed
	case n%10 < 4:
		return refused
	default:
		return allowed
	}
}

func checkServer(t *testing.T, seen *tally, secure bool) *httptest.Server {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Policy string `json:"policy"`
			Key    string `json:"key"`
			Cost   int    `json:"cost"`
		}
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&body); err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/check" || body.Policy != `a "policy"` ||
			body.Cost != 3 || r.Header.Get("Content-Type") != "application/json" || r.ProtoMinor != 1 {
			t.Errorf("%s %s: %v, %+v", r.Method, r.URL, err, body)
		}
		n := seen.add(body.Key)
		if n%3 == 0 {
			w.Header().Set("Transfer-Encoding", "chunked")
		}
		switch every(n) {
		case failed:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"detail": "the store is away"}`)
		case refused:
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, strings.Repeat(`{"allowed": false}`, 100))
		default:
			fmt.Fprint(w, `{"allowed": true}`)
		}
	})
	s := httptest.NewUnstartedServer(handler)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func TestHTTP(t *testing.T) {
	for _, secure := range []bool{false, true} {
		var seen tally
		s := checkServer(t, &seen, secure)
		args := []string{
			"http", "--address", s.Listener.Addr().String(), "--policy", `a "policy"`, "--cost", "3", "--keys", "7", "--key-prefix", "<user> ",
			"--connections", "3", "--requests", "999", "--warmup", "0s",
		}
		if secure {
			args = append(args, "--tls", "--tls-ca", certificateOf(t, s.Certificate().Raw))
		}
		p := measured(t, args...)
		p.counts(t, 999, 600, 299, 100) // the request before the run was the first of a thousand
		if len(p.ErrorKinds) != 1 || p.ErrorKinds[0] != (kindJSON{"status 503", 100, "status 503: the store is away"}) {
			t.Errorf("%+v", p.ErrorKinds)
		}
		if len(seen.keys) != 7 || seen.keys["<user> 6"] < 50 || p.Reconnects != 0 {
			t.Errorf("%v, %d reconnects", seen.keys, p.Reconnects)
		}
	}
}

// certificateOf writes a certificate into a file.
func certificateOf(t *testing.T, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// respServer serves commands as answer says, in one write all that came at once.
func respServer(t *testing.T, answer func(w *resp.Writer, args [][]byte) (goOn bool)) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, acceptErr := l.Accept()
			if acceptErr != nil {
				return
			}
			wg.Go(func() {
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				defer stop()
				defer c.Close()
				serveRESP(c, answer)
			})
		}
	})
	return l.Addr().String()
}

func serveRESP(c net.Conn, answer func(w *resp.Writer, args [][]byte) (goOn bool)) {
	var p resp.Parser
	p.Init(resp.Limits{})
	var w resp.Writer
	var have []byte
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		have = append(have, b[:n]...)
		w.Reset(w.Bytes())
		for {
			args, used, wrong := p.Next(have)
			have = have[used:]
			if wrong != nil || args == nil {
				break
			}
			if !answer(&w, args) {
				return
			}
		}
		if _, err = c.Write(w.Bytes()); err != nil {
			return
		}
	}
}

func TestRESP(t *testing.T) {
	for pipeline, requests := range map[int]int64{1: 199, 16: 1999, 1000: 2999} {
		var seen tally
		address := respServer(t, func(w *resp.Writer, args [][]byte) bool {
			if len(args) != 6 || string(args[0]) != "CL.THROTTLE" || string(bytes.Join(args[2:], []byte{' '})) != "15 30 60 2" {
				t.Errorf("%q", args)
			}
			o := every(seen.add(string(args[1])))
			if o == failed {
				w.Error("TRYAGAIN it is busy")
				return true
			}
			w.Array(5)
			w.Int(int64(o - allowed))
			for range 4 {
				w.Int(-1234)
			}
			return true
		})
		p := measured(t, "resp", "--address", address, "--limit", "15/30/60", "--cost", "2", "--pipeline", strconv.Itoa(pipeline),
			"--requests", strconv.Itoa(int(requests)), "--warmup", "0s", "--connections", "3", "--keys", "5")
		all := requests + 1
		p.counts(t, requests, all*6/10, all*3/10-1, all/10)
		if len(p.ErrorKinds) != 1 || p.ErrorKinds[0].Kind != "TRYAGAIN" || p.ErrorKinds[0].First != "TRYAGAIN it is busy" || len(seen.keys) != 5 {
			t.Errorf("%+v, %v", p.ErrorKinds, seen.keys)
		}
	}
}

func TestRESPCommands(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("se cret\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]string{
		"--policy|p q|--cost|0": "WEIR.TAKE,p q,k0,0",
		"--policy|p":            "WEIR.TAKE,p,k0",
		"--cost|1":              "CL.THROTTLE,k0,100,1000,1",
		"--command|PING":        "PING",
		`--command|SET "a {key} b" 'x "y" ' {key}`:        `SET,a k0 b,x "y" ,k0`,
		"--command|GET {key}|--password-file|" + password: "GET,k0",
	} {
		var wrong, logins atomic.Int64
		address := respServer(t, func(w *resp.Writer, args [][]byte) bool {
			switch got := string(bytes.Join(args, []byte{','})); {
			case got == "AUTH,se cret":
				logins.Add(1)
				w.OK()
			case got != want:
				wrong.Add(1)
				t.Errorf("%q, want %q", got, want)
				w.Error("ERR what?")
			case strings.HasPrefix(got, "GET"):
				w.BulkString(strings.Repeat("x", 100_000))
			case strings.HasPrefix(got, "SET"):
				w.OK()
			case strings.HasPrefix(got, "PING"):
				w.Null()
			default:
				w.Array(5)
				for range 5 {
					w.Int(0)
				}
			}
			return true
		})
		args := append(strings.Split(flags, "|"), "--address", address, "--keys", "1", "--key-prefix", "k", "--requests", "200", "--warmup", "0s",
			"--connections", "2", "--pipeline", "10")
		p := measured(t, append([]string{"resp"}, args...)...)
		if p.Requests != 200 || p.Errors != 0 || wrong.Load() > 0 || (p.Allowed == nil) != strings.Contains(flags, "--command") {
			t.Errorf("%s: %+v", flags, p)
		}
		if strings.Contains(flags, "password") != (logins.Load() == 3) {
			t.Errorf("%s: %d logins", flags, logins.Load())
		}
	}
}

// rls is a server with the generated messages, on grpc-go.
type rls struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	answer func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error)
}

func (s *rls) ShouldRateLimit(_ context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return s.answer(r)
}

func rlsServer(t *testing.T, answer func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error), o ...grpc.ServerOption) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(o...)
	ratelimitv3.RegisterRateLimitServiceServer(s, &rls{answer: answer})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l.Addr().String()
}

func TestRLS(t *testing.T) {
	var seen tally
	answer := func(r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
		d := r.GetDescriptors()
		if r.GetDomain() != "edge" || r.GetHitsAddend() != 300 || len(d) != 2 || len(d[0].GetEntries()) != 2 || len(d[1].GetEntries()) != 1 ||
			d[0].GetEntries()[0].GetKey() != "tenant" || d[0].GetEntries()[1].GetValue() != "/login" || d[1].GetEntries()[0].GetValue() != "" {
			t.Errorf("%v", r)
			return nil, status.Error(codes.InvalidArgument, "what?")
		}
		response := &ratelimitv3.RateLimitResponse{Statuses: []*ratelimitv3.RateLimitResponse_DescriptorStatus{{}, {}}}
		switch every(seen.add(d[0].GetEntries()[0].GetValue())) {
		case failed:
			return nil, status.Error(codes.Unavailable, "the store\nis away")
		case refused:
			response.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
		default:
			response.OverallCode = ratelimitv3.RateLimitResponse_OK
		}
		return response, nil
	}
	for _, inFlight := range []string{"1", "200"} {
		seen = tally{}
		address := rlsServer(t, answer, grpc.MaxConcurrentStreams(100))
		p := measured(t, "rls", "--address", address, "--domain", "edge", "--cost", "300", "--descriptor", "tenant=t-{key}-x,path=/login",
			"--descriptor", "all", "--keys", "4", "--requests", "999", "--warmup", "0s", "--connections", "3", "--in-flight", inFlight)
		p.counts(t, 999, 600, 299, 100)
		if len(p.ErrorKinds) != 1 || p.ErrorKinds[0].Kind != "Unavailable" || seen.keys["t-key:3-x"] < 150 || len(seen.keys) != 4 {
			t.Errorf("%+v, %v", p.ErrorKinds, seen.keys)
		}
	}
}

// TestRLSServerThatLeaves: a server that ends connections for their age, and says so before, costs no request.
func TestRLSServerThatLeaves(t *testing.T) {
	address := rlsServer(t, func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
		<-time.After(time.Millisecond) // so that the requests take longer than a connection lasts
		return &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}, nil
	}, grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 20 * time.Millisecond}))
	for requests := int64(200); ; requests *= 2 { // the server may be late to notice the age
		p := measured(t, "rls", "--address", address, "--warmup", "0s", "--requests", strconv.FormatInt(requests, 10), "--connections", "1",
			"--in-flight", "4", "--timeout", "2m")
		if p.Errors != 0 || p.Requests != requests {
			t.Errorf("%d requests, %d reconnects, %+v", p.Requests, p.Reconnects, p.ErrorKinds)
		}
		if p.Reconnects > 0 {
			return
		}
		if requests > 10_000 {
			t.Fatalf("%d requests on one connection", requests)
		}
	}
}

func TestRLSOverTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate alone
	defer web.Close()
	config := &tls.Config{Certificates: web.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	address := rlsServer(t, func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
		return &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}, nil
	}, grpc.Creds(credentials.NewTLS(config)))
	args := []string{"rls", "--address", address, "--tls", "--requests", "500", "--warmup", "0s", "--in-flight", "8"}
	measured(t, append(args, "--tls-ca", certificateOf(t, web.Certificate().Raw))...).counts(t, 500, 500, 0, 0)

	stdout, stderr, err := bench(t, t.Context(), append(args, "--tls-insecure", "--json")...)
	if err != nil || stderr != "weir: warning: --tls-insecure: any program can pretend to be the server\n" {
		t.Errorf("%v, %q", err, stderr)
	}
	decoded(t, stdout).counts(t, 500, 500, 0, 0)

	if _, _, err = bench(t, t.Context(), args...); err == nil || !strings.Contains(err.Error(), "signed by an unknown authority: name it by --tls-ca") {
		t.Errorf("%v", err)
	}
}

// TestOpenLoopOnSockets sends each front what is due.
func TestOpenLoopOnSockets(t *testing.T) {
	var seen tally
	address := map[string]string{
		"http": checkServer(t, &seen, false).Listener.Addr().String(),
		"resp": respServer(t, func(w *resp.Writer, _ [][]byte) bool {
			w.Array(5)
			for range 5 {
				w.Int(0)
			}
			return true
		}),
		"rls": rlsServer(t, func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
			return &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}, nil
		}),
	}
	for front, address := range address {
		args := []string{
			front, "--address", address, "--rate", "2000/s", "--arrivals", "poisson", "--requests", "400", "--warmup", "50ms",
			"--connections", "5",
		}
		if front == "http" {
			args = append(args, "--policy", `a "policy"`, "--cost", "3")
		}
		p := measured(t, args...)
		if p.Requests+p.OpenLoop.NotSent != 400 || p.OpenLoop.Scheduled != 400 || p.OpenLoop.Service.Count != p.Response.Count {
			t.Errorf("%s: %d requests, %d not sent", front, p.Requests, p.OpenLoop.NotSent)
		}
		if p.Response.Max < p.OpenLoop.Service.Max || p.Configuration.Loop != "open" || p.Configuration.RatePerSecond != 2000 {
			t.Errorf("%s: %+v, %+v", front, p.Response.Max, p.Configuration)
		}
	}
}

// TestServerThatEndsConnections: each is made again, and what it owed is an error.
func TestServerThatEndsConnections(t *testing.T) {
	for what, extra := range map[string][]string{"closed": nil, "open": {"--rate", "5000/s"}} {
		var n atomic.Int64
		address := respServer(t, func(w *resp.Writer, _ [][]byte) bool {
			w.OK()
			return n.Add(1)%500 != 0
		})
		args := []string{
			"resp", "--address", address, "--command", "PING", "--requests", "1300", "--warmup", "0s", "--connections", "2", "--pipeline", "4",
		}
		p := measured(t, append(args, extra...)...)
		if p.Requests != 1300 || p.Errors < 2 || p.Errors > 8 || p.Reconnects != 2 || p.Response.Count != 1300-p.Errors {
			t.Errorf("%s: %d requests, %d errors, %d reconnects", what, p.Requests, p.Errors, p.Reconnects)
		}
		for _, k := range p.ErrorKinds {
			if k.Kind != "connection closed" && k.Kind != "connection reset" {
				t.Errorf("%s: %+v", what, k)
			}
		}
	}
}

// TestServerThatGoesAway ends the run early, with a report and an error, and is an error also if the run is over before
// --timeout. A machine that stands still may be too late for both: the next time there is more time.
func TestServerThatGoesAway(t *testing.T) {
	for what, times := range map[string]func(d time.Duration) []string{
		"for long":      func(d time.Duration) []string { return []string{"--timeout", d.String(), "--duration", "1h"} },
		"until the end": func(d time.Duration) []string { return []string{"--timeout", "2m", "--duration", d.String()} },
	} {
		for d := 100 * time.Millisecond; !serverGoesAway(t, times(d)...); d *= 2 {
			if d > time.Minute {
				t.Fatalf("%s: not the error that it should be, within %v", what, d)
			}
		}
	}
}

// serverGoesAway reports whether the command has found out that the server is gone.
func serverGoesAway(t *testing.T, times ...string) bool {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 2 { // that before the run, and that of it
			c, acceptErr := l.Accept()
			if acceptErr != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, len("*1\r\n$4\r\nPING\r\n")))
			_, _ = io.WriteString(c, "+PONG\r\n")
			if i == 1 {
				_ = l.Close() // before the client can connect once more
			}
			_ = c.Close()
		}
	}()
	stdout, _, err := bench(t, t.Context(), append([]string{
		"resp", "--address", l.Addr().String(), "--command", "PING", "--connections", "1", "--warmup", "0s", "--json",
	}, times...)...)
	_ = l.Close()
	<-done
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()+": no program listens there") {
		return false
	}
	if p := decoded(t, stdout); p.Complete || p.Error != err.Error() || p.Requests < 1 || p.Requests > 2 {
		t.Errorf("%+v", p)
	}
	return true
}

func TestInterrupt(t *testing.T) {
	for what, extra := range map[string][]string{"closed": nil, "open": {"--rate", "1000/s"}, "open, rarely": {"--rate", "1/min"}} {
		ctx, cancel := context.WithCancel(t.Context())
		var n atomic.Int64
		address := respServer(t, func(w *resp.Writer, _ [][]byte) bool {
			if most := int64(100); n.Add(1) == most || what == "open, rarely" {
				cancel()
			}
			w.OK()
			return true
		})
		args := []string{"resp", "--address", address, "--command", "PING", "--connections", "1", "--duration", "1h", "--warmup", "0s"}
		stdout, _, err := bench(t, ctx, append(args, extra...)...)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
		if what != "open, rarely" && (!strings.Contains(stdout, "\nrequests ") || !strings.Contains(stdout, "\nresponse ")) {
			t.Errorf("%s: %s", what, stdout)
		}
		cancel()
	}
}

// TestFirstRequest: what is wrong with a server is told before anything is measured, with what can be done about it.
func TestFirstRequest(t *testing.T) {
	speaks := func(answer string) string {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		t.Cleanup(func() {
			_ = l.Close()
			wg.Wait()
		})
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, answer)
				if half, ok := c.(*net.TCPConn); ok {
					_ = half.CloseWrite()
				}
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		})
		return l.Addr().String()
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	web := "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
	for _, c := range []struct {
		answer string
		args   []string
		want   string
	}{
		{web, []string{"resp"}, `the answer is not RESP: is it a server for "weir bench resp"? is --tls needed?`},
		{web, []string{"rls"}, `the answer is not gRPC over HTTP/2: is it a server for "weir bench rls"?`},
		{"-ERR unknown command\r\n", []string{"http"}, `the answer is not HTTP/1.1: is it a server for "weir bench http"?`},
		{"", []string{"resp"}, `the server closes the connection: is it one for "weir bench resp"? is --tls needed?`},
		{"*5\r\n:0\r\n", []string{"resp"}, `the server closes the connection`},
		{"-NOAUTH Authentication required.\r\n", []string{"resp"}, `NOAUTH Authentication required.: give --password-file`},
		{"-WRONGPASS no\r\n", []string{"resp", "--password-file", password}, `the password is refused: "WRONGPASS no"`},
		{web, []string{"resp", "--password-file", password}, `the answer is not RESP`},
		{"-ERR unknown\r\n", []string{"resp"}, `the first request was answered with an error: ERR unknown`},
		{"*1\r\n:7\r\n", []string{"resp"}, `the reply is not an array that begins with 0 or 1`},
		{"$1\r\nx\r\n", []string{"resp"}, `the reply is not an array that begins with 0 or 1`},
		{"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno.", []string{"http"}, `answered with an error: status 404: Not Found`},
		{"HTTP/1.1 200 OK\r\n\r\n", []string{"http"}, `the answer has no Content-Length, and is not chunked`},
		{"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", []string{"http"}, `the answer is not HTTP/1.1`},
		{web, []string{"http", "--tls"}, `the server does not speak TLS: leave out --tls`},
	} {
		address := speaks(c.answer)
		stdout, _, err := bench(t, t.Context(), append(c.args, "--address", address)...)
		if err == nil || !strings.HasPrefix(err.Error(), "weir: "+address) || !strings.Contains(err.Error(), c.want) || stdout != "" {
			t.Errorf("%q %q: %v\n%s", c.answer, c.args, err, stdout)
		}
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // it never answers
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if _, _, err = bench(t, t.Context(), "http", "--address", address, "--timeout", "20ms"); err == nil ||
		err.Error() != "weir: "+address+" has not answered within 20ms" {
		t.Errorf("%v", err)
	}
	_ = l.Close()
	for front, flag := range map[string]string{"http": "--http", "resp": "--resp", "rls": "--grpc"} {
		_, _, err := bench(t, t.Context(), front, "--address", address)
		want := fmt.Sprintf("weir: %s: no program listens there: start the server, such as \"weir serve %s %s\", or name another by --address", address, flag, address)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", front, err, want)
		}
	}
}

// TestNothingButErrors is a failure, also if the first request had an answer.
func TestNothingButErrors(t *testing.T) {
	var n atomic.Int64
	address := respServer(t, func(w *resp.Writer, _ [][]byte) bool {
		if n.Add(1) == 1 {
			w.OK()
		} else {
			w.Error("LOADING come again")
		}
		return true
	})
	stdout, _, err := bench(t, t.Context(), "resp", "--address", address, "--command", "PING", "--requests", "10", "--warmup", "0s")
	if err == nil || err.Error() != "weir: "+address+" has answered nothing but errors: LOADING come again" || !strings.Contains(stdout, "LOADING") {
		t.Errorf("%v\n%s", err, stdout)
	}
}

// TestInterruptBeforeAnAnswer: a server that takes connections and responds to nothing is not waited for.
func TestInterruptBeforeAnAnswer(t *testing.T) {
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() {
		c, failed := silent.Accept()
		if failed != nil {
			return
		}
		_, _ = c.Read(make([]byte, 1)) // it waits for the answer now
		interrupt()
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()
	stdout, _, err := bench(t, ctx, "http", "--address", silent.Addr().String(), "--timeout", "1h")
	if !errors.Is(err, context.Canceled) || stdout != "" {
		t.Errorf("%v, %q", err, stdout)
	}
}
