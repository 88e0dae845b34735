package flags_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/manualclock"
)

func parse(args ...string) (flags.Limit, error) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var l flags.Limit
	l.Register(fs)
	return l, fs.Parse(args)
}

func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		args  string
		rate  weir.Rate
		burst int64
		by    string
	}{
		{"", weir.PerSecond(10), 20, "client"},
		{"--limit 10/s", weir.PerSecond(10), 10, "client"},
		{"--limit 0.5/s", weir.Per(1, 2e9), 1, "client"},
		{"--limit 1000/24h --by none", weir.PerDay(1000), 1000, "none"},
		{"--burst 3", weir.PerSecond(10), 3, "client"},
		{"--burst 5_000 --limit 8/min --by host,path --max-keys 7", weir.PerMinute(8), 5000, "host,path"},
	} {
		l, err := parse(strings.Fields(c.args)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		if l.EffectiveRate() != c.rate || l.EffectiveBurst() != c.burst || l.By.String() != c.by {
			t.Errorf("%s: %v by %v, want %v burst %d by %s", c.args, &l, l.By, c.rate, c.burst, c.by)
		}
		limiter, err := l.New("p", manualclock.New(0))
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		if d := limiter.Peek("k", 1); d.Limit != c.burst || d.Policy != "p" {
			t.Errorf("%s: %+v", c.args, d)
		}
		if st := limiter.Stats(); st.MaxKeys != int64(l.MaxKeys) {
			t.Errorf("%s: %d keys at most", c.args, st.MaxKeys)
		}
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--limit 10":         "must be permits/period such as 10/s",
		"--limit 10/fort":    "period: must be a unit",
		"--limit 0/s":        "must be from 1 to 10^15",
		"--limit x/s":        "permits: must be a number",
		"--limit 10req/min":  `did you mean "10/min"?`,
		"--burst 0":          "must be a whole number from 1 to 1000000000000000",
		"--burst -1":         "must be a whole number from 1 to 1000000000000000",
		"--burst 1.5":        "must be a whole number",
		"--max-keys 0":       "must be a whole number from 1 to 2147483648",
		"--max-keys 1e6":     "must be a whole number",
		"--by nobody":        "client.ip, client.net",
		"--by header:Host,x": "is written host",
	} {
		_, err := parse(strings.Fields(args)...)
		if err == nil {
			t.Errorf("%s: no error", args)
		} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "weir:") {
			t.Errorf("%s: %q, want it to contain %q", args, err, want)
		}
	}
}

func TestValuesThatDoNotGoTogether(t *testing.T) {
	l, err := parse("--limit", "1/day", "--burst", "1000000")
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.New("p", nil)
	var wrong *flags.Error
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), `--burst "1000000": must be`) {
		t.Errorf("%v", err)
	}
}
