package ratelimitfields_test

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/ratelimitfields"
)

func policies(t *testing.T, all ...ratelimitfields.Policy) *ratelimitfields.Policies {
	t.Helper()
	p, err := ratelimitfields.NewPolicies(all...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func expect(t *testing.T, h http.Header, want map[string]string) {
	t.Helper()
	if len(h) != len(want) {
		t.Errorf("header is %v, want %d fields", h, len(want))
	}
	for name, value := range want {
		if got := strings.Join(h.Values(name), " | "); got != value {
			t.Errorf("%s: %s, want %s", name, got, value)
		}
	}
}

func TestSetAdmitted(t *testing.T) {
	burst := ratelimitfields.Policy{Name: "burst", Quota: 100, Window: time.Minute}
	daily := ratelimitfields.Policy{Name: "daily", Quota: 1000, Window: 24 * time.Hour}
	bytes := ratelimitfields.Policy{
		Name: "peruser", Quota: 65535, Window: 10 * time.Second, Unit: ratelimitfields.ContentBytes,
		PartitionKey: []byte("fixed"),
	}
	slots := ratelimitfields.Policy{Name: "slots", Quota: 4, Unit: ratelimitfields.ConcurrentRequests}
	for _, c := range []struct {
		name          string
		policies      []ratelimitfields.Policy
		states        []ratelimitfields.State
		limit, policy string
	}{
		{
			"one",
			[]ratelimitfields.Policy{burst},
			[]ratelimitfields.State{{Remaining: 50, Reset: 30 * time.Second}},
			`"burst";r=50;t=30`, `"burst";q=100;w=60`,
		},
		{
			"two",
			[]ratelimitfields.Policy{burst, daily},
			[]ratelimitfields.State{{0, 50, 30 * time.Second, nil}, {1, 900, 10 * time.Hour, nil}},
			`"burst";r=50;t=30, "daily";r=900;t=36000`, `"burst";q=100;w=60, "daily";q=1000;w=86400`,
		},
		{
			"two policies, of which one is told",
			[]ratelimitfields.Policy{burst, daily},
			[]ratelimitfields.State{{1, 3, time.Hour, nil}},
			`"daily";r=3;t=3600`, `"burst";q=100;w=60, "daily";q=1000;w=86400`,
		},
		{
			"rounded up",
			[]ratelimitfields.Policy{{Name: "a", Quota: 5, Window: 37500 * time.Millisecond}},
			[]ratelimitfields.State{{Remaining: 1, Reset: 1}},
			`"a";r=1;t=1`, `"a";q=5;w=38`,
		},
		{
			"no window",
			[]ratelimitfields.Policy{{Name: "a", Quota: 5, Window: time.Second - 1}},
			[]ratelimitfields.State{{Remaining: 5}},
			`"a";r=5`, `"a";q=5`,
		},
		{
			"unit",
			[]ratelimitfields.Policy{slots},
			[]ratelimitfields.State{{Remaining: 3}},
			`"slots";r=3`, `"slots";q=4;qu="concurrent-requests"`,
		},
		{
			"partition key of the policy",
			[]ratelimitfields.Policy{bytes},
			[]ratelimitfields.State{{Remaining: 7, Reset: time.Second}},
			`"peruser";r=7;t=1;pk=:Zml4ZWQ=:`, `"peruser";q=65535;qu="content-bytes";w=10;pk=:Zml4ZWQ=:`,
		},
		{
			"partition key of the request",
			[]ratelimitfields.Policy{burst, bytes},
			[]ratelimitfields.State{{1, 7, time.Second, []byte("App-999")}},
			`"peruser";r=7;t=1;pk=:QXBwLTk5OQ==:`,
			`"burst";q=100;w=60, "peruser";q=65535;qu="content-bytes";w=10;pk=:QXBwLTk5OQ==:`,
		},
		{
			"empty partition key",
			[]ratelimitfields.Policy{burst},
			[]ratelimitfields.State{{0, 7, time.Second, []byte{}}},
			`"burst";r=7;t=1;pk=::`, `"burst";q=100;w=60;pk=::`,
		},
		{
			"long partition key",
			[]ratelimitfields.Policy{burst},
			[]ratelimitfields.State{{0, 7, time.Second, make([]byte, 1025)}},
			`"burst";r=7;t=1`, `"burst";q=100;w=60`,
		},
		{
			"out of range",
			[]ratelimitfields.Policy{{Quota: math.MaxInt64, Window: math.MaxInt64}},
			[]ratelimitfields.State{{Remaining: math.MaxInt64, Reset: math.MaxInt64}},
			`"default";r=999999999999999;t=9223372037`, `"default";q=999999999999999;w=9223372037`,
		},
		{
			"negative",
			[]ratelimitfields.Policy{burst},
			[]ratelimitfields.State{{Remaining: -3, Reset: -3}},
			`"burst";r=0`, `"burst";q=100;w=60`,
		},
		{
			"escaped",
			[]ratelimitfields.Policy{{Name: `a "b" \c`, Quota: 1}},
			[]ratelimitfields.State{{Remaining: 1}},
			`"a \"b\" \\c";r=1`, `"a \"b\" \\c";q=1`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			new(ratelimitfields.Headers).SetAdmitted(h, policies(t, c.policies...), c.states...)
			expect(t, h, map[string]string{"Ratelimit": c.limit, "Ratelimit-Policy": c.policy})
		})
	}
}

func TestSetRefused(t *testing.T) {
	const never = weir.Never
	p := policies(t, ratelimitfields.Policy{Name: "a", Quota: 20, Window: 2 * time.Second},
		ratelimitfields.Policy{Name: "b", Quota: 1000, Window: time.Hour})
	for _, c := range []struct {
		name       string
		retryAfter time.Duration
		states     []ratelimitfields.State
		limit      string
		retry      string
	}{
		{
			"t is the wait, not the time until everything is back", 100 * time.Millisecond,
			[]ratelimitfields.State{{Reset: 2 * time.Second}},
			`"a";r=0;t=1`, "1",
		},
		{"rounded up", time.Second + 1, []ratelimitfields.State{{Reset: 2 * time.Second}}, `"a";r=0;t=2`, "2"},
		{"whole seconds", 2 * time.Second, []ratelimitfields.State{{Reset: 2 * time.Second}}, `"a";r=0;t=2`, "2"},
		{"a wait behind others", 9 * time.Second, []ratelimitfields.State{{Reset: 2 * time.Second}}, `"a";r=0;t=9`, "9"},
		{"some are left", time.Second, []ratelimitfields.State{{Remaining: 3, Reset: 2 * time.Second}}, `"a";r=3;t=1`, "1"},
		{
			"limits that did not refuse do not outlast the wait", 3 * time.Second,
			[]ratelimitfields.State{{Policy: 1, Reset: time.Hour}, {Policy: 0, Remaining: 19, Reset: 5 * time.Second}},
			`"b";r=0;t=3, "a";r=19;t=3`, "3",
		},
		{"never", never, []ratelimitfields.State{{Remaining: 3, Reset: 2 * time.Second}}, `"a";r=3;t=2`, ""},
		{"unknown", 0, []ratelimitfields.State{{}}, `"a";r=0`, ""},
		{"almost never", never - 1, []ratelimitfields.State{{}}, `"a";r=0;t=9223372037`, "9223372037"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			seconds := new(ratelimitfields.Headers).SetRefused(h, p, c.retryAfter, c.states...)
			want := map[string]string{
				"Ratelimit": c.limit, "Ratelimit-Policy": `"a";q=20;w=2, "b";q=1000;w=3600`, "Retry-After": c.retry,
			}
			if c.retry == "" {
				delete(want, "Retry-After")
				c.retry = "0"
			}
			expect(t, h, want)
			if strconv.FormatInt(seconds, 10) != c.retry {
				t.Errorf("SetRefused = %d, want %s", seconds, c.retry)
			}
		})
	}
}

