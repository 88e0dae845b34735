package operator_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

func TestKeysAreSpelled(t *testing.T) {
	for key, want := range map[string]string{
		"":                 "",
		"192.0.2.1":        "192.0.2.1",
		"Größe €":          "Größe €",
		"a\nb\x00":         `a\x0ab\x00`,
		"\u200bzero\u00a0": `\xe2\x80\x8bzero\xc2\xa0`,
		"\x1b[2J\xe9":      `\x1b[2J\xe9`,
		`a\x0ab`:           `a\\x0ab`,
		`\xe2\x80`:         `\\xe2\\x80`,
		"\ufffd":           "\ufffd",
		`C:\xampp`:         `C:\xampp`,
		`a\b`:              `a\b`,
		`a\\b`:             `a\\b`,
		"caf\xe9":          `caf\xe9`,
		`caf\xe9`:          `caf\\xe9`,
		`caf\\xe9`:         `caf\\\\xe9`,
		`caf\\\xe9`:        `caf\\\\\\xe9`,
		`caf\x41`:          `caf\x41`,
		`caf\xE9`:          `caf\xE9`,
		`caf\xe9\`:         `caf\xe9\`,
		"caf\xe9\\":        `caf\xe9\\`,
		"\xff\xfe\\x\xc3":  `\xff\xfe\\x\xc3`,
		"\xc3\xa9\xc3":     "é" + `\xc3`,
		`\xc3\xa9`:         `\xc3\xa9`, // which is no spelling of é
		"\xed\xa0\x80half": `\xed\xa0\x80half`,
	} {
		if got := operator.SpellKey(key); got != want || operator.KeyOf(got) != key {
			t.Errorf("%q is spelled %q, want %q, of which the key is %q", key, got, want, operator.KeyOf(got))
		}
	}
}

// FuzzKeysAreSpelled: each key has a spelling that prints and is that of no other key, and each text that prints is the spelling
// of a key.
func FuzzKeysAreSpelled(f *testing.F) {
	for _, seed := range []string{"", "a", `\xe9`, "\xe9", `\\xe9`, `\x`, `\x5cx`, `\\\xff\`, "\\x\xff", strings.Repeat(`\`, 9) + "xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spelled := operator.SpellKey(text)
		if !utf8.ValidString(spelled) || terminal.Printable(spelled) != spelled || operator.KeyOf(spelled) != text {
			t.Errorf("%q is spelled %q, of which the key is %q", text, spelled, operator.KeyOf(spelled))
		}
		if key := operator.KeyOf(text); terminal.Printable(text) == text && utf8.ValidString(text) && operator.SpellKey(key) != text {
			t.Errorf("%q is the spelling of %q, which is spelled %q", text, key, operator.SpellKey(key))
		}
	})
}
