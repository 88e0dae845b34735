package interop_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/internal/programtest"
)

// ratelimitProgram is the service of envoyproxy/ratelimit, of the version that examples/migrating compares as well.
// WEIR_RATELIMIT is another one, such as a newer version.
var ratelimitProgram = programtest.Program{
	Name: "ratelimit", Dir: "../../examples/migrating/testdata/ratelimit", Env: []string{"GOWORK=off"},
}

// peers starts the service of envoyproxy/ratelimit with a Redis, and weir, with one configuration. The service counts calls that are
// over a limit, or it does not.
func peers(t *testing.T, config string, counting bool) (upstream, own *grpc.ClientConn) {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	programtest.Write(t, filepath.Join(root, "config"), "edge.yaml", config)
	redis, address := programtest.FreeAddress(t), programtest.FreeAddress(t)
	port := func(address string) string {
		_, port, _ := net.SplitHostPort(address)
		return port
	}
	programtest.Command{
		Path: programtest.Installed(t, "redis-server"),
		Args: []string{"--port", port(redis), "--bind", "127.0.0.1", "--dir", root, "--save", "", "--appendonly", "no"},
	}.Start(t).Listens(redis)
	program := os.Getenv("WEIR_RATELIMIT")
	if program == "" {
		program = ratelimitProgram.Path(t)
	}
	programtest.Command{Path: program, Env: []string{
		"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + port(address), "HOST=127.0.0.1", "PORT=" + port(programtest.FreeAddress(t)),
		"DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + port(programtest.FreeAddress(t)), "RUNTIME_ROOT=" + root, "RUNTIME_WATCH_ROOT=false",
		"RUNTIME_APPDIRECTORY=config", "DISABLE_STATS=true", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
		fmt.Sprint("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=", !counting), "LIMIT_RESPONSE_HEADERS_ENABLED=true",
	}}.Start(t).Listens(address)
	upstream, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = upstream.Close() })
	return upstream, rls(t, "--ratelimit-config", filepath.Join(root, "config"), "--grpc-headers", "legacy")
}

type rlsCall = *ratelimitv3.RateLimitRequest

// toEdge is a call.
func toEdge(descriptors ...*ratelimitcommonv3.RateLimitDescriptor) rlsCall {
	return &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors}
}

// limited is an answer in short: the code, of each descriptor its code, limit, unit and what is left, and the header fields.
type limited struct {
	text   string
	resets []time.Duration // of the descriptors, and of the header field
}

// is reports whether two answers are the same, though the second was made a moment later.
func (a limited) is(b limited) bool {
	return a.text == b.text && slices.EqualFunc(a.resets, b.resets, near)
}

func (a limited) refused() bool { return strings.HasPrefix(a.text, "OVER_LIMIT") }

// String is all of it.
func (a limited) String() string { return fmt.Sprintf("%s, reset %v", a.text, a.resets) }

// near reports whether two servers that were asked one after the other have told the same.
func near(a, b time.Duration) bool { return (a-b).Abs() <= 2*time.Second && (a == 0) == (b == 0) }

// told is what a server answers.
func told(t *testing.T, conn *grpc.ClientConn, call rlsCall) (a limited) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	got, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, call, grpc.WaitForReady(true))
	if err != nil {
		return limited{text: "error"}
	}
	parts := []string{got.GetOverallCode().String()}
	for _, s := range got.GetStatuses() {
		l := s.GetCurrentLimit()
		parts = append(parts, fmt.Sprintf("%v:%s%d/%v:%d",
			s.GetCode(), l.GetName(), l.GetRequestsPerUnit(), l.GetUnit(), s.GetLimitRemaining()))
		a.resets = append(a.resets, s.GetDurationUntilReset().AsDuration())
	}
	for _, h := range got.GetResponseHeadersToAdd() {
		if seconds, err := strconv.Atoi(h.GetValue()); err == nil && h.GetKey() == "RateLimit-Reset" {
			a.resets = append(a.resets, time.Duration(seconds)*time.Second)
			continue
		}
		parts = append(parts, h.GetKey()+"="+h.GetValue())
	}
	a.text = strings.Join(parts, " ")
	return a
}

// unlike returns what is wrong with two replies that should be the same, or should not.
func unlike(what string, before, after limited) string {
	return fmt.Sprintf("%s:\n  envoyproxy/ratelimit: %v\n  weir:                 %v", what, before, after)
}