func TestOldTrio(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policies(t, ratelimitfields.Policy{Name: "a", Quota: 20, Window: 2 * time.Second})
		state := ratelimitfields.State{Remaining: 19, Reset: 100 * time.Millisecond}
		trio := func(limit, remaining, reset string) map[string]string {
			return map[string]string{
				"X-Ratelimit-Limit": limit, "X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": reset,
			}
		}
		h := http.Header{}
		old := ratelimitfields.Headers{Fields: ratelimitfields.XRateLimit}
		old.SetAdmitted(h, p, state)
		expect(t, h, trio("20", "19", "1"))

		h = http.Header{}
		unix := ratelimitfields.Headers{Fields: ratelimitfields.XRateLimitUnix}
		unix.SetAdmitted(h, p, state)
		expect(t, h, trio("20", "19", strconv.FormatInt(time.Now().Unix()+1, 10)))

		h = http.Header{}
		both := ratelimitfields.Headers{Fields: ratelimitfields.XRateLimit | ratelimitfields.RateLimit11}
		both.SetRefused(h, p, 1500*time.Millisecond, ratelimitfields.State{Reset: 2 * time.Second})
		want := trio("20", "0", "2")
		want["Ratelimit"], want["Ratelimit-Policy"], want["Retry-After"] = `"a";r=0;t=2`, `"a";q=20;w=2`, "2"
		expect(t, h, want)

		h = http.Header{}
		none := ratelimitfields.Headers{Fields: ratelimitfields.NoFields}
		none.SetAdmitted(h, p, state)
		expect(t, h, nil)
		none.SetRefused(h, p, time.Second, state)
		expect(t, h, map[string]string{"Retry-After": "1"})
	})
}

