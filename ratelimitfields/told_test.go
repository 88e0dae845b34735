package ratelimitfields_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/ratelimitfields"
)

// toldAt is the time at which the answers of the tests came.
var toldAt = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// header makes a header of lines such as "Retry-After: 5".
func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.TrimPrefix(value, " "))
	}
	return h
}

// TestParseOfRealAnswers is about what servers really send.
func TestParseOfRealAnswers(t *testing.T) {
	const s, r = time.Second, ratelimitfields.Requests
	for _, c := range []struct {
		name   string
		header http.Header
		want   []ratelimitfields.ToldLimit
	}{
		{
			"draft -11, two policies", header(`RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400`,
				`RateLimit: "burst";r=50;t=30, "daily";r=900;t=36000`),
			[]ratelimitfields.ToldLimit{
				{Name: "burst", Unit: r, Limit: 100, Window: 60 * s, Remaining: 50, Reset: 30 * s},
				{Name: "daily", Unit: r, Limit: 1000, Window: 86400 * s, Remaining: 900, Reset: 36000 * s},
			},
		},
		{
			"draft -11 on two lines, with a unit, a partition key and parameters of a vendor",
			header(`RateLimit-Policy: "peruser";q=65535;qu="content-bytes";w=10;pk=:cHsdsRa894==:`,
				`RateLimit: "peruser";r=50;t=30;pk=:cHsdsRa894==:;acme-burst=?1;acme-x=1.5;acme-d=@1659578233`, `RateLimit: other;r=1`),
			[]ratelimitfields.ToldLimit{
				{
					Name: "peruser", Unit: ratelimitfields.ContentBytes, Limit: 65535, Window: 10 * s, Remaining: 50, Reset: 30 * s,
					PartitionKey: []byte("p{\x1d\xb1\x16\xbc\xf7"),
				},
				{Name: "other", Unit: r, Remaining: 1},
			},
		},
		{
			"draft -07", header("RateLimit: limit=100, remaining=50, reset=5", "RateLimit-Policy: 10;w=1, 100;w=60"),
			[]ratelimitfields.ToldLimit{{Unit: r, Limit: 100, Window: 60 * s, Remaining: 50, Reset: 5 * s}},
		},
		{
			"draft -03", header("RateLimit-Limit: 100, 100;w=60;comment=\"x\", 1000;w=3600", "RateLimit-Remaining: 0", "RateLimit-Reset: 50"),
			[]ratelimitfields.ToldLimit{{Unit: r, Limit: 100, Window: 60 * s, Reset: 50 * s}},
		},
		{
			"GitHub: Unix seconds, and the clock of the server", header("Date: Sat, 21 Nov 2026 13:00:00 GMT", "X-RateLimit-Limit: 5000",
				"X-RateLimit-Remaining: 4999", "X-RateLimit-Reset: 1795267200", "X-RateLimit-Used: 1", "X-RateLimit-Resource: core"),
			[]ratelimitfields.ToldLimit{{Unit: r, Limit: 5000, Remaining: 4999, Reset: 20 * time.Minute}},
		},
		{
			"Discord: decimals, and the time that is left", header("X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0",
				"X-RateLimit-Reset: 1795264800.123", "X-RateLimit-Reset-After: 1.5"),
			[]ratelimitfields.ToldLimit{{Unit: r, Limit: 5, Reset: 1500 * time.Millisecond}},
		},
		{
			"X: other hyphens", header("x-rate-limit-limit: 75", "x-rate-limit-remaining: 3", "x-rate-limit-reset: 1795262460"),
			[]ratelimitfields.ToldLimit{{Unit: r, Limit: 75, Remaining: 3, Reset: time.Minute}},
		},
		{
			"Unix milliseconds", header("X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 1795262460000"),
			[]ratelimitfields.ToldLimit{{Unit: r, Remaining: 3, Reset: time.Minute}},
		},
		{
			"OpenAI", header("x-ratelimit-limit-requests: 60", "x-ratelimit-limit-tokens: 150000", "x-ratelimit-remaining-requests: 59",
				"x-ratelimit-remaining-tokens: 149984", "x-ratelimit-reset-requests: 1s", "x-ratelimit-reset-tokens: 6m0s"),
			[]ratelimitfields.ToldLimit{
				{Name: "requests", Unit: r, Limit: 60, Remaining: 59, Reset: s},
				{Name: "tokens", Unit: ratelimitfields.Tokens, Limit: 150000, Remaining: 149984, Reset: 6 * time.Minute},
			},
		},
		{
			"Groq: decimals in durations", header("x-ratelimit-remaining-requests: 14370", "x-ratelimit-reset-requests: 2m59.56s",
				"x-ratelimit-remaining-tokens: 17997", "x-ratelimit-reset-tokens: 20ms"),
			[]ratelimitfields.ToldLimit{
				{Name: "requests", Unit: r, Remaining: 14370, Reset: 179*s + 560*time.Millisecond},
				{Name: "tokens", Unit: ratelimitfields.Tokens, Remaining: 17997, Reset: 20 * time.Millisecond},
			},
		},
		{
			"a limit for each window", header("x-ratelimit-remaining-tokens-minute: 0", "x-ratelimit-reset-tokens-minute: 33.382867"),
			[]ratelimitfields.ToldLimit{{Name: "tokens-minute", Unit: ratelimitfields.Tokens, Reset: 33382867 * time.Microsecond}},
		},
		{
			"Anthropic", header("anthropic-ratelimit-requests-limit: 50", "anthropic-ratelimit-requests-remaining: 49",
				"anthropic-ratelimit-requests-reset: 2026-11-21T12:00:01Z", "anthropic-ratelimit-input-tokens-limit: 40000",
				"anthropic-ratelimit-input-tokens-remaining: 0", "anthropic-ratelimit-input-tokens-reset: 2026-11-21T12:00:37Z",
				"anthropic-ratelimit-output-tokens-remaining: 8000", "anthropic-ratelimit-output-tokens-reset: 2026-11-21T13:00:00+01:00",
				"anthropic-ratelimit-tokens-remaining: 48000", "anthropic-ratelimit-tokens-reset: soon"),
			[]ratelimitfields.ToldLimit{
				{Name: "input-tokens", Unit: ratelimitfields.Tokens, Limit: 40000, Reset: 37 * s},
				{Name: "output-tokens", Unit: ratelimitfields.Tokens, Remaining: 8000},
				{Name: "requests", Unit: r, Limit: 50, Remaining: 49, Reset: s},
				{Name: "tokens", Unit: ratelimitfields.Tokens, Remaining: 48000},
			},
		},
		{
			"Unix microseconds", header("X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 1795262460000000"),
			[]ratelimitfields.ToldLimit{{Unit: r, Remaining: 3, Reset: time.Minute}},
		},
		{
			"days", header("x-ratelimit-remaining-a: 3", "x-ratelimit-reset-a: 1d2h", "x-ratelimit-remaining-b: 3", "x-ratelimit-reset-b: 2d"),
			[]ratelimitfields.ToldLimit{
				{Name: "a", Unit: r, Remaining: 3, Reset: 26 * time.Hour}, {Name: "b", Unit: r, Remaining: 3, Reset: 48 * time.Hour},
			},
		},
		{
			"draft -07 with other members", header("RateLimit: limit=100;x, remaining=50, reset=5, other, more=?1, text=\"a\""),
			[]ratelimitfields.ToldLimit{{Unit: r, Limit: 100, Remaining: 50, Reset: 5 * s}},
		},
		{
			"a date", header("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Sat, 21 Nov 2026 12:01:00 GMT"),
			[]ratelimitfields.ToldLimit{{Unit: r, Reset: time.Minute}},
		},
	} {
		if got := ratelimitfields.Parse(c.header, toldAt); !reflect.DeepEqual(got.Limits, c.want) {
			t.Errorf("%s:\n %+v, want\n %+v", c.name, got.Limits, c.want)
		}
	}
}

