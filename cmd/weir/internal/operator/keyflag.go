package operator

import (
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// mostKey is how many bytes a key may have.
const mostKey = 1024

// newKeyFlag returns a flag value that is a key of at least so many bytes, and 1024 at most.
func newKeyFlag(key *string, shortest int) *keyFlag { return &keyFlag{key, shortest} }

// keyFlag is a flag value that is a key: as the admin API spells it, or as it is. It is stored as it is spelled.
type keyFlag struct {
	key      *string // as it is spelled
	shortest int
}

// String is the current value.
func (f *keyFlag) String() string {
	if f.key == nil {
		return ""
	}
	return *f.key
}

// Set stores s if the key that it stands for is not too long.
func (f *keyFlag) Set(s string) error {
	key := KeyOf(s)
	if err := flags.Text(&key, f.shortest, mostKey).Set(key); err != nil {
		return err
	}
	if !utf8.ValidString(s) {
		s = SpellKey(s)
	}
	*f.key = s
	return nil
}

// Type is what help shows in place of a value.
func (*keyFlag) Type() string { return "text" }
