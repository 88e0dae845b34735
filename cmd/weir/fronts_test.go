package main_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
)

// allFronts is a server that listens with all fronts.
type allFronts struct {
	*server

	resp, grpc string
	client     *tls.Config // nil without TLS
}

func startFronts(t *testing.T, client *tls.Config, args ...string) *allFronts {
	t.Helper()
	s := &allFronts{server: startServer(t, append(args, "--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0")...), client: client}
	line := s.logged("msg=serving")
	find := func(name string) string {
		found := regexp.MustCompile(" " + name + `=(\S+)`).FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("no %s in %s", name, line)
		}
		return found[1]
	}
	s.resp, s.grpc = find("resp"), find("grpc")
	return s
}

func (s *allFronts) redis() *redis.Client {
	const patience = 2 * time.Minute
	c := redis.NewClient(&redis.Options{
		Addr: s.resp, TLSConfig: s.client, MaxRetries: -1, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
	})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *allFronts) dial() *grpc.ClientConn {
	s.t.Helper()
	c := insecure.NewCredentials()
	if s.client != nil {
		c = credentials.NewTLS(s.client)
	}
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(c))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// post returns the status and the body of a POST.
func (s *allFronts) post(path, body string) (int, string) {
	s.t.Helper()
	scheme, transport := "http", &http.Transport{TLSClientConfig: s.client, DisableKeepAlives: true}
	if s.client != nil {
		scheme = "https"
	}
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, scheme+"://"+s.address+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// descriptor asks the rate limit service about one descriptor of one entry.
func descriptor(ctx context.Context, conn *grpc.ClientConn, domain, key, value string) (*ratelimitv3.RateLimitResponse, error) {
	return ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: domain, Descriptors: []*commonratelimitv3.RateLimitDescriptor{
			{Entries: []*commonratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
		},
	})
}

const frontsConfig = `version: 1
policies:
  user: {limit: 4/h, key: attributes.user}
rules:
  - {name: shop, match: {protocol: rls, host: shop}, limits: user}
`

// TestFrontsShareOneEngine: whichever front permits are taken by, they are taken from the same limit; and what was reserved by
// one is settled by another.
func TestFrontsShareOneEngine(t *testing.T) {
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, frontsConfig)
	s := startFronts(t, nil, "--config", config)
	conn, client := s.dial(), s.redis()

	if code, text := s.post("/v1/check", `{"policy":"user","key":"alice"}`); code != 200 || !strings.Contains(text, `"remaining":3`) {
		t.Errorf("HTTP: %d %s", code, text)
	}
	taken, err := client.Do(t.Context(), "WEIR.TAKE", "user", "alice").Result()
	if err != nil || !strings.Contains(fmt.Sprint(taken), "remaining:2") {
		t.Errorf("RESP: %v, %v", taken, err)
	}
	answer, err := descriptor(t.Context(), conn, "shop", "user", "alice")
	if err != nil || answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OK || answer.GetStatuses()[0].GetLimitRemaining() != 1 {
		t.Errorf("RLS: %v, %v", answer, err)
	}
	code, text := s.post("/v1/reserve", `{"policy":"user","key":"alice"}`)
	var reserved struct {
		ID        string `json:"id"`
		Remaining int64  `json:"remaining"`
	}
	if err = json.Unmarshal([]byte(text), &reserved); err != nil || code != 200 || reserved.ID == "" || reserved.Remaining != 0 {
		t.Fatalf("reserve: %d %s %v", code, text, err)
	}
	if answer, err = descriptor(t.Context(), conn, "shop", "user", "alice"); err != nil ||
		answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("RLS of nothing: %v, %v", answer, err)
	}
	if err = client.Do(t.Context(), "WEIR.CANCEL", reserved.ID).Err(); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if code, text = s.post("/v1/cancel", `{"id":"`+reserved.ID+`"}`); code != 404 {
		t.Errorf("cancel again: %d %s", code, text)
	}
	if code, text = s.post("/v1/check", `{"policy":"user","key":"alice"}`); code != 200 {
		t.Errorf("what was canceled: %d %s", code, text)
	}

	// One shutdown ends all of them.
	checked, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || checked.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", checked, err)
	}
	s.signal(syscall.SIGTERM)
	if state := s.wait(); state.ExitCode() != 0 {
		t.Errorf("%v: %s", state, strings.Join(s.lines, "\n"))
	}
	if _, err := descriptor(t.Context(), conn, "shop", "user", "alice"); status.Code(err) != codes.Unavailable {
		t.Errorf("RLS of a server that has ended: %v", err)
	}
}