func TestParseRetryAfter(t *testing.T) {
	for _, c := range []struct {
		lines string
		want  time.Duration
		ok    bool
	}{
		{"Retry-After: 120", 2 * time.Minute, true},
		{"Retry-After: 0", 0, true},
		{"Retry-After: 0.65", 650 * time.Millisecond, true},
		{"Retry-After: Sat, 21 Nov 2026 12:00:30 GMT", 30 * time.Second, true},
		{"Retry-After: Saturday, 21-Nov-26 12:00:30 GMT", 30 * time.Second, true},
		{"Retry-After: Sat Nov 21 12:00:30 2026", 30 * time.Second, true},
		{"Retry-After: Fri, 20 Nov 2026 12:00:30 GMT", 0, true},
		{"Date: Sat, 21 Nov 2026 11:00:00 GMT\nRetry-After: Sat, 21 Nov 2026 11:00:30 GMT", 30 * time.Second, true},
		{"Date: soon\nRetry-After: Sat, 21 Nov 2026 12:00:30 GMT", 30 * time.Second, true},
		{"Retry-After-Ms: 1500\nRetry-After: 2", 1500 * time.Millisecond, true},
		{"Retry-After-Ms: soon\nRetry-After: 2", 2 * time.Second, true},
		{"Retry-After: 999999999999999", weir.Never, true},
		{"Retry-After: 9999999999999999999999", 0, false},
		{"Retry-After: -1", 0, false},
		{"Retry-After: +1", 0, false},
		{"Retry-After: 1.", 0, false},
		{"Retry-After: .5", 0, false},
		{"Retry-After: 1e3", 0, false},
		{"Retry-After: 0x10", 0, false},
		{"Retry-After: ", 0, false},
		{"Retry-After: NaN", 0, false},
		{"Retry-After: soon", 0, false},
		{"X: 1", 0, false},
	} {
		got := ratelimitfields.Parse(header(strings.Split(c.lines, "\n")...), toldAt)
		if got.RetryAfter != c.want || got.HasRetryAfter != c.ok {
			t.Errorf("%q: %v, %v, want %v, %v", c.lines, got.RetryAfter, got.HasRetryAfter, c.want, c.ok)
		}
	}
}

