package rlsapi_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/kuadrantv1"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/typev3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// both are a front whose descriptors are limited by rules, and one whose descriptors are limited by a configuration of
// envoyproxy/ratelimit: each user has three permits.
func both(t *testing.T) map[string]rlsapi.Options {
	t.Helper()
	return map[string]rlsapi.Options{"rules": {Limits: limitsOf(t, usersAndTenants())}, "tree": treeOf(t, tree)}
}

func repeated(n int, pairs ...string) [][]string {
	all := make([][]string, n)
	for i := range all {
		all[i] = pairs
	}
	return all
}

// TestLongDescriptorsPassNoLimit: whatever a client can make a proxy send beside a descriptor that is over its limit, the call is
// refused. An error would let it pass.
func TestLongDescriptorsPassNoLimit(t *testing.T) {
	long := strings.Repeat("v", 4097)
	for front, o := range both(t) {
		_, conn := serve(t, o)
		for range 3 {
			ask(t, conn, request("edge", []string{"user", "u"}))
		}
		for what, more := range map[string][][]string{
			"a value of 4097 bytes that nothing limits": {{"header", long}},
			"a value of 4097 bytes":                     {{"tenant", long}},
			"a value of 512 KiB":                        {{"tenant", strings.Repeat("v", 512<<10)}},
			"17 values of 4000 bytes":                   repeated(17, "header", long[:4000]),
			"a key of 256 bytes":                        {{strings.Repeat("k", 256), "v"}},
			"65 descriptors":                            repeated(64, "header", "v"),
			"1025 descriptors":                          repeated(1024, "header", "v"),
			"65 entries":                                {strings.Fields(strings.Repeat("k v ", 65))},
			"1025 entries":                              {strings.Fields(strings.Repeat("k v ", 1025))},
			"more than a message may have":              repeated(20, "header", strings.Repeat("v", 60<<10)),
			"a descriptor without entries":              {nil},
			"an empty key":                              {{"", "v"}},
		} {
			r := request("edge", append(more, []string{"user", "u"})...)
			if got, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), r); err != nil ||
				got.GetOverallCode() != over {
				t.Errorf("%s: %s: %.200v, %.200v, want OVER_LIMIT", front, what, got.GetOverallCode(), err)
			}
			if got, err := kuadrantv1.NewRateLimitServiceClient(conn).CheckRateLimit(t.Context(), r); err != nil ||
				got.GetOverallCode() != over {
				t.Errorf("%s: CheckRateLimit: %s: %.200v, %.200v, want OVER_LIMIT", front, what, got.GetOverallCode(), err)
			}
		}
	}
}

// TestLongValuesAreCountedApart: each long value has a counter of its own, and none is that of the short value which it is counted
// under.
func TestLongValuesAreCountedApart(t *testing.T) {
	for front, o := range both(t) {
		_, conn := serve(t, o)
		long := strings.Repeat("v", 100<<10)
		for _, value := range []string{
			long, long + "w", "w" + long, long[:128], long[:129],
			// What 129 times "v" is counted under.
			long[:60] + "...sha256:0ee6e32cf821a84424583c89314d90584af607ef11899911dd8e89c2bde4325c",
		} {
			for i, want := range []string{"ok: ok/2", "ok: ok/1", "ok: ok/0", "over: over/0"} {
				if got := brief(ask(t, conn, request("edge", []string{"user", value}))); got != want {
					t.Errorf("%s: %d bytes, call %d: %s, want %s", front, len(value), i, got, want)
				}
			}
		}
	}
}

// TestUnfitRequestsAreRefused: what a client can have a proxy send and weir cannot decide on is refused, charges nothing, and is
// told to the log and the status.
func TestUnfitRequestsAreRefused(t *testing.T) {
	user := []string{"user", "u"}
	changed := func(change func(d *commonratelimitv3.RateLimitDescriptor)) []byte {
		r := request("edge", user, user)
		change(r.GetDescriptors()[1])
		return marshaled(t, r)
	}
	limit := func(l *commonratelimitv3.RateLimitDescriptor_RateLimitOverride) []byte {
		return changed(func(d *commonratelimitv3.RateLimitDescriptor) { d.Limit = l })
	}
	type override = commonratelimitv3.RateLimitDescriptor_RateLimitOverride
	for front, o := range both(t) {
		for what, body := range map[string][]byte{
			"not protocol buffers":           []byte("\xff\xff\xff"),
			"groups in groups":               bytes.Repeat([]byte("\x23"), 60<<10),
			"a message that is cut off":      marshaled(t, request("edge", user))[:9],
			"a domain that is not UTF-8":     []byte("\x0a\x01\xff"),
			"a value that is not UTF-8":      bytes.ReplaceAll(marshaled(t, request("edge", user)), []byte("user\x12\x01u"), []byte("user\x12\x01\xff")),
			"a key that is not UTF-8":        bytes.ReplaceAll(marshaled(t, request("edge", user)), []byte("user\x12\x01u"), []byte("use\xff\x12\x01u")),
			"no entries":                     marshaled(t, request("edge", user, nil)),
			"an empty key":                   marshaled(t, request("edge", user, []string{"k", "v", "", "v"})),
			"1025 entries":                   marshaled(t, request("edge", user, strings.Fields(strings.Repeat("k v ", 1025)))),
			"1025 descriptors":               marshaled(t, request("edge", append(repeated(1024, "none", "v"), user)...)),
			"500,000 descriptors":            append(marshaled(t, request("edge", user)), bytes.Repeat([]byte("\x12\x00"), 500_000)...),
			"65 limits":                      marshaled(t, request("edge", repeated(65, user...)...)),
			"more than a message may have":   make([]byte, 1<<20+1),
			"a unit that there is not":       limit(&override{Unit: typev3.RateLimitUnit(7)}),
			"a unit below zero":              limit(&override{Unit: typev3.RateLimitUnit(-1)}),
			"no units":                       limit(&override{UnitMultiplier: wrapperspb.UInt32(0)}),
			"a limit for more than 10 years": limit(&override{Unit: typev3.RateLimitUnit_DAY, UnitMultiplier: wrapperspb.UInt32(3661)}),
		} {
			var lines lockedLines
			o.Logger = slog.New(slog.NewTextHandler(&lines, nil))
			server, conn := serve(t, o)
			for i := range 2 {
				var got ratelimitv3.RateLimitResponse
				if err := rawInto(t, conn, body, &got); err != nil || got.GetOverallCode() != over {
					t.Errorf("%s: %s: %v, %v, want OVER_LIMIT", front, what, &got, err)
				}
				for _, s := range got.GetStatuses() {
					if s.GetCode() != over {
						t.Errorf("%s: %s: the status of a descriptor is %v", front, what, s)
					}
				}
				if s := fmt.Sprint(server.Status()["should_rate_limit"]); !strings.Contains(s, fmt.Sprintf("failed:0 ok:0 over_limit:%d", i+1)) {
					t.Errorf("%s: %s: %s", front, what, s)
				}
			}
			if n := strings.Count(lines.String(), "level=WARN"); n != 1 {
				t.Errorf("%s: %s: %d lines of the log, want 1:\n%s", front, what, n, lines.String())
			}
			if got := brief(ask(t, conn, request("edge", user))); got != "ok: ok/2" {
				t.Errorf("%s: %s: afterwards: %s", front, what, got)
			}
			o.Limits = both(t)[front].Limits
		}
	}
}