// inOneDay runs f, and again with other names if a day of UTC has ended meanwhile, as all windows do then.
func inOneDay(t *testing.T, f func(salt string) []string) {
	t.Helper()
	for attempt := range 2 {
		day := time.Now().UTC().YearDay()
		if wrong := f(fmt.Sprint("n", attempt)); day == time.Now().UTC().YearDay() {
			for _, w := range wrong {
				t.Error(w)
			}
			return
		}
	}
	t.Fatal("two days have ended during this test")
}

const peersConfig = `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: user, value: vip, rate_limit: {unit: day, requests_per_unit: 5}}
  - key: tenant
    descriptors:
      - {key: path, value: /export/*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 3}}
      - {key: path, rate_limit: {unit: day, requests_per_unit: 4}}
  - {key: closed, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: unwanted, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: wild, value: foo*, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: base, rate_limit: {unit: day, requests_per_unit: 1, name: base}}
  - {key: plan, rate_limit: {unit: day, requests_per_unit: 4, replaces: [{name: base}]}}
  - {key: a, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: a_b, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: c_d, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: e, value: "*", rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: q1, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 3}}
`

// TestEnvoyPeersAgree asks both servers the same, call by call: every answer is the same.
func TestEnvoyPeersAgree(t *testing.T) {
	upstream, own := peers(t, peersConfig, false)
	inOneDay(t, func(salt string) (wrong []string) {
		for name, call := range map[string]rlsCall{
			"a key":                  toEdge(descriptor("user", salt)),
			"a value":                toEdge(descriptor("user", "vip")),
			"nested":                 toEdge(descriptor("tenant", salt, "path", "/page")),
			"shared threshold":       toEdge(descriptor("tenant", salt, "path", "/export/1")),
			"shared threshold again": toEdge(descriptor("tenant", salt+"s", "path", "/export/2")),
			"too deep":               toEdge(descriptor("user", salt, "path", "/")),
			"not deep enough":        toEdge(descriptor("tenant", salt)),
			"nothing is granted":     toEdge(descriptor("closed", salt)),
			"unlimited":              toEdge(descriptor("free", salt)),
			"shadow":                 toEdge(descriptor("watched", salt)),
			"shadow of nothing":      toEdge(descriptor("unwanted", salt)),
			"a wildcard":             toEdge(descriptor("wild", "foo"+salt)),
			"replaced":               toEdge(descriptor("base", salt), descriptor("plan", salt)),
			"two descriptors":        toEdge(descriptor("user", salt+"2"), descriptor("tenant", salt+"2", "path", "/page")),
			"no limit":               toEdge(descriptor("nobody", salt)),
			"a long value":           toEdge(descriptor("user", strings.Repeat("v", 50_000)+salt)),
			"a long value beside":    toEdge(descriptor("user", salt+"3"), descriptor("nobody", strings.Repeat("v", 5000))),
			"many descriptors": toEdge(append(manyOf(70, descriptor("nobody", "x")),
				descriptor("user", salt+"4"))...),
			"an override": toEdge(&ratelimitcommonv3.RateLimitDescriptor{
				Entries: descriptor("brought", salt).GetEntries(),
				Limit: &ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: 2, Unit: typev3.RateLimitUnit_DAY,
				},
			}),
			"hits that are as many":    hits(2, descriptor("plan", salt+"2")),
			"more hits than are left":  hits(2, descriptor("user", salt+"5")),
			"more hits than the limit": hits(5, descriptor("user", salt+"6")),
			"more hits in shadow":      hits(3, descriptor("watched", salt+"2")),
			"hits for a limit of zero": hits(3, descriptor("closed", salt+"2"), descriptor("unwanted", salt+"2")),
			"another domain":           {Domain: "elsewhere", Descriptors: toEdge(descriptor("user", salt)).GetDescriptors()},
		} {
			for i := range 7 {
				if before, after := told(t, upstream, call), told(t, own, call); !before.is(after) {
					wrong = append(wrong, unlike(fmt.Sprintf("%s, call %d", name, i), before, after))
				}
			}
		}
		return wrong
	})
}

// hits is a call that counts so many hits.
func hits(n uint32, descriptors ...*ratelimitcommonv3.RateLimitDescriptor) rlsCall {
	call := toEdge(descriptors...)
	call.HitsAddend = n
	return call
}

// manyOf is n times a descriptor.
func manyOf(n int, d *ratelimitcommonv3.RateLimitDescriptor) (all []*ratelimitcommonv3.RateLimitDescriptor) {
	for range n {
		all = append(all, d)
	}
	return all
}

