package operator

import (
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// keyFlag returns a flag value that is a key of at least so many bytes, and 1024 at most: as the admin API spells it, or as it
// is. It is stored as it is spelled.
func keyFlag(p *string, shortest int) *flags.Value {
	return flags.TextOf("text", p, func(s string) (string, error) {
		key := KeyOf(s)
		if err := flags.Text(&key, shortest, MostKey).Set(key); err != nil {
			return "", err
		}
		if !utf8.ValidString(s) {
			s = SpellKey(s)
		}
		return s, nil
	})
}
