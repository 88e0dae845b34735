package weir_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
)

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		text string
		want weir.Rate
	}{
		{"10/s", weir.PerSecond(10)},
		{"10/sec", weir.PerSecond(10)},
		{"10/second", weir.PerSecond(10)},
		{"8/m", weir.PerMinute(8)},
		{"8/min", weir.PerMinute(8)},
		{"8/minute", weir.PerMinute(8)},
		{"3/h", weir.PerHour(3)},
		{"3/hour", weir.PerHour(3)},
		{"1000/d", weir.PerDay(1000)},
		{"1000/day", weir.PerDay(1000)},
		{"5/w", weir.Per(5, 7*day)},
		{"5/week", weir.Per(5, 7*day)},
		{"1/ns", weir.Per(1, 1)},
		{"2/us", weir.Per(2, time.Microsecond)},
		{"2/µs", weir.Per(2, time.Microsecond)}, // micro sign
		{"2/μs", weir.Per(2, time.Microsecond)}, // Greek mu
		{"7/ms", weir.Per(7, time.Millisecond)},
		{"7/3ms", weir.Per(7, 3*time.Millisecond)},
		{"1000/24h", weir.PerDay(1000)},
		{"1/7d", weir.Per(1, 7*day)},
		{"1/2w", weir.Per(1, 14*day)},
		{"1/30min", weir.Per(1, 30*time.Minute)},
		{"1/1m30s", weir.Per(1, 90*time.Second)},
		{"1/1.5s", weir.Per(1, 1500*time.Millisecond)},
		{"1/1h0m0.000000001s", weir.Per(1, time.Hour+1)},
		{"6/3s", weir.Per(6, 3*time.Second)}, // not reduced: the two integers are kept
		{" 10 / s ", weir.PerSecond(10)},
		{"1_000_000/s", weir.PerSecond(1e6)},
		{"007/s", weir.PerSecond(7)},
		{"0.5/s", weir.Per(1, 2*time.Second)},
		{"0.25/min", weir.Per(1, 4*time.Minute)},
		{"2.5/s", weir.Per(5, 2*time.Second)},
		{"1_000.5/s", weir.Per(2001, 2*time.Second)},
		{"1.0/s", weir.PerSecond(1)},
		{"1.000000000/s", weir.PerSecond(1)},
		{"0.00000001/s", weir.Per(1, 1e8*time.Second)},
		{"0.33333333/s", weir.Per(33333333, 1e8*time.Second)},
		{"0.333333333/ms", weir.Per(333333333, 1e9*time.Millisecond)},
		{"0.1/1m30s", weir.Per(1, 15*time.Minute)},
		{"1/87840h", weir.Per(1, 3660*day)},
		{"1/3660d", weir.Per(1, 3660*day)},
		{"1000000000/s", weir.PerSecond(1e9)},
		{"1000000000000000/3660d", weir.Per(1e15, 3660*day)},
	} {
		got, err := weir.ParseRate(c.text)
		if got != c.want || err != nil {
			t.Errorf("ParseRate(%q) = %v, %v, want %v", c.text, got, err, c.want)
		}
	}
}

