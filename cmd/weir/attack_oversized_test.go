package main_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
)

// TestAttackOversized: what is too long, too deep or too large is refused with the right answer, charges no key, costs no memory
// to speak of, and leaves the server as it was.
func TestAttackOversized(t *testing.T) { //nolint:tparallel // its parts have one server
	t.Parallel()
	s := attack(t, "--limit", "5/day", "--burst", "5")
	before, known := resident(t, s.cmd.Process.Pid)
	t.Run("HTTP", func(t *testing.T) { oversizedHTTP(t, s) })
	t.Run("numbers", func(t *testing.T) { oversizedNumbers(t, s) })
	t.Run("RESP", func(t *testing.T) { oversizedRESP(t, s) })
	t.Run("gRPC", func(t *testing.T) { oversizedGRPC(t, s) })
	after, _ := resident(t, s.cmd.Process.Pid)
	if known && after-before > 64<<20 {
		t.Errorf("memory grows from %d to %d MiB", before>>20, after>>20)
	}
	if a, text := s.check(`{"key":"victim","cost":5}`); a.status != 200 {
		t.Errorf("the victim was charged for something that was refused: %d %s", a.status, text)
	}
	s.end()
}

func oversizedHTTP(t *testing.T, s *attacked) {
	t.Helper()
	const head = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
	const mega = 1 << 20
	long := strings.Repeat("x", mega)
	for name, c := range map[string]struct{ request, want string }{
		"header field":    {head + "X-Long: " + long + "\r\n\r\n", " 431 "},
		"header fields":   {head + strings.Repeat("X-Many: x\r\n", 100_000) + "\r\n", " 431 "},
		"URL":             {"GET /" + long + " HTTP/1.1\r\nHost: localhost\r\n\r\n", " 431 "},
		"method":          {long + " / HTTP/1.1\r\nHost: localhost\r\n\r\n", " 431 "},
		"body":            {head + "Content-Length: 1048576\r\n\r\n" + long, " 413 "},
		"length":          {head + "Content-Length: 9223372036854775807\r\n\r\n{", " 413 "},
		"length, huge":    {head + "Content-Length: 99999999999999999999\r\n\r\n{", " 400 "},
		"length, twice":   {head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", " 400 "},
		"chunks":          {head + "Transfer-Encoding: chunked\r\n\r\n100000\r\n" + long + "\r\n0\r\n\r\n", " 413 "},
		"chunk extension": {head + "Transfer-Encoding: chunked\r\n\r\n1;" + long + "\r\n{\r\n0\r\n\r\n", " 400 "},
		"trailer":         {head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX-Long: " + long + "\r\n\r\n", " 400 "},
		"smuggled": {head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
			"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17\r\n\r\n{\"key\":\"victim\"}", " 400 "},
	} {
		got := exchangeRaw(t, s.address, c.request)
		if line, _, _ := strings.Cut(got, "\r\n"); !strings.Contains(line, c.want) || strings.Count(got, "HTTP/1.1 ") != 1 {
			t.Errorf("%s: %.300q, want%s", name, got, c.want)
		}
	}
	hiddenRequests(t, s)
	depth := strings.Repeat("[", 30_000)
	for body, want := range map[string]int{
		`{"key":"` + strings.Repeat("k", 1025) + `"}`:      200,
		`{"key":"` + strings.Repeat(`\u0000`, 1024) + `"}`: 200, // 1024 bytes are a key, whichever they are
		`{"key":"victim","cost":` + depth:                  400,
		depth:                                              400,
		`{"key":"victim",` + strings.Repeat(`"key":"victim",`, 4000) + `"a":1}`:  400,
		`{"policy":"` + strings.Repeat("p", 60_000) + `","key":"victim"}`:        404,
		`{"key":"victim"}` + strings.Repeat(" ", 65_000):                         200,
		`{"key":"victim","cost":0}` + strings.Repeat("{", 1000):                  400,
		`{"key":"victim","wait":1` + strings.Repeat("0", 60_000) + `}`:           400,
		`{"key":"victim","cost":0.` + strings.Repeat("0", 60_000) + `1}`:         400,
		`{"key":"\ud800victim` + strings.Repeat(`\ud800`, 100) + `","cost":"1"}`: 400,
	} {
		if a, text := s.request("POST", "/v1/check", body); a.status != want || len(text) > 2000 {
			t.Errorf("%.60s: %d %.300s, want %d", body, a.status, text, want)
		}
	}
	// That one was the victim's own.
	if got, err := s.redis().Do(t.Context(), "WEIR.REFUND", "default", "victim", 1).Result(); err != nil ||
		!strings.Contains(fmt.Sprint(got), "remaining:5") {
		t.Errorf("%v, error %v", got, err)
	}
	for path, body := range map[string]string{
		"/v1/batch":  `{"checks":[` + strings.Repeat(`{"key":"victim"},`, 1000) + `{"key":"victim"}]}`,
		"/v1/decide": depth,
	} {
		if a, text := s.request("POST", path, body); a.status != 400 {
			t.Errorf("%s: %d %.300s", path, a.status, text)
		}
	}
}

// hiddenRequests have a second one behind them, or in them, which must not be answered.
func hiddenRequests(t *testing.T, s *attacked) {
	t.Helper()
	const (
		check  = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		body   = `{"key":"victim","cost":0}`
		chunks = "19\r\n" + body + "\r\n0\r\n\r\n"
		hidden = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{\"key\":\"victim\"}"
	)
	for fields, want := range map[string]string{
		"Content-Length: 5\r\nTransfer-Encoding: chunked":               " 200 ",
		"Transfer-Encoding: chunked\r\nContent-Length: 200":             " 200 ",
		"transfer-encoding:\tCHUNKED\r\ncontent-length: 25":             " 200 ",
		"Transfer-Encoding:\r\n chunked\r\nContent-Length: 25":          " 200 ",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked":      " 501 ",
		"Transfer-Encoding: chunked, identity":                          " 501 ",
		"Transfer-Encoding: identity\r\nContent-Length: 25":             " 501 ",
		"Transfer-Encoding: \x0bchunked\r\nContent-Length: 25":          " 400 ",
		"Transfer-Encoding : chunked\r\nContent-Length: 25":             " 400 ",
		"Content-Length: 25, 25":                                        " 400 ",
		"Content-Length: +25":                                           " 400 ",
		"Content-Length: 25\r\nContent-Length: 026":                     " 400 ",
		"X: a\rTransfer-Encoding: chunked\r\nContent-Length: 25":        " 400 ",
		"X: a\x00\r\nContent-Length: 25":                                " 400 ",
		"Content-Length: 25\r\n\tTransfer-Encoding: chunked":            " 400 ",
		"Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\nA: b": " 400 ",
	} {
		got := exchangeRaw(t, s.address, check+fields+"\r\n\r\n"+chunks+hidden)
		if line, _, _ := strings.Cut(got, "\r\n"); !strings.Contains(line, want) || strings.Count(got, "HTTP/1.1 ") != 1 {
			t.Errorf("%q: %.300q, want%sand nothing behind it", fields, got, want)
		}
	}
}

func oversizedNumbers(t *testing.T, s *attacked) {
	t.Helper()
	client := s.redis()
	for _, n := range []string{
		"-1", "-0", "1.5", "1e3", "1e400", "0x10", "+1", "01", "1000000000000001", "9223372036854775807", "9223372036854775808",
		"18446744073709551616", "-9223372036854775808", strings.Repeat("9", 5000), "NaN", "Infinity", "null", `"1"`, "[]",
		"true", "",
	} {
		if a, text := s.request("POST", "/v1/check", `{"key":"victim","cost":`+n+`}`); a.status != 400 {
			t.Errorf("HTTP: cost %.30s: %d %.300s", n, a.status, text)
		}
		for _, command := range [][]any{
			{"WEIR.TAKE", "default", "victim", n},
			{"CL.THROTTLE", "victim", n, "30", "60"},
			{"CL.THROTTLE", "victim", "15", n, "60"},
			{"CL.THROTTLE", "victim", "15", "30", n},
		} {
			switch n {
			case "1000000000000001": // max_burst is 10^15 there, and this one of it
				continue
			case "-0", "+1", "01": // are numbers to clients of Redis
				continue
			}
			if got, err := client.Do(t.Context(), command...).Result(); err == nil {
				t.Errorf("RESP: %.60v: %v", command, got)
			}
		}
	}
	// More than there ever is, is refused for ever, and takes nothing.
	for _, n := range []string{"6", "4294967296", "1000000000000000"} {
		if a, text := s.request("POST", "/v1/check", `{"key":"victim","cost":`+n+`}`); a.status != 429 ||
			!strings.Contains(text, `"reason":"never"`) || !strings.Contains(text, `"remaining":5`) {
			t.Errorf("cost %s: %d %s", n, a.status, text)
		}
	}
}

func oversizedRESP(t *testing.T, s *attacked) {
	t.Helper()
	for stream, want := range map[string]string{
		"*2147483647\r\n":                        "invalid multibulk length",
		"*1025\r\n":                              "invalid multibulk length",
		"*" + strings.Repeat("9", 30) + "\r\n":   "too big mbulk count string",
		"*1\r\n$2147483647\r\n":                  "invalid bulk length",
		"*1\r\n$65537\r\n":                       "invalid bulk length",
		"*1\r\n$-2\r\n":                          "invalid bulk length",
		"*1\r\n$" + strings.Repeat("9", 30):      "too big bulk count string",
		strings.Repeat("PING ", 20_000) + "\r\n": "too big inline request",
		"*1\r\n*1\r\n*1\r\n$4\r\nPING\r\n":       "expected '$', got '*'",
		"*17\r\n" + strings.Repeat("$65000\r\n"+strings.Repeat("x", 65_000)+"\r\n", 17): "too big command",
	} {
		got := exchangeRaw(t, s.resp, stream)
		if !strings.HasPrefix(got, "-ERR Protocol error: "+want) || strings.Count(got, "\r\n") != 1 {
			t.Errorf("%.40q: %.200q, want %s", stream, got, want)
		}
	}
}

// TestLongKeysAreCounted on every front at which a caller names a key: its client may have chosen it, and a caller may take an error
// for leave. They are counted under a hash, the same on all fronts.
func TestLongKeysAreCounted(t *testing.T) {
	t.Parallel()
	s := attack(t, "--limit", "5/day", "--burst", "5")
	client := s.redis()
	for _, key := range []string{"short", strings.Repeat("k", 129), strings.Repeat("k", 1025), strings.Repeat("k", 1026), strings.Repeat("k", 60_000)} {
		for i, allowed := range []bool{true, true, true, true, true, false, false, false, false} {
			var got string
			switch i % 4 {
			case 0:
				_, got = s.request("POST", "/v1/check", `{"key":"`+key+`"}`)
			case 1:
				_, got = s.request("POST", "/v1/batch", `{"checks":[{"key":"`+key+`"}]}`)
			case 2:
				_, got = s.request("POST", "/v1/reserve", `{"key":"`+key+`","expires_in":3600}`)
			case 3:
				reply, err := client.Do(t.Context(), "WEIR.TAKE", "default", key).Result()
				got = fmt.Sprintf(`"%v %v`, reply, err)
			}
			if !strings.Contains(got, fmt.Sprintf(`"allowed":%t`, allowed)) && !strings.Contains(got, fmt.Sprintf("allowed:%t", allowed)) {
				t.Errorf("%d bytes, call %d: %.300s, want allowed %t", len(key), i, got, allowed)
			}
		}
		if got, err := client.Do(t.Context(), "CL.THROTTLE", key, 0, 1, 3600).Result(); fmt.Sprint(got, err) != "[0 1 0 -1 3600] <nil>" {
			t.Errorf("CL.THROTTLE of %d bytes: %v, %v", len(key), got, err)
		}
		if got, err := client.Do(t.Context(), "WEIR.RESET", "default", key).Result(); err != nil {
			t.Errorf("WEIR.RESET of %d bytes: %v, %v", len(key), got, err)
		}
		if a, text := s.request("POST", "/v1/check", `{"key":"`+key+`"}`); a.status != 200 || !strings.Contains(text, `"remaining":4`) {
			t.Errorf("%d bytes after a reset: %d %.300s", len(key), a.status, text)
		}
	}
	s.end()
}

func oversizedGRPC(t *testing.T, s *attacked) {
	t.Helper()
	conn := s.dial()
	client := ratelimitv3.NewRateLimitServiceClient(conn)
	entries := func(n int, key, value string) *commonratelimitv3.RateLimitDescriptor {
		d := new(commonratelimitv3.RateLimitDescriptor)
		for range n {
			d.Entries = append(d.Entries, &commonratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		return d
	}
	many := func(n int) (all []*commonratelimitv3.RateLimitDescriptor) {
		for range n {
			all = append(all, entries(1, "k", "v"))
		}
		return all
	}
	const k64, mega = 1 << 16, 1 << 20
	const ok, over = ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OVER_LIMIT
	for name, c := range map[string]struct {
		r    *ratelimitv3.RateLimitRequest
		want ratelimitv3.RateLimitResponse_Code
	}{
		"message":     {&ratelimitv3.RateLimitRequest{Domain: strings.Repeat("d", 2*mega)}, over},
		"descriptors": {&ratelimitv3.RateLimitRequest{Domain: "d", Descriptors: many(1025)}, over},
		"entries": {&ratelimitv3.RateLimitRequest{
			Domain: "d", Descriptors: []*commonratelimitv3.RateLimitDescriptor{entries(1025, "k", "v")},
		}, over},
		"value": {&ratelimitv3.RateLimitRequest{
			Domain: "d", Descriptors: []*commonratelimitv3.RateLimitDescriptor{entries(1, "k", strings.Repeat("v", k64))},
		}, ok},
		"addend": {&ratelimitv3.RateLimitRequest{
			Domain: "d", Descriptors: []*commonratelimitv3.RateLimitDescriptor{{
				Entries: entries(1, "k", "v").GetEntries(), HitsAddend: wrapperspb.UInt64(math.MaxUint64),
			}},
		}, ok},
	} {
		if got, err := client.ShouldRateLimit(t.Context(), c.r); err != nil || got.GetOverallCode() != c.want {
			t.Errorf("%s: %.300v, %.300v, want %v", name, got, err, c.want)
		}
	}
	long := &ratelimitv3.RateLimitRequest{Domain: strings.Repeat("d", 256), Descriptors: many(1)}
	if _, err := client.ShouldRateLimit(t.Context(), long); status.Code(err) != codes.InvalidArgument {
		t.Errorf("domain: %.300v, want %v", err, codes.InvalidArgument)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-long", strings.Repeat("x", 128<<10))
	if _, err := client.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: "d", Descriptors: many(1)}); err == nil {
		t.Error("header fields of 128 KiB are taken")
	}
	if _, err := descriptor(t.Context(), conn, "d", "k", "v"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