func TestFieldsOfSeveralLimitsAreAdded(t *testing.T) {
	outer := policies(t, ratelimitfields.Policy{Name: "outer", Quota: 10, Window: time.Second})
	inner := policies(t, ratelimitfields.Policy{Name: "inner", Quota: 20, Window: time.Second})
	headers := ratelimitfields.Headers{Fields: ratelimitfields.XRateLimit | ratelimitfields.RateLimit11}
	trio := func(h http.Header) string { return h.Get("X-Ratelimit-Limit") + " " + h.Get("X-Ratelimit-Remaining") }

	h := http.Header{}
	headers.SetAdmitted(h, outer, ratelimitfields.State{Remaining: 3, Reset: time.Second})
	headers.SetAdmitted(h, inner, ratelimitfields.State{Remaining: 4, Reset: time.Second})
	if got, want := strings.Join(h.Values("Ratelimit"), ", "), `"outer";r=3;t=1, "inner";r=4;t=1`; got != want {
		t.Errorf("RateLimit: %s, want %s", got, want)
	}
	if got, want := strings.Join(h.Values("Ratelimit-Policy"), ", "), `"outer";q=10;w=1, "inner";q=20;w=1`; got != want {
		t.Errorf("RateLimit-Policy: %s, want %s", got, want)
	}
	if got := trio(h); got != "10 3" {
		t.Errorf("the trio tells %s, want that with less remaining: 10 3", got)
	}
	headers.SetRefused(h, inner, time.Second, ratelimitfields.State{Remaining: 4})
	if got := trio(h); got != "20 4" {
		t.Errorf("the trio tells %s, want the limit that refused: 20 4", got)
	}
}