// TestFrontsSpeakTLS: with a certificate all fronts speak TLS, and none speaks anything else.
func TestFrontsSpeakTLS(t *testing.T) {
	dir := t.TempDir()
	own := fronttest.SelfSigned(t, "weir")
	files := map[string][]byte{"cert.pem": own.Text, "key.pem": own.Key, "password": []byte("open sesame\n")}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := startFronts(t, &tls.Config{RootCAs: own.Pool, MinVersion: tls.VersionTLS12}, "--tls-cert", filepath.Join(dir, "cert.pem"),
		"--tls-key", filepath.Join(dir, "key.pem"), "--resp-password-file", filepath.Join(dir, "password"))

	if code, text := s.post("/v1/check", `{"key":"alice"}`); code != 200 {
		t.Errorf("HTTP: %d %s", code, text)
	}
	client := s.redis()
	if err := client.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("RESP without the password: %v", err)
	}
	client.Options().Password = "open sesame"
	known := redis.NewClient(client.Options())
	defer known.Close()
	if err := known.Ping(t.Context()).Err(); err != nil {
		t.Errorf("RESP: %v", err)
	}
	checked, err := grpc_health_v1.NewHealthClient(s.dial()).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || checked.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("gRPC: %v, %v", checked, err)
	}

	for name, address := range map[string]string{"http": s.address, "resp": s.resp, "grpc": s.grpc} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		_, _ = conn.Write([]byte("PING\r\n\r\n"))
		got, _ := io.ReadAll(conn)
		if bytes.Contains(got, []byte("PONG")) {
			t.Errorf("%s without TLS: %q", name, got)
		}
		_ = conn.Close()
	}
}

// TestUnguardedRESPIsTold: the log warns of a RESP front that the network reaches and that has no password.
func TestUnguardedRESPIsTold(t *testing.T) {
	const told = "every client that reaches --resp may use it"
	startServer(t, "--resp", "0.0.0.0:0").logged(told)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("open sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--resp", "127.0.0.1:0"}, {"--resp", "0.0.0.0:0", "--resp-password-file", password}} {
		s := startServer(t, args...)
		s.logged("msg=serving")
		if log := strings.Join(s.lines, "\n"); strings.Contains(log, told) {
			t.Errorf("%q: %s", args, log)
		}
	}
}

// TestRatelimitConfigMovesOver: the configuration of envoyproxy/ratelimit is served as it is, alone or beside rules, and read
// again when it changes; mistakes end the program with 2, with their places.
func TestRatelimitConfigMovesOver(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		writeConfig(t, filepath.Join(dir, name), text)
	}
	write("shop.yaml", "domain: shop\ndescriptors:\n  - {key: path, value: /login, rate_limit: {unit: year, requests_per_unit: 2}}\n")
	s := startFronts(t, nil, "--ratelimit-config", dir)
	conn := s.dial()
	for i, want := range []ratelimitv3.RateLimitResponse_Code{1, 1, 2} {
		if answer, err := descriptor(t.Context(), conn, "shop", "path", "/login"); err != nil || answer.GetOverallCode() != want {
			t.Errorf("%d: %v, %v", i, answer, err)
		}
	}
	write("blog.yaml", "domain: blog\ndescriptors:\n  - {key: path, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	eventually(t, "the new domain is limited", func() bool {
		answer, err := descriptor(t.Context(), conn, "blog", "path", "/")
		return err == nil && answer.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT
	})
	if answer, err := descriptor(t.Context(), conn, "shop", "path", "/login"); err != nil || answer.GetOverallCode() != 2 {
		t.Errorf("after a reload: %v, %v", answer, err)
	}

	// Operators see where a refusal came from, and are not told of rules that there are not.
	if got := weir(t, nil, "admin", "refusals", "--server", "http://"+s.address); !strings.Contains(got.stdout, "shop by rls") {
		t.Errorf("%d %s%s", got.status, got.stdout, got.stderr)
	}
	got := weir(t, nil, "why", "--request", "GET http://shop/", "--protocol", "rls", "--attribute", "path=/login", "--server", "http://"+s.address)
	if got.status == 0 || !strings.Contains(got.stderr, "the limits of --ratelimit-config apply to descriptors") {
		t.Errorf("%d %s%s", got.status, got.stdout, got.stderr)
	}

	write("wrong.yaml", "domain: wrong\ndescriptors:\n  - {key: path, rate_limit: {unit: fortnight, requests_per_unit: 1}}\n")
	got = weir(t, nil, "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--ratelimit-config", dir)
	if got.status != 2 || !strings.Contains(got.stderr, filepath.Join(dir, "wrong.yaml")+":3:") || !strings.Contains(got.stderr, "fortnight") {
		t.Errorf("%d %s", got.status, got.stderr)
	}
}