// TestParseIgnoresMalformedFields is about fields that are ignored as a whole.
func TestParseIgnoresMalformedFields(t *testing.T) {
	for _, field := range []string{
		`"a";r=1;t=1,`, `"a";r=1;t=1 "b";r=1`, `"a;r=1`, `"a";r`, `"a";r=-1`, `"a";r=1;t=-1`, `"a";r=1;t=1.5`, `"a";r="1"`, `"a";t=1`,
		`("a" "b");r=1`, `5;r=1`, `"a";r=1;pk=x`, `"a";r=1;pk=:!:`, `"a";r=1;pk=:YQ==`, `"ä";r=1`, `"a\x";r=1`, `"a";r=1, "b"`,
		`"a";R=1`, `"a";r=1234567890123456`, `"a";r=?2`, `"a";r=1;x=@1.5`, `"a";r=1;x=%"`,
		`"a";r=1;x=%"%C3%BC"`, `"a";r=1;x=%"%4"`, `"a";r=1;x=%"%"`, `"a";r=1;x=%"%ff"`, `limit=1, reset=2`, `limit=1, remaining=-1`,
		`limit=1, remaining=x`, `remaining=1, Limit=2`, ``, ` `, strings.Repeat("a", 9000) + `;r=1`, strings.Repeat(`"a";r=1,`, 64) + `"a";r=1`,
		`"a";r=1` + strings.Repeat(";x", 40),
	} {
		if got := ratelimitfields.Parse(header("RateLimit: "+field), toldAt); len(got.Limits) != 0 {
			t.Errorf("%.60q: %+v, want nothing", field, got.Limits)
		}
	}
	for _, policy := range []string{
		`"a";q=10;w=60,`, `"a";q=10;w=60, "b"`, `"a";q=-10`, `"a";q=10;w=0.5`, `"a";q=10;w=0`, `"a";q=10;w=60, "b";q=1;w=0`,
		`"a";q=10;qu=5`, `"a";q=10;pk=1`, `(1)`, `1;q=1`, "x",
	} {
		got := ratelimitfields.Parse(header(`RateLimit: "a";r=1;t=2`, "RateLimit-Policy: "+policy), toldAt).Limits
		want := []ratelimitfields.ToldLimit{{Name: "a", Unit: ratelimitfields.Requests, Remaining: 1, Reset: 2 * time.Second}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", policy, got, want)
		}
	}
	for _, lines := range []string{
		"X-RateLimit-Remaining: -1\nX-RateLimit-Reset: 5", "X-RateLimit-Remaining: 1.5", "X-RateLimit-Remaining: x", "X-RateLimit-Remaining:",
		"X-RateLimit-Limit: 5\nX-RateLimit-Reset: 5", "X-RateLimit-Remaining-: 5", "X-RateLimit-Remaining-Tokens: many",
		"X-RateLimit-Remaining-" + strings.Repeat("x", 65) + ": 1", "Anthropic-RateLimit-Remaining: 1",
	} {
		if got := ratelimitfields.Parse(header(strings.Split(lines, "\n")...), toldAt); len(got.Limits) != 0 {
			t.Errorf("%q: %+v, want nothing", lines, got.Limits)
		}
	}
	for _, reset := range []string{
		"-5", "x", "", "9999999999999999999999", "5s5", "-5s", "5m-5s", "d5s", "99999999999999d", "2026-13-01T00:00:00Z", "1e9", "5.", "..",
	} {
		got := ratelimitfields.Parse(header("X-RateLimit-Remaining: 1", "X-RateLimit-Reset: "+reset), toldAt).Limits
		if len(got) != 1 || got[0].Reset != 0 {
			t.Errorf("reset %q: %+v, want one without a reset", reset, got)
		}
	}
}

func TestParseIgnoresCachedAnswers(t *testing.T) {
	for age, cached := range map[string]bool{"1": true, "0": false, "86400": true, "x": true, "-1": true} {
		got := ratelimitfields.Parse(header("Age: "+age, `RateLimit: "a";r=0;t=60`, "Retry-After: 60"), toldAt)
		if got.Cached != cached || (len(got.Limits) == 0) != cached || got.HasRetryAfter == cached {
			t.Errorf("Age: %s: %+v", age, got)
		}
	}
}

