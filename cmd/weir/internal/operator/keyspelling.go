package operator

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/policy"
)

// JSON has texts of Unicode, and a key has any bytes: RESP and HTTP take it as it comes. So that every key can be told, shown and
// named, one with bytes that are no UTF-8, or with characters that do not print, has an escape for each of these bytes: \xe9.
// There a backslash is \\. A key that happens to look like such a spelling is spelled in the same way, so that each spelling is
// that of one key; all other keys are spelled as they are.

const (
	hexDigits   = "0123456789abcdef"
	escapeBytes = len(`\xff`)
)

// SpellKey is how a key is spelled where it has to be text. [KeyOf] returns the key again.
func SpellKey(key string) string {
	if prints(key) {
		if _, looks := unescape(key); !looks {
			return key
		}
	}
	return escape(key)
}

// prints reports whether a text is UTF-8 without characters that are not seen, or move the cursor.
func prints(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// SpellDifference is a difference with its keys as [SpellKey] spells them, nil if it is nil. What it is given is not changed.
func SpellDifference(d *policy.Difference) *policy.Difference {
	if d == nil {
		return nil
	}
	c := *d
	c.RefusedKeys, c.AdmittedKeys = slices.Clone(d.RefusedKeys), slices.Clone(d.AdmittedKeys)
	for _, keys := range [][]policy.KeyCount{c.RefusedKeys, c.AdmittedKeys} {
		for i := range keys {
			keys[i].Key = SpellKey(keys[i].Key)
		}
	}
	return &c
}

// KeyOf is the key that is spelled so. What is the spelling of none, as it is not UTF-8, is the key itself.
func KeyOf(spelled string) string {
	if key, ok := unescape(spelled); ok {
		return key
	}
	return spelled
}

func escape(key string) string {
	var b strings.Builder
	for i := 0; i < len(key); {
		r, size := utf8.DecodeRuneInString(key[i:])
		switch {
		case r == utf8.RuneError && size == 1 || !unicode.IsPrint(r):
			for _, c := range []byte(key[i : i+size]) {
				b.WriteString(`\x`)
				b.WriteByte(hexDigits[c>>4])
				b.WriteByte(hexDigits[c&0xf])
			}
		case r == '\\':
			b.WriteString(`\\`)
		default:
			b.WriteString(key[i : i+size])
		}
		i += size
	}
	return b.String()
}

// unescape is the key that escape spells so, and whether SpellKey does so as well: it does not print, or would be taken for a
// spelling itself. Each step has fewer bytes than the one before.
func unescape(spelled string) (key string, ok bool) {
	if !strings.Contains(spelled, `\x`) || !utf8.ValidString(spelled) {
		return "", false
	}
	var b strings.Builder
	for rest := spelled; rest != ""; {
		at := strings.IndexByte(rest, '\\')
		if at < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:at])
		switch rest = rest[at:]; {
		case strings.HasPrefix(rest, `\\`):
			b.WriteByte('\\')
			rest = rest[len(`\\`):]
		case strings.HasPrefix(rest, `\x`) && len(rest) >= escapeBytes:
			high, low := strings.IndexByte(hexDigits, rest[2]), strings.IndexByte(hexDigits, rest[3])
			if high < 0 || low < 0 {
				return "", false
			}
			b.WriteByte(byte(high<<4 | low))
			rest = rest[escapeBytes:]
		default:
			return "", false
		}
	}
	key = b.String()
	if escape(key) != spelled { // such as \x41, which is no way to spell A
		return "", false
	}
	if prints(key) {
		_, ok = unescape(key)
		return key, ok
	}
	return key, true
}

// keyFlag returns a flag value that is a key of at least so many bytes, and 1024 at most: as the admin API spells it, or as it
// is. It is stored as it is spelled.
func keyFlag(p *string, shortest int) *flags.Value {
	return flags.TextOf("text", p, func(s string) (string, error) {
		key := KeyOf(s)
		if err := flags.Text(&key, shortest, MostKey).Set(key); err != nil {
			return "", err
		}
		if !prints(s) {
			s = SpellKey(s)
		}
		return s, nil
	})
}
