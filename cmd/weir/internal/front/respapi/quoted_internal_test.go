package respapi

import (
	"strings"
	"testing"
)

// TestErrorsShowNames: names that clients have sent are in errors once between quotes, bounded, and without half a character.
func TestErrorsShowNames(t *testing.T) {
	for name, want := range map[string]string{
		"":                                `""`,
		"login":                           `"login"`,
		"two words":                       `"two words"`,
		`say "hello"`:                     `"say \"hello\""`,
		"a\xffb":                          `"a\xffb"`,
		"a\r\n-b\x1b[2J":                  `"a\r\n-b\x1b[2J"`,
		"Größe":                           `"Größe"`,
		strings.Repeat("k", 64):           `"` + strings.Repeat("k", 64) + `"`,
		strings.Repeat("k", 65):           `"` + strings.Repeat("k", 61) + `"...`,
		strings.Repeat("k", 4096):         `"` + strings.Repeat("k", 61) + `"...`,
		strings.Repeat("ü", 4096):         `"` + strings.Repeat("ü", 30) + `"...`,
		strings.Repeat("€", 4096):         `"` + strings.Repeat("€", 20) + `"...`,
		strings.Repeat("\U0001F600", 100): `"` + strings.Repeat("\U0001F600", 15) + `"...`,
		strings.Repeat("\xff", 4096):      `"` + strings.Repeat(`\xff`, 61) + `"...`,
		strings.Repeat("\x80", 4096):      `"` + strings.Repeat(`\x80`, 61) + `"...`,
	} {
		got := quoted([]byte(name))
		if got != want || len(got) >= 256 {
			t.Errorf("%.80q: %s, want %s", name, got, want)
		}
	}
	for text, want := range map[string]string{
		"x": "x", "": "", "a\xff": `"a\xff"`, `"`: `"`, strings.Repeat("ü", 64): strings.Repeat("ü", 30) + "...",
		strings.Repeat("\n", 65): `"` + strings.Repeat(`\n`, 61) + `"...`,
	} {
		if got := excerpt([]byte(text)); got != want {
			t.Errorf("%.80q: %s, want %s", text, got, want)
		}
	}
}