func TestParseRateRefuses(t *testing.T) {
	const (
		syntax  = "must be permits/period such as 10/s, 8/min, 1000/24h or 0.5/s"
		number  = "permits: must be a number above 0, up to 10^15"
		decimal = "permits: must have from 1 to 9 decimals, or no point"
		period  = "period: must be a unit (s, min, h, day, ...), a number with a unit (24h), or a duration (1m30s)"
		length  = "period: must be from 1ns to 87840h (3660 days)"
	)
	for _, c := range []struct{ text, want string }{
		{"", `rate "": ` + syntax},
		{"10", `rate "10": ` + syntax},
		{"10s", `rate "10s": ` + syntax},
		{"10 per s", `rate "10 per s": ` + syntax},
		{"/s", `rate "/s": permits: ` + syntax},
		{"_1/s", `rate "_1/s": permits: ` + syntax},
		{"1_/s", `rate "1_/s": permits: ` + syntax},
		{"1__0/s", `rate "1__0/s": permits: ` + syntax},
		{".5/s", `rate ".5/s": permits: ` + syntax},
		{"5./s", `rate "5./s": ` + decimal},
		{"0.1234567890/s", `rate "0.1234567890/s": ` + decimal},
		{"1.5_0/s", `rate "1.5_0/s": ` + number},
		{"1.2.3/s", `rate "1.2.3/s": ` + number},
		{"ten/s", `rate "ten/s": ` + number},
		{"+1/s", `rate "+1/s": ` + number},
		{"-1/s", `rate "-1/s": ` + number},
		{"-0.5/s", `rate "-0.5/s": ` + number},
		{"1e3/s", `rate "1e3/s": ` + number},
		{"1,5/s", `rate "1,5/s": ` + number},
		{"0x10/s", `rate "0x10/s": ` + number},
		{"NaN/s", `rate "NaN/s": ` + number},
		{"Inf/s", `rate "Inf/s": ` + number},
		{"1 0/s", `rate "1 0/s": ` + number},
		{"٣/s", `rate "٣/s": ` + number},
		{"9223372036854775808/s", `rate "9223372036854775808/s": ` + number},
		{"0/s", "rate of 0 permits per 1s: must be from 1 to 10^15 permits"},
		{"0.0/s", `rate "0.0/s": must be more than 0`},
		{"1000000000000001/s", "rate of 1000000000000001 permits per 1s: must be from 1 to 10^15 permits"},
		{"10/", `rate "10/": ` + period},
		{"1/15seconds", `rate "1/15seconds": ` + period}, // units have no plural
		{"10/S", `rate "10/S": ` + period},
		{"10/parsec", `rate "10/parsec": ` + period},
		{"10/5", `rate "10/5": ` + period},
		{"10/s/s", `rate "10/s/s": ` + period},
		{"10//s", `rate "10//s": ` + period},
		{"10/24 h", `rate "10/24 h": ` + period},
		{"10/1.5.s", `rate "10/1.5.s": ` + period},
		{"10/1d12h", `rate "10/1d12h": ` + period},
		{"10/0s", `rate "10/0s": ` + length},
		{"10/3661d", `rate "10/3661d": ` + length},
		{"10/99999999999999999999h", `rate "10/99999999999999999999h": ` + length},
		{"10/9223372036854775807w", `rate "10/9223372036854775807w": ` + length},
		{"10/year", `rate "10/year": period: a year has no fixed length: must be one such as 30d, or a calendar window`},
		{"10/-1s", "rate of 10 permits per -1s: must be per 1ns to 87840h (3660 days)"},
		{"10/0m0s", "rate of 10 permits per 0s: must be per 1ns to 87840h (3660 days)"},
		{"10/87840h1s", "rate of 10 permits per 87840h0m1s: must be per 1ns to 87840h (3660 days)"},
		{"0.333333333/s", `rate "0.333333333/s": in whole numbers 333333333 permits per 277777h46m40s: must be per 1ns to 87840h (3660 days)`},
		{"0.5/3660d", `rate "0.5/3660d": in whole numbers 1 permit per 175680h0m0s: must be per 1ns to 87840h (3660 days)`},
		{"1.5/ns", `rate "1.5/ns": in whole numbers 3 permits per 2ns: must be at most 1000000000 permits per second`},
		{"0.000000001/3660d", `rate "0.000000001/3660d": less than 1 per 87840h (3660 days)`},
		{"2/ns", "rate of 2 permits per 1ns: must be at most 1000000000 permits per second"},
		{"1000000001/s", "rate of 1000000001 permits per 1s: must be at most 1000000000 permits per second"},
		{
			strings.Repeat("9", 100) + "/s", // an error shows no more than a part of what may be a whole file
			`rate "` + strings.Repeat("9", 40) + `": ` + number,
		},
	} {
		r, err := weir.ParseRate(c.text)
		if err == nil || r != (weir.Rate{}) {
			t.Errorf("ParseRate(%q) = %v, %v", c.text, r, err)
			continue
		}
		if want := "weir: " + c.want; err.Error() != want {
			t.Errorf("ParseRate(%q):\n got %s\nwant %s", c.text, err, want)
		}
	}
}

