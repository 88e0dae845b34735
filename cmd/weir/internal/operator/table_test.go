package operator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

//nolint:gosmopolitan // wide characters take two columns
func TestWriteTable(t *testing.T) {
	rows := func() [][]string {
		return [][]string{{"n", "name", "what"}, {"1,000", "äö", "x\x1b[2Jy"}, {"2", "日本", strings.Repeat("z", 100)}}
	}
	var b strings.Builder
	operator.WriteTable(&b, terminal.Output{Width: 20}, rows(), 1, 1)
	want := "    n  name  what\n1,000  äö    x\uFFFD[2Jy\n    2  日本  " + strings.Repeat("z", 100) + "\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	operator.WriteTable(&b, terminal.Output{Width: 20, Interactive: true, Colour: true}, rows(), 1, 1)
	want = "\x1b[1m    n  name  what\x1b[0m\n1,000  äö    x\uFFFD[2Jy\n    2  日本  zzzzzz…\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 0.333: "0.33", 12.34: "12.3", 99.96: "100.0", 100: "100", 12345.6: "12,346"} {
		if got := operator.Rate(n); got != want {
			t.Errorf("%g: %s", n, got)
		}
	}
	for n, want := range map[float64]string{
		-1: "never", 0: "0s", 1e-9: "10ns", 0.000_123_4: "130µs", 0.0421: "43ms", 1.01: "1.1s", 12.3: "13s", 60: "1m", 3600: "1h",
		3725: "1h2m5s", 172_800: "2d", 180_000: "2d2h", 180_001: "2d3h", 1e300: "36600d",
	} {
		if got := operator.Seconds(n); got != want {
			t.Errorf("%g: %s, want %s", n, got, want)
		}
	}
	if got := operator.Time(time.Time{}) + operator.Time(time.Unix(0, 0)); got != "-1970-01-01 00:00:00 UTC" {
		t.Error(got)
	}
	if got := operator.ShownKey("") + operator.ShownKey("a\x07"); got != "(none)a\uFFFD" {
		t.Error(got)
	}
}