// differences are what differs. Each has a row in docs/envoy.md; asked are calls, of which the last is answered otherwise.
var differences = map[string]struct {
	asked    func(salt string) []rlsCall
	admits   bool // weir lets pass what envoyproxy/ratelimit refuses
	counting bool // there calls that are over a limit are counted
}{
	"refused-call": {func(salt string) []rlsCall {
		d, other := descriptor("user", salt+"c"), descriptor("tenant", salt+"c", "path", "/page")
		both := toEdge(d, other)
		return []rlsCall{both, both, both, both, toEdge(other)}
	}, true, true},
	"refused-hits": {func(salt string) []rlsCall {
		d, other := descriptor("user", salt+"r"), descriptor("tenant", salt+"r", "path", "/page")
		spent, many := toEdge(d, other), toEdge(other)
		spent.HitsAddend, many.HitsAddend = 2, 3
		return []rlsCall{toEdge(d), toEdge(d), toEdge(d), spent, many}
	}, false, false},
	"look": {func(salt string) []rlsCall {
		d := descriptor("user", salt+"l")
		look := descriptor("user", salt+"l")
		look.HitsAddend = wrapperspb.UInt64(0)
		return []rlsCall{toEdge(d), toEdge(d), toEdge(d), toEdge(look)}
	}, false, false},
	"same-counter": {func(salt string) []rlsCall {
		two := toEdge(descriptor("tenant", salt+"s", "path", "/export/1"), descriptor("tenant", salt+"s", "path", "/export/2"))
		return []rlsCall{two, two}
	}, false, false},
	"shadow-over": {func(salt string) []rlsCall {
		both := toEdge(descriptor("watched", salt+"o"), descriptor("user", salt+"w"))
		return []rlsCall{both, both, both}
	}, false, false},
	"underscore": {func(salt string) []rlsCall {
		one, other := toEdge(descriptor("a", "b_"+salt)), toEdge(descriptor("a_b", salt))
		return []rlsCall{one, one, other}
	}, true, false},
	"underscore-file": {func(salt string) []rlsCall {
		both := toEdge(descriptor("c", "d"), descriptor("e_f", salt))
		return []rlsCall{both, both, both}
	}, true, false},
	"negative-hits": {func(salt string) []rlsCall {
		d := descriptor("user", salt+"n")
		back := descriptor("user", salt+"n")
		back.HitsAddend, back.IsNegativeHits = wrapperspb.UInt64(2), true
		return []rlsCall{toEdge(d), toEdge(d), toEdge(back), toEdge(d)}
	}, true, false},
	"override-counter": {func(salt string) []rlsCall {
		d := descriptor("user", salt+"o")
		brought := descriptor("user", salt+"o")
		brought.Limit = &ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: typev3.RateLimitUnit_DAY}
		return []rlsCall{toEdge(d), toEdge(d), toEdge(d), toEdge(brought)}
	}, true, false},
	"malformed": {func(string) []rlsCall {
		return []rlsCall{toEdge(descriptor("", "v"))}
	}, false, false},
}