func TestRateString(t *testing.T) {
	for _, c := range []struct {
		rate weir.Rate
		want string
	}{
		{weir.PerSecond(10), "10/s"},
		{weir.PerMinute(8), "8/min"},
		{weir.PerHour(3), "3/h"},
		{weir.PerDay(1000), "1000/day"},
		{weir.Per(1, 7*day), "1/168h"},
		{weir.Per(7, 3*time.Millisecond), "7/3ms"},
		{weir.Per(5, 90*time.Second), "5/1m30s"},
		{weir.Per(5, 30*time.Minute), "5/30m"},
		{weir.Per(5, 90*time.Minute), "5/1h30m"},
		{weir.Per(5, 20*time.Hour), "5/20h"},
		{weir.Per(5, time.Hour+time.Second), "5/1h0m1s"},
		{weir.Per(1, 1), "1/1ns"},
		{weir.Per(3, 1500), "3/1.5µs"},
		{weir.Rate{}, "0/0s"},
	} {
		if got := c.rate.String(); got != c.want {
			t.Errorf("%d per %d ns is %q, want %q", c.rate.Permits, c.rate.Period, got, c.want)
		}
	}
}

func TestRateIsReadBackAsItWasWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		period := time.Duration(1 + rng.Int64N(int64(1)<<rng.IntN(58)))
		r := weir.Per(1+rng.Int64N(min(int64(period), 1e15)), min(period, 3660*day))
		if r.Check() != nil {
			continue
		}
		if back, err := weir.ParseRate(r.String()); err != nil || back != r {
			t.Fatalf("%d per %d ns is written %q and read %v, %v", r.Permits, r.Period, r, back, err)
		}
	}
}

func TestRateAsText(t *testing.T) {
	type config struct {
		Limit weir.Rate `json:"limit"`
	}
	text, err := json.Marshal(config{weir.PerMinute(8)})
	if err != nil || string(text) != `{"limit":"8/min"}` {
		t.Errorf("%s, %v", text, err)
	}
	var c config
	if err := json.Unmarshal([]byte(`{"limit": "0.5/s"}`), &c); err != nil || c.Limit != weir.Per(1, 2*time.Second) {
		t.Errorf("%v, %v", c, err)
	}
	if err := json.Unmarshal([]byte(`{"limit": "5/fortnight"}`), &c); err == nil || c.Limit != weir.Per(1, 2*time.Second) {
		t.Errorf("%v, %v", c, err)
	}
	if text, err := (weir.Rate{}).MarshalText(); err == nil {
		t.Errorf("a rate that is not valid is written as %q", text)
	}
}

func FuzzParseRate(f *testing.F) {
	for _, text := range []string{
		"10/s", "8/min", "1000/24h", "0.5/s", "7/3ms", "1_000_000/s", "1/1m30s", "1/1.5s", " 1 / d ", "2/μs", "0.000000001/3660d",
		"1000000000000000/3660d", "9223372036854775808/s", "1/9223372036854775807w", "", "/", "1/", "/s", "1/0s", "1/-1s", "-1/s",
		"1__0/s", "1.5_0/s", "1e3/s", "\xff/s", "10/s\x00", "0.000000000/s", "1.000000000/1ns",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := weir.ParseRate(text)
		if err != nil {
			if r != (weir.Rate{}) || !strings.HasPrefix(err.Error(), "weir: rate ") || len(err.Error()) > 400 {
				t.Errorf("ParseRate(%q) = %v, %q", text, r, err)
			}
			return
		}
		if err := r.Check(); err != nil {
			t.Fatalf("ParseRate(%q) = %v, which is not valid: %v", text, r, err)
		}
		if back, err := weir.ParseRate(r.String()); err != nil || back != r {
			t.Errorf("ParseRate(%q) = %q, which is read as %v, %v", text, r, back, err)
		}
		if _, err := weir.New(weir.TokenBucket(r, 1), weir.Options{}); err != nil {
			t.Errorf("ParseRate(%q) = %v, which no token bucket accepts: %v", text, r, err)
		}
	})
}