// TestExampleOfRatelimitConfig: the example limits what its comments say.
func TestExampleOfRatelimitConfig(t *testing.T) {
	s := startFronts(t, nil, "--ratelimit-config", filepath.Join("..", "..", "examples", "ratelimit"))
	client := ratelimitv3.NewRateLimitServiceClient(s.dial())
	// sixth asks six times, of which five must be allowed, and answers the sixth answer.
	sixth := func(limit uint32, entries ...*commonratelimitv3.RateLimitDescriptor_Entry) ratelimitv3.RateLimitResponse_Code {
		t.Helper()
		for n := 1; ; n++ {
			answer, err := client.ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{
				Domain: "shop", Descriptors: []*commonratelimitv3.RateLimitDescriptor{{Entries: entries}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := answer.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(); got != limit {
				t.Errorf("request %d for %v: %v, want a limit of %d", n, entries, answer, limit)
			}
			if n == 6 {
				return answer.GetOverallCode()
			}
			if answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
				t.Fatalf("request %d for %v: %v", n, entries, answer)
			}
		}
	}
	path := func(path string) *commonratelimitv3.RateLimitDescriptor_Entry {
		return &commonratelimitv3.RateLimitDescriptor_Entry{Key: "path", Value: path}
	}
	last := 0
	eventually(t, "the sixth login is refused, unless a minute has begun since the first", func() bool {
		last++
		address := &commonratelimitv3.RateLimitDescriptor_Entry{Key: "remote_address", Value: fmt.Sprint("192.0.2.", last)}
		return sixth(5, path("/login"), address) == ratelimitv3.RateLimitResponse_OVER_LIMIT
	})
	if got := sixth(0, path("/healthz")); got != ratelimitv3.RateLimitResponse_OK {
		t.Errorf("/healthz: %v", got)
	}
}

// TestFrontFlagsMisuse: flags that need another one say so.
func TestFrontFlagsMisuse(t *testing.T) {
	for args, want := range map[string]string{
		"--resp-connections 5":                             "--resp-connections needs --resp",
		"--resp 127.0.0.1:0 --resp-connections 0":          `--resp-connections "0": must be a whole number from 1 to 1000000`,
		"--resp-connections-per-address 5":                 "--resp-connections-per-address needs --resp",
		"--grpc-connections 5":                             "--grpc-connections needs --grpc",
		"--grpc-idle-timeout 1m":                           "--grpc-idle-timeout needs --grpc",
		"--grpc 127.0.0.1:0 --grpc-connections 1000001":    `--grpc-connections "1000001": must be a whole number from 1 to 1000000`,
		"--grpc 127.0.0.1:0 --grpc-idle-timeout 25h":       `--grpc-idle-timeout "25h": must be`,
		"--resp nowhere":                                   `--resp "nowhere": must be host:port`,
		"--tls-key key.pem":                                "--tls-key needs --tls-cert",
		"--tls-cert cert.pem":                              "--tls-cert needs --tls-key",
		"--tls-client-ca ca.pem":                           "--tls-client-ca needs --tls-cert and --tls-key",
		"--tls-cert none.pem --tls-key none.pem":           "weir: --tls-cert: open none.pem",
		"--resp 127.0.0.1:0 --resp-password-file none.txt": "weir: --resp-password-file: open none.txt",
		"--resp 127.0.0.1:7 --grpc 127.0.0.1:7":            `--grpc "127.0.0.1:7": is the address of --resp as well: each front needs a port of its own`,
		"--store redis://h":                                "--store needs --config or --ratelimit-config",
		"--ratelimit-config x":                             "--ratelimit-config needs --grpc",
		"--ratelimit-merge":                                "--ratelimit-merge needs --ratelimit-config",
		"--grpc 127.0.0.1:0 --ratelimit-config none":       "weir: configuration: stat none: no such file or directory; docs/envoy.md has an example",
		"--grpc :0 --ratelimit-config x --burst 3":         "--burst cannot be combined with --config or --ratelimit-config",
		"--grpc :0 --ratelimit-config ../../examples/ratelimit --ratelimit-consistency leased": `--ratelimit-consistency "leased" needs a store`,
		"--grpc :0 --ratelimit-config x --ratelimit-algorithm leaky": `--ratelimit-algorithm "leaky": must be fixed_window, token_bucket, ` +
			"sliding_window or sliding_counter",
	} {
		got := weir(t, nil, append([]string{"serve", "--http", "127.0.0.1:0"}, strings.Fields(args)...)...)
		if got.status != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %d %s", args, got.status, got.stderr)
		}
	}
}