// TestEnvoyPeersDiffer: each difference that docs/envoy.md lists is one, each that is one is listed, and weir lets pass what the
// other one refuses only where the list says so.
func TestEnvoyPeersDiffer(t *testing.T) {
	text, err := os.ReadFile("../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(text), "| difference | allows more |")
	if !found {
		t.Fatal("docs/envoy.md has no list of differences")
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for name, d := range differences {
		more := "no"
		if d.admits {
			more = "yes"
		}
		if !strings.Contains(list, "\n| `"+name+"` | "+more+" |") {
			t.Errorf("docs/envoy.md does not list %q with %q", name, more)
		}
	}
	if n := strings.Count(list, "\n| `"); n != len(differences) {
		t.Errorf("docs/envoy.md lists %d differences, want %d", n, len(differences))
	}
	type pair struct{ upstream, own *grpc.ClientConn }
	asked := map[bool]pair{}
	for _, counting := range []bool{false, true} {
		upstream, own := peers(t, peersConfig, counting)
		asked[counting] = pair{upstream, own}
	}
	inOneDay(t, func(salt string) (wrong []string) {
		for name, d := range differences {
			var before, after limited
			for _, call := range d.asked(salt) {
				before, after = told(t, asked[d.counting].upstream, call), told(t, asked[d.counting].own, call)
			}
			admits := before.refused() && !after.refused()
			if before.is(after) || admits != d.admits {
				wrong = append(wrong, unlike(name, before, after))
			}
		}
		return wrong
	})
}

// TestEnvoyPeersWindows: minutes, hours, days and weeks end at the same time. Months and years are those of the calendar, and there of
// 30 and 365 days since 1970.
func TestEnvoyPeersWindows(t *testing.T) {
	var config strings.Builder
	config.WriteString("domain: edge\ndescriptors:\n")
	for _, unit := range []string{"minute", "hour", "day", "week", "month", "year"} {
		fmt.Fprintf(&config, "  - {key: %s, rate_limit: {unit: %s, requests_per_unit: 1000}}\n", unit, unit)
	}
	upstream, own := peers(t, config.String(), false)
	left := func(conn *grpc.ClientConn, unit string) time.Duration {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		got, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, toEdge(descriptor(unit, "v")), grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return got.GetStatuses()[0].GetDurationUntilReset().AsDuration()
	}
	const day = 24 * time.Hour
	for unit, length := range map[string]time.Duration{
		"minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day, "month": 30 * day, "year": 365 * day,
	} {
		var there, here, counted, calendar time.Duration
		agrees := func() bool {
			there, here = left(upstream, unit), left(own, unit)
			now := time.Now().UTC()
			counted = length - time.Duration(now.UnixNano())%length
			switch calendar = counted; unit {
			case "month":
				calendar = time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC).Sub(now)
			case "year":
				calendar = time.Date(now.Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).Sub(now)
			}
			return near(there, counted) && near(here, calendar)
		}
		left(upstream, unit) // both have been asked before they are compared
		left(own, unit)
		same := agrees()
		if !same { // a window may have ended in between
			same = agrees()
		}
		if !same {
			t.Errorf("%s: %v there, want %v, and %v here, want %v", unit, there, counted, here, calendar)
		}
	}
}

// TestEnvoyPeersAtRandom makes configurations and calls from a seed. Every answer is the same: to calls of one hit where those that are
// refused are not counted, and to calls of several, such as a proxy tells the cost of a request by, where all are.
func TestEnvoyPeersAtRandom(t *testing.T) {
	for seed := range uint64(5) {
		several := seed >= 3
		random := rand.New(rand.NewPCG(seed, 7))
		var config strings.Builder
		config.WriteString("domain: edge\ndescriptors:\n")
		values := []string{"", "v0", "v1", "v*"}
		for k := range 4 {
			for _, i := range random.Perm(len(values))[:2+random.IntN(2)] {
				fmt.Fprintf(&config, "  - key: k%d\n", k)
				if values[i] != "" {
					fmt.Fprintf(&config, "    value: %q\n", values[i])
				}
				fmt.Fprintf(&config, "    share_threshold: %t\n", strings.Contains(values[i], "*") && random.IntN(2) == 0)
				limit := fmt.Sprintf("{unit: day, requests_per_unit: %d}", random.IntN(7))
				if random.IntN(8) == 0 {
					limit = "{unlimited: true}"
				}
				fmt.Fprintf(&config, "    rate_limit: %s\n", limit)
				if random.IntN(2) == 0 {
					fmt.Fprintf(&config, "    descriptors:\n      - {key: sub, rate_limit: {unit: day, requests_per_unit: %d}}\n",
						random.IntN(7))
				}
			}
		}
		upstream, own := peers(t, config.String(), several)
		refused := 0
		inOneDay(t, func(salt string) (wrong []string) {
			for range 300 {
				var all []*ratelimitcommonv3.RateLimitDescriptor
				for _, k := range random.Perm(4)[:1+random.IntN(2)] {
					pairs := []string{fmt.Sprint("k", k), []string{"v0", "v1", "v2", salt, salt + "0"}[random.IntN(5)]}
					if random.IntN(3) == 0 {
						pairs = append(pairs, "sub", fmt.Sprint(salt, random.IntN(2)))
					}
					all = append(all, descriptor(pairs...))
				}
				call := toEdge(all...)
				if several {
					call.HitsAddend = 2 + random.Uint32N(2)
				}
				before, after := told(t, upstream, call), told(t, own, call)
				if before.refused() {
					refused++
				}
				if !before.is(after) {
					wrong = append(wrong, unlike(fmt.Sprintf("seed %d: %v", seed, all), before, after))
				}
			}
			return wrong
		})
		if refused < 20 || refused > 295 {
			t.Errorf("seed %d: %d of 300 calls were refused: that compares too little", seed, refused)
		}
	}
}