// TestParseLimitSaysWhatIsAccepted: a text that is nearly a limit is refused by an error that shows how to write it.
func TestParseLimitSaysWhatIsAccepted(t *testing.T) {
	for text, want := range map[string]string{
		"10 per second": `a rate is written "10/s"`,
		"10/month":      "a month has no fixed length: must be one such as 30d, or a calendar window",
		"10/s burst 20": `must be a limit such as "10/s, burst 20"`,
	} {
		if _, err := weir.ParseLimit(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestParseLimitNamesWhatIsOutOfRange: the error of a limit with a number that cannot be is an *OptionError with its field, the
// number as it was written, and the range.
func TestParseLimitNamesWhatIsOutOfRange(t *testing.T) {
	for text, want := range map[string]weir.OptionError{
		"10/s, burst -1":                      {"Limit.Burst", `"-1"`, "a whole number from 1 to 10^15"},
		"10/s, burst 1.5":                     {"Limit.Burst", `"1.5"`, "a whole number from 1 to 10^15"},
		"10/s, burst many":                    {"Limit.Burst", `"many"`, "a whole number from 1 to 10^15"},
		"10/s, burst 9999999999999999999":     {"Limit.Burst", `"9999999999999999999"`, "a whole number from 1 to 10^15"},
		"10/s, burst 0":                       {"Limit.Burst", "0", "from 1 to 10^15"},
		"-1 at once":                          {"Limit.Permits", `"-1"`, "a whole number from 1 to 10^15"},
		"0.5 per day":                         {"Limit.Permits", `"0.5"`, "a whole number from 1 to 10^15"},
		"sliding-window 10/s in 0 segments":   {"Limit.Segments", `"0"`, "a whole number from 1 to 64"},
		"sliding-window 10/s in 999 segments": {"Limit.Segments", `"999"`, "a whole number from 1 to 64"},
		"100 per month from day 0":            {"Limit.Calendar.Day", `"0"`, "a whole number from 1 to 31"},
		"100 per year from April 31st":        {"Limit.Calendar.Day", `"31st"`, "a whole number from 1 to 31"},
		"100 per day from 24:00":              {"Limit.Calendar.Hour", `"24"`, "a whole number from 0 to 23"},
		"100 per day from 08:60":              {"Limit.Calendar.Minute", `"60"`, "a whole number from 0 to 59"},
		"100 per hour from minute -1":         {"Limit.Calendar.Minute", `"-1"`, "a whole number from 0 to 59"},
	} {
		_, err := weir.ParseLimit(text)
		if wrong, ok := errors.AsType[*weir.OptionError](err); !ok || *wrong != want {
			t.Errorf("%q: %v, want %+v", text, err, want)
		}
	}
}

// FuzzParseLimit: a limit that was read can be used, and its text is read back to the same limit.
func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{
		"10/s, burst 20", "10/s", "token-bucket 0.5/min", "fixed-window 100/min", "sliding-window 5/s in 10 segments", "sliding-counter 5/h",
		"4 at once", "1000 per month", "7 per month from day 15, Europe/Vienna", "7 per week from Sunday 08:00, UTC",
		"7 per year from April 6 00:30", "7 per hour from minute 30", "7 per month from day 1", "7 per year from January 1",
		"7 per week from Monday", "7 per quarter from February 30 08:15", "1_000 per day from 08:00, Asia/Tokyo", " per day", "x at once",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := weir.ParseLimit(s)
		if err != nil {
			if l != (weir.Limit{}) {
				t.Errorf("%q: %v with the error %v", s, l, err)
			}
			return
		}
		if wrong := l.Check(); wrong != nil {
			t.Fatalf("%q: %v", s, wrong)
		}
		again, err := weir.ParseLimit(l.String())
		if err != nil || again != l {
			t.Errorf("%q is %v, which is read as %v: %v", s, l, again, err)
		}
	})
}
