package durable_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
)

// TestMeteredAPI: the preset of a metered API, and what the environment makes of it.
func TestMeteredAPI(t *testing.T) {
	eight := weir.PerMinute(8)
	for _, c := range []struct {
		burst, perMinute string
		wantBurst        int64
		wantRate         weir.Rate
		warnings         []string // what each of them says
	}{
		{"", "", 5, eight, nil},
		{"50", "1000", 50, weir.PerMinute(1000), nil},
		{"1", "", 1, eight, nil},
		{"", "0.5", 5, weir.Per(500, 1000*time.Minute), nil},
		{"6", "1e1", 6, weir.PerMinute(10), nil},
		{"7", "7.0004", 7, weir.Per(7000, 1000*time.Minute), nil},
		{"1000000", "60000000", 1_000_000, weir.PerMinute(60_000_000), nil},
		{"1", "0.001", 1, weir.Per(1, 1000*time.Minute), nil},
		{"many", "8", 5, eight, []string{`weir: GEMINI_BURST is "many": must be a whole number from 1 to 1000000: the default 5 is used`}},
		{"5.5", "fast", 5, eight, []string{
			`GEMINI_BURST is "5.5"`, `weir: GEMINI_TOKENS_PER_MINUTE is "fast": must be a number from 0.001 to 60000000: the default 8 is used`,
		}},
		{"0", "0", 5, eight, []string{`GEMINI_BURST is "0"`, `GEMINI_TOKENS_PER_MINUTE is "0"`}},
		{"-1", "-8", 5, eight, []string{`GEMINI_BURST is "-1"`, `GEMINI_TOKENS_PER_MINUTE is "-8"`}},
		{" 5", "8 ", 5, eight, []string{`GEMINI_BURST is " 5"`, `GEMINI_TOKENS_PER_MINUTE is "8 "`}},
		{"1000001", "60000001", 5, eight, []string{`GEMINI_BURST is "1000001"`, `GEMINI_TOKENS_PER_MINUTE is "60000001"`}},
		{"9999999999999999999", "NaN", 5, eight, []string{`GEMINI_BURST is "9999999999999999999"`, `GEMINI_TOKENS_PER_MINUTE is "NaN"`}},
		{"50", "Inf", 50, eight, []string{`GEMINI_TOKENS_PER_MINUTE is "Inf"`}},
		{"x", "0.0009", 5, eight, []string{`GEMINI_BURST is "x"`, `GEMINI_TOKENS_PER_MINUTE is "0.0009"`}},
		{"1000000", "0.001", 5, eight, []string{
			`GEMINI_BURST is "1000000": must be so that together`, `GEMINI_TOKENS_PER_MINUTE is "0.001": must be so that together`,
		}},
	} {
		var warnings []string
		env := map[string]string{durable.BurstVariable: c.burst, durable.PerMinuteVariable: c.perMinute}
		l := durable.MeteredAPI(func(name string) string { return env[name] }, func(text string) { warnings = append(warnings, text) })
		if l.Permits() != c.wantBurst || l.Rate() != c.wantRate || l.Algorithm() != weir.AlgorithmTokenBucket || l.Check() != nil {
			t.Errorf("%q, %q: %v, want %v, burst %d", c.burst, c.perMinute, l, c.wantRate, c.wantBurst)
		}
		if len(warnings) != len(c.warnings) {
			t.Errorf("%q, %q: warnings %q, want %d", c.burst, c.perMinute, warnings, len(c.warnings))
			continue
		}
		for i, want := range c.warnings {
			if !strings.Contains(warnings[i], want) {
				t.Errorf("%q, %q: warning %q, want %q", c.burst, c.perMinute, warnings[i], want)
			}
		}
	}
}

// TestMeteredAPIOfTheProcess reads the environment only where it is asked to, and bounds what a warning repeats.
func TestMeteredAPIOfTheProcess(t *testing.T) {
	t.Setenv(durable.BurstVariable, "12")
	t.Setenv(durable.PerMinuteVariable, strings.Repeat("9", 1000))
	if l := durable.MeteredAPI(nil, nil); l.Permits() != 5 || l.Rate() != weir.PerMinute(8) {
		t.Errorf("the environment must not be read: %v", l)
	}
	if l := durable.MeteredAPI(os.Getenv, nil); l.Permits() != 12 || l.Rate() != weir.PerMinute(8) {
		t.Errorf("%v", l)
	}
	durable.MeteredAPI(os.Getenv, func(text string) {
		if len(text) > 250 {
			t.Errorf("a warning of %d bytes", len(text))
		}
	})
}
