package interop_test

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/internal/programtest"
)

// nodeClient is a client of gRPC in JavaScript, in a process of its own.
type nodeClient struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// nodeCall is what it is told to call, and nodeReply what came of it.
type nodeCall struct {
	Method   string            `json:"method"`
	Request  []byte            `json:"request,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Timeout  int               `json:"timeout,omitempty"` // ms
	Cancel   bool              `json:"cancel,omitempty"`
	Count    int               `json:"count,omitempty"`
	AtOnce   int               `json:"at_once,omitempty"`
}

type nodeReply struct {
	Code    codes.Code `json:"code"`
	Details string     `json:"details"`
	Reply   []byte     `json:"reply"`
}

// newNodeClient installs the client by its lock file, and starts it.
func newNodeClient(t *testing.T, address string) *nodeClient {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "client.js"} {
		text, err := os.ReadFile(filepath.Join("node", name))
		if err != nil {
			t.Fatal(err)
		}
		programtest.Write(t, dir, name, string(text))
	}
	install := exec.CommandContext(t.Context(), programtest.Installed(t, "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	node := exec.CommandContext(t.Context(), programtest.Installed(t, "node"), "client.js", address)
	node.Dir, node.Stderr = dir, os.Stderr
	in, err := node.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // that ends it
		_ = node.Wait()
	})
	return &nodeClient{in, bufio.NewReader(out)}
}

// calls returns the replies to all calls that it is told to make.
func (c *nodeClient) calls(t *testing.T, what *nodeCall) (all []nodeReply) {
	t.Helper()
	if err := json.NewEncoder(c.in).Encode(what); err != nil {
		t.Fatal(err)
	}
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

const nodeConfig = `version: 1
policies:
  user: {limits: [{algorithm: fixed-window, rate: 300/d}], key: attributes.user}
rules:
  - {name: users, match: {protocol: rls}, limits: user}
`

// TestNodeClient: the client of gRPC for Node.js, whose HTTP/2 is that of nghttp2, sees what it would of any server of gRPC.
func TestNodeClient(t *testing.T) {
	address := programtest.FreeAddress(t)
	file := programtest.Write(t, t.TempDir(), "weir.yaml", nodeConfig)
	serve(t, address, "--http", programtest.FreeAddress(t), "--grpc", address, "--config", file)
	c := newNodeClient(t, address)
	ask := func(user string) nodeCall {
		return nodeCall{Method: ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, Request: marshal(t, &ratelimitv3.RateLimitRequest{
			Domain: "edge", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{descriptor("user", user)},
		})}
	}
	t.Run("exactly", func(t *testing.T) {
		many := ask("many")
		many.Count, many.AtOnce = 400, 100
		allowed, refused := nodeCounts(t, c.calls(t, &many))
		if allowed != 300 || refused != 100 {
			t.Errorf("%d were allowed and %d refused, want 300 and 100", allowed, refused)
		}
	})
	t.Run("long header", func(t *testing.T) { // which takes several frames, beside others that are repeated
		long := ask("header")
		long.Metadata = map[string]string{"x-long": strings.Repeat("a b c ~ ", 4<<10), "x-some-bin": "AAEC", "x-request-id": "1"}
		long.Count, long.AtOnce = 20, 5
		if allowed, _ := nodeCounts(t, c.calls(t, &long)); allowed != 20 {
			t.Errorf("%d of 20 were allowed", allowed)
		}
	})
	t.Run("long message", func(t *testing.T) { // which takes more than the window of its stream
		long := ask(strings.Repeat("u", 300_000))
		long.Count, long.AtOnce = 10, 10
		if allowed, _ := nodeCounts(t, c.calls(t, &long)); allowed != 10 {
			t.Errorf("%d of 10 were allowed", allowed)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		hurried := ask("hurried")
		hurried.Timeout, hurried.Count = 60_000, 5
		if allowed, _ := nodeCounts(t, c.calls(t, &hurried)); allowed != 5 {
			t.Errorf("%d of 5 were allowed", allowed)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		canceled := ask("canceled")
		canceled.Cancel, canceled.Count, canceled.AtOnce = true, 50, 50
		for _, r := range c.calls(t, &canceled) {
			if r.Code != codes.Canceled && r.Code != codes.OK {
				t.Errorf("%v: %s", r.Code, r.Details)
			}
		}
	})
	t.Run("errors", func(t *testing.T) {
		for want, call := range map[codes.Code]nodeCall{
			codes.Unimplemented:   {Method: "/envoy.service.ratelimit.v3.RateLimitService/Nothing"},
			codes.InvalidArgument: {Method: ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName},
		} {
			if got := c.calls(t, &call); len(got) != 1 || got[0].Code != want || got[0].Details == "" {
				t.Errorf("%v, want %v", got, want)
			}
		}
	})
	t.Run("health", func(t *testing.T) { // which grpc-go serves on the same connection
		got := c.calls(t, &nodeCall{Method: healthv1.Health_Check_FullMethodName})
		var reply healthv1.HealthCheckResponse
		if len(got) != 1 || got[0].Code != codes.OK || proto.Unmarshal(got[0].Reply, &reply) != nil ||
			reply.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%v", got)
		}
	})
}

// TestNodeClientOutlivesItsConnections: a client whose connections end by their age sees nothing of it.
func TestNodeClientOutlivesItsConnections(t *testing.T) {
	address := programtest.FreeAddress(t)
	file := programtest.Write(t, t.TempDir(), "weir.yaml", strings.Replace(nodeConfig, "300/d", "1000000/d", 1))
	serve(t, address, "--http", programtest.FreeAddress(t), "--grpc", address, "--config", file, "--grpc-max-age", "300ms")
	c := newNodeClient(t, address)
	call := nodeCall{Method: ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, Request: marshal(t, &ratelimitv3.RateLimitRequest{
		Domain: "edge", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{descriptor("user", "u")},
	}), Count: 20_000, AtOnce: 20}
	if allowed, _ := nodeCounts(t, c.calls(t, &call)); allowed != call.Count {
		t.Errorf("%d of %d were allowed", allowed, call.Count)
	}
}

// TestH2load: the load generator of nghttp2, whose HTTP/2 is that of Envoy, gets a reply to each call, and each is counted once.
func TestH2load(t *testing.T) {
	const calls = 20_000
	address := programtest.FreeAddress(t)
	file := programtest.Write(t, t.TempDir(), "weir.yaml", strings.Replace(nodeConfig, "300/d", "1000000/d", 1))
	serve(t, address, "--http", programtest.FreeAddress(t), "--grpc", address, "--config", file)
	wire := marshal(t, &ratelimitv3.RateLimitRequest{
		Domain: "edge", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{descriptor("user", "u")},
	})
	message := string(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(wire))), wire...))
	load := exec.CommandContext(t.Context(), programtest.Installed(t, "h2load"), "-n", strconv.Itoa(calls), "-c", "4", "-m", "64",
		"-d", programtest.Write(t, t.TempDir(), "message", message), "-H", "content-type: application/grpc", "-H", "te: trailers",
		"http://"+address+ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName)
	out, err := load.CombinedOutput()
	if err != nil || !strings.Contains(string(out), " 20000 succeeded, 0 failed, 0 errored, 0 timeout") ||
		!strings.Contains(string(out), "status codes: 20000 2xx") {
		t.Errorf("h2load: %v\n%s", err, out)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	got := shouldRateLimit(t, conn, descriptor("user", "u"))
	if left := got.GetStatuses()[0].GetLimitRemaining(); left != 1_000_000-calls-1 {
		t.Errorf("%d are left", left)
	}
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// nodeCounts are how many replies allow, and how many refuse. All others fail the test.
func nodeCounts(t *testing.T, all []nodeReply) (allowed, refused int) {
	t.Helper()
	for _, r := range all {
		var reply ratelimitv3.RateLimitResponse
		if r.Code != codes.OK || proto.Unmarshal(r.Reply, &reply) != nil {
			t.Fatalf("%v: %s: %s", r.Code, r.Details, base64.StdEncoding.EncodeToString(r.Reply))
		}
		switch reply.GetOverallCode() { //nolint:exhaustive // the other is none
		case ratelimitv3.RateLimitResponse_OK:
			allowed++
		case ratelimitv3.RateLimitResponse_OVER_LIMIT:
			refused++
		}
	}
	return allowed, refused
}
