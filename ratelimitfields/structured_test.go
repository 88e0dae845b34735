package ratelimitfields

import (
	"math"
	"strings"
	"testing"
)

func TestStrings(t *testing.T) {
	for in, want := range map[string]string{
		"":                        `""`,
		"per-client":              `"per-client"`,
		`say "hi" \ bye`:          `"say \"hi\" \\ bye"`,
		" ~":                      `" ~"`,
		strings.Repeat("x", 1024): `"` + strings.Repeat("x", 1024) + `"`,
	} {
		if err := checkString(in); err != nil {
			t.Errorf("checkString(%q): %v", in, err)
		}
		if got := string(appendString(nil, in)); got != want {
			t.Errorf("appendString(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestStringsThatCannotBeWritten(t *testing.T) {
	for _, in := range []string{
		"a\nb", "a\r\nX-Evil: 1", "\x00", "\x1f", "\x7f", "ä", "\xff", "\u65e5", "a\tb", strings.Repeat("x", 1025),
	} {
		if checkString(in) == nil {
			t.Errorf("checkString(%.20q) accepts it", in)
		}
	}
}

func TestIntegersHaveAtMost15Digits(t *testing.T) {
	for in, want := range map[int64]string{
		0: "0", 1: "1", -1: "0", math.MinInt64: "0",
		999_999_999_999_999: "999999999999999", 1_000_000_000_000_000: "999999999999999", math.MaxInt64: "999999999999999",
	} {
		if got := string(appendInteger(nil, in)); got != want {
			t.Errorf("appendInteger(%d) = %s, want %s", in, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for in, want := range map[string]string{"": "::", "trial121323": ":dHJpYWwxMjEzMjM=:", "\r\n\x00\xff": ":DQoA/w==:"} {
		if got := string(appendBytes(nil, []byte(in))); got != want {
			t.Errorf("appendBytes(%q) = %s, want %s", in, got, want)
		}
	}
}
