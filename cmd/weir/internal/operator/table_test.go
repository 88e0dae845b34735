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
	operator.WriteTable(&b, terminal.Output{Width: 30, Interactive: true, Colour: true}, rows(), 1, 1)
	want = "\x1b[1m    n  name  what\x1b[0m\n1,000  äö    x\uFFFD[2Jy\n    2  日本  zzzzzzzz…zzzzzzzz\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// TestTablesFit: a terminal that is too narrow leaves out columns with 0 or nothing in all rows, cuts texts in the middle, and in
// the end has rows of several lines.
//
//nolint:gosmopolitan // wide characters take two columns
func TestTablesFit(t *testing.T) {
	rows := func() [][]string {
		return [][]string{
			{"remaining", "queued", "of", "locked out", "policy", "key", "limit"},
			{"12", "0", "1,000,000", "-", "a-policy-with-a-long-name/1m", "2001:db8:1234:5678::/64", "10/s, burst 20"},
			{"3", "0", "5", "-", "b", "日本日本日本日本日本日本日本", "5/min"},
		}
	}
	for width, want := range map[int]string{
		120: "remaining  queued         of  locked out  policy                        key                           limit\n" +
			"       12       0  1,000,000           -  a-policy-with-a-long-name/1m  2001:db8:1234:5678::/64       10/s, burst 20\n" +
			"        3       0          5           -  b                             日本日本日本日本日本日本日本  5/min\n",
		80: "remaining         of  policy                key                   limit\n" +
			"       12  1,000,000  a-policy-w…g-name/1m  2001:db8:1…5678::/64  10/s, burst 20\n" +
			"        3          5  b                     日本日本日… 日本日本  5/min\n" +
			"0 or - in all rows: queued, locked out\n",
		40: "remaining         of  policy\n    key                   limit\n" +
			"       12  1,000,000  a-policy-…-name/1m\n    2001:db8:1…5678::/64  10/s, burst 20\n" +
			"        3          5  b\n    日本日本日… 日本日本  5/min\n" +
			"0 or - in all rows: queued, locked out\n",
	} {
		var b strings.Builder
		operator.WriteTable(&b, terminal.Output{Width: width, Interactive: true}, rows(), 1, 4)
		if b.String() != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", width, b.String(), want)
		}
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