// lockedLines is a log that several goroutines write.
type lockedLines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (l *lockedLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestHugeHitsAreRefused: more hits than can be counted are more than any limit has.
func TestHugeHitsAreRefused(t *testing.T) {
	for front, o := range both(t) {
		_, conn := serve(t, o)
		for _, hits := range []uint64{1e15, 1e15 + 1, 1 << 63, 1<<64 - 1} {
			r := request("edge", []string{"user", "u"}, []string{"none", "n"})
			r.Descriptors[0].HitsAddend, r.Descriptors[1].HitsAddend = wrapperspb.UInt64(hits), wrapperspb.UInt64(hits)
			if got := ask(t, conn, r); got.GetOverallCode() != over || got.GetStatuses()[1].GetCode() != ok {
				t.Errorf("%s: %d hits: %v", front, hits, got)
			}
		}
	}
}

// TestHugeHitsRefuseTheirsAlone: hits of several descriptors for one counter, or for a limit of 0, that are more together than a store
// takes refuse these descriptors and no other, wherever the limits are kept.
func TestHugeHitsRefuseTheirsAlone(t *testing.T) {
	for _, consistency := range []policy.Consistency{policy.ConsistencyLocal, policy.ConsistencyCoherent} {
		config, err := ratelimitconfig.Parse([]ratelimitconfig.File{{Name: "edge.yaml", Data: []byte(tree)}}, ratelimitconfig.Options{
			Consistency: consistency,
		})
		if err != nil {
			t.Fatal(err)
		}
		memory, err := store.NewMemory(store.MemoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = memory.Close() })
		_, conn := serve(t, rlsapi.Options{
			Limits: limitsWith(t, &policy.Set{Policies: config.Policies}, policy.EngineOptions{Store: memory}),
			Tree:   func() *ratelimitconfig.Config { return config },
		})
		for _, key := range []string{"closed", "user", "watched"} {
			r := request("edge", []string{key, "v"}, []string{key, "v"}, []string{"tenant", "t"})
			for i := range 2 {
				if key != "closed" {
					r.Descriptors[i].HitsAddend = wrapperspb.UInt64(1e15)
				}
			}
			want := "over: over/0 over/0 ok/100"
			if key == "watched" { // in shadow mode
				want = "ok: ok/0 ok/0 ok/99"
			}
			if got := brief(ask(t, conn, r)); got != want {
				t.Errorf("%v, %s: %s, want %s", consistency, key, got, want)
			}
		}
	}
}

// TestHugeReportsAreCharged: a report of more hits than can be counted charges as much as can be, as an error would make it free.
func TestHugeReportsAreCharged(t *testing.T) {
	for front, o := range both(t) {
		_, conn := serve(t, o)
		r := request("edge", []string{"user", strings.Repeat("u", 5000)})
		r.Descriptors[0].HitsAddend = wrapperspb.UInt64(1<<64 - 1)
		if _, err := kuadrantv1.NewRateLimitServiceClient(conn).Report(t.Context(), r); err != nil {
			t.Errorf("%s: %v", front, err)
		}
		r.Descriptors[0].HitsAddend = nil
		if got := brief(ask(t, conn, r)); got != "over: over/0" {
			t.Errorf("%s: %s", front, got)
		}
	}
}

func marshaled(t *testing.T, m proto.Message) []byte {
	t.Helper()
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// rawInto calls with bytes that may be no message.
func rawInto(t *testing.T, conn *grpc.ClientConn, body []byte, reply *ratelimitv3.RateLimitResponse) error {
	t.Helper()
	return conn.Invoke(t.Context(), ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, body, reply,
		grpc.ForceCodecV2(bytesCodec{}))
}