func TestParseIsBounded(t *testing.T) {
	h := http.Header{}
	for i := range 200 {
		h.Set("X-Ratelimit-Remaining-"+strings.Repeat("a", i%60)+string(rune('a'+i/60)), "0")
	}
	if n := len(ratelimitfields.Parse(h, toldAt).Limits); n != 16 {
		t.Errorf("%d limits of a hostile header, want 16", n)
	}
}

// TestParseJoinsTheLinesOfAFieldOnce has a field of thousands of empty lines. What it costs to join them is linear.
func TestParseJoinsTheLinesOfAFieldOnce(t *testing.T) {
	h := http.Header{"X-Ratelimit-Remaining": {"1"}, "X-Ratelimit-Limit": make([]string, 4000)}
	if allocs := testing.AllocsPerRun(10, func() { ratelimitfields.Parse(h, toldAt) }); allocs > 20 {
		t.Errorf("%v allocations", allocs)
	}
}

// FuzzParse looks for numbers and times that no server may tell, and for what our own fields are read back as.
func FuzzParse(f *testing.F) {
	for _, seed := range [][3]string{
		{`"burst";r=50;t=30, "daily";r=900;t=36000`, `"burst";q=100;w=60`, "120"},
		{"limit=100, remaining=50, reset=5", "100;w=60", "Sat, 21 Nov 2026 12:00:30 GMT"},
		{"50", "1795264800.5", "6m0s"},
		{`a;r=1;pk=:YQ==:;x=@5;y=?1;z=%"%c3"`, "2026-11-21T12:00:37Z", "999999999999999"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for _, h := range []http.Header{
			{"Ratelimit": {a}, "Ratelimit-Policy": {b}, "Retry-After": {c}},
			{"X-Ratelimit-Remaining": {a}, "X-Ratelimit-Reset": {b}, "X-Ratelimit-Limit": {c}, "Date": {c}},
			{"X-Ratelimit-Remaining-Tokens": {a}, "X-Ratelimit-Reset-Tokens": {b}, "X-Ratelimit-Remaining-" + c: {a}, "Age": {c}},
			{"Anthropic-Ratelimit-Tokens-Remaining": {a}, "Anthropic-Ratelimit-Tokens-Reset": {b}, "Retry-After-Ms": {c}},
		} {
			told := ratelimitfields.Parse(h, toldAt)
			if told.RetryAfter < 0 || !told.HasRetryAfter && told.RetryAfter != 0 || len(told.Limits) > 16 {
				t.Fatalf("%q: %+v", h, told)
			}
			for _, l := range told.Limits {
				if l.Limit < 0 || l.Remaining < 0 || l.Reset < 0 || l.Window < 0 || l.Unit == "" && h.Get("Ratelimit-Policy") == "" {
					t.Fatalf("%q: %+v", h, l)
				}
			}
		}
	})
}

// TestParseReadsWhatHeadersWrite sends what this package tells to the side that reads it.
func TestParseReadsWhatHeadersWrite(t *testing.T) {
	p := policies(t, ratelimitfields.Policy{Name: `say "hi" \`, Quota: 100, Window: time.Minute, PartitionKey: []byte{0, 255}},
		ratelimitfields.Policy{Name: "slots", Quota: 4, Unit: ratelimitfields.ConcurrentRequests})
	want := []ratelimitfields.ToldLimit{
		{
			Name: `say "hi" \`, Unit: ratelimitfields.Requests, Limit: 100, Window: time.Minute, Reset: 9 * time.Second,
			PartitionKey: []byte{0, 255},
		},
		{Name: "slots", Unit: ratelimitfields.ConcurrentRequests, Limit: 4, Remaining: 3},
	}
	h := http.Header{}
	headers := ratelimitfields.Headers{}
	headers.SetRefused(h, p, 9*time.Second, ratelimitfields.State{Policy: 0, Reset: time.Minute}, ratelimitfields.State{Policy: 1, Remaining: 3})
	got := ratelimitfields.Parse(h, toldAt)
	if !reflect.DeepEqual(got.Limits, want) || got.RetryAfter != 9*time.Second {
		t.Errorf("%q is read as %+v, want %+v", h, got, want)
	}
	h = http.Header{}
	headers.Fields = ratelimitfields.XRateLimit
	headers.SetAdmitted(h, p, ratelimitfields.State{Policy: 0, Remaining: 7, Reset: time.Minute})
	want = []ratelimitfields.ToldLimit{{Unit: ratelimitfields.Requests, Limit: 100, Remaining: 7, Reset: time.Minute}}
	if got := ratelimitfields.Parse(h, toldAt).Limits; !reflect.DeepEqual(got, want) {
		t.Errorf("%q is read as %+v, want %+v", h, got, want)
	}
}