func TestCaps(t *testing.T) {
	p := policies(t, ratelimitfields.Policy{Name: "daily", Quota: 1000, Window: 24 * time.Hour})
	for _, c := range []struct {
		name    string
		headers ratelimitfields.Headers
		state   ratelimitfields.State
		want    string
	}{
		{
			"remaining",
			ratelimitfields.Headers{MaxRemaining: 10},
			ratelimitfields.State{Remaining: 900, Reset: 10 * time.Hour},
			`"daily";r=10;t=36000`,
		},
		{
			"less remaining",
			ratelimitfields.Headers{MaxRemaining: 10},
			ratelimitfields.State{Remaining: 9, Reset: 10 * time.Hour},
			`"daily";r=9;t=36000`,
		},
		{
			"share of the window",
			ratelimitfields.Headers{MaxWindow: time.Minute},
			ratelimitfields.State{Remaining: 900, Reset: 10 * time.Hour},
			`"daily";r=1;t=60`,
		},
		{
			"larger share",
			ratelimitfields.Headers{MaxWindow: time.Hour},
			ratelimitfields.State{Remaining: 909, Reset: 10 * time.Hour},
			`"daily";r=90;t=3600`,
		},
		{
			"not less than one",
			ratelimitfields.Headers{MaxWindow: time.Second},
			ratelimitfields.State{Remaining: 2, Reset: 10 * time.Hour},
			`"daily";r=1;t=1`,
		},
		{
			"nothing is left",
			ratelimitfields.Headers{MaxWindow: time.Second},
			ratelimitfields.State{Remaining: 0, Reset: 10 * time.Hour},
			`"daily";r=0;t=1`,
		},
		{
			"shorter window",
			ratelimitfields.Headers{MaxWindow: time.Minute},
			ratelimitfields.State{Remaining: 900, Reset: time.Minute},
			`"daily";r=900;t=60`,
		},
		{
			"extreme",
			ratelimitfields.Headers{MaxWindow: 2 * time.Second},
			ratelimitfields.State{Remaining: math.MaxInt64, Reset: math.MaxInt64},
			`"daily";r=216840;t=2`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			c.headers.SetAdmitted(h, p, c.state)
			if got := h.Get("Ratelimit"); got != c.want {
				t.Errorf("RateLimit: %s, want %s", got, c.want)
			}
		})
	}

	h := http.Header{}
	capped := ratelimitfields.Headers{MaxWindow: time.Minute}
	capped.SetRefused(h, p, time.Hour, ratelimitfields.State{Reset: 10 * time.Hour})
	if h.Get("Ratelimit") != `"daily";r=0;t=60` || h.Get("Retry-After") != "3600" {
		t.Errorf("refused: %v, want t=60 and the true Retry-After", h)
	}
}

func TestJitter(t *testing.T) {
	p := policies(t, ratelimitfields.Policy{Name: "a", Quota: 1, Window: time.Hour})
	for _, c := range []struct {
		random      float64
		want, retry string
	}{
		{0, `"a";r=0;t=100`, "100"},
		{0.5, `"a";r=0;t=105`, "105"},
		{0.999, `"a";r=0;t=110`, "110"},
		{7, `"a";r=0;t=110`, "110"}, // a source that breaks its promise
		{-7, `"a";r=0;t=100`, "100"},
	} {
		headers := ratelimitfields.Headers{Jitter: 10 * time.Second, Random: func() float64 { return c.random }}
		h := http.Header{}
		headers.SetRefused(h, p, 100*time.Second, ratelimitfields.State{Reset: time.Hour})
		if h.Get("Ratelimit") != c.want || h.Get("Retry-After") != c.retry {
			t.Errorf("random %v: %v, want %s and %s", c.random, h, c.want, c.retry)
		}
	}

	headers := ratelimitfields.Headers{Jitter: 10 * time.Second}
	seen := map[string]bool{}
	for range 1000 {
		h := http.Header{}
		headers.SetRefused(h, p, 100*time.Second, ratelimitfields.State{Reset: time.Hour})
		if h.Get("Ratelimit") != `"a";r=0;t=`+h.Get("Retry-After") {
			t.Fatalf("t and Retry-After differ: %v", h)
		}
		seen[h.Get("Retry-After")] = true
	}
	for s := range seen {
		if n, err := strconv.Atoi(s); err != nil || n < 100 || n > 110 {
			t.Errorf("Retry-After: %s, want from 100 to 110", s)
		}
	}
	if len(seen) < 5 {
		t.Errorf("1000 answers had only the waits %v", seen)
	}

	h := http.Header{}
	headers.SetAdmitted(h, p, ratelimitfields.State{Remaining: 1})
	if got := h.Get("Ratelimit"); got != `"a";r=1` {
		t.Errorf("RateLimit: %s, want no t where there is none to jitter", got)
	}
}

// TestRetryAfterIsNotBeforeTheEndOfAnyWindow goes through combinations of everything that has an influence on the two.
func TestRetryAfterIsNotBeforeTheEndOfAnyWindow(t *testing.T) {
	p := policies(t, ratelimitfields.Policy{Name: "a", Quota: 9}, ratelimitfields.Policy{Name: "b", Quota: 9})
	spans := []time.Duration{1, time.Second - 1, time.Second, time.Second + 1, time.Minute, 25 * time.Hour, weir.Never - 1}
	for _, retry := range spans {
		for _, first := range spans {
			for _, second := range spans {
				for _, longest := range []time.Duration{0, time.Second, time.Hour} {
					for _, random := range []float64{0, 0.3, 0.99} {
						headers := ratelimitfields.Headers{
							MaxWindow: longest, Jitter: 3 * time.Second, Random: func() float64 { return random },
						}
						h := http.Header{}
						seconds := headers.SetRefused(h, p, retry,
							ratelimitfields.State{Policy: 0, Reset: first}, ratelimitfields.State{Policy: 1, Reset: second})
						for item := range strings.SplitSeq(h.Get("Ratelimit"), ", ") {
							_, window, _ := strings.Cut(item, ";t=")
							if n, err := strconv.ParseInt(window, 10, 64); err != nil || n > seconds || n < 1 {
								t.Fatalf("Retry-After: %d, RateLimit: %s", seconds, h.Get("Ratelimit"))
							}
						}
						if float64(seconds) < retry.Seconds() {
							t.Fatalf("Retry-After: %d after a wait of %v", seconds, retry)
						}
					}
				}
			}
		}
	}
}

func TestHeadersCheck(t *testing.T) {
	for option, h := range map[string]ratelimitfields.Headers{
		"Fields is 0b1001":           {Fields: ratelimitfields.NoFields | ratelimitfields.RateLimit11},
		"Fields is 0b110":            {Fields: ratelimitfields.XRateLimit | ratelimitfields.XRateLimitUnix},
		"Fields is 0b10000":          {Fields: 1 << 4},
		"MaxRemaining is -1":         {MaxRemaining: -1},
		"MaxWindow is -1s":           {MaxWindow: -time.Second},
		"MaxWindow is 1.5s":          {MaxWindow: 1500 * time.Millisecond},
		"Jitter is -1ns":             {Jitter: -1},
		"Jitter is 24h0m0.000000001": {Jitter: 24*time.Hour + 1},
	} {
		err := h.Check()
		if err == nil || !strings.HasPrefix(err.Error(), "weir: ratelimitfields.Headers."+option) ||
			!strings.Contains(err.Error(), "must be") {
			t.Errorf("Check() = %v, want one about %s", err, option)
		}
	}
	if err := new(ratelimitfields.Headers).Check(); err != nil {
		t.Errorf("the zero value is refused: %v", err)
	}
}

func TestHeadersAllocations(t *testing.T) {
	p := policies(t, ratelimitfields.Policy{Name: "per-client", Quota: 20, Window: 2 * time.Second})
	h := http.Header{}
	headers := ratelimitfields.Headers{Fields: ratelimitfields.RateLimit11 | ratelimitfields.XRateLimit}
	if n := testing.AllocsPerRun(200, func() {
		clear(h)
		headers.SetRefused(h, p, time.Second, ratelimitfields.State{Reset: 2 * time.Second})
	}); n > 2 {
		t.Errorf("writing six fields makes %v allocations, want 2", n)
	}
}

// TestNoWindowEndsAfterRetryAfter, also of what an earlier limit has set: clients that go by it would take the later time for the
// one to come back.
func TestNoWindowEndsAfterRetryAfter(t *testing.T) {
	policies, err := ratelimitfields.NewPolicies(ratelimitfields.Policy{Name: "burst", Quota: 1, Window: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for before, want := range map[string]string{
		`"daily";r=998;t=173`:                        `"daily";r=998;t=2`,
		`"daily";r=998;t=2`:                          `"daily";r=998;t=2`,
		`"daily";r=998`:                              `"daily";r=998`,
		`"a;t=9";r=1;t=17, "b\";t=8";t=9;r=3`:        `"a;t=9";r=1;t=2, "b\";t=8";t=2;r=3`,
		`"far";r=1;t=99999999999999999999;pk=:YQ==:`: `"far";r=1;t=99999999999999999999;pk=:YQ==:`,
	} {
		dst, h := http.Header{"Ratelimit": {before}}, ratelimitfields.Headers{}
		h.SetRefused(dst, policies, 1500*time.Millisecond, ratelimitfields.State{})
		if got := dst["Ratelimit"]; len(got) != 2 || got[0] != want || got[1] != `"burst";r=0;t=2` {
			t.Errorf("%s: %q, want %s first", before, got, want)
		}
	}
}
